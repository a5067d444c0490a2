//! A command or a reply is lost, or comes too late. In each case no lock is left without a holder, no
//! lock is freed twice, and a release that has run is no error.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    ops::Deref,
    panic::Location,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_rt::{Client, ErrorKind, GuardState, LockOptions, RLock, RLockGuard, Unlocked};
use tests::{
    Loss, Matcher, Proxy, RedisServer, Which, World, calls, eventually, shared_server, within,
};

const DEADLINE: Duration = Duration::from_secs(20);
/// The time-out of a call. After half of it without a reply the client closes the connection. Short,
/// since each lost reply costs this time; far longer than a reply takes.
const RESPONSE: Duration = Duration::from_millis(1200);
/// How late a wait may end if threads have to wait for a processor.
const LATE: Duration = Duration::from_secs(1);

/// How many losses in a row a call survives that does not wait for a lock.
fn tries(loss: Loss) -> &'static [usize] {
    match loss {
        // Each loss takes half of the time.
        Loss::Reply | Loss::Request => &[1],
        Loss::CutAfter | Loss::CutBefore => &[1, 3],
    }
}

/// Tests all kinds of loss concurrently, since they mostly wait.
async fn each(losses: &[Loss], test: impl AsyncFn(Loss)) {
    join_all(losses.iter().map(|&loss| test(loss))).await;
}

/// A client behind a proxy that loses commands or replies, and another client without a proxy.
struct Stage {
    world: World,
    proxy: Proxy,
    client: Client,
    lock: RLock,
    other_client: Client,
    other: RLock,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Stage {
    async fn set(what: &str) -> Self {
        Self::patient(what, RESPONSE).await
    }

    async fn patient(what: &str, response: Duration) -> Self {
        let server = shared_server();
        let mut world = World::on(&server, what).await;
        let (proxy, other_client) = (Proxy::to(&server), world.client());
        world.clients_connect_to(proxy.url());
        let client = world.client_with(|builder| {
            let builder = builder.response_timeout(response);
            builder.connect_timeout(2 * RESPONSE)
        });
        let stage = Self {
            lock: client.rlock(&world.name),
            other: other_client.rlock(&world.name),
            world,
            proxy,
            client,
            other_client,
        };
        // Connects and loads the scripts, so that from here on each call is one frame.
        let guard = stage.lock.lock().await.unwrap();
        guard.reenter().await.unwrap().unlock().await.unwrap();
        guard.unlock().await.unwrap();
        stage.proxy.mark();
        stage
    }

    fn acquisitions(&self) -> Matcher {
        calls("rlock_acquire").mentioning(&self.name)
    }

    fn updates(&self) -> Matcher {
        calls("rlock_update").mentioning(&self.name)
    }

    fn releases(&self) -> Matcher {
        calls("rlock_release").mentioning(&self.name)
    }

    /// The connection on which the client calls scripts.
    fn connection(&self) -> u64 {
        match self.proxy.connections(Which::Scripts)[..] {
            [connection] => connection,
            ref others => panic!("one connection calls scripts, not {others:?}"),
        }
    }

    /// Waits until no command is in flight on a connection that the client has closed: each has run,
    /// or will never run.
    async fn ended(&self, connection: u64) {
        let which = Which::Connection(connection);
        eventually(DEADLINE, async || self.proxy.connections(which).is_empty()).await;
    }

    /// Waits until a task of the other client waits for the lock and is subscribed.
    async fn other_waits(&self) {
        eventually(DEADLINE, async || {
            let pattern = format!("*{}*", self.name);
            let channels: Vec<String> = self.redis(&["PUBSUB", "CHANNELS", &pattern]).await;
            self.other_client.stats().waiting == 1 && channels.len() == 1
        })
        .await;
    }

    /// The lock in Redis: owner -> hold count.
    async fn hash(&self) -> BTreeMap<String, u32> {
        self.redis(&["HGETALL", &self.name]).await
    }

    /// Only this guard has the lock, with this hold count, and no longer than the key lives.
    #[track_caller]
    fn assert_held(&self, guard: &RLockGuard, count: u32) -> impl Future<Output = ()> {
        let expected = BTreeMap::from([(guard.hold_id().to_string(), count)]);
        let caller = Location::caller();
        async move {
            assert_eq!(self.hash().await, expected, "{caller}");
            let GuardState::Held { until } = guard.state() else {
                panic!("{caller}: {guard:?}");
            };
            let expires = self.ttl().await.unwrap() + Duration::from_millis(1);
            assert!(until <= Instant::now() + expires, "{caller}: {guard:?}");
        }
    }

    /// The other client gets the lock at once.
    #[track_caller]
    fn assert_free(&self) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            match self.other.try_lock().await.unwrap() {
                Some(guard) => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
                None => panic!("{caller}: held by {:?}", self.hash().await),
            }
        }
    }
}

