//! What a cyclic barrier does, wherever clients connect to.

use std::collections::BTreeSet;
use std::time::Duration;

use redlock_rt::{CyclicBarrier, ErrorKind, Shutdown};
use tests::{eventually, within};
use tokio::time::Instant;

use crate::world::*;

/// Two parties pass, in this generation.
async fn pass(world: &World, [one, two]: [&CyclicBarrier; 2], generation: u64) {
    let first = wait(one);
    arrived(world, 1).await;
    assert_eq!(two.wait().await.unwrap().generation, generation);
    ended(first).await.unwrap();
}

pub(crate) async fn all_pass_together_again_and_again(world: &World) {
    let barriers: Vec<_> = (0..3)
        .map(|_| world.client().cyclic_barrier(&world.name, 3))
        .collect();
    for generation in 1..=20 {
        let early: Vec<_> = barriers[..2].iter().map(wait).collect();
        arrived(world, 2).await;
        assert!(early.iter().all(|waiting| !waiting.is_finished()));
        let last = within(DEADLINE, barriers[2].wait()).await.unwrap();
        // Who completes it has the greatest index.
        assert_eq!((last.generation, last.index), (generation, 2));
        let mut indexes = BTreeSet::new();
        for waiting in early {
            let arrival = ended(waiting).await.unwrap();
            assert_eq!(arrival.generation, generation);
            indexes.insert(arrival.index);
        }
        assert_eq!(indexes, BTreeSet::from([0, 1]));
    }
}

pub(crate) async fn one_party_passes_at_once(world: &World) {
    let barrier = world.client().cyclic_barrier(&world.name, 1);
    for generation in 1..=3 {
        let arrival = within(DEADLINE, barrier.wait()).await.unwrap();
        assert_eq!((arrival.generation, arrival.index), (generation, 0));
    }
    assert!(!barrier.reset().await.unwrap(), "nobody is there");
}

pub(crate) async fn a_wait_that_runs_out_leaves(world: &World) {
    let (one, two, three) = (barrier(world), barrier(world), barrier(world));
    let start = Instant::now();
    let error = within(DEADLINE, one.wait_with(WAIT)).await.unwrap_err();
    assert!(error.is_timed_out() && start.elapsed() >= WAIT, "{error}");
    let says = format!("wait at barrier {:?}: timed out", world.name);
    assert!(error.to_string().starts_with(&says), "{error}");
    // It was not counted, and has broken nothing.
    arrived(world, 0).await;
    pass(world, [&two, &three], 1).await;
}

