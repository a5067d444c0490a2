//! Former defects: each test is named for the symptom, and its comment tells the cause.

mod dropped;
mod unheard;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use redlock_rt::embedded::Engine;
use redlock_rt::{
    Backoff, Client, ErrorKind, GuardState, LockOptions, LostReason, MultiLock, Owner, Part,
    Quorum, Unlocked,
};
use tests::{
    CALL, DEADLINE, LeakCheck, Matcher, Proxy, RedisServer, connection_over, shared_server, unique,
    within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Notify;

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// A client whose connections to `engine` succeed when `ready` completes.
fn slow_to_connect<F>(engine: &Engine, ready: impl Fn() -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = ()> + Send + 'static,
{
    let engine = engine.clone();
    let connect = move || {
        let (engine, ready) = (engine.clone(), ready());
        async move {
            ready.await;
            Ok(engine.connect())
        }
    };
    Client::builder().connector(connect).build().unwrap()
}

/// Each call started to connect anew, and aborted that attempt when its wait was over.
#[tokio::test(start_paused = true)]
async fn callers_whose_waits_are_shorter_than_connecting_never_connected() {
    let engine = Engine::new();
    let client = slow_to_connect(&engine, || tokio::time::sleep(ms(50)));
    let lock = client.rlock("hurry");
    let options = LockOptions::new().wait(ms(20));
    let mut tries = 0;
    let guard = loop {
        tries += 1;
        match lock.lock_with(options.clone()).await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_unavailable() && tries < 10, "{error}"),
        }
    };
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

/// That caller had the turn to connect, and no other caller got it.
#[tokio::test]
async fn a_caller_that_is_not_polled_kept_all_others_from_connecting() {
    let open = Arc::new(Notify::new());
    let gate = Arc::clone(&open);
    let engine = Engine::new();
    let client = slow_to_connect(&engine, move || {
        let gate = Arc::clone(&gate);
        async move { gate.notified().await }
    });
    let first = client.rlock("first");
    let mut unpolled = tokio_test::task::spawn(first.lock());
    assert!(unpolled.poll().is_pending());
    // One attempt for each connection, whatever the number of callers.
    let opener = tokio::spawn(async move {
        loop {
            open.notify_one();
            tokio::task::yield_now().await;
        }
    });
    let second = client.rlock("second");
    let guard = within(DEADLINE, second.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    opener.abort();
}

/// A broken connection has every lock verified at once, without a pause. So a server that accepts and
/// closes connections was dialed as fast as it could accept.
#[tokio::test]
async fn a_server_that_hangs_up_at_once_was_dialed_without_a_pause() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up");
    let options = LockOptions::new().lease(Duration::from_secs(2));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    proxy.mark();
    // More than enough for the lease, at a decent pace: else they are used up, and it is kept.
    for _ in 0..500 {
        proxy.cut_before_request(Matcher::command(CALL));
    }
    proxy.cut_all();
    let lost = within(DEADLINE, guard.lost()).await;
    assert_eq!(lost, LostReason::Expired);
    // Two for each connection.
    let dialed = proxy.counts().get("INFO").copied().unwrap_or_default() / 2;
    assert!((1..60).contains(&dialed), "{dialed} connections");
    proxy.clear();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .assert_clean()
        .await;
}

/// Any answer counted as a sign of a good connection.
#[tokio::test]
async fn a_server_that_answers_once_and_hangs_up_was_dialed_without_a_pause() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up-later");
    let options = LockOptions::new().lease(Duration::from_secs(2));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    proxy.mark();
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    proxy.answer(Matcher::command(CALL), unknown, 500);
    for _ in 0..500 {
        proxy.cut_before_request(Matcher::command("SCRIPT"));
    }
    proxy.cut_all();
    let lost = within(DEADLINE, guard.lost()).await;
    assert_eq!(lost, LostReason::Expired);
    // Two for each connection.
    let dialed = proxy.counts().get("INFO").copied().unwrap_or_default() / 2;
    assert!((1..200).contains(&dialed), "{dialed} connections");
    proxy.clear();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .assert_clean()
        .await;
}

