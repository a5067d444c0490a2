//! Commands that are still in flight when the client has a new connection must not run.

use std::time::{Duration, Instant};

use redlock_rt::{ErrorKind, LockOptions, RLock, Unlocked};
use tests::{Place, Proxied, Which, World, eventually, lock_and_unlock, unique, within};

use crate::{DEADLINE, LATE, RESPONSE, stage::Stage};

pub(crate) async fn a_delayed_acquisition_does_not_run_after_its_repeat(place: Place) {
    let stage = Stage::set(place, "delayed").await;
    let connection = stage.connection();
    let acquisitions = stage
        .calls("rlock_acquire")
        .on(Which::Connection(connection));
    let gate = stage.proxy().hold_request(acquisitions);
    let guard = within(DEADLINE, stage.lock.lock()).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.open();
    stage.ended(connection).await;
    assert!(stage.hash().await.is_empty(), "{:?}", stage.hash().await);
    stage.assert_free().await;
    stage.assert_clean().await;
}

pub(crate) async fn a_delayed_acquisition_does_not_run_after_its_compensation(place: Place) {
    let stage = Stage::set(place, "compensated").await;
    let connection = stage.connection();
    let acquisitions = stage
        .calls("rlock_acquire")
        .on(Which::Connection(connection));
    let gate = stage.proxy().hold_request(acquisitions);
    let options = LockOptions::new().wait(Duration::from_millis(50));
    let error = stage.lock.lock_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
    gate.open();
    stage.ended(connection).await;
    assert!(stage.hash().await.is_empty(), "{:?}", stage.hash().await);
    stage.assert_free().await;
    stage.assert_clean().await;
}

pub(crate) async fn a_delayed_reentry_does_not_run_after_its_end(place: Place) {
    let stage = Stage::set(place, "recount").await;
    let outer = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let updates = stage
        .calls("rlock_update")
        .on(Which::Connection(connection));
    let gate = stage.proxy().hold_request(updates);
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
    gate.open();
    stage.ended(connection).await;
    stage.assert_held(&outer, 1).await;
    outer.unlock().await.unwrap();
    stage.assert_clean().await;
}

async fn a_delayed_release_frees_no_newer_hold(place: Place, by: impl Fn(&Stage) -> &RLock) {
    let stage = Stage::set(place, "late").await;
    let guard = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let releases = stage
        .calls("rlock_release")
        .on(Which::Connection(connection));
    let gate = stage.proxy().hold_request(releases);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let newer = by(&stage).lock().await.unwrap();
    gate.open();
    stage.ended(connection).await;
    stage.assert_held(&newer, 1).await;
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

pub(crate) async fn a_delayed_release_frees_no_newer_hold_of_another_client(place: Place) {
    a_delayed_release_frees_no_newer_hold(place, |stage| &stage.other).await;
}

pub(crate) async fn a_delayed_release_frees_no_newer_hold_of_the_same_client(place: Place) {
    a_delayed_release_frees_no_newer_hold(place, |stage| &stage.lock).await;
}

/// As above, but the command waits in the server's socket rather than on the way there.
pub(crate) async fn commands_that_a_resumed_server_reads_leave_nothing(place: Place) {
    let (servers, name) = (Proxied::at(place).await, unique("socket"));
    let server = servers.server(servers.server_of(&name).await);
    let mut world = World::named(server, &name).await;
    world.clients_are(servers.undisturbed());
    let client = world.client_with(|builder| {
        let builder = builder.response_timeout(RESPONSE);
        builder.connect_timeout(DEADLINE)
    });
    let lock = client.rlock(&world.name);
    lock_and_unlock(&lock).await;
    let held = client.rlock(format!("{{{name}}}:held"));
    let held = held.lock().await.unwrap();
    server.pause();
    let start = Instant::now();
    let wait = Duration::from_millis(50);
    let error = lock
        .lock_with(LockOptions::new().wait(wait))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(start.elapsed() < wait + LATE, "{:?}", start.elapsed());
    // By then the client has given up the connection with both commands in it, and dials.
    let error = within(DEADLINE, held.unlock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    server.resume();
    let other = world.client().rlock(&world.name);
    let guard = within(DEADLINE, other.lock()).await.unwrap();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(
        other.holder().await.unwrap().as_ref(),
        Some(guard.hold_id())
    );
    guard.unlock().await.unwrap();
    world.assert_clean().await;
}