pub(crate) async fn a_wait_of_zero_asks_once(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    assert_kind(one.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    let second = wait(&two);
    arrived(world, 1).await;
    assert_eq!(one.wait_with(Duration::ZERO).await.unwrap().index, 1);
    ended(second).await.unwrap();
}

pub(crate) async fn a_dropped_wait_leaves(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    let dropped = wait(&one);
    arrived(world, 1).await;
    dropped.abort();
    arrived(world, 0).await;
    assert_kind(two.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
}

pub(crate) async fn a_party_that_dies_breaks_it_until_it_is_reset(world: &World) {
    let dying = world.client();
    let (one, two) = (barrier(world), barrier(world));
    let dead = dying.cyclic_barrier(&world.name, 3).lease(LEASE);
    // Not polled any more once it has arrived, or it would leave at the shut-down.
    let mut dead = Box::pin(dead.wait());
    tokio::select! {
        outcome = &mut dead => panic!("{outcome:?}"),
        () = arrived(world, 1) => {}
    }
    let three = |client: redlock_rt::Client| client.cyclic_barrier(&world.name, 3);
    let survivor = wait(&three(world.client()));
    arrived(world, 2).await;
    let start = Instant::now();
    dying.shutdown(Shutdown::Abandon).await.unwrap();
    let error = ended(survivor).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BarrierBroken, "{error}");
    assert!(error.is_barrier_broken() && start.elapsed() < DEADLINE);
    let says = format!(
        "wait at barrier {:?}: a party of the barrier died",
        world.name
    );
    assert_eq!(error.to_string(), says);
    drop(dead);
    // The third party comes too late.
    assert_kind(one.wait().await, ErrorKind::BarrierBroken);
    assert!(two.reset().await.unwrap());
    assert!(!two.reset().await.unwrap());
    pass(world, [&one, &two], 2).await;
}

/// Somebody else has found it, and reset it since.
pub(crate) async fn who_looks_later_is_told_too(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    let client = world.client();
    let waiting = wait(&client.cyclic_barrier(&world.name, 2));
    settles(world, &client, 1).await;
    // In one step, so that the look finds the next generation.
    let state = format!("redlock_barrier:{{{}}}", world.name);
    let _: i64 = world
        .redis(&["HSET", &state, "1", "broken", "generation", "2"])
        .await;
    let _: i64 = world.redis(&["DEL", &parties_key(world)]).await;
    let _: i64 = world.redis(&["HDEL", &state, "parties"]).await;
    pass(world, [&one, &two], 2).await;
    assert_kind(ended(waiting).await, ErrorKind::BarrierBroken);
}

pub(crate) async fn a_reset_sends_those_who_wait_away(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    assert!(!two.reset().await.unwrap());
    let waiting = wait(&one);
    arrived(world, 1).await;
    assert!(two.reset().await.unwrap());
    let error = ended(waiting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BarrierReset, "{error}");
    assert!(error.is_barrier_broken());
    arrived(world, 0).await;
    pass(world, [&one, &two], 2).await;
}

/// Its key is gone, and two others pass the generation of the same number.
pub(crate) async fn a_lost_party_passes_in_no_generation(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    let client = world.client();
    let lost = wait(&client.cyclic_barrier(&world.name, 2));
    settles(world, &client, 1).await;
    let state = format!("redlock_barrier:{{{}}}", world.name);
    let _: i64 = world.redis(&["DEL", &state]).await;
    pass(world, [&one, &two], 1).await;
    assert_kind(ended(lost).await, ErrorKind::Lost);
}

/// A key of two: the party alone is gone, and the generation goes on without it.
pub(crate) async fn a_party_that_is_deleted_does_not_pass_with_the_others(world: &World) {
    let (one, two) = (barrier(world), barrier(world));
    let client = world.client();
    let lost = wait(&client.cyclic_barrier(&world.name, 2));
    settles(world, &client, 1).await;
    let _: i64 = world.redis(&["DEL", &parties_key(world)]).await;
    pass(world, [&one, &two], 1).await;
    let error = ended(lost).await.unwrap_err();
    assert!(error.is_lost() && error.lost_reason().is_some(), "{error}");
}

/// Noticed by a renewal where nothing is announced.
pub(crate) async fn what_is_deleted_is_lost(world: &World) {
    let barrier = barrier(world).lease(LEASE);
    let waiting = wait(&barrier);
    arrived(world, 1).await;
    let _: i64 = world.redis(&["DEL", &parties_key(world)]).await;
    assert_kind(ended(waiting).await, ErrorKind::Lost);
}

pub(crate) async fn tasks_of_a_client_look_once_for_all(world: &World) {
    let client = world.client();
    let barrier = client.cyclic_barrier(&world.name, 101);
    let waiting: Vec<_> = (0..100).map(|_| wait(&barrier)).collect();
    arrived(world, 100).await;
    settles(world, &client, 100).await;
    let other = world.client().cyclic_barrier(&world.name, 101);
    assert_eq!(within(DEADLINE, other.wait()).await.unwrap().index, 100);
    let mut indexes = BTreeSet::new();
    for waiting in waiting {
        indexes.insert(ended(waiting).await.unwrap().index);
    }
    assert_eq!(indexes, (0..100).collect());
}

/// Some are in the next generation before others have heard of the end of the last one.
pub(crate) async fn tasks_of_a_client_pass_as_often_as_they_like(world: &World) {
    let client = world.client();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let barrier = client.cyclic_barrier(&world.name, 8);
            tokio::spawn(async move {
                for generation in 1..=40 {
                    assert_eq!(barrier.wait().await.unwrap().generation, generation);
                }
            })
        })
        .collect();
    for task in tasks {
        ended(task).await;
    }
}

pub(crate) async fn a_shut_down_sends_those_who_wait_away(world: &World) {
    let client = world.client();
    let waiting = wait(&client.cyclic_barrier(&world.name, 2));
    settles(world, &client, 1).await;
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    assert_kind(ended(waiting).await, ErrorKind::ShutDown);
    // It has left.
    arrived(world, 0).await;
    let late = client.cyclic_barrier(&world.name, 2).wait().await;
    assert_kind(late, ErrorKind::ShutDown);
}

