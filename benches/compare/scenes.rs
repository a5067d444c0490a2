//! Locks that are free: one task, or tasks with a key each.

use raw::Raw;
use redlock_rt::{Client, embedded::Engine};
use tests::RedisServer;

use crate::{
    bare::{self, How},
    figures::{Scene, Unit},
    pair::Dropping,
    peers::Peers,
    rounds::{Effort, interleaved},
    sides::{BARE, BARE_DROPPING, BARE_ON_THREAD, DEDICATED, OURS, Side, Tasks},
};

pub(crate) async fn uncontended(server: &RedisServer, peers: &Peers, effort: Effort) -> Scene {
    let dropping = client(server).await.rlock("bench:dropping");
    let dropping = Tasks::boxed("dropping", [Dropping(dropping)]);
    let floors = [
        (BARE_DROPPING, How::Dropping),
        (BARE_ON_THREAD, How::OnThread),
    ];
    let mut more = vec![dropping];
    for (side, how) in floors {
        more.push(Tasks::boxed(side, bare::pairs(server, 1, how).await));
    }
    on_server(server, peers, 1, more, effort).await
}

pub(crate) async fn distinct(
    server: &RedisServer,
    peers: &Peers,
    tasks: u64,
    effort: Effort,
) -> Scene {
    on_server(server, peers, tasks, Vec::new(), effort).await
}

async fn on_server(
    server: &RedisServer,
    peers: &Peers,
    tasks: u64,
    more: Vec<Box<dyn Side>>,
    effort: Effort,
) -> Scene {
    let (client, raw) = (client(server).await, raw(server).await);
    let mut sides = more;
    sides.insert(0, ours(OURS, &client, tasks));
    sides.push(ours(DEDICATED, &dedicated(server).await, tasks));
    sides.push(Tasks::boxed(
        BARE,
        bare::pairs(server, tasks, How::Waiting).await,
    ));
    sides.extend(peers.distinct(tasks));
    sides.push(raws(&raw, tasks));
    let connection = server.connect().await.expect("the server answers");
    let rounds = interleaved(&mut sides, effort, Some(connection)).await;
    let about = "a lock and unlock of each task's own key";
    Scene::against_last(&some(tasks, "task"), about, Unit::Pairs, &rounds)
}

pub(crate) async fn embedded(tasks: u64, effort: Effort) -> Scene {
    let engine = Engine::new();
    let client = Client::builder().embedded(&engine).build();
    let client = client.expect("the defaults are valid");
    let raw = Raw::over(engine.connect()).await;
    let raw = raw.expect("the engine answers");
    let mut sides = [ours(OURS, &client, tasks), raws(&raw, tasks)];
    let rounds = interleaved(&mut sides, effort, None).await;
    let about = "embedded engine instead of a server";
    let name = some(tasks, "task") + ", embedded";
    Scene::against_last(&name, about, Unit::Pairs, &rounds)
}

fn ours(side: &str, client: &Client, tasks: u64) -> Box<dyn Side> {
    let locks = (0..tasks).map(|task| client.rlock(format!("bench:{side}:{task:03}")));
    Tasks::boxed(side, locks)
}

fn raws(raw: &Raw, tasks: u64) -> Box<dyn Side> {
    let locks = (0..tasks).map(|task| raw.lock(&format!("bench:raws:{task:03}"), task));
    Tasks::boxed("raw", locks)
}

/// `1 task`, `64 tasks`.
pub(crate) fn some(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

pub(crate) async fn client(server: &RedisServer) -> Client {
    let client = Client::connect(&server.url()).await;
    client.expect("the server answers")
}

/// A client each of whose turns is a release and an acquisition.
pub(crate) async fn calling(server: &RedisServer) -> Client {
    let client = Client::builder().url(&server.url()).hand_over(None);
    client.connect().await.expect("the server answers")
}

/// A client whose tasks have a thread of their own.
pub(crate) async fn dedicated(server: &RedisServer) -> Client {
    let client = Client::builder().url(&server.url()).dedicated_thread(true);
    client.connect().await.expect("the server answers")
}

pub(crate) async fn raw(server: &RedisServer) -> Raw {
    let raw = Raw::connect(server.address()).await;
    raw.expect("the server answers")
}
