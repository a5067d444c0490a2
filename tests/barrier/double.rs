//! What a double barrier does, wherever clients connect to.

use std::time::Duration;

use redlock_rt::{DoubleBarrier, DoubleBarrierGuard, Error, ErrorKind, Shutdown};
use tests::{eventually, within};
use tokio::task::JoinHandle;

use crate::world::*;

/// A double barrier for two, on a separate client.
fn double(world: &World) -> DoubleBarrier {
    world.client().double_barrier(&world.name, 2)
}

fn parties(world: &World) -> String {
    format!("redlock_double_barrier_parties:{{{}}}", world.name)
}

async fn inside(world: &World, count: usize) {
    arrived_in(world, &parties(world), count).await;
}

fn enter(barrier: &DoubleBarrier) -> JoinHandle<Result<DoubleBarrierGuard, Error>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.enter().await })
}

/// Both are inside.
async fn both(one: &DoubleBarrier, two: &DoubleBarrier) -> [DoubleBarrierGuard; 2] {
    let first = enter(one);
    let second = within(DEADLINE, two.enter()).await.unwrap();
    [ended(first).await.unwrap(), second]
}

fn leave(guard: DoubleBarrierGuard) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(guard.leave())
}

pub(crate) async fn all_enter_and_leave_together(world: &World) {
    let (one, two) = (double(world), double(world));
    for _ in 0..3 {
        let early = enter(&one);
        inside(world, 1).await;
        assert!(!early.is_finished());
        let second = within(DEADLINE, two.enter()).await.unwrap();
        let first = ended(early).await.unwrap();
        assert!(first.is_valid() && second.is_valid());
        let leaving = leave(first);
        inside(world, 1).await;
        assert!(!leaving.is_finished());
        within(DEADLINE, second.leave()).await.unwrap();
        ended(leaving).await.unwrap();
    }
}

pub(crate) async fn a_dropped_guard_leaves_without_waiting(world: &World) {
    let (one, two) = (double(world), double(world));
    let [first, second] = both(&one, &two).await;
    drop(first);
    within(DEADLINE, second.leave()).await.unwrap();
    // The last one need not leave in another way.
    drop(both(&one, &two).await);
    inside(world, 0).await;
    for guard in both(&one, &two).await {
        drop(guard);
    }
}

pub(crate) async fn who_comes_while_others_are_inside_waits_for_the_next_round(world: &World) {
    let (one, two, three) = (double(world), double(world), double(world));
    let [first, second] = both(&one, &two).await;
    let error = three.enter_with(Duration::ZERO).await.err().unwrap();
    assert!(error.is_contended(), "{error}");
    let third = enter(&three);
    let leaving = leave(first);
    within(DEADLINE, second.leave()).await.unwrap();
    ended(leaving).await.unwrap();
    inside(world, 1).await;
    assert!(!third.is_finished());
    let fourth = within(DEADLINE, one.enter()).await.unwrap();
    drop((fourth, ended(third).await.unwrap()));
}

pub(crate) async fn a_party_that_dies_inside_breaks_it(world: &World) {
    let dying = world.client();
    let (one, two) = (
        double(world),
        dying.double_barrier(&world.name, 2).lease(LEASE),
    );
    let [first, dead] = both(&one, &two).await;
    dying.shutdown(Shutdown::Abandon).await.unwrap();
    let error = within(DEADLINE, first.leave()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BarrierBroken, "{error}");
    let says = format!(
        "leave barrier {:?}: a party of the barrier died",
        world.name
    );
    assert_eq!(error.to_string(), says);
    drop(dead);
    assert_kind(one.enter().await, ErrorKind::BarrierBroken);
    assert!(one.reset().await.unwrap());
    drop(both(&one, &double(world)).await);
}

