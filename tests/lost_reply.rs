//! A reply is lost, or a command, or it comes too late: whatever became of it, no lock is left
//! without a holder, none is freed twice, and there is no error for one that was in fact released.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    panic::Location,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, ErrorKind, GuardState, LockOptions, RLock, RLockGuard, Unlocked};
use tests::{
    LeakCheck, Matcher, Proxy, RedisServer, Which, calls, eventually, shared_server, trace_init,
    unique, within,
};

const DEADLINE: Duration = Duration::from_secs(20);
/// How long a call may take. The client waits half of it for a reply before it gives the connection
/// up. Short, since each lost reply costs as much; and far longer than a reply takes.
const RESPONSE: Duration = Duration::from_millis(1200);
/// The end of a wait may come so late: threads that have to wait for a processor.
const LATE: Duration = Duration::from_secs(1);

/// Polling that does not come within a test, so that it is the announcement that wakes.
const NEVER: Duration = Duration::from_secs(600);

/// How a command or its reply is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The command is carried out, and no reply comes on a connection that stays open.
    Reply,
    /// Neither arrives, and the connection stays open.
    Request,
    /// The connection ends when the command was carried out.
    CutAfter,
    /// The connection ends before the command arrives.
    CutBefore,
}

const LOSSES: [Loss; 4] = [Loss::Reply, Loss::Request, Loss::CutAfter, Loss::CutBefore];

/// How often in a row a call that waits for nobody is repeated in its time.
fn tries(loss: Loss) -> &'static [usize] {
    match loss {
        // Each takes half of the time.
        Loss::Reply | Loss::Request => &[1],
        Loss::CutAfter | Loss::CutBefore => &[1, 3],
    }
}

/// Every kind of loss, side by side: most of the time is spent waiting.
async fn each(losses: &[Loss], test: impl AsyncFn(Loss)) {
    join_all(losses.iter().map(|&loss| test(loss))).await;
}

/// A client behind a proxy that loses what it is told to, and another client without.
struct Stage {
    name: String,
    proxy: Proxy,
    client: Client,
    lock: RLock,
    other_client: Client,
    other: RLock,
    redis: MultiplexedConnection,
    leaks: LeakCheck,
}

impl Stage {
    async fn set(what: &str) -> Self {
        Self::patient(what, RESPONSE).await
    }