/// Each successful connection reset the pause.
#[tokio::test]
async fn a_server_that_hangs_up_on_subscribers_was_dialed_a_hundred_times_a_second() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let holder = Client::connect(&server.url()).await.unwrap();
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("hangs-up");
    let guard = holder.rlock(&name).lock().await.unwrap();
    for _ in 0..500 {
        proxy.cut_before_request(Matcher::command("SUBSCRIBE"));
    }
    let options = LockOptions::new().wait(Duration::from_secs(1));
    let error = client.rlock(&name).lock_with(options).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    let dialed = proxy.counts()["SUBSCRIBE"];
    assert!((2..30).contains(&dialed), "{dialed} connections");
    proxy.clear();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .client(&holder)
        .assert_clean()
        .await;
}

/// The refusal counted as permanent, like that of an ACL.
#[tokio::test]
async fn a_busy_server_that_refused_to_subscribe_was_not_asked_again() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let holder = Client::connect(&server.url()).await.unwrap();
    let builder = Client::builder().url(&proxy.url());
    let client = builder
        .poll_interval(Duration::from_secs(60))
        .build()
        .unwrap();
    let name = unique("busy");
    let guard = holder.rlock(&name).lock().await.unwrap();
    let busy = "-BUSY Redis is busy running a script.\r\n";
    proxy.answer(Matcher::command("SUBSCRIBE"), busy, 1);
    let lock = client.rlock(&name);
    let waiter = tokio::spawn(async move { lock.lock().await });
    within(
        DEADLINE,
        proxy.wait_for_count(Matcher::command("SUBSCRIBE"), 2),
    )
    .await;
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .client(&holder)
        .assert_clean()
        .await;
}

/// The waiter had not tried, since its own client held the lock, and the channel was confirmed before
/// it came. So only an announcement could have made it try.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_a_lock_of_its_client_that_vanished_waited_for_ever() {
    let engine = Engine::new();
    let builder = Client::builder().embedded(&engine);
    let client = builder.linger(Duration::from_secs(60)).build().unwrap();
    let mut raw = connection_over(engine.connect()).await.unwrap();
    let lock = client.rlock("vanished");
    let guard = lock.lock().await.unwrap();
    // Leaves a confirmed subscription.
    let passing = LockOptions::new().wait(ms(100));
    assert!(lock.lock_with(passing).await.unwrap_err().is_timed_out());
    assert_eq!(client.stats().subscriptions, 1);
    let waiting = lock.clone();
    let waiter = tokio::spawn(async move { waiting.lock().await });
    while client.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let _: () = redis::cmd("DEL")
        .arg("vanished")
        .query_async(&mut raw)
        .await
        .unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    let guard = within(ms(50), waiter).await.unwrap().unwrap();
    guard.unlock().await.unwrap();
}

/// A cleanup that had the turn of its hold was queued behind cleanups that waited for that turn, and
/// those took all places of the release task.
#[tokio::test(start_paused = true)]
async fn many_dropped_guards_of_one_hold_behind_a_cancelled_extension_stopped_all_releases() {
    const GUARDS: usize = 200;
    let client = Client::embedded();
    let owner = Owner::new();
    let lock = client.rlock("crowded");
    let options = LockOptions::new().owner(&owner);
    let first = lock.lock_with(options.clone()).await.unwrap();
    let mut guards = Vec::new();
    for _ in 1..GUARDS {
        guards.push(lock.lock_with(options.clone()).await.unwrap());
    }
    {
        let mut extension = tokio_test::task::spawn(first.extend(Duration::from_secs(60)));
        assert!(extension.poll().is_pending());
        drop(guards);
        // The release task takes as many cleanups as it can.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    drop(first);
    let guard = within(Duration::from_secs(5), lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(client.stats().releases, 0);
}

/// Both guards of one process reported held until the next renewal of the first.
#[tokio::test(start_paused = true)]
async fn a_guard_reported_held_after_its_client_took_the_forced_lock_again() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.rlock("forced");
    let first = lock.lock().await.unwrap();
    assert!(other.rlock("forced").force_unlock().await.unwrap());
    let second = within(Duration::from_secs(5), lock.lock()).await.unwrap();
    assert!(second.is_valid());
    assert_eq!(first.state(), GuardState::Lost(LostReason::Taken));
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
}

/// A stream to an engine that delays every request by this many milliseconds.
fn far_away(engine: &Engine, latency: Arc<AtomicU64>) -> DuplexStream {
    let mut session = engine.connect();
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let (mut requests, mut replies) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                Ok(len @ 1..) = theirs.read(&mut requests) => {
                    tokio::time::sleep(ms(latency.load(Ordering::Relaxed))).await;
                    session.write_all(&requests[..len]).await.unwrap();
                }
                Ok(len @ 1..) = session.read(&mut replies) => {
                    theirs.write_all(&replies[..len]).await.unwrap();
                }
                else => return,
            }
        }
    });
    ours
}

