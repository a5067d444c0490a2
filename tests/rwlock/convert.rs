//! Downgrade and upgrade.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redlock_rt::{ErrorKind, GuardState, LockOptions, Owner, Unlocked};
use tests::{eventually, within};
use tokio::{task::JoinSet, time::Instant};

use crate::{DEADLINE, LATE, NEVER, Stage, reader, served};

#[tokio::test]
async fn a_downgrade_lets_readers_in_and_no_writer() {
    let stage = Stage::set("downgrade").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let writing = lock.write().await.unwrap();
    let owner = writing.hold_id().clone();
    let waiter = reader(&elsewhere);
    stage.subscribed(1).await;
    let freed = Instant::now();
    let reading = within(DEADLINE, writing.downgrade()).await.unwrap();
    assert_eq!(*reading.hold_id(), owner);
    let other = served(waiter, freed).await;
    assert!(elsewhere.try_write().await.unwrap().is_none());
    assert!(reading.is_valid() && !lock.write_lock().is_locked().await.unwrap());
    reading.unlock().await.unwrap();
    other.unlock().await.unwrap();
    stage.end().await;
}

/// A value that was written is unchanged when it is read under the downgraded guard, also while other
/// writers wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_writer_comes_between_writing_and_reading() {
    const ROUNDS: u64 = 300;
    let stage = Stage::set("gap").await;
    let clients = [stage.client(), stage.client()];
    let (value, over) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut writers = JoinSet::new();
    for client in [&clients[0], &clients[1], &clients[1]] {
        let (lock, value, over) = (stage.lock_of(client), value.clone(), over.clone());
        writers.spawn(async move {
            let mut turns = 0;
            while !over.load(Ordering::SeqCst) {
                let guard = lock.write().await.unwrap();
                value.fetch_add(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
                turns += 1;
            }
            turns
        });
    }
    let lock = stage.lock_of(&clients[0]);
    for _ in 0..ROUNDS {
        let writing = within(DEADLINE, lock.write()).await.unwrap();
        let written = value.fetch_add(1, Ordering::SeqCst) + 1;
        let reading = writing.downgrade().await.unwrap();
        for _ in 0..3 {
            assert_eq!(
                value.load(Ordering::SeqCst),
                written,
                "a writer came between"
            );
            tokio::task::yield_now().await;
        }
        assert!(reading.is_valid());
        assert_eq!(value.load(Ordering::SeqCst), written);
        reading.unlock().await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    let turns: u64 = within(DEADLINE, writers.join_all()).await.iter().sum();
    assert!(turns > ROUNDS / 10, "they hardly pressed: {turns}");
    assert_eq!(value.load(Ordering::SeqCst), ROUNDS + turns);
    stage.end().await;
}

#[tokio::test]
async fn a_downgrade_among_other_guards_stays_a_write_hold() {
    let stage = Stage::set("among").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let outer = lock.write().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let reading = inner.downgrade().await.unwrap();
    assert!(elsewhere.try_read().await.unwrap().is_none());
    assert_eq!(outer.hold_count(), 1);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    let other = elsewhere.try_read().await.unwrap().expect("nobody writes");
    drop((reading, other));
    stage.end().await;
}

#[tokio::test]
async fn a_downgrade_of_a_lost_guard_gives_it_back() {
    let stage = Stage::set("downgrade-lost").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let writing = lock.write().await.unwrap();
    assert!(elsewhere.write_lock().force_unlock().await.unwrap());
    let next = elsewhere.write().await.unwrap();
    let refused = writing.downgrade().await.unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::Lost, "{refused}");
    assert_eq!(refused.error().name(), Some(&*stage.name));
    assert_eq!(refused.to_string(), refused.error().to_string());
    let writing = refused.into_guard();
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

#[tokio::test]
async fn the_only_reader_may_write() {
    let stage = Stage::set("upgrade").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let reading = lock.read().await.unwrap();
    let owner = reading.hold_id().clone();
    let writing = reading.try_upgrade().await.unwrap();
    assert_eq!(*writing.hold_id(), owner);
    let expected = [
        ("mode".to_owned(), "write".to_owned()),
        (format!("{owner}:write"), "1".to_owned()),
    ];
    assert_eq!(stage.hash().await, expected.into());
    assert_eq!(stage.keys().await, [stage.name.clone()].into());
    assert!(elsewhere.try_read().await.unwrap().is_none());
    // Down and up, repeatedly.
    let reading = writing.downgrade().await.unwrap();
    let writing = reading.try_upgrade().await.unwrap();
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

#[tokio::test]
async fn among_others_an_upgrade_is_refused_at_once() {
    let stage = Stage::set("refused").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let mut reading = lock.read().await.unwrap();
    // Readers of this client and of another, and two that upgrade at once.
    for other in [&lock, &elsewhere] {
        let other = other.read().await.unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            let refused = reading.try_upgrade().await.unwrap_err();
            assert_eq!(refused.error().kind(), ErrorKind::Contended, "{refused}");
            reading = refused.into_guard();
            assert!(reading.is_valid());
        }
        let refused = other.try_upgrade().await.unwrap_err();
        assert!(start.elapsed() < LATE);
        assert_eq!(lock.read_lock().holders().await.unwrap().len(), 2);
        // The guard is dropped, and the reason stays.
        assert!(refused.into_error().is_contended());
        eventually(DEADLINE, async || {
            lock.read_lock().holders().await.unwrap().len() != 2
        })
        .await;
    }
    let writing = reading.try_upgrade().await.unwrap();
    writing.unlock().await.unwrap();
    stage.end().await;
}

/// A dead reader does not count, although its field stays while others read.
#[tokio::test]
async fn a_dead_reader_is_in_nobodys_way() {
    let stage = Stage::set("upgrade-dead").await;
    let lock = stage.lock();
    let lease = Duration::from_secs(3);
    let reading = lock.read().await.unwrap();
    let dead = stage.dead_reader(lease).await;
    let refused = reading.try_upgrade().await.unwrap_err();
    tokio::time::sleep(lease).await;
    assert!(stage.hash().await.contains_key(dead.as_str()));
    let writing = refused.into_guard().try_upgrade().await.unwrap();
    assert!(!stage.hash().await.contains_key(dead.as_str()));
    writing.unlock().await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn an_upgrade_of_a_lost_guard_gives_it_back() {
    let stage = Stage::set("upgrade-lost").await;
    let lock = stage.lock();
    let options = LockOptions::new().renew(Duration::from_millis(50));
    let reading = lock.read_with(options).await.unwrap();
    assert!(lock.read_lock().force_unlock().await.unwrap());
    // The loss is not noticed yet, and no lock is acquired.
    let refused = reading.try_upgrade().await.unwrap_err();
    assert!(!stage.is_there().await);
    let reading = refused.into_guard();
    within(DEADLINE, reading.lost()).await;
    let refused = reading.try_upgrade().await.unwrap_err();
    assert!(refused.error().is_lost(), "{refused}");
    assert_eq!(
        refused.into_guard().unlock().await.unwrap(),
        Unlocked::AlreadyExpired
    );
    stage.end().await;
}

#[tokio::test]
async fn a_converted_guard_keeps_its_terms() {
    let stage = Stage::set("terms").await;
    let client = stage.client();
    let lock = stage.lock_of(&client);
    let fixed = LockOptions::new().lease(NEVER).renew(false);
    let reading = lock.read_with(fixed).await.unwrap();
    let writing = reading.try_upgrade().await.unwrap();
    assert_eq!(client.stats().renewals, 0);
    assert!(stage.ttl().await.unwrap() + LATE > NEVER);
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(client.stats().renewals, 0);
    assert!(stage.ttl().await.unwrap() + LATE > NEVER);
    reading.unlock().await.unwrap();

    let most = Duration::from_secs(6);
    let stuck = LockOptions::new().lease(most / 2).max_hold(most);
    let start = Instant::now().into_std();
    let mut writing = lock.write_with(stuck).await.unwrap();
    for _ in 0..3 {
        let reading = writing.downgrade().await.unwrap();
        writing = reading.try_upgrade().await.unwrap();
    }
    let held = writing.state();
    assert!(matches!(held, GuardState::Held { until } if until <= start + most + LATE));
    within(DEADLINE, writing.lost()).await;
    let lost = start.elapsed();
    // The margin is 1 % of either lease, and a few milliseconds.
    assert!(lost + most / 20 > most && lost < most + LATE, "{lost:?}");
    drop(writing);
    stage.end().await;
}

/// A caller with an owner also re-enters a lock that it has by a conversion.
#[tokio::test]
async fn an_owner_keeps_what_it_converts() {
    let stage = Stage::set("owner").await;
    let lock = stage.lock();
    let owner = Owner::new();
    let of = || LockOptions::new().owner(&owner).wait(Duration::ZERO);
    let writing = lock.write_with(of()).await.unwrap();
    let reading = writing.downgrade().await.unwrap();
    let again = lock.read_with(of()).await.unwrap();
    assert_eq!(again.hold_id(), reading.hold_id());
    assert_eq!(again.hold_count(), 2);
    let error = lock.write_with(of()).await.unwrap_err();
    assert!(error.is_upgrade_would_deadlock(), "{error}");
    again.unlock().await.unwrap();
    let writing = reading.try_upgrade().await.unwrap();
    let again = lock.write_with(of()).await.unwrap();
    assert_eq!(
        (again.hold_id(), again.hold_count()),
        (writing.hold_id(), 2)
    );
    drop((writing, again));
    stage.end().await;
}

/// The shortest hold belongs to writing: its end must not end reading under the lock.
#[tokio::test]
async fn a_reader_keeps_its_lease_when_a_write_lock_with_min_hold_ends_under_it() {
    const MIN_HOLD: Duration = Duration::from_millis(100);
    let stage = Stage::set("min-hold").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let options = || LockOptions::new().min_hold(MIN_HOLD);
    for round in 0..2 {
        let since = Instant::now();
        let writing = lock.write_lock().lock_with(options()).await.unwrap();
        let reading = if round == 0 {
            within(DEADLINE, writing.downgrade()).await.unwrap()
        } else {
            let nested = async || lock.read().await;
            let reading = writing.run(nested()).await.unwrap().unwrap();
            assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
            reading
        };
        // From then on it is a read lock.
        let other = within(DEADLINE, elsewhere.read()).await.unwrap();
        other.unlock().await.unwrap();
        tokio::time::sleep_until(since + 3 * MIN_HOLD).await;
        let taken = elsewhere.try_write().await.unwrap();
        assert!(reading.is_valid() && taken.is_none(), "round {round}");
        reading.unlock().await.unwrap();
        let guard = within(DEADLINE, elsewhere.write()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    stage.end().await;
}

/// Its field is still in the lock, its lease is not.
#[tokio::test]
async fn a_read_whose_lease_was_over_ended_the_min_hold_of_its_writer() {
    let stage = Stage::set("min-hold-over").await;
    let (lock, elsewhere) = (stage.lock(), stage.lock());
    let options = LockOptions::new().min_hold(NEVER).lease(NEVER);
    let writing = lock.write_with(options).await.unwrap();
    let owner = writing.hold_id().clone();
    let nested = async || {
        let fixed = LockOptions::new().lease(NEVER).renew(false);
        lock.read_with(fixed).await
    };
    let reading = writing.run(nested()).await.unwrap().unwrap();
    // As if its time were over.
    let key = stage.lease_key(&owner, 1);
    assert!(stage.redis::<bool>(&["DEL", &key]).await);
    assert!(stage.hash().await.contains_key(&owner.to_string()));

    let unlocked = writing.unlock().await.unwrap();
    assert!(matches!(unlocked, Unlocked::Kept { .. }), "{unlocked:?}");
    assert!(stage.ttl().await > Some(NEVER / 2));
    drop(reading);
    eventually(DEADLINE, async || {
        !stage.hash().await.contains_key(&owner.to_string())
    })
    .await;
    assert!(elsewhere.try_read().await.unwrap().is_none());
    assert!(elsewhere.write_lock().force_unlock().await.unwrap());
    stage.end().await;
}

#[tokio::test]
async fn a_reader_kept_the_lease_of_the_writer_that_ended_with_min_hold() {
    let stage = Stage::set("min-hold-ttl").await;
    let lock = stage.lock();
    let options = LockOptions::new().min_hold(NEVER).lease(NEVER);
    let writing = lock.write_with(options).await.unwrap();
    let nested = async || {
        let short = LockOptions::new().lease(NEVER / 4);
        lock.read_with(short).await
    };
    let reading = writing.run(nested()).await.unwrap().unwrap();
    assert_eq!(writing.unlock().await.unwrap(), Unlocked::Released);
    assert!(stage.ttl().await <= Some(NEVER / 4));
    assert_eq!(reading.unlock().await.unwrap(), Unlocked::Released);
    stage.end().await;
}

/// Once, their errors said `acquire lock`.
#[tokio::test]
async fn a_conversion_that_fails_is_named_in_the_error() {
    let stage = Stage::set("named").await;
    let lock = stage.lock();
    let spoil = async || {
        let _: bool = stage.world.redis(&["DEL", &stage.world.name]).await;
        let _: () = stage.world.redis(&["SET", &stage.world.name, "x"]).await;
    };
    let reading = lock.read().await.unwrap();
    spoil().await;
    let error = reading.try_upgrade().await.unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::WrongType);
    let said = error.error().to_string();
    assert!(said.starts_with("upgrade read lock"), "{said}");
    drop(error);
    let _: bool = stage.world.redis(&["DEL", &stage.world.name]).await;
    let writing = lock.write().await.unwrap();
    spoil().await;
    let error = writing.downgrade().await.unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::WrongType);
    let said = error.error().to_string();
    assert!(said.starts_with("downgrade write lock"), "{said}");
    drop(error);
    let _: bool = stage.world.redis(&["DEL", &stage.world.name]).await;
    stage.end().await;
}
