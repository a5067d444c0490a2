//! From the call that releases a lock in one client to the lock in another.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
};
use raw::RawLock;
use redis::aio::{MultiplexedConnection, PubSub};
use redlock_rt::{RLock, RLockGuard};
use tests::RedisServer;

use crate::{
    figures::{Scene, Unit},
    rounds::{Effort, interleaved},
    scenes::{client, raw},
    sides::{OURS, Side, Work},
};

/// How long the lock is held before its hand-over, so that the other client waits.
const HOLD: Duration = Duration::from_millis(1);
const CHANNEL: &str = "bench:handover";

/// A place where a lock changes hands.
trait HandOver: Send {
    /// Returns how long it took.
    fn next(&mut self) -> impl Future<Output = Duration> + Send;
}

/// Two clients, of which one holds the lock.
struct Clients {
    locks: [RLock; 2],
    guard: Option<RLockGuard>,
    turn: usize,
}

impl Clients {
    async fn connect(server: &RedisServer) -> Self {
        let clients = [client(server).await, client(server).await];
        let locks = clients.map(|client| client.rlock("bench:handover"));
        let guard = locks[0].lock().await.expect("it is free");
        Self {
            locks,
            guard: Some(guard),
            turn: 0,
        }
    }
}

impl HandOver for Clients {
    async fn next(&mut self) -> Duration {
        self.turn += 1;
        let lock = self.locks[self.turn % 2].clone();
        let next = tokio::spawn(async move {
            let guard = lock.lock().await.expect("it comes free");
            (guard, Instant::now())
        });
        tokio::time::sleep(HOLD).await;
        let guard = self.guard.take().expect("there is one between hand-overs");
        let released = Instant::now();
        guard.unlock().await.expect("the server answers");
        let (guard, held) = next.await.expect("no task panics");
        self.guard = Some(guard);
        held.duration_since(released)
    }
}

/// Two connections of the bare crate with a lock each, of which one releases, and the other acquires
/// when it hears of it.
struct Scripts {
    giver: RawLock,
    /// In a task of its own during a hand-over.
    taker: Option<(PubSub, RawLock)>,
}

impl Scripts {
    async fn connect(server: &RedisServer) -> Self {
        let name = "bench:handover:raw";
        let [giver, taker] = [raw(server).await, raw(server).await];
        let messages = subscribed(server, "redisson_lock__channel:{bench:handover:raw}").await;
        Self {
            giver: giver.lock(name, 0),
            taker: Some((messages, taker.lock(name, 1))),
        }
    }
}

impl HandOver for Scripts {
    async fn next(&mut self) -> Duration {
        let taken = self.giver.acquire().await.expect("the server answers");
        assert_eq!(taken, None, "the lock is free");
        let (mut messages, mut lock) = self.taker.take().expect("it is idle");
        let next = tokio::spawn(async move {
            messages.on_message().next().await.expect("it is connected");
            let taken = lock.acquire().await.expect("the server answers");
            let held = Instant::now();
            assert_eq!(taken, None, "the lock is free");
            lock.release().await.expect("the server answers");
            // That of its own release.
            messages.on_message().next().await.expect("it is connected");
            (messages, lock, held)
        });
        tokio::time::sleep(HOLD).await;
        let released = Instant::now();
        self.giver.release().await.expect("the server answers");
        let (messages, lock, held) = next.await.expect("no task panics");
        self.taker = Some((messages, lock));
        held.duration_since(released)
    }
}

/// PUBLISH on one connection, and the message on another: a hand-over without an acquisition.
struct Messages {
    publisher: MultiplexedConnection,
    subscriber: Option<PubSub>,
}

impl Messages {
    async fn connect(server: &RedisServer) -> Self {
        Self {
            publisher: server.connect().await.expect("the server answers"),
            subscriber: Some(subscribed(server, CHANNEL).await),
        }
    }
}

impl HandOver for Messages {
    async fn next(&mut self) -> Duration {
        let mut subscriber = self.subscriber.take().expect("it is idle");
        let next = tokio::spawn(async move {
            let message = subscriber.on_message().next().await;
            let heard = Instant::now();
            message.expect("it is connected");
            (subscriber, heard)
        });
        tokio::time::sleep(HOLD).await;
        let sent = Instant::now();
        let mut publish = redis::cmd("PUBLISH");
        let publish = publish.arg(CHANNEL).arg(0).query_async(&mut self.publisher);
        let () = publish.await.expect("the server answers");
        let (subscriber, heard) = next.await.expect("no task panics");
        self.subscriber = Some(subscriber);
        heard.duration_since(sent)
    }
}

async fn subscribed(server: &RedisServer, channel: &str) -> PubSub {
    let client = redis::Client::open(server.url()).expect("the URL is valid");
    let mut connection = client.get_async_pubsub().await.expect("the server answers");
    let subscribed = connection.subscribe(channel).await;
    subscribed.expect("the server answers");
    connection
}

/// A side that hands over again and again.
struct Repeated<H> {
    name: &'static str,
    hand_over: H,
}

impl<H: HandOver> Side for Repeated<H> {
    fn name(&self) -> &str {
        self.name
    }

    fn calls(&self) -> &'static [&'static str] {
        &["evalsha", "restore", "hdel"]
    }

    fn work(&mut self, span: Duration) -> BoxFuture<'_, Work> {
        async move {
            let start = Instant::now();
            let mut work = Work::nothing();
            while work.time < span {
                work.record(self.hand_over.next().await);
                work.time = start.elapsed();
            }
            work
        }
        .boxed()
    }
}

pub(crate) async fn between_clients(server: &RedisServer, effort: Effort) -> Scene {
    let mut sides: [Box<dyn Side>; 3] = [
        Box::new(Repeated {
            name: OURS,
            hand_over: Clients::connect(server).await,
        }),
        Box::new(Repeated {
            name: "raw message",
            hand_over: Messages::connect(server).await,
        }),
        Box::new(Repeated {
            name: "raw pub/sub",
            hand_over: Scripts::connect(server).await,
        }),
    ];
    let rounds = interleaved(&mut sides, effort, None).await;
    let about = "from the release in one client to the lock in another; a raw message has no lock";
    Scene::against_last("handover", about, Unit::Micros, &rounds)
}
