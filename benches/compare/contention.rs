//! Many tasks and one lock: in one process, and in several clients.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use raw::RawLock;
use redlock_rt::{Client, Kind, Lock, RLock};
use tests::RedisServer;
use tokio::sync::Mutex;

use crate::{
    figures::{Scene, Unit},
    pair::Pair,
    peers::Peers,
    rounds::{Effort, interleaved},
    scenes::{calling, client, dedicated, raw, some},
    sides::{DEDICATED, OURS, Side, Tasks},
};

/// The tasks of one process that want a lock.
const TASKS: usize = 32;
/// The numbers of clients that want a lock.
const CLIENTS: [u64; 4] = [1, 2, 4, 8];
/// The tasks of each client, where several want a lock.
const RIVALS: usize = 4;

/// A lock that is taken and released by scripts alone, in which there may be HDEL too.
struct Scripted<K: Kind>(Lock<K>);

impl<K: Kind> Pair for Scripted<K> {
    const CALLS: &'static [&'static str] = &["evalsha"];

    async fn pair(&mut self) -> Instant {
        self.0.pair().await
    }
}

/// The tasks of this process take turns without Redis, and with the bare crate beneath.
struct Queued(Arc<Mutex<RawLock>>);

impl Pair for Queued {
    async fn pair(&mut self) -> Instant {
        self.0.lock().await.pair().await
    }
}

/// Tasks of one process, with locks of several kinds, and with the bare crate behind a queue.
pub(crate) async fn contended(server: &RedisServer, effort: Effort) -> Scene {
    let (handing, calling) = (client(server).await, calling(server).await);
    let mut sides = [
        ours(OURS, &handing),
        ours(DEDICATED, &dedicated(server).await),
        ours("a call each", &calling),
        scripted("FairLock", &handing.fair_lock("bench:contended:fair")),
        scripted("FencedLock", &handing.fenced_lock("bench:contended:fenced")),
        queued(server).await,
    ];
    let about = "32 tasks of one process, one key";
    scene(server, "contended", about, &mut sides, effort.in_one()).await
}

/// The same with other crates. The turns are long, since those look again after up to a fifth of a second.
pub(crate) async fn against_peers(server: &RedisServer, peers: &Peers) -> Option<Scene> {
    let mut sides = peers.contended(TASKS);
    if sides.is_empty() {
        return None;
    }
    let client = client(server).await;
    sides.insert(0, ours(OURS, &client));
    sides.push(queued(server).await);
    let effort = Effort {
        rounds: 3,
        turns: 1,
        slice: Duration::from_secs(2),
    };
    let about = "32 tasks of one process, one key, with other crates";
    Some(scene(server, "peers", about, &mut sides, effort).await)
}

fn ours(side: &str, client: &Client) -> Box<dyn Side> {
    let lock = client.rlock(format!("bench:contended:{side}"));
    Tasks::boxed(side, vec![lock; TASKS])
}

fn scripted<K: Kind>(name: &str, lock: &Lock<K>) -> Box<dyn Side> {
    Tasks::boxed(name, (0..TASKS).map(|_| Scripted(lock.clone())))
}

async fn queued(server: &RedisServer) -> Box<dyn Side> {
    let lock = raw(server).await.lock("bench:contended:raw", 0);
    let lock = Arc::new(Mutex::new(lock));
    let tasks = (0..TASKS).map(|_| Queued(Arc::clone(&lock)));
    Tasks::boxed("FIFO + raw", tasks)
}

async fn scene(
    server: &RedisServer,
    name: &str,
    about: &str,
    sides: &mut [Box<dyn Side>],
    effort: Effort,
) -> Scene {
    let connection = server.connect().await.expect("the server answers");
    let rounds = interleaved(sides, effort, Some(connection)).await;
    Scene::against_last(name, about, Unit::Turns, &rounds)
}

/// Several clients, none of which hands over inside its process.
pub(crate) async fn clients(server: &RedisServer, effort: Effort) -> Scene {
    let mut sides = Vec::new();
    for count in CLIENTS {
        let clients = join_all((0..count).map(|_| calling(server))).await;
        let name = format!("bench:clients:{count}");
        let locks = clients.iter().map(|client| client.rlock(&name));
        let tasks: Vec<RLock> = locks.flat_map(|lock| vec![lock; RIVALS]).collect();
        sides.push(Tasks::boxed(some(count, "client"), tasks));
    }
    let connection = server.connect().await.expect("the server answers");
    let rounds = interleaved(&mut sides, effort.in_one(), Some(connection)).await;
    let about = "4 tasks of each client, one key";
    Scene::new("clients", about, Unit::Turns, &rounds)
}