    async fn patient(what: &str, response: Duration) -> Self {
        trace_init();
        let server = shared_server();
        let (name, proxy) = (unique(what), Proxy::to(&server));
        let client = Client::builder()
            .url(&proxy.url())
            .response_timeout(response)
            .connect_timeout(2 * RESPONSE)
            .linger(Duration::from_millis(20));
        let client = client.build().unwrap();
        let other_client = Client::builder()
            .url(&server.url())
            .poll_interval(NEVER)
            .linger(Duration::from_millis(20));
        let other_client = other_client.build().unwrap();
        let leaks = LeakCheck::on(&server, &name).await;
        let stage = Self {
            lock: client.rlock(&name),
            other: other_client.rlock(&name),
            redis: server.connect().await.unwrap(),
            leaks: leaks.client(&client).client(&other_client),
            proxy,
            client,
            other_client,
            name,
        };
        // Connects and has the server know the scripts: from here on a call is one frame.
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

    /// Has the next of these calls lost, as many as said.
    fn lose(&self, loss: Loss, calls: Matcher, times: usize) {
        match loss {
            Loss::Reply => self.proxy.swallow_reply(calls, times),
            Loss::Request => self.proxy.swallow_request(calls, times),
            Loss::CutAfter => {
                (0..times).for_each(|_| self.proxy.cut_after_request(calls.clone()));
            }
            Loss::CutBefore => {
                (0..times).for_each(|_| self.proxy.cut_before_request(calls.clone()));
            }
        }
    }

    /// The connection on which the client calls scripts.
    fn connection(&self) -> u64 {
        match self.proxy.connections(Which::Scripts)[..] {
            [connection] => connection,
            ref others => panic!("one connection calls scripts, not {others:?}"),
        }
    }

    /// Waits until nothing is on its way any more on a connection that the client gave up: it was
    /// carried out, or it never will be.
    async fn ended(&self, connection: u64) {
        let which = Which::Connection(connection);
        eventually(DEADLINE, async || self.proxy.connections(which).is_empty()).await;
    }

    /// Waits until a task of the other client waits for the lock and listens.
    async fn other_waits(&self) {
        eventually(DEADLINE, async || {
            let list = redis::cmd("PUBSUB")
                .arg(&["CHANNELS", &format!("*{}*", self.name)])
                .to_owned();
            let channels: Vec<String> = list.query_async(&mut self.redis.clone()).await.unwrap();
            self.other_client.stats().waiting == 1 && channels.len() == 1
        })
        .await;
    }

    /// The lock as it stands in Redis: owner -> hold count.
    async fn hash(&self) -> BTreeMap<String, u32> {
        let get = redis::cmd("HGETALL").arg(&self.name).to_owned();
        get.query_async(&mut self.redis.clone()).await.unwrap()
    }

    async fn ttl(&self) -> Duration {
        let get = redis::cmd("PTTL").arg(&self.name).to_owned();
        let millis: i64 = get.query_async(&mut self.redis.clone()).await.unwrap();
        Duration::from_millis(millis.try_into().unwrap())
    }

    /// This guard and nobody else has the lock, so often, and not longer than the key lives.
    #[track_caller]
    fn assert_held(&self, guard: &RLockGuard, count: u32) -> impl Future<Output = ()> {
        let expected = BTreeMap::from([(guard.hold_id().to_string(), count)]);
        let caller = Location::caller();
        async move {
            assert_eq!(self.hash().await, expected, "{caller}");
            let GuardState::Held { until } = guard.state() else {
                panic!("{caller}: {guard:?}");
            };
            let expires = self.ttl().await + Duration::from_millis(1);
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

    async fn assert_clean(self) {
        self.leaks.assert_clean().await;
    }
}

/// A lock is acquired, once and not twice, over lost commands and replies.
async fn acquisition(loss: Loss) {
    let stage = Stage::set("acquisition").await;
    for times in [1, 3] {
        stage.lose(loss, stage.acquisitions(), times);
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

/// A caller whose wait ends with the outcome unknown is told so in time, and leaves no lock.
#[tokio::test]
async fn a_wait_that_ends_with_the_outcome_unknown_leaves_nothing() {
    each(&LOSSES, async |loss| {
        let stage = Stage::set("unknown").await;
        let wait = Duration::from_millis(80);
        stage.lose(loss, stage.acquisitions(), 1000);
        let start = Instant::now();
        let outcome = stage.lock.lock_with(LockOptions::new().wait(wait)).await;
        let error = outcome.unwrap_err();
        let waited = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        assert!(
            waited >= wait && waited < wait + LATE,
            "{loss:?}: {waited:?}"
        );
        // Far below the lease: what may have been acquired is released in the background.
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_try_whose_outcome_is_unknown_leaves_nothing() {
    each(&LOSSES, async |loss| {
        let stage = Stage::set("try").await;
        stage.lose(loss, stage.acquisitions(), 1);
        let error = stage.lock.try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{loss:?}: {error}");
        let guard = within(DEADLINE, stage.other.lock()).await.unwrap();
        stage.assert_held(&guard, 1).await;
        guard.unlock().await.unwrap();
        stage.assert_clean().await;
    })
    .await;
}

/// A lock that was in fact released is told to be, and a waiter has it.
async fn release(loss: Loss) {
    let stage = Stage::set("release").await;
    for &times in tries(loss) {
        let guard = stage.lock.lock().await.unwrap();
        let other = stage.other.clone();
        let waiter = tokio::spawn(async move { other.lock().await });
        stage.other_waits().await;
        stage.lose(loss, stage.releases(), times);
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
    each(&LOSSES, async |loss| {
        const LEAST: Duration = Duration::from_secs(600);
        let stage = Stage::set("kept").await;
        for &times in tries(loss) {
            let options = LockOptions::new().min_hold(LEAST);
            let guard = stage.lock.lock_with(options).await.unwrap();
            let release = calls("lock_min_hold").mentioning(&stage.name);
            stage.lose(loss, release, times);
            let outcome = guard.unlock().await.unwrap();
            assert!(matches!(outcome, Unlocked::Kept { .. }), "{outcome:?}");
            assert!(stage.ttl().await > LEAST / 2);
            assert!(stage.lock.force_unlock().await.unwrap());
        }
        stage.assert_clean().await;
    })
    .await;
}

#[tokio::test]
async fn a_dropped_guard_whose_release_is_lost() {
    each(&LOSSES, async |loss| {
        let stage = Stage::set("drop").await;
        for times in [1, 2] {
            let guard = stage.lock.lock().await.unwrap();
            stage.lose(loss, stage.releases(), times);
            drop(guard);
            let next = within(DEADLINE, stage.other.lock()).await.unwrap();
            stage.assert_held(&next, 1).await;
            next.unlock().await.unwrap();
        }
        stage.assert_clean().await;
    })
    .await;
}

/// Whoever is next does not wait until the last holder knows.
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

/// The reply is lost, and by the time that the release is repeated there is a newer hold.
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

/// The reply to the release may be lost for longer than the lease: it was released all the same.
#[tokio::test]
async fn a_release_whose_reply_is_lost_for_longer_than_the_lease() {
    each(&[Loss::Reply, Loss::CutAfter], async |loss| {
        let lease = Duration::from_millis(400);
        let stage = Stage::patient("short", 2 * lease).await;
        let options = LockOptions::new().lease(lease).renew(false);
        let guard = stage.lock.lock_with(options).await.unwrap();
        stage.lose(loss, stage.releases(), 1);
        let outcome = guard.unlock().await;
        assert_eq!(outcome.unwrap(), Unlocked::Released, "{loss:?}");
        stage.assert_free().await;
        stage.assert_clean().await;
    })
    .await;
}

/// The only error for a release: nothing is heard of it for as long as it is waited for. It goes on
/// then, and frees nothing but its own hold.
#[tokio::test]
async fn a_release_that_is_never_answered_goes_on_in_the_background() {
    let stage = Stage::set("never").await;
    let guard = stage.lock.lock().await.unwrap();
    stage.lose(Loss::Request, stage.releases(), 1000);
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

/// The hold count is right whatever was lost when it changed, and so is the lease.
async fn reentry(loss: Loss) {
    let stage = Stage::set("reentry").await;
    for &times in tries(loss) {
        let outer = stage.lock.lock().await.unwrap();
        stage.lose(loss, stage.updates(), times);
        let inner = outer.reenter().await.unwrap();
        stage.assert_held(&outer, 2).await;
        stage.lose(loss, stage.updates(), times);
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        stage.assert_held(&outer, 1).await;
        stage.lose(loss, stage.updates(), times);
        outer.extend(Duration::from_secs(90)).await.unwrap();
        assert!(stage.ttl().await > Duration::from_secs(80));
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

/// A re-entry whose wait ends with the outcome unknown is as if it had not been.
#[tokio::test]
async fn a_reentry_with_the_outcome_unknown_is_set_back() {
    each(&LOSSES, async |loss| {
        let stage = Stage::set("back").await;
        let outer = stage.lock.lock().await.unwrap();
        stage.lose(loss, stage.updates(), 3);
        let wait = Duration::from_millis(80);
        let inner = outer.run(stage.lock.lock_with(LockOptions::new().wait(wait)));
        match inner.await.unwrap() {
            // A cut connection is known at once, so that there is time for more tries.
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

/// By the time of the repeat the lock was somebody else's.
#[tokio::test]
async fn a_force_unlock_whose_reply_was_lost_freed_the_lock_of_the_next_holder() {
    let stage = Stage::set("forced").await;
    // The server knows the script from here on.
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

/// What is asked about a lock is asked again.
#[tokio::test]
async fn questions_are_repeated() {
    each(&LOSSES, async |loss| {
        let stage = Stage::set("questions").await;
        let guard = stage.lock.lock().await.unwrap();
        stage.lose(loss, calls("rlock_inspect").mentioning(&stage.name), 1);
        let holder = stage.lock.holder().await.unwrap();
        assert_eq!(holder.as_ref(), Some(guard.hold_id()), "{loss:?}");
        stage.lose(
            loss,
            calls("rlock_force_release").mentioning(&stage.name),
            1,
        );
        // That is no question: it is sent once.
        let error = stage.lock.force_unlock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        stage.lock.force_unlock().await.unwrap();
        stage.assert_free().await;
        drop(guard);
        stage.assert_clean().await;
    })
    .await;
}

// Commands that are on their way while the client has long been connected anew: they must not run.

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
    trace_init();
    let (server, name) = (RedisServer::start(), unique("socket"));
    let client = Client::builder()
        .url(&server.url())
        .response_timeout(RESPONSE)
        .connect_timeout(DEADLINE);
    let client = client.build().unwrap();
    let leaks = LeakCheck::on(&server, &name).await.client(&client);
    let lock = client.rlock(&name);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let held = client.rlock(format!("{name}:held")).lock().await.unwrap();
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
    let other = Client::connect(&server.url()).await.unwrap().rlock(&name);
    let guard = within(DEADLINE, other.lock()).await.unwrap();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(
        other.holder().await.unwrap().as_ref(),
        Some(guard.hold_id())
    );
    guard.unlock().await.unwrap();
    leaks.assert_clean().await;
}
