//! Each read hold has a separate lease, and the lock lives as long as the longest.

use std::time::Duration;

use redlock_rt::{LockOptions, LostReason, Unlocked};
use tests::{eventually, is_renewed, within};
use tokio::time::Instant;

use crate::{DEADLINE, LATE, NEVER, Stage, served, writer};

/// Redis counts in whole milliseconds.
const MARGIN: Duration = Duration::from_millis(2);

fn fixed(lease: Duration) -> LockOptions {
    LockOptions::new().lease(lease).renew(false)
}

#[track_caller]
fn assert_about(ttl: Option<Duration>, lease: Duration) {
    let ttl = ttl.expect("it is there");
    assert!(ttl <= lease && ttl + LATE > lease, "{ttl:?}, not {lease:?}");
}

#[tokio::test]
async fn a_dead_reader_is_not_kept_alive_by_others() {
    let stage = Stage::set("dead").await;
    let (client, other) = (stage.client(), stage.client());
    let (lock, elsewhere) = (stage.lock_of(&client), stage.lock_of(&other));
    let lease = Duration::from_secs(4);
    let start = Instant::now();
    let dead = stage.dead_reader(lease).await;
    // Renewed often, and with a longer lease.
    let options = LockOptions::new().renew(Duration::from_millis(100));
    let living = lock.read_with(options).await.unwrap();
    let writer = writer(&elsewhere);
    stage.subscribed(1).await;
    let key = stage.lease_key(&dead, 1);
    assert!(stage.ttl_of(&key).await.is_some());
    eventually(DEADLINE, async || stage.ttl_of(&key).await.is_none()).await;
    let died = start.elapsed();
    assert!(died + MARGIN > lease && died < lease + LATE, "{died:?}");
    // Its field stays while another reader exists, and does not count.
    assert!(stage.hash().await.contains_key(dead.as_str()));
    assert!(!writer.is_finished() && living.is_valid());
    let freed = Instant::now();
    living.unlock().await.unwrap();
    let guard = served(writer, freed).await;
    guard.unlock().await.unwrap();
    stage.end().await;
}

/// The living reader ends first: the lock then lives until the end of the dead reader's lease.
#[tokio::test]
async fn a_dead_reader_holds_the_lock_for_its_lease_and_no_longer() {
    let stage = Stage::set("dead-first").await;
    let lock = stage.lock();
    let lease = Duration::from_secs(3);
    let living = lock.read_with(fixed(NEVER)).await.unwrap();
    let start = Instant::now();
    stage.dead_reader(lease).await;
    assert_about(stage.ttl().await, NEVER);
    living.unlock().await.unwrap();
    let ttl = stage.ttl().await.unwrap();
    assert!(ttl <= lease, "{ttl:?}");
    let guard = within(DEADLINE, lock.write()).await.unwrap();
    let free = start.elapsed();
    assert!(free + MARGIN > lease && free < lease + LATE, "{free:?}");
    guard.unlock().await.unwrap();
    stage.end().await;
}

/// Nobody announces the end of a lease, so a writer sleeps until the end that it was told of.
#[tokio::test]
async fn a_writer_is_told_when_the_end_of_a_reader_brings_the_end_of_the_lock_nearer() {
    let stage = Stage::set("nearer").await;
    let lease = Duration::from_secs(4);
    let living = stage.lock().read_with(fixed(NEVER)).await.unwrap();
    let start = Instant::now();
    stage.dead_reader(lease).await;
    let client = stage.client_with(|builder| builder.poll_interval(NEVER));
    let writer = writer(&stage.lock_of(&client));
    stage.subscribed(1).await;
    living.unlock().await.unwrap();
    let (guard, served) = within(DEADLINE, writer).await.unwrap();
    let free = served.saturating_duration_since(start);
    assert!(free + MARGIN > lease && free < lease + LATE, "{free:?}");
    guard.unlock().await.unwrap();
    stage.end().await;
}