pub(crate) async fn an_end_that_nobody_announced_is_found_by_polling(world: &World) {
    let poll = Duration::from_millis(100);
    let client = world.client_with(|builder| builder.poll_interval(poll));
    let waiting = wait(&client.cyclic_barrier(&world.name, 2));
    settles(world, &client, 1).await;
    let state = format!("redlock_barrier:{{{}}}", world.name);
    let _: i64 = world.redis(&["HSET", &state, "1", "reset"]).await;
    assert_kind(ended(waiting).await, ErrorKind::BarrierReset);
    let _: i64 = world.redis(&["DEL", &state, &parties_key(world)]).await;
}

pub(crate) async fn names_and_kinds_do_not_meddle(world: &World) {
    let client = world.client();
    let waiting = wait(&barrier(world));
    arrived(world, 1).await;
    let other = client.cyclic_barrier(format!("{}:other", world.name), 2);
    assert_kind(other.wait_with(Duration::ZERO).await, ErrorKind::TimedOut);
    let double = client.double_barrier(&world.name, 2);
    assert_kind(double.enter_with(Duration::ZERO).await, ErrorKind::TimedOut);
    // A lock of the same name is another thing.
    let guard = client.rlock(&world.name).lock().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(!waiting.is_finished());
    client.cyclic_barrier(&world.name, 2).wait().await.unwrap();
    ended(waiting).await.unwrap();
}

pub(crate) async fn what_cannot_be_is_refused(world: &World) {
    let client = world.client();
    for (name, parties) in [(&*world.name, 0), (&*world.name, 1001), (" ", 2)] {
        let barrier = client.cyclic_barrier(name, parties);
        assert_kind(barrier.wait().await, ErrorKind::BadInput);
        assert_kind(barrier.reset().await, ErrorKind::BadInput);
        let barrier = client.double_barrier(name, parties);
        assert_kind(barrier.enter().await, ErrorKind::BadInput);
        assert_kind(barrier.reset().await, ErrorKind::BadInput);
    }
    let zero = client.cyclic_barrier(&world.name, 2).lease(Duration::ZERO);
    assert_kind(zero.wait().await, ErrorKind::BadInput);
    let waiting = wait(&barrier(world));
    arrived(world, 1).await;
    let error = client.cyclic_barrier(&world.name, 3).wait().await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    assert!(error.to_string().ends_with("wait for 2 parties"), "{error}");
    let now = client.cyclic_barrier(&world.name, 1);
    assert_kind(now.wait_with(Duration::ZERO).await, ErrorKind::BadInput);
    assert!(!waiting.is_finished());
    waiting.abort();
    // Where nobody waits, another number may come.
    arrived(world, 0).await;
    eventually(DEADLINE, async || now.wait().await.is_ok()).await;
}

pub(crate) async fn another_type_of_value_is_told(world: &World) {
    let barrier = barrier(world);
    let state = format!("redlock_barrier:{{{}}}", world.name);
    let _: String = world.redis(&["SET", &state, "text"]).await;
    assert_kind(barrier.wait().await, ErrorKind::WrongType);
    assert_kind(barrier.reset().await, ErrorKind::WrongType);
    assert_eq!(world.redis::<String>(&["GET", &state]).await, "text");
    let _: bool = world.redis(&["DEL", &state]).await;
}

/// A key `NAME` is none of the barrier's. It has no TTL, and by each renewal the set of the parties had none either:
/// it stayed for good where all processes were killed.
pub(crate) async fn parties_stayed_for_good_beside_a_key_of_their_name(world: &World) {
    let _: () = world.redis(&["SET", &world.name, "1"]).await;
    let waiting = wait(&barrier(world).lease(3 * WAIT));
    arrived(world, 1).await;
    let parties = parties_key(world);
    let lease_ends = async || -> f64 {
        let words = ["ZRANGE", &parties, "0", "0", "WITHSCORES"];
        let ends: Vec<(Vec<u8>, f64)> = world.redis(&words).await;
        ends[0].1
    };
    for _ in 0..2 {
        let before = lease_ends().await;
        // Until it is renewed.
        eventually(DEADLINE, async || lease_ends().await > before).await;
        let ttl: i64 = world.redis(&["PTTL", &parties]).await;
        assert!(ttl > 0, "{ttl}");
    }
    let _: bool = world.redis(&["DEL", &world.name]).await;
    barrier(world).wait().await.unwrap();
    ended(waiting).await.unwrap();
}
