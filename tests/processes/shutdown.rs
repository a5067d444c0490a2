//! The end of a client: by a shut-down of each kind, or with its last handle and guard.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_rt::{
    Client, ClientBuilder, ErrorKind, GuardState, LockOptions, LostReason, RLockGuard, Shutdown,
    Unlocked,
};
use tests::{
    CALL, DEADLINE, Gate, Matcher, Proxy, RedisServer, World, eventually, is_renewed, within,
};
use tokio::task::JoinHandle;

/// The limit for a shut-down over an existing connection.
const PROMPT: Duration = Duration::from_secs(2);
const COUNT: usize = 100;

type Waiter = JoinHandle<Result<RLockGuard, redlock_rt::Error>>;

/// A client of a separate server, so that all connections there are the client's or the test's.
struct Stage {
    world: World,
    server: RedisServer,
    /// The connections of the test.
    own: BTreeSet<String>,
    client: Client,
}

tests::is_a_world!(Stage);

impl Stage {
    async fn set(what: &str) -> Self {
        Self::with(what, |builder| builder).await
    }

    async fn with(what: &str, options: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let server = RedisServer::start();
        let world = World::on(&server, what).await;
        Self::of(world, server, |world| world.client_with(options)).await
    }

    /// A client that reaches the server by a proxy.
    async fn behind_proxy(what: &str) -> (Self, Proxy) {
        let server = RedisServer::start();
        let mut world = World::on(&server, what).await;
        let proxy = Proxy::to(&server);
        world.clients_connect_to(proxy.url());
        let stage = Self::of(world, server, |world| world.client_with(|builder| builder)).await;
        (stage, proxy)
    }

    async fn of(world: World, server: RedisServer, client: impl FnOnce(&World) -> Client) -> Self {
        Self {
            own: connections(&world).await,
            client: client(&world),
            world,
            server,
        }
    }

    fn name(&self, number: usize) -> String {
        format!("{}:{number}", self.world.name)
    }

    /// Acquires `COUNT` locks, and starts one waiting task for each.
    async fn crowd(&self) -> (Vec<RLockGuard>, Vec<Waiter>) {
        let locks: Vec<_> = (0..COUNT)
            .map(|i| self.client.rlock(self.name(i)))
            .collect();
        let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
        let guards = guards.into_iter().map(Result::unwrap).collect();
        let wait = |lock: redlock_rt::RLock| tokio::spawn(async move { lock.lock().await });
        let waiters = locks.into_iter().map(wait).collect();
        eventually(DEADLINE, async || {
            // Subscribed: no command of the waiters is in progress.
            let stats = self.client.stats();
            stats.waiting == COUNT && self.channels().await == COUNT
        })
        .await;
        (guards, waiters)
    }

    async fn channels(&self) -> usize {
        let channels: Vec<String> = self.redis(&["PUBSUB", "CHANNELS"]).await;
        channels.len()
    }

    async fn keys(&self) -> usize {
        self.redis(&["DBSIZE"]).await
    }

    /// Waits until the client has neither a task nor a connection on the server.
    async fn assert_ended(&self) {
        eventually(DEADLINE, async || {
            let tasks = self.client.stats().tasks;
            let connections = connections(&self.world).await;
            let connections = &connections - &self.own;
            if tasks == 0 && connections.is_empty() {
                Ok(())
            } else {
                Err(format!("{tasks} tasks, connections {connections:?}"))
            }
        })
        .await;
    }
}

/// The ids of all connections that the server has.
async fn connections(world: &World) -> BTreeSet<String> {
    let list: String = world.redis(&["CLIENT", "LIST"]).await;
    let ids = list.lines().filter_map(|line| line.split(' ').next());
    ids.map(str::to_owned).collect()
}

fn assert_shut_down<T>(outcome: Result<T, redlock_rt::Error>) {
    match outcome {
        Ok(_) => panic!("it was given out"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}"),
    }
}

async fn assert_sent_away(waiters: Vec<Waiter>) {
    for outcome in within(PROMPT, join_all(waiters)).await {
        assert_shut_down(outcome.unwrap());
    }
}