/// Redisson deletes the key of the last hold, whichever guard ended, and with it its lease.
#[tokio::test]
async fn whichever_guard_ends_first_the_longest_lease_stays() {
    let stage = Stage::set("order").await;
    let lock = stage.lock();
    let (short, long) = (Duration::from_secs(10), Duration::from_secs(60));
    for first in [short, long] {
        for outer_ends in [true, false] {
            let second = if first == short { long } else { short };
            let outer = lock.read_with(fixed(first)).await.unwrap();
            let inner = outer.run(lock.read_with(fixed(second))).await;
            let inner = inner.unwrap().unwrap();
            let owner = outer.hold_id().clone();
            for hold in [1, 2] {
                assert_about(stage.ttl_of(&stage.lease_key(&owner, hold)).await, long);
            }
            let (ends, stays) = if outer_ends {
                (outer, inner)
            } else {
                (inner, outer)
            };
            assert_eq!(ends.unlock().await.unwrap(), Unlocked::StillHeld);
            assert_about(stage.ttl_of(&stage.lease_key(&owner, 1)).await, long);
            assert_eq!(stage.ttl_of(&stage.lease_key(&owner, 2)).await, None);
            assert_about(stage.ttl().await, long);
            // The end of another reader does not shorten it either.
            lock.read().await.unwrap().unlock().await.unwrap();
            assert_about(stage.ttl().await, long);
            assert_eq!(stays.unlock().await.unwrap(), Unlocked::Released);
        }
    }
    stage.end().await;
}

#[tokio::test]
async fn the_lock_lives_as_long_as_the_longest_lease_of_its_readers() {
    let stage = Stage::set("longest").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let leases = [10, 60, 20].map(Duration::from_secs);
    let mut guards = Vec::new();
    for (lease, longest) in leases.into_iter().zip([10, 60, 60]) {
        guards.push(elsewhere.read_with(fixed(lease)).await.unwrap());
        assert_about(stage.ttl().await, Duration::from_secs(longest));
    }
    // A hold with a shorter lease shortens nothing.
    let again = guards[0].run(elsewhere.read_with(fixed(leases[0]))).await;
    guards[0].extend(leases[0]).await.unwrap();
    again.unwrap().unwrap().unlock().await.unwrap();
    assert_about(stage.ttl().await, leases[1]);
    // The longest lease ends, and another hold extends its own.
    guards.remove(1).unlock().await.unwrap();
    assert_about(stage.ttl().await, leases[2]);
    guards[0].extend(3 * leases[2]).await.unwrap();
    assert_about(stage.ttl().await, 3 * leases[2]);
    guards.remove(0).unlock().await.unwrap();
    assert_about(stage.ttl().await, leases[2]);
    assert_about(lock.read_lock().remaining_ttl().await.unwrap(), leases[2]);
    guards.remove(0).unlock().await.unwrap();
    assert!(!stage.is_there().await);
    stage.end().await;
}

#[tokio::test]
async fn a_reader_was_lost_with_the_shorter_lease_of_another_that_was_renewed() {
    let stage = Stage::set("shorter").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let (short, long) = (Duration::from_secs(10), Duration::from_secs(60));
    let reading = lock.read_with(fixed(long)).await.unwrap();
    let often = LockOptions::new().lease(short);
    let often = often.renew(Duration::from_millis(50));
    let renewed = elsewhere.read_with(often).await.unwrap();
    is_renewed(Duration::ZERO, || renewed.state()).await;
    assert_about(stage.ttl().await, long);
    reading.unlock().await.unwrap();
    renewed.unlock().await.unwrap();
    stage.end().await;
}

/// Its field may stay while others read, but it never becomes a hold again.
#[tokio::test]
async fn a_reader_whose_leases_are_gone_has_lost_the_lock() {
    let stage = Stage::set("evicted").await;
    let lock = stage.lock();
    let other = lock.read().await.unwrap();
    let often = LockOptions::new().renew(Duration::from_millis(50));
    let renewed = lock.read_with(often).await.unwrap();
    let reentered = lock.read().await.unwrap();
    for guard in [&renewed, &reentered] {
        let key = stage.lease_key(guard.hold_id(), 1);
        let deleted: bool = stage.redis(&["DEL", &key]).await;
        assert!(deleted);
    }
    assert_eq!(within(DEADLINE, renewed.lost()).await, LostReason::Deleted);
    assert!(reentered.reenter().await.unwrap_err().is_lost());
    assert!(!reentered.is_valid() && other.is_valid());
    for guard in [renewed, reentered] {
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }
    eventually(DEADLINE, async || stage.hash().await.len() == 2).await;
    other.unlock().await.unwrap();
    stage.end().await;
}

/// The keys of a reader are deleted with its guard, also if the lock was deleted before.
#[tokio::test]
async fn nothing_stays_beside_a_deleted_lock() {
    let stage = Stage::set("beside").await;
    let lock = stage.lock();
    let guard = lock.read().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    let _: bool = stage.redis(&["DEL", &stage.name]).await;
    assert_eq!(stage.keys().await.len(), 2);
    drop((guard, inner));
    stage.end().await;
}
