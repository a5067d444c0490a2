//! The common parts of the behaviours, besides the [world](World).

use std::time::Duration;

use futures::future::LocalBoxFuture;
use redlock_rt::{Arrival, Client, CyclicBarrier, Error, ErrorKind};
use tests::{Backend, eventually, within};
pub(crate) use tests::{DEADLINE, World};
use tokio::task::JoinHandle;

/// A lease whose end a test waits for.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// A wait that runs out.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

type Behaviour = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// Runs one behaviour, and checks that it has left nothing but keys that expire.
pub(crate) fn run<B: Backend>(name: &str, behaviour: Behaviour) {
    B::runtime().block_on(async {
        let world = World::open::<B>(name).await;
        within(6 * DEADLINE, behaviour(&world)).await;
        assert_clean(&world).await;
    });
}

pub(crate) async fn assert_clean(world: &World) {
    for prefix in ["redlock_barrier", "redlock_double_barrier"] {
        eventually(DEADLINE, async || left(world, prefix).await == 0).await;
        let pattern = format!("{prefix}*{}*", world.name);
        let keys: Vec<String> = world.redis(&["KEYS", &pattern]).await;
        for key in keys {
            let ttl: i64 = world.redis(&["PTTL", &key]).await;
            assert!(
                (1..=30 * 24 * 3_600_000).contains(&ttl),
                "{key} stays for {ttl} ms"
            );
            let _: bool = world.redis(&["DEL", &key]).await;
        }
    }
    world.remove_notes().await;
    world.assert_clean().await;
}

/// How many parties are still there.
async fn left(world: &World, prefix: &str) -> usize {
    let pattern = format!("{prefix}_parties*{}*", world.name);
    let keys: Vec<String> = world.redis(&["KEYS", &pattern]).await;
    keys.len()
}

/// A barrier for two, on a separate client.
pub(crate) fn barrier(world: &World) -> CyclicBarrier {
    world.client().cyclic_barrier(&world.name, 2)
}

/// Waits in a separate task.
pub(crate) fn wait(barrier: &CyclicBarrier) -> JoinHandle<Result<Arrival, Error>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait().await })
}

pub(crate) async fn ended<T>(waiting: JoinHandle<T>) -> T {
    within(DEADLINE, waiting).await.unwrap()
}

pub(crate) fn parties_key(world: &World) -> String {
    format!("redlock_barrier_parties:{{{}}}", world.name)
}

/// Waits until this many parties have arrived.
pub(crate) async fn arrived(world: &World, count: usize) {
    arrived_in(world, &parties_key(world), count).await;
}

pub(crate) async fn arrived_in(world: &World, key: &str, count: usize) {
    eventually(DEADLINE, async || {
        world.redis::<usize>(&["ZCARD", key]).await == count
    })
    .await;
}

/// Waits until this many tasks of the client wait, and it hears announcements.
pub(crate) async fn settles(world: &World, client: &Client, count: usize) {
    let channel = format!("redlock_barrier:{{{}}}", world.name);
    eventually(DEADLINE, async || {
        let channels = world.channels(&channel).await;
        channels.len() == 1 && client.stats().waiting == count && client.stats().subscriptions == 1
    })
    .await;
}

#[track_caller]
pub(crate) fn assert_kind<T>(outcome: Result<T, Error>, kind: ErrorKind) {
    let error = outcome.err().expect("it fails");
    assert_eq!(error.kind(), kind, "{error}");
}