/// A client that polls every 20 to 40 ms.
async fn client_far_away(engine: &Engine, latency: &Arc<AtomicU64>) -> Client {
    let (engine, latency) = (engine.clone(), Arc::clone(latency));
    let builder = Client::builder().connector(move || {
        let stream = far_away(&engine, Arc::clone(&latency));
        async move { Ok(stream) }
    });
    builder.poll_interval(ms(20)).connect().await.unwrap()
}

/// The last try of the waiter was in progress when its wait was over.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_wait_ended_during_a_try_called_redis_unavailable() {
    let engine = Engine::new();
    let holder = Client::builder().embedded(&engine).build().unwrap();
    let guard = holder.rlock("far").lock().await.unwrap();
    let client = client_far_away(&engine, &Arc::new(AtomicU64::new(100))).await;
    // A try of 100 ms, a pause of 20 to 40 ms, and another try that is cut short.
    let options = LockOptions::new().wait(ms(150));
    let error = client.rlock("far").lock_with(options).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    guard.unlock().await.unwrap();
}

/// One waiter after the other became head, and sent a try for which its wait had no time.
#[tokio::test(start_paused = true)]
async fn waiters_whose_waits_ended_together_each_sent_a_doomed_try() {
    const WAITERS: usize = 50;
    let engine = Engine::new();
    let latency = Arc::new(AtomicU64::new(0));
    let client = client_far_away(&engine, &latency).await;
    latency.store(3_600_000, Ordering::Relaxed);
    let lock = client.rlock("doomed");
    let options = LockOptions::new().wait(Duration::from_secs(1));
    let waits = (0..WAITERS).map(|_| lock.lock_with(options.clone()));
    let outcomes = join_all(waits).await;
    assert_eq!(client.stats().releases, 1, "tries left behind");
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
}

/// A user without rights to the channels of announcements.
async fn limited_user(rules: &[&str]) -> (tests::SharedServer, String) {
    let server = shared_server();
    let user = unique("limited").replace(':', "-");
    let mut control = server.connect().await.unwrap();
    let _: () = redis::cmd("ACL")
        .arg("SETUSER")
        .arg(&[&*user, "reset", "on", ">secret", "~*", "+@all"])
        .arg(rules)
        .query_async(&mut control)
        .await
        .unwrap();
    let url = format!("redis://{user}:secret@{}", server.address());
    (server, url)
}

/// The release was refused after it had freed the lock.
#[tokio::test]
async fn without_the_right_to_publish_a_release_was_reported_as_failed() {
    let (server, url) = limited_user(&["resetchannels"]).await;
    let client = Client::connect(&url).await.unwrap();
    let name = unique("silent");
    let lock = client.rlock(&name);
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let _guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(_guard);
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .assert_clean()
        .await;
}

/// Inside a script the refusal has no separate error code.
#[tokio::test]
async fn a_command_denied_inside_a_script_was_called_an_unexpected_reply() {
    let (_server, url) = limited_user(&["allchannels", "-restore", "-hset"]).await;
    let client = Client::connect(&url).await.unwrap();
    let error = client.rlock(unique("denied")).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// The lock was taken, and then its lease could not be set.
#[tokio::test]
async fn without_the_right_to_expire_a_lock_stayed_for_ever() {
    let (server, url) = limited_user(&["allchannels", "-restore", "-pexpire"]).await;
    let client = Client::builder().url(&url).build().unwrap();
    let name = unique("for-ever");
    let error = client.rlock(&name).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    LeakCheck::on(&server, &name)
        .await
        .client(&client)
        .assert_clean()
        .await;
}

/// A client of a server that accepts connections and sends nothing.
fn unheard() -> Client {
    let silence = Arc::new(std::sync::Mutex::new(Vec::new()));
    let connect = move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        // Kept open and never read.
        silence.lock().unwrap().push(theirs);
        async move { Ok::<DuplexStream, _>(ours) }
    };
    Client::builder().connector(connect).build().unwrap()
}