#[tokio::test]
async fn release_all_frees_all_locks_and_sends_all_waiters_away() {
    let stage = Stage::set("release-all").await;
    let (guards, waiters) = stage.crowd().await;
    let lost = tokio::spawn({
        let guard = stage.client.rlock(stage.name(COUNT)).lock().await.unwrap();
        async move { (guard.lost().await, guard) }
    });

    let started = Instant::now();
    within(PROMPT, stage.client.shutdown(Shutdown::ReleaseAll))
        .await
        .unwrap();
    assert_eq!(stage.keys().await, 0);
    assert!(started.elapsed() <= PROMPT, "{:?}", started.elapsed());
    assert_sent_away(waiters).await;
    let (reason, guard) = within(PROMPT, lost).await.unwrap();
    assert_eq!(reason, LostReason::ShutDown);
    drop(guard);

    for guard in &guards {
        assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
    }
    stage.assert_ended().await;
    // No lock is granted any more, by any method.
    let lock = stage.client.rlock(stage.name(0));
    assert_shut_down(lock.lock().await);
    assert_shut_down(lock.try_lock().await);
    assert_shut_down(lock.with(async |_| ()).await);
    assert_shut_down(lock.is_locked().await);
    // And the guards end without errors.
    let mut guards = guards.into_iter();
    let (first, second) = (guards.next().unwrap(), guards.next().unwrap());
    let error = first.extend(Duration::from_secs(60)).await.unwrap_err();
    assert!(error.is_shut_down(), "{error}");
    assert!(first.reenter().await.is_err());
    let error = first.run(std::future::pending::<()>()).await.unwrap_err();
    assert!(error.is_shut_down(), "{error}");
    assert_eq!(first.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    drop(second);
    drop(guards);
    stage.assert_clean().await;
    stage.assert_ended().await;
}

#[tokio::test]
async fn drain_waits_for_the_guards_and_not_for_the_waiters() {
    let stage = Stage::set("drain").await;
    let (mut guards, waiters) = stage.crowd().await;
    let draining = tokio::spawn({
        let client = stage.client.clone();
        async move { client.shutdown(Shutdown::Drain(DEADLINE)).await }
    });
    assert_sent_away(waiters).await;
    assert_shut_down(stage.client.rlock(stage.name(0)).lock().await);

    // While a guard lives, the client continues to serve it.
    let last = guards.pop().unwrap();
    for (i, guard) in guards.into_iter().enumerate() {
        match i % 2 {
            0 => drop(guard),
            _ => assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released),
        }
    }
    eventually(PROMPT, async || stage.keys().await == 1).await;
    last.extend(Duration::from_secs(60)).await.unwrap();
    assert!(last.is_valid());
    assert!(!draining.is_finished());
    assert_eq!(last.unlock().await.unwrap(), Unlocked::Released);

    within(PROMPT, draining).await.unwrap().unwrap();
    stage.assert_ended().await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn drain_releases_what_is_held_longer() {
    let stage = Stage::set("drain-over").await;
    let (guards, waiters) = stage.crowd().await;
    let drain = Duration::from_millis(50);
    let shutdown = stage.client.shutdown(Shutdown::Drain(drain));
    within(drain + PROMPT, shutdown).await.unwrap();
    assert_eq!(stage.keys().await, 0);
    assert_sent_away(waiters).await;
    for guard in &guards {
        assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
    }
    stage.assert_ended().await;
    drop(guards);
    stage.assert_clean().await;
}

#[tokio::test]
async fn abandon_leaves_the_locks_to_their_leases() {
    let lease = Duration::from_secs(3);
    let stage = Stage::with("abandon", |builder| builder.lease(lease)).await;
    let (guards, waiters) = stage.crowd().await;

    within(PROMPT, stage.client.shutdown(Shutdown::Abandon))
        .await
        .unwrap();
    assert_sent_away(waiters).await;
    assert_eq!(stage.keys().await, COUNT);
    stage.assert_ended().await;
    // The locks are no longer renewed, so each guard is lost by the local clock before its key expires.
    for guard in &guards {
        let reason = within(DEADLINE, guard.lost()).await;
        assert_eq!(reason, LostReason::Expired);
        assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    }
    eventually(DEADLINE, async || stage.keys().await == 0).await;
    drop(guards);
    stage.assert_clean().await;
    stage.assert_ended().await;
}

/// A guard of an abandoned lock opens no connection, since nothing would close it.
#[tokio::test]
async fn a_guard_of_an_ended_client_opens_no_connection() {
    let stage = Stage::set("abandoned-guard").await;
    let lock = stage.client.rlock(stage.name(0));
    let (first, second) = (
        lock.lock().await.unwrap(),
        stage.client.rlock(stage.name(1)),
    );
    let second = second.lock().await.unwrap();
    stage.client.shutdown(Shutdown::Abandon).await.unwrap();
    assert!(first.is_valid());
    assert_shut_down(first.extend(Duration::from_secs(60)).await);
    assert_shut_down(first.reenter().await);
    assert_shut_down(first.unlock().await);
    drop(second);
    stage.assert_ended().await;
    assert_eq!(stage.keys().await, 2);
    for number in 0..2 {
        let _: bool = stage.redis(&["DEL", &stage.name(number)]).await;
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_second_shutdown_is_fine() {
    let ways = [
        Shutdown::ReleaseAll,
        Shutdown::Drain(DEADLINE),
        Shutdown::Abandon,
    ];
    for (how, later) in ways.into_iter().zip(ways.into_iter().cycle().skip(1)) {
        let stage = Stage::set("twice").await;
        let lock = stage.client.rlock(stage.name(0));
        let guard = lock.lock().await.unwrap();
        // Two at once: the shut-down without a drain ends the draining one.
        let clone = stage.client.clone();
        let first = stage.client.shutdown(Shutdown::Drain(DEADLINE));
        let both = async { tokio::join!(first, clone.shutdown(Shutdown::ReleaseAll)) };
        let (first, second) = within(PROMPT, both).await;
        first.unwrap();
        second.unwrap();
        assert_eq!(stage.keys().await, 0);
        assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
        // Further shut-downs later.
        within(PROMPT, stage.client.shutdown(how)).await.unwrap();
        drop(guard);
        within(PROMPT, stage.client.shutdown(later)).await.unwrap();
        stage.assert_ended().await;
        stage.assert_clean().await;
    }
}

/// Abandoned locks cannot be released any more, and a later shut-down that should do so reports it.
#[tokio::test]
async fn release_all_tells_what_was_abandoned_before() {
    let stage = Stage::set("abandoned-before").await;
    let lock = stage.client.rlock(stage.name(0));
    let guard = lock
        .lock_with(LockOptions::new().lease(PROMPT))
        .await
        .unwrap();
    stage.client.shutdown(Shutdown::Abandon).await.unwrap();
    let late = within(PROMPT, stage.client.shutdown(Shutdown::ReleaseAll)).await;
    assert!(late.unwrap_err().is_unavailable());
    assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
    drop(guard);
    stage.assert_ended().await;
    stage.assert_clean().await;
}

/// A shut-down that is dropped during its drain has closed the client; the next shut-down ends it.
#[tokio::test]
async fn a_cancelled_shutdown_is_finished_by_the_next() {
    let stage = Stage::set("cancelled").await;
    let guard = stage.client.rlock(stage.name(0)).lock().await.unwrap();
    let mut draining = Box::pin(stage.client.shutdown(Shutdown::Drain(DEADLINE)));
    assert!(futures::poll!(&mut draining).is_pending());
    drop(draining);
    assert_shut_down(stage.client.rlock(stage.name(1)).lock().await);
    assert!(guard.is_valid());
    within(PROMPT, stage.client.shutdown(Shutdown::ReleaseAll))
        .await
        .unwrap();
    assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
    assert_eq!(stage.keys().await, 0);
    drop(guard);
    stage.assert_ended().await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_client_that_was_never_used_shuts_down() {
    let stage = Stage::set("unused").await;
    within(PROMPT, stage.client.shutdown(Shutdown::ReleaseAll))
        .await
        .unwrap();
    stage.assert_ended().await;
    stage.assert_clean().await;
}

/// An acquisition during a shut-down returns no guard and leaves nothing, at each of its stages.
async fn release_all_catches(what: &str, hold: impl FnOnce(&Proxy, Matcher) -> Gate, keys: usize) {
    let (stage, proxy) = Stage::behind_proxy(what).await;
    // Loads the scripts.
    let warm = stage.client.rlock(stage.name(0)).lock().await.unwrap();
    warm.unlock().await.unwrap();
    let gate = hold(&proxy, CALL.into());
    // One caller is in the local queue, the other is not.
    let (lock, other) = (
        stage.client.rlock(stage.name(0)),
        stage.client.rlock(stage.name(1)),
    );
    let acquiring = tokio::spawn(async move { lock.lock().await });
    let trying = tokio::spawn(async move { other.try_lock().await });
    gate.reached().await;
    eventually(DEADLINE, async || stage.keys().await == keys).await;
    let mut shutdown = Box::pin(stage.client.shutdown(Shutdown::ReleaseAll));
    assert!(futures::poll!(&mut shutdown).is_pending());
    gate.open();
    within(PROMPT, shutdown).await.unwrap();
    assert_shut_down(within(PROMPT, acquiring).await.unwrap());
    assert_shut_down(within(PROMPT, trying).await.unwrap());
    assert_eq!(stage.keys().await, 0);
    stage.assert_ended().await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn release_all_catches_an_acquisition_that_redis_has_not_seen() {
    release_all_catches("request", |proxy, script| proxy.hold_request(script), 0).await;
}

#[tokio::test]
async fn release_all_catches_an_acquisition_that_redis_has_answered() {
    release_all_catches("reply", |proxy, script| proxy.hold_reply(script), 2).await;
}

/// The same for a release whose caller waits.
#[tokio::test]
async fn release_all_waits_for_releases_under_way() {
    let (stage, proxy) = Stage::behind_proxy("releasing").await;
    let guard = stage.client.rlock(stage.name(0)).lock().await.unwrap();
    let gate = proxy.hold_request(Matcher::command(CALL).mentioning(stage.name(0)));
    let unlocking = tokio::spawn(guard.unlock());
    gate.reached().await;
    let mut shutdown = Box::pin(stage.client.shutdown(Shutdown::ReleaseAll));
    assert!(futures::poll!(&mut shutdown).is_pending());
    gate.open();
    within(PROMPT, shutdown).await.unwrap();
    assert_eq!(stage.keys().await, 0);
    let outcome = within(PROMPT, unlocking).await.unwrap();
    assert_eq!(outcome.unwrap(), Unlocked::Released);
    stage.assert_ended().await;
    stage.assert_clean().await;
}

/// Without an answer of Redis the shut-down still ends, and reports its leftovers.
#[tokio::test]
async fn release_all_ends_without_redis() {
    let second = Duration::from_millis(100);
    let options = |builder: ClientBuilder| {
        let builder = builder.response_timeout(second).connect_timeout(second);
        builder.lease(Duration::from_secs(2))
    };
    let stage = Stage::with("paused", options).await;
    let guard = stage.client.rlock(stage.name(0)).lock().await.unwrap();
    stage.server.pause();
    // The time to connect and two response time-outs.
    let shutdown = within(
        second * 3 + PROMPT,
        stage.client.shutdown(Shutdown::ReleaseAll),
    );
    assert!(shutdown.await.unwrap_err().is_unavailable());
    assert_eq!(guard.state(), GuardState::Lost(LostReason::ShutDown));
    stage.server.resume();
    drop(guard);
    stage.assert_ended().await;
    stage.assert_clean().await;
}

/// The fate of the leftovers depends on whether they have leases.
#[tokio::test]
async fn release_all_says_what_becomes_of_what_it_left() {
    const LEASED: &str = "locks end with their leases";
    const LASTING: &str = "permits without a lease stay taken, latches closed";
    let brief = Duration::from_millis(100);
    for (locks, permits, fate) in [
        (1, 0, LEASED.to_owned()),
        (0, 1, LASTING.to_owned()),
        (2, 1, format!("{LEASED}, {LASTING}")),
    ] {
        let options = |builder: ClientBuilder| {
            let builder = builder.response_timeout(brief).connect_timeout(brief);
            builder.lease(Duration::from_secs(2))
        };
        let stage = Stage::with("left", options).await;
        let (mut guards, mut taken) = (Vec::new(), Vec::new());
        for number in 0..locks {
            let lock = stage.client.rlock(stage.name(number));
            guards.push(lock.lock().await.unwrap());
        }
        for _ in 0..permits {
            let semaphore = stage.client.semaphore(stage.name(COUNT)).limit(1);
            taken.push(semaphore.acquire().await.unwrap());
        }
        stage.server.pause();
        let shutdown = stage.client.shutdown(Shutdown::ReleaseAll);
        let error = within(DEADLINE, shutdown).await.unwrap_err();
        let count = locks + permits;
        let says = format!("{count} releases could not be delivered; {fate}");
        assert!(error.to_string().ends_with(&says), "{error}");
        // The same again, also when the client no longer tries.
        eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
        let shutdown = stage.client.shutdown(Shutdown::ReleaseAll);
        let error = within(DEADLINE, shutdown).await.unwrap_err();
        assert!(error.to_string().ends_with(&says), "{error}");
        stage.server.resume();
        drop((guards, taken));
        stage.assert_ended().await;
        let _: () = stage.redis(&["FLUSHALL"]).await;
        stage.assert_clean().await;
    }
}

/// A count-down that could not be delivered is reported too.
#[tokio::test]
async fn release_all_says_that_a_latch_was_not_counted_down() {
    let brief = Duration::from_millis(100);
    let options = |builder: ClientBuilder| builder.response_timeout(brief).connect_timeout(brief);
    let stage = Stage::with("left-latch", options).await;
    let latch = stage.client.count_down_latch(stage.name(0));
    // The first reply may be late.
    eventually(DEADLINE, async || latch.try_set_count(1).await.is_ok()).await;
    stage.server.pause();
    drop(latch.count_down_guard().unwrap());
    let shutdown = stage.client.shutdown(Shutdown::ReleaseAll);
    let error = within(DEADLINE, shutdown).await.unwrap_err();
    let says =
        "1 releases could not be delivered; permits without a lease stay taken, latches closed";
    assert!(error.to_string().ends_with(says), "{error}");
    stage.server.resume();
    stage.assert_ended().await;
    let _: () = stage.redis(&["FLUSHALL"]).await;
    stage.assert_clean().await;
}

/// A client ends with its last handle and guard; the locks of its guards are still released.
#[tokio::test]
async fn guards_that_outlive_the_last_handle_are_released() {
    let server = RedisServer::start();
    let world = World::on(&server, "last-handle").await;
    let own = connections(&world).await;
    // Not watched, since the leak check would keep a handle of the client.
    let client = world.builder().build().unwrap();
    let names: Vec<_> = (0..COUNT).map(|i| format!("{}:{i}", world.name)).collect();
    let (mut guards, interval) = (Vec::new(), Duration::from_millis(100));
    for name in &names {
        let often = LockOptions::new().renew(interval);
        guards.push(client.rlock(name).lock_with(often).await.unwrap());
    }
    drop(client);
    is_renewed(3 * interval, || guards[0].state()).await;

    let last = guards.pop().unwrap();
    drop(guards);
    let stage = Stage {
        client: world.client(),
        world,
        server,
        own,
    };
    eventually(PROMPT, async || stage.keys().await == 1).await;
    let outcome = last.unlock().await.unwrap();
    assert_eq!(outcome, Unlocked::Released);
    stage.client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    stage.assert_ended().await;
    stage.assert_clean().await;
}