pub(crate) async fn a_party_that_dies_is_told_to_those_inside(world: &World) {
    let dying = world.client();
    let (one, two) = (
        double(world),
        dying.double_barrier(&world.name, 2).lease(LEASE),
    );
    let [first, dead] = both(&one, &two).await;
    dying.shutdown(Shutdown::Abandon).await.unwrap();
    let error = within(DEADLINE, first.broken()).await;
    assert_eq!(error.kind(), ErrorKind::BarrierBroken, "{error}");
    drop(dead);
    let error = within(DEADLINE, first.leave()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BarrierBroken, "{error}");
    assert!(one.reset().await.unwrap());
}

pub(crate) async fn a_reset_ends_the_round(world: &World) {
    let (one, two) = (double(world), double(world));
    let coming = enter(&one);
    inside(world, 1).await;
    assert!(two.reset().await.unwrap());
    assert_kind(ended(coming).await, ErrorKind::BarrierReset);
    let [first, second] = both(&one, &two).await;
    let leaving = leave(first);
    inside(world, 1).await;
    assert!(two.reset().await.unwrap());
    assert_kind(ended(leaving).await, ErrorKind::BarrierReset);
    let error = within(DEADLINE, second.broken()).await;
    assert_eq!(error.kind(), ErrorKind::BarrierReset, "{error}");
    assert_kind(second.leave().await, ErrorKind::BarrierReset);
    drop(both(&one, &two).await);
}

pub(crate) async fn a_lost_party_is_told(world: &World) {
    let (one, two) = (double(world).lease(LEASE), double(world));
    let [first, second] = both(&one, &two).await;
    let keys = [
        format!("redlock_double_barrier:{{{}}}", world.name),
        parties(world),
    ];
    let _: i64 = world.redis(&["DEL", &keys[0], &keys[1]]).await;
    // By its renewal.
    let error = within(DEADLINE, first.broken()).await;
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    eventually(DEADLINE, async || !first.is_valid()).await;
    assert_kind(within(DEADLINE, first.leave()).await, ErrorKind::Lost);
    // By its release.
    assert_kind(within(DEADLINE, second.leave()).await, ErrorKind::Lost);
}

pub(crate) async fn a_wait_to_leave_runs_out(world: &World) {
    let [first, second] = both(&double(world), &double(world)).await;
    let error = first.leave_with(WAIT).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    // It has left all the same.
    inside(world, 1).await;
    within(DEADLINE, second.leave()).await.unwrap();
}

pub(crate) async fn an_enter_that_is_dropped_leaves(world: &World) {
    let (one, two) = (double(world), double(world));
    let dropped = enter(&one);
    inside(world, 1).await;
    dropped.abort();
    inside(world, 0).await;
    let error = two.enter_with(WAIT).await.err().unwrap();
    assert!(error.is_timed_out(), "{error}");
    eventually(DEADLINE, async || !two.reset().await.unwrap()).await;
}

/// Without their leases nobody is inside any more, and the next ones enter.
pub(crate) async fn those_who_are_deleted_inside_keep_nobody_out(world: &World) {
    let (one, two) = (double(world), double(world));
    let deleted = both(&one, &two).await;
    let _: i64 = world.redis(&["DEL", &parties(world)]).await;
    drop(both(&one, &two).await);
    for guard in deleted {
        assert_kind(within(DEADLINE, guard.leave()).await, ErrorKind::Lost);
    }
}

/// Each finds by itself that the others have left: nothing polls.
pub(crate) async fn tasks_of_a_client_enter_together_behind_others(world: &World) {
    let never = Duration::from_secs(600);
    let client = world.client_with(|builder| builder.poll_interval(never));
    let (one, two) = (double(world), double(world));
    let ours = client.double_barrier(&world.name, 2);
    let [first, second] = both(&one, &two).await;
    let waiting = [(); 4].map(|()| {
        let ours = ours.clone();
        tokio::spawn(async move { drop(ours.enter().await.unwrap()) })
    });
    settles(world, &client, 4).await;
    drop((first, second));
    for waiting in waiting {
        ended(waiting).await;
    }
}