/// The first call was waiting for Redis, and the second for the first.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_the_second_call_of_an_owner() {
    let lock = unheard().rlock("silence");
    let owner = Owner::new();
    let wait = |wait| LockOptions::new().owner(&owner).wait(wait);
    let (first, second) = tokio::join!(
        lock.lock_with(wait(ms(5000))),
        lock.lock_with(wait(ms(2000))),
    );
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// The head of the queue had failed once, and was just asking again.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_who_gave_up_early_in_a_second_try() {
    let lock = unheard().rlock("silence");
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    // Connecting is given up after 3 s.
    let (first, second, third) = tokio::join!(wait(8000), wait(3500), wait(6500));
    for error in [first, second, third].map(Result::unwrap_err) {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// Scripts of read-write locks read as many leases as the hash said, so the server stopped.
#[tokio::test]
async fn a_hold_count_that_somebody_made_up_stopped_the_server() {
    let server = RedisServer::start();
    let mut redis = server.connect().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.read_write_lock("made-up");
    let made_up = "u:1";
    for mode in ["read", "write"] {
        let mut hset = redis::cmd("HSET");
        hset.arg("made-up").arg("mode").arg(mode).arg(made_up);
        let _: i64 = hset
            .arg(9_007_199_254_740_991_u64)
            .query_async(&mut redis)
            .await
            .unwrap();
        within(DEADLINE, async {
            drop(lock.try_read().await);
            drop(lock.try_write().await);
            let _ = lock.read_lock().holders().await;
            let _ = lock.write_lock().holders().await;
            let _ = lock.read_lock().force_unlock().await;
            let _ = lock.write_lock().force_unlock().await;
        })
        .await;
    }
    within(DEADLINE, async { drop(lock.write().await.unwrap()) }).await;
}

/// The first field of that hash is no owner, which was an "unexpected reply".
#[tokio::test]
async fn looking_at_a_read_write_lock_as_at_an_rlock_was_an_unexpected_reply() {
    let client = Client::embedded();
    let guard = client.read_write_lock("both").write().await.unwrap();
    let rlock = client.rlock("both");
    let holder = rlock.holder().await.unwrap().unwrap();
    assert_eq!(holder.as_str(), format!("{}:write", guard.hold_id()));
    assert_eq!(rlock.hold_count().await.unwrap(), 1);
    assert!(rlock.is_locked().await.unwrap());
    assert!(rlock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

/// The retries of a waiter behind another task were over, although none was refused.
#[tokio::test(start_paused = true)]
async fn a_silent_redis_was_called_contention_to_who_spins_behind_another() {
    let lock = unheard()
        .spin_lock("silence")
        .backoff(Backoff::constant(ms(10)).max_retries(3));
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    let (first, second) = tokio::join!(wait(5000), wait(2000));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert!(error.is_unavailable(), "{error}");
    }
}

/// Retries were counted while Redis did not answer, so the first refusal was the last.
#[tokio::test(start_paused = true)]
async fn an_outage_used_up_the_retries_of_a_spin_lock() {
    let engine = Engine::new();
    let connected = Arc::new(Notify::new());
    let open = Arc::clone(&connected);
    let client = slow_to_connect(&engine, move || {
        let open = Arc::clone(&open);
        async move { open.notified().await }
    });
    let holder = slow_to_connect(&engine, || std::future::ready(()));
    let _held = holder.spin_lock("spun").lock().await.unwrap();
    let lock = client
        .spin_lock("spun")
        .backoff(Backoff::constant(ms(10)).max_retries(5));
    let begun = tokio::time::Instant::now();
    let back = async {
        // Longer than the connect time-out: the first try fails.
        tokio::time::sleep(ms(10_000)).await;
        loop {
            connected.notify_one();
            tokio::time::sleep(ms(1)).await;
        }
    };
    let error = tokio::select! {
        outcome = lock.lock() => outcome.unwrap_err(),
        () = back => unreachable!(),
    };
    assert!(error.is_timed_out(), "{error}");
    let after = begun.elapsed() - ms(10_000);
    assert!(after >= ms(50), "{after:?} after it answered again");
}

/// The TTL of the token was checked only for a single lock.
#[tokio::test]
async fn a_fenced_lock_among_others_was_taken_with_a_token_that_is_forgotten_before_its_lease() {
    let client = Client::embedded();
    let fenced = client.fenced_lock("fenced").token_ttl(ms(5));
    assert!(fenced.lock().await.unwrap_err().is_bad_input());
    let both = MultiLock::new([Part::from(&fenced), Part::from(client.rlock("other"))]);
    assert!(both.lock().await.unwrap_err().is_bad_input());
}

/// The error did not say which lock either.
#[tokio::test]
async fn the_error_of_several_locks_named_none_of_them() {
    let client = Client::embedded();
    let occupied = client.fenced_value("a");
    occupied.set("no lock", 1).await.unwrap();
    let both = client.multi_lock(["a", "b"]);
    for error in [
        both.lock().await.unwrap_err(),
        both.try_lock().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(
            error.name().is_some_and(|name| name.contains('a')),
            "{error}"
        );
    }
    let both = unheard().multi_lock(["a", "b"]);
    let error = both.try_lock().await.unwrap_err();
    assert!(
        error.name().is_some_and(|name| name.contains('a')),
        "{error}"
    );
}

/// The first call was asking silent servers, and did not know that yet.
#[tokio::test(start_paused = true)]
async fn silent_servers_were_called_contention_to_who_waited_behind_the_first_call() {
    let quorum = Quorum::new((0..3).map(|_| unheard())).unwrap();
    let lock = quorum.redlock("silence");
    let wait = |wait| lock.lock_with(LockOptions::new().wait(ms(wait)));
    let (first, second) = tokio::join!(wait(5000), wait(200));
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    }
}

/// The waiter learned its turn only from beats, which came every third of its waiter time-out.
#[tokio::test(start_paused = true)]
async fn after_a_crash_a_patient_fair_waiter_slept_for_twenty_minutes() {
    let engine = Engine::new();
    let patient = || {
        let builder = Client::builder().embedded(&engine);
        builder.waiter_timeout(Duration::from_secs(3600)).build()
    };
    let (holder, crashes, client) = (patient().unwrap(), patient().unwrap(), patient().unwrap());
    let guard = holder.fair_lock("crash").lock().await.unwrap();
    let queued = async |count| {
        let lock = holder.fair_lock("crash");
        within(DEADLINE, async {
            while lock.queue_len().await.unwrap() != count {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    let first = crashes.fair_lock("crash");
    let lease = LockOptions::new()
        .lease(Duration::from_secs(10))
        .renew(false);
    let first = tokio::spawn(async move { first.lock_with(lease).await });
    queued(1).await;
    let second = client.fair_lock("crash");
    let second = tokio::spawn(async move { second.lock().await });
    queued(2).await;
    guard.unlock().await.unwrap();
    let lost = within(DEADLINE, first).await.unwrap().unwrap();
    crashes
        .shutdown(redlock_rt::Shutdown::Abandon)
        .await
        .unwrap();
    let guard = within(Duration::from_secs(60), second).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
    drop(lost);
}

/// Readers and both kinds of writers had separate local queues, and looked for a forced guard only in
/// their own.
#[tokio::test(start_paused = true)]
async fn a_forced_writer_reported_held_beside_a_reader_or_preferred_writer_of_its_client() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.read_write_lock("forced");
    let other = other.read_write_lock("forced").write_lock();
    let preferred = lock.clone().prefer_writers(true);
    for [one, another] in [[&lock, &preferred], [&preferred, &lock]] {
        let first = one.write().await.unwrap();
        assert!(other.force_unlock().await.unwrap());
        let second = within(Duration::from_secs(5), another.write())
            .await
            .unwrap();
        assert!(second.is_valid());
        assert_eq!(first.state(), GuardState::Lost(LostReason::Taken));
        assert!(other.force_unlock().await.unwrap());
        let third = within(Duration::from_secs(5), one.read()).await.unwrap();
        assert!(third.is_valid());
        assert_eq!(second.state(), GuardState::Lost(LostReason::Taken));
        assert_eq!(third.unlock().await.unwrap(), Unlocked::Released);
    }
}

/// The error said that others read, also when the call was repeated.
#[tokio::test(start_paused = true)]
async fn an_upgrade_of_a_deleted_lock_was_called_contended() {
    let engine = Engine::new();
    let client = || Client::builder().embedded(&engine).build().unwrap();
    let (client, other) = (client(), client());
    let lock = client.read_write_lock("forced");
    let other = other.read_write_lock("forced");
    for written in [false, true] {
        let reading = lock.read().await.unwrap();
        assert!(other.read_lock().force_unlock().await.unwrap());
        let writing = match written {
            true => Some(other.write().await.unwrap()),
            false => None,
        };
        let refused = reading.try_upgrade().await.unwrap_err();
        assert!(refused.error().is_lost(), "{}", refused.error());
        assert!(!refused.into_guard().is_valid());
        drop(writing);
    }
}
