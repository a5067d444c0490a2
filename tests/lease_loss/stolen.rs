//! Locks that are taken by force, with a reason: the holder learns by whom and why.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use redlock_rt::{
    Client, ErrorKind, FencedLockGuard, GuardState, LockGuard, LockOptions, LostReason, Theft,
    Unlocked, embedded::Engine,
};
use tests::{DEADLINE, RedisServer, World, eventually, shared_server, within};

use crate::tracked::{tracking, until_watched};

const WHY: &str = "deploy 42: stuck worker";
/// Is renewed, and so looked at, a third of it later.
const LEASE: Duration = Duration::from_secs(3);
/// No renewal is due before the end of the test.
const LONG: Duration = Duration::from_secs(600);

#[track_caller]
fn theft(reason: LostReason) -> Arc<Theft> {
    match reason {
        LostReason::Stolen(theft) => theft,
        reason => panic!("{reason:?}"),
    }
}

#[tokio::test]
async fn a_holder_learns_by_whom_and_why_at_its_next_renewal() {
    let world = World::on(&shared_server(), "stolen").await;
    let holds = world.client_with(|builder| builder.lease(LEASE));
    let named = world.client_with(|builder| builder.identity("pod-7"));
    let unnamed = world.client();
    for (thief, is_named) in [(&named, true), (&unnamed, false)] {
        let guard = holds.rlock(&world.name).lock().await.unwrap();
        let stolen = thief.rlock(&world.name).steal(WHY).await.unwrap();
        let theft = theft(within(DEADLINE, guard.lost()).await);
        let by = match is_named {
            true => "pod-7",
            false => stolen.hold_id().as_str(),
        };
        assert_eq!((&*theft.by, &*theft.why), (by, WHY));
        let error = guard.extend(LEASE).await.unwrap_err();
        assert!(error.to_string().contains(WHY), "{error}");
        assert_eq!(error.lost_reason(), Some(LostReason::Stolen(theft)));
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        assert!(stolen.is_valid());
        assert_eq!(stolen.unlock().await.unwrap(), Unlocked::Released);
    }
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// The call that finds the loss says what the renewal would say.
async fn assert_told<K: redlock_rt::Kind>(guard: LockGuard<K>, extends: bool) {
    let error = match extends {
        true => guard.extend(LONG).await.unwrap_err(),
        false => guard.reenter().await.unwrap_err(),
    };
    assert_eq!(theft(error.lost_reason().unwrap()).why, WHY);
    let GuardState::Lost(reason) = guard.state() else {
        panic!("{guard:?}");
    };
    assert_eq!(theft(reason).why, WHY);
}

#[tokio::test]
async fn a_holder_that_reenters_or_extends_learns_it_then() {
    let world = World::on(&shared_server(), "reenters").await;
    let holds = world.client_with(|builder| builder.lease(LONG));
    let thief = world.client();
    let fenced = |client: &Client| client.fenced_lock(&world.name);
    for extends in [true, false] {
        let guard = fenced(&holds).lock().await.unwrap();
        let stolen = fenced(&thief).steal(WHY).await.unwrap();
        assert!(stolen.token() > guard.token());
        assert_told(guard, extends).await;
        stolen.unlock().await.unwrap();
    }
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// A reader's call is a script of its own. It may find the lock free, or read by somebody else.
#[tokio::test]
async fn a_reader_was_never_told_why_if_it_reentered_or_extended_first() {
    let world = World::on(&shared_server(), "reader").await;
    let holds = world.client_with(|builder| builder.lease(LONG));
    let forces = world.client();
    async fn learns<K: redlock_rt::Kind>(
        guard: LockGuard<K>,
        lock: redlock_rt::Lock<K>,
        extends: bool,
    ) {
        assert!(lock.force_unlock_because(WHY).await.unwrap());
        // Nobody has it for the second call.
        let next = match extends {
            true => Some(lock.lock().await.unwrap()),
            false => None,
        };
        assert_told(guard, extends).await;
        if let Some(next) = next {
            assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
        }
    }
    let [ours, theirs] = [&holds, &forces].map(|client| client.read_write_lock(&*world.name));
    for extends in [true, false] {
        learns(ours.read().await.unwrap(), theirs.read_lock(), extends).await;
        learns(ours.write().await.unwrap(), theirs.write_lock(), extends).await;
    }
    world.forget_thefts().await;
    world.assert_clean().await;
}

#[tokio::test]
async fn it_is_told_at_once_where_losses_are() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let (client, thief) = (
        tracking(&server.url()),
        Client::connect(&server.url()).await.unwrap(),
    );
    let guard = client.fenced_lock("told").lock().await.unwrap();
    until_watched(&redis, 1).await;
    let stolen = thief.fenced_lock("told").steal(WHY).await.unwrap();
    let theft = theft(within(crate::LATE, guard.lost()).await);
    assert_eq!(theft.by, stolen.hold_id().as_str());
}

/// The holder's own client has a hold of its own, a body under it, and a waiter.
#[tokio::test]
async fn a_lock_is_stolen_from_its_own_client() {
    let world = World::on(&shared_server(), "own").await;
    let client = world.client();
    let lock = client.rlock(&world.name);
    let guard = lock.lock().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    let outcome = guard.run(async { lock.steal(WHY).await.unwrap() }).await;
    // The body was complete when its lock was lost.
    let stolen = outcome.unwrap();
    assert!(stolen.is_valid());
    let GuardState::Lost(reason) = guard.state() else {
        panic!("{guard:?}");
    };
    assert_eq!(theft(reason).by, stolen.hold_id().as_str());
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert_eq!(stolen.unlock().await.unwrap(), Unlocked::Released);
    drop(within(DEADLINE, waiter).await.unwrap());
    world.forget_thefts().await;
    world.assert_clean().await;
}

#[tokio::test]
async fn a_free_lock_is_only_taken() {
    let world = World::on(&shared_server(), "free").await;
    let client = world.client();
    let guard = client.rlock(&world.name).steal(WHY).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    // No note either.
    world.assert_clean().await;
}

/// Of thieves that saw the same holder one has the lock; one that looked later took it from that one.
#[tokio::test]
async fn of_many_thieves_one_has_the_lock_in_the_end() {
    let world = World::on(&shared_server(), "thieves").await;
    let short = |builder: redlock_rt::ClientBuilder| builder.lease(LEASE);
    let clients: Vec<_> = (0..8).map(|_| world.client_with(short)).collect();
    let locks: Vec<_> = clients
        .iter()
        .map(|client| client.fenced_lock(&world.name))
        .collect();
    let first = locks[0].lock().await.unwrap();
    let outcomes = join_all(locks.iter().map(|lock| lock.steal(WHY))).await;
    let mut guards = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(guard) => guards.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Contended, "{error}"),
        }
    }
    guards.sort_by_key(FencedLockGuard::token);
    let last = guards.pop().unwrap();
    for guard in guards.iter().chain([&first]) {
        assert!(guard.token() < last.token());
        assert_eq!(theft(within(DEADLINE, guard.lost()).await).why, WHY);
    }
    let holder = locks[0].holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(last.hold_id()));
    assert_eq!(last.unlock().await.unwrap(), Unlocked::Released);
    drop((first, guards));
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// Tasks of the holder's client follow each other under one id, without a call.
#[tokio::test]
async fn a_chain_of_hand_overs_ends_where_its_lock_is_stolen() {
    let world = World::on(&shared_server(), "chain").await;
    let client = world.client_with(|builder| builder.hand_over(LEASE / 3).lease(LEASE));
    let thief = world.client();
    let lock = client.rlock(&world.name);
    let (chain_of, second, third) = loop {
        let first = lock.lock().await.unwrap();
        let chain_of = first.hold_id().clone();
        let wait = |_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.unwrap() })
        };
        let [second, third] = [(); 2].map(wait);
        eventually(DEADLINE, async || client.stats().waiting == 2).await;
        first.unlock().await.unwrap();
        let second = within(DEADLINE, second).await.unwrap();
        if *second.hold_id() == chain_of {
            break (chain_of, second, third);
        }
        // On a busy machine that took longer than a chain lasts.
        drop(second);
        drop(within(DEADLINE, third).await.unwrap());
    };
    let stolen = thief.rlock(&world.name).steal(WHY).await.unwrap();
    assert_eq!(theft(within(DEADLINE, second.lost()).await).why, WHY);
    assert_eq!(second.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    assert!(!third.is_finished() && stolen.is_valid());
    assert_eq!(stolen.unlock().await.unwrap(), Unlocked::Released);
    let third = within(DEADLINE, third).await.unwrap();
    assert_ne!(third.hold_id(), &chain_of);
    drop(third);
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// A note lives a little longer than the lease of the holder that never looks.
#[tokio::test(start_paused = true)]
async fn a_note_that_nobody_reads_expires() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (holds, thief) = (client(), client());
    let redis = tests::connection_over(engine.connect()).await.unwrap();
    let options = LockOptions::new().lease(LEASE).renew(false);
    let guard = holds.rlock("unread").lock_with(options).await.unwrap();
    let note = format!("redlock_stolen:{{unread}}:{}", guard.hold_id());
    drop(thief.rlock("unread").steal(WHY).await.unwrap());
    let ttl: u64 = tests::ask(&redis, &["PTTL", &note]).await;
    let longest = LEASE + Duration::from_secs(10);
    assert!(u128::from(ttl) > LEASE.as_millis() && u128::from(ttl) <= longest.as_millis());
    // By its own clock alone.
    assert_eq!(guard.lost().await, LostReason::Expired);
    tokio::time::sleep(longest).await;
    let left: bool = tests::ask(&redis, &["EXISTS", &note]).await;
    assert!(!left);
}