/// A lock is acquired once and not twice when commands or replies are lost.
async fn acquisition(loss: Loss) {
    let stage = Stage::set("acquisition").await;
    for times in [1, 3] {
        stage.proxy.lose(loss, stage.acquisitions(), times);
        let options = LockOptions::new().wait(DEADLINE);
        let guard = stage.lock.lock_with(options).await.unwrap();
        stage.assert_held(&guard, 1).await;
        assert!(stage.other.try_lock().await.unwrap().is_none());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        stage.assert_free().await;
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn an_acquisition_whose_reply_is_lost() {
    acquisition(Loss::Reply).await;
}

#[tokio::test]
async fn an_acquisition_that_is_lost() {
    acquisition(Loss::Request).await;
}

#[tokio::test]
async fn an_acquisition_cut_off_from_its_reply() {
    acquisition(Loss::CutAfter).await;
}

#[tokio::test]
async fn an_acquisition_that_is_cut_off() {
    acquisition(Loss::CutBefore).await;
}

/// A caller whose wait ends with the outcome unknown gets the error in time, and leaves no lock.
#[tokio::test]
async fn a_wait_that_ends_with_the_outcome_unknown_leaves_nothing() {
    each(&Loss::ALL, async |loss| {
        let stage = Stage::set("unknown").await;
        let wait = Duration::from_millis(80);
        stage.proxy.lose(loss, stage.acquisitions(), 1000);
        let start = Instant::now();
        let outcome = stage.lock.lock_with(LockOptions::new().wait(wait)).await;
        let error = outcome.unwrap_err();
        let waited = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        assert!(
            waited >= wait && waited < wait + LATE,
            "{loss:?}: {waited:?}"
        );
        // Far below the lease: a lock that may have been acquired is released in the background.
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_try_whose_outcome_is_unknown_leaves_nothing() {
    each(&Loss::ALL, async |loss| {
        let stage = Stage::set("try").await;
        stage.proxy.lose(loss, stage.acquisitions(), 1);
        let error = stage.lock.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}

/// A release that has run is reported as such, and a waiter gets the lock.
async fn release(loss: Loss) {
    let stage = Stage::set("release").await;
    for &times in tries(loss) {
        let guard = stage.lock.lock().await.unwrap();
        let other = stage.other.clone();
        let waiter = tokio::spawn(async move { other.lock().await });
        stage.other_waits().await;
        stage.proxy.lose(loss, stage.releases(), times);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released, "{times}");
        let next = within(DEADLINE, waiter).await.unwrap().unwrap();
        stage.assert_held(&next, 1).await;
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_release_whose_reply_is_lost() {
    release(Loss::Reply).await;
}

#[tokio::test]
async fn a_release_that_is_lost() {
    release(Loss::Request).await;
}

#[tokio::test]
async fn a_release_cut_off_from_its_reply() {
    release(Loss::CutAfter).await;
}

#[tokio::test]
async fn a_release_that_is_cut_off() {
    release(Loss::CutBefore).await;
}

#[tokio::test]
async fn a_lock_is_kept_for_its_min_hold_whatever_is_lost() {
    each(&Loss::ALL, async |loss| {
        const LEAST: Duration = Duration::from_secs(600);
        let stage = Stage::set("kept").await;
        for &times in tries(loss) {
            let options = LockOptions::new().min_hold(LEAST);
            let guard = stage.lock.lock_with(options).await.unwrap();
            let release = calls("lock_min_hold").mentioning(&stage.name);
            stage.proxy.lose(loss, release, times);
            let outcome = guard.unlock().await.unwrap();
            assert!(matches!(outcome, Unlocked::Kept { .. }), "{outcome:?}");
            assert!(stage.ttl().await > Some(LEAST / 2));
            assert!(stage.lock.force_unlock().await.unwrap());
        }
        stage.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_dropped_guard_whose_release_is_lost() {
    each(&Loss::ALL, async |loss| {
        let stage = Stage::set("drop").await;
        for times in [1, 2] {
            let guard = stage.lock.lock().await.unwrap();
            stage.proxy.lose(loss, stage.releases(), times);
            drop(guard);
            let next = within(DEADLINE, stage.other.lock()).await.unwrap();
            stage.assert_held(&next, 1).await;
            next.unlock().await.unwrap();
        }
        stage.assert_clean().await;
    })
    .await;
}

/// The next holder does not wait until the last holder gets its reply.
#[tokio::test]
async fn the_next_holder_has_it_while_the_reply_is_missing() {
    let stage = Stage::set("missing").await;
    let guard = stage.lock.lock().await.unwrap();
    let other = stage.other.clone();
    let waiter = tokio::spawn(async move { other.lock().await });
    stage.other_waits().await;
    let gate = stage.proxy.hold_reply(stage.releases());
    let mut unlocking = Box::pin(guard.unlock());
    let next = tokio::select! {
        next = within(DEADLINE, waiter) => next.unwrap().unwrap(),
        outcome = &mut unlocking => panic!("{outcome:?} without a reply"),
    };
    stage.assert_held(&next, 1).await;
    gate.open();
    assert_eq!(unlocking.await.unwrap(), Unlocked::Released);
    stage.assert_held(&next, 1).await;
    next.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The reply is lost, and when the release is repeated, there is a newer hold.
async fn a_repeated_release_frees_no_newer_hold(by: impl Fn(&Stage) -> &RLock) {
    let stage = Stage::set("repeated").await;
    let guard = stage.lock.lock().await.unwrap();
    let reply = stage.proxy.hold_reply(stage.releases());
    let unlocking = tokio::spawn(guard.unlock());
    reply.reached().await;
    let repeat = stage.proxy.hold_request(stage.releases());
    stage.proxy.cut(Which::Scripts);
    repeat.reached().await;
    let newer = within(DEADLINE, by(&stage).lock()).await.unwrap();
    assert!(!unlocking.is_finished());
    repeat.open();
    reply.open();
    let outcome = within(DEADLINE, unlocking).await.unwrap();
    assert_eq!(outcome.unwrap(), Unlocked::Released);
    stage.assert_held(&newer, 1).await;
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_repeated_release_frees_no_newer_hold_of_another_client() {
    a_repeated_release_frees_no_newer_hold(|stage| &stage.other).await;
}

/// The reply to a release is missing for longer than the lease; the lock counts as released.
#[tokio::test]
async fn a_release_whose_reply_is_lost_for_longer_than_the_lease() {
    each(&[Loss::Reply, Loss::CutAfter], async |loss| {
        let lease = Duration::from_millis(400);
        let stage = Stage::patient("short", 2 * lease).await;
        let options = LockOptions::new().lease(lease).renew(false);
        let guard = stage.lock.lock_with(options).await.unwrap();
        stage.proxy.lose(loss, stage.releases(), 1);
        let outcome = guard.unlock().await;
        assert_eq!(outcome.unwrap(), Unlocked::Released, "{loss:?}");
        stage.assert_free().await;
        stage.assert_clean().await;
    })
    .await;
}

/// The only error of a release: no reply comes during the call. The release then continues in the
/// background, and frees only its own hold.
#[tokio::test]
async fn a_release_that_is_never_answered_goes_on_in_the_background() {
    let stage = Stage::set("never").await;
    let guard = stage.lock.lock().await.unwrap();
    stage.proxy.lose(Loss::Request, stage.releases(), 1000);
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(stage.hash().await.len(), 1);
    stage.proxy.clear();
    let next = within(DEADLINE, stage.other.lock()).await.unwrap();
    eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
    stage.assert_held(&next, 1).await;
    next.unlock().await.unwrap();
    stage.assert_clean().await;
}

/// The hold count and the lease are right after each kind of loss.
async fn reentry(loss: Loss) {
    let stage = Stage::set("reentry").await;
    for &times in tries(loss) {
        let outer = stage.lock.lock().await.unwrap();
        stage.proxy.lose(loss, stage.updates(), times);
        let inner = outer.reenter().await.unwrap();
        stage.assert_held(&outer, 2).await;
        stage.proxy.lose(loss, stage.updates(), times);
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        stage.assert_held(&outer, 1).await;
        stage.proxy.lose(loss, stage.updates(), times);
        outer.extend(Duration::from_secs(90)).await.unwrap();
        assert!(stage.ttl().await > Some(Duration::from_secs(80)));
        stage.assert_held(&outer, 1).await;
        assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
        stage.assert_free().await;
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_reentry_whose_reply_is_lost() {
    reentry(Loss::Reply).await;
}

#[tokio::test]
async fn a_reentry_that_is_lost() {
    reentry(Loss::Request).await;
}

#[tokio::test]
async fn a_reentry_cut_off_from_its_reply() {
    reentry(Loss::CutAfter).await;
}

#[tokio::test]
async fn a_reentry_that_is_cut_off() {
    reentry(Loss::CutBefore).await;
}

/// A re-entry whose wait ends with the outcome unknown is undone.
#[tokio::test]
async fn a_reentry_with_the_outcome_unknown_is_set_back() {
    each(&Loss::ALL, async |loss| {
        let stage = Stage::set("back").await;
        let outer = stage.lock.lock().await.unwrap();
        stage.proxy.lose(loss, stage.updates(), 3);
        let wait = Duration::from_millis(80);
        let inner = outer.run(stage.lock.lock_with(LockOptions::new().wait(wait)));
        match inner.await.unwrap() {
            // The client notices a cut connection at once, so there is time for more tries.
            Ok(inner) if matches!(loss, Loss::CutAfter | Loss::CutBefore) => drop(inner),
            Ok(inner) => panic!("{loss:?}: {inner:?} without a reply"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
            }
        }
        eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        stage.assert_held(&outer, 1).await;
        assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
        stage.assert_free().await;
        stage.assert_clean().await;
    })
    .await;
}

/// At the time of the repeat another client had the lock.
#[tokio::test]
async fn a_force_unlock_whose_reply_was_lost_freed_the_lock_of_the_next_holder() {
    let stage = Stage::set("forced").await;
    // Loads the script.
    assert!(!stage.lock.force_unlock().await.unwrap());
    let guard = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let forced = calls("rlock_force_release").mentioning(&stage.name);
    let gate = stage.proxy.hold_reply(forced);
    let lock = stage.lock.clone();
    let forcing = tokio::spawn(async move { lock.force_unlock().await });
    within(DEADLINE, gate.reached()).await;
    let next = within(DEADLINE, stage.other.lock()).await.unwrap();
    stage.proxy.cut(Which::Connection(connection));
    gate.open();
    let error = within(DEADLINE, forcing).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let holder = stage.other.holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(next.hold_id()));
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    drop(guard);
    stage.assert_clean().await;
}

/// Calls that only read are repeated.
#[tokio::test]
async fn questions_are_repeated() {
    each(&Loss::ALL, async |loss| {
        let stage = Stage::set("questions").await;
        let guard = stage.lock.lock().await.unwrap();
        stage
            .proxy
            .lose(loss, calls("rlock_inspect").mentioning(&stage.name), 1);
        let holder = stage.lock.holder().await.unwrap();
        assert_eq!(holder.as_ref(), Some(guard.hold_id()), "{loss:?}");
        stage.proxy.lose(
            loss,
            calls("rlock_force_release").mentioning(&stage.name),
            1,
        );
        // This call changes the lock, so it is sent once.
        let error = stage.lock.force_unlock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        stage.lock.force_unlock().await.unwrap();
        stage.assert_free().await;
        drop(guard);
        stage.assert_clean().await;
    })
    .await;
}

// Commands that are still in flight when the client has a new connection must not run.

#[tokio::test]
async fn a_delayed_acquisition_does_not_run_after_its_repeat() {
    let stage = Stage::set("delayed").await;
    let connection = stage.connection();
    let acquisitions = stage.acquisitions().on(Which::Connection(connection));
    let gate = stage.proxy.hold_request(acquisitions);
    let guard = within(DEADLINE, stage.lock.lock()).await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.open();
    stage.ended(connection).await;
    assert!(stage.hash().await.is_empty(), "{:?}", stage.hash().await);
    stage.assert_free().await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_delayed_acquisition_does_not_run_after_its_compensation() {
    let stage = Stage::set("compensated").await;
    let connection = stage.connection();
    let acquisitions = stage.acquisitions().on(Which::Connection(connection));
    let gate = stage.proxy.hold_request(acquisitions);
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

#[tokio::test]
async fn a_delayed_reentry_does_not_run_after_its_end() {
    let stage = Stage::set("recount").await;
    let outer = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let updates = stage.updates().on(Which::Connection(connection));
    let gate = stage.proxy.hold_request(updates);
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
    gate.open();
    stage.ended(connection).await;
    stage.assert_held(&outer, 1).await;
    outer.unlock().await.unwrap();
    stage.assert_clean().await;
}

async fn a_delayed_release_frees_no_newer_hold(by: impl Fn(&Stage) -> &RLock) {
    let stage = Stage::set("late").await;
    let guard = stage.lock.lock().await.unwrap();
    let connection = stage.connection();
    let releases = stage.releases().on(Which::Connection(connection));
    let gate = stage.proxy.hold_request(releases);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let newer = by(&stage).lock().await.unwrap();
    gate.open();
    stage.ended(connection).await;
    stage.assert_held(&newer, 1).await;
    assert_eq!(newer.unlock().await.unwrap(), Unlocked::Released);
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_delayed_release_frees_no_newer_hold_of_another_client() {
    a_delayed_release_frees_no_newer_hold(|stage| &stage.other).await;
}

#[tokio::test]
async fn a_delayed_release_frees_no_newer_hold_of_the_same_client() {
    a_delayed_release_frees_no_newer_hold(|stage| &stage.lock).await;
}

/// As above, but the command waits in the server's socket rather than on the way there.
#[tokio::test]
async fn commands_that_a_resumed_server_reads_leave_nothing() {
    let server = RedisServer::start();
    let world = World::on(&server, "socket").await;
    let client = world.client_with(|builder| {
        let builder = builder.response_timeout(RESPONSE);
        builder.connect_timeout(DEADLINE)
    });
    let lock = client.rlock(&world.name);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let held = client.rlock(format!("{}:held", world.name));
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
