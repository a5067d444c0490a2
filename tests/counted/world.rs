//! The common parts of the behaviours, besides the [world](World).

use std::time::Duration;

use futures::future::LocalBoxFuture;
use redlock_rt::Client;
use tests::{Backend, eventually, within};
use tokio::time::Instant;

pub(crate) use tests::{DEADLINE, World, waits};

/// How late an event may be if threads have to wait for a processor. A missed event would come with
/// the end of a lease of 30 s, or of a poll interval of minutes.
pub(crate) const LATE: Duration = Duration::from_secs(5);
/// A lease whose end a test waits for. Too short for events that must come before its end, since
/// threads may have to wait for a processor.
pub(crate) const LEASE: Duration = Duration::from_millis(600);
/// A lease long enough for something that must happen before its end.
pub(crate) const HELD: Duration = Duration::from_secs(3);
/// A wait that runs out. Longer than a reply takes: without one, the caller does not know whether
/// permits are free.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// Not a type of its own for each behaviour, since there are hundreds of tests.
type Behaviour = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

/// Runs one behaviour and checks that it has left nothing. A behaviour deletes its semaphore with
/// [`gone`], which also checks the number of permits.
pub(crate) fn run<B: Backend>(name: &str, behaviour: Behaviour) {
    B::runtime().block_on(async {
        let world = World::open::<B>(name).await;
        within(6 * DEADLINE, behaviour(&world)).await;
        world.remove_notes().await;
        world.assert_clean().await;
    });
}

/// Waits until the semaphore has this many free permits, and deletes it.
pub(crate) async fn gone(world: &World, permits: i64) {
    at_rest(world, permits).await;
    let _: bool = world.redis(&["DEL", &world.name]).await;
}

/// Waits until this many permits are free.
pub(crate) async fn at_rest(world: &World, permits: i64) {
    eventually(DEADLINE, async || {
        let free: Option<i64> = world.redis(&["GET", &world.name]).await;
        match free {
            Some(free) if free == permits => Ok(()),
            free => Err(format!("{free:?} are free, not {permits}")),
        }
    })
    .await;
}

/// Waits until the waiters of the client are subscribed, so that only an announcement or time wakes
/// them.
pub(crate) async fn settles(world: &World, client: &Client) {
    let pattern = format!("*{}*", world.name);
    eventually(DEADLINE, async || {
        let channels = world.channels(&pattern).await;
        channels.len() == 1 && client.stats().subscriptions == 1
    })
    .await;
}

/// Asserts that this much time has passed since `from`, and not much more.
#[track_caller]
pub(crate) fn assert_passed(from: Instant, expected: Duration) {
    let passed = from.elapsed();
    assert!(
        passed >= expected && passed < expected + LATE,
        "{passed:?} passed, not {expected:?}"
    );
}