/// What another program has put in the place of a note says nothing, and is no reason to distrust the reply.
#[tokio::test]
async fn a_note_of_somebody_else_is_none() {
    let world = World::on(&shared_server(), "note").await;
    let client = world.client_with(|builder| builder.lease(LEASE));
    for value in ["", "x", "\u{e9}"] {
        let guard = client.rlock(&world.name).lock().await.unwrap();
        let note = format!("redlock_stolen:{{{}}}:{}", world.name, guard.hold_id());
        let _: () = world.redis(&["SET", &note, value, "PX", "60000"]).await;
        let _: u8 = world.redis(&["DEL", &world.name]).await;
        let error = guard.extend(LEASE).await.unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Deleted), "{value:?}");
    }
    world.forget_thefts().await;
    world.assert_clean().await;
}

/// Of every kind, and all readers.
#[tokio::test]
async fn a_forced_release_may_say_why() {
    let world = World::on(&shared_server(), "because").await;
    let holds = world.client_with(|builder| builder.lease(LEASE));
    let forces = world.client();
    async fn lost<K: redlock_rt::Kind>(
        guards: Vec<LockGuard<K>>,
        lock: redlock_rt::Lock<K>,
        by: &str,
    ) {
        assert!(lock.force_unlock_because(WHY).await.unwrap());
        for guard in guards {
            let theft = theft(within(DEADLINE, guard.lost()).await);
            assert_eq!((&*theft.by, &*theft.why), (by, WHY));
        }
        assert!(!lock.force_unlock_because(WHY).await.unwrap());
    }
    let (name, by) = (&*world.name, forces.uuid());
    let guard = holds.fair_lock(name).lock().await.unwrap();
    lost(vec![guard], forces.fair_lock(name), by).await;
    let guard = holds.spin_lock(name).lock().await.unwrap();
    lost(vec![guard], forces.spin_lock(name), by).await;
    let [ours, theirs] = [&holds, &forces].map(|client| client.read_write_lock(name));
    let guard = ours.write().await.unwrap();
    lost(vec![guard], theirs.write_lock(), by).await;
    let guards = vec![ours.read().await.unwrap(), ours.read().await.unwrap()];
    lost(guards, theirs.read_lock(), by).await;
    world.forget_thefts().await;
    world.assert_clean().await;
}
