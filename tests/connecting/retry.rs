//! How often a server is asked that refuses for the moment, and when a caller is told.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redlock_rt::{Client, Error, ErrorKind, LockOptions, ReplicaAck, RetryPolicy};
use tests::{
    CALL, DEADLINE, Matcher, Proxy, RedisServer, Which, calls, eventually, trace_init, within,
};

const LOADING: &str = "-LOADING Redis is loading the dataset in memory\r\n";
const DENIED: &str = "-NOPERM this user has no permissions to run the 'evalsha' command\r\n";
const FOR_EVER: usize = 1_000_000;

async fn stage(policy: RetryPolicy) -> (RedisServer, Proxy, Client) {
    trace_init();
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let builder = Client::builder().url(&proxy.url()).retry(policy);
    let builder = builder.response_timeout(DEADLINE).replica_timeout(DEADLINE);
    let client = builder.connect().await.unwrap();
    (server, proxy, client)
}

/// Each asked for itself: 953 times in these two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_asked_a_server_that_refuses_a_hundred_times_as_often() {
    const SPAN: Duration = Duration::from_secs(2);
    let (_server, proxy, client) = stage(RetryPolicy::new()).await;
    let warm = client.rlock("warm").lock().await.unwrap();
    warm.unlock().await.unwrap();
    proxy.answer(CALL, LOADING, FOR_EVER);
    let refused = client
        .rlock("first")
        .lock_with(LockOptions::new().wait(SPAN / 20))
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.mark();
    let tasks: Vec<_> = (0..100)
        .map(|at| {
            let lock = client.rlock(format!("lock:{at}"));
            tokio::spawn(async move {
                match at % 2 {
                    0 => lock.is_locked().await.map(drop),
                    _ => lock.lock().await.map(drop),
                }
            })
        })
        .collect();
    tokio::time::sleep(SPAN).await;
    assert!(tasks.iter().all(|task| !task.is_finished()));
    let asked = proxy.count(CALL);
    eprintln!("100 tasks asked {asked} times in {SPAN:?}");
    // 20, 40, 80, 160, 320, 500 ms, …, at least half of each.
    assert!((2..=16).contains(&asked), "{asked}");
    proxy.clear();
    // The first answer wakes all.
    for outcome in within(DEADLINE, join_all(tasks)).await {
        outcome.unwrap().unwrap();
    }
}

/// It was the one that was to ask next, and nobody asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_was_not_polled_kept_all_others_from_a_server_that_had_refused() {
    const PAUSE: Duration = Duration::from_millis(500);
    let policy = RetryPolicy::new().interval(PAUSE).max_interval(PAUSE);
    let (_server, proxy, client) = stage(policy).await;
    proxy.answer(CALL, LOADING, FOR_EVER);
    let wait = LockOptions::new().wait(PAUSE / 10);
    let refused = client.rlock("first").lock_with(wait).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    let kept = client.rlock("kept");
    let mut kept = tokio_test::task::spawn(kept.lock());
    tokio_test::assert_pending!(kept.poll());
    proxy.clear();
    let guard = within(DEADLINE, client.rlock("other").lock()).await;
    guard.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_tried_as_often_as_the_policy_says() {
    let (_server, proxy, client) = stage(RetryPolicy::new().attempts(3)).await;
    let lock = client.rlock("a");
    let guard = client.rlock("held").lock().await.unwrap();
    let latch = client.count_down_latch("l");
    proxy.answer(CALL, LOADING, FOR_EVER);
    for which in 0..4 {
        proxy.mark();
        let error = match which {
            0 => lock.is_locked().await.map(drop),
            // Without a limit on its wait.
            1 => lock.lock().await.map(drop),
            2 => latch.wait().await.map(drop),
            _ => lock.force_unlock().await.map(drop),
        };
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{which}: {error}");
        // A frame may be noted a moment after it was answered.
        eventually(DEADLINE, async || proxy.count(CALL) >= 3).await;
        assert_eq!(proxy.count(CALL), 3, "{which}");
    }
    proxy.clear();
    assert!(!lock.is_locked().await.unwrap());
    // A release is not given up.
    proxy.answer(CALL, LOADING, 5);
    guard.unlock().await.unwrap();
    assert!(!client.rlock("held").is_locked().await.unwrap());
}

/// They had intervals of their own, and went on until the wait was over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_and_acknowledgements_did_not_know_the_policy() {
    const PAUSE: Duration = Duration::from_millis(200);
    let policy = RetryPolicy::new().attempts(3).interval(PAUSE).jitter(0.0);
    let (_server, proxy, client) = stage(policy.max_interval(PAUSE)).await;
    let lock = client.read_write_lock("rw");
    let guard = lock.write().await.unwrap();
    let refused = async |script: &str, error: &Error, started: Instant| {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{script}: {error}");
        let took = started.elapsed();
        assert!(took >= 2 * PAUSE, "{script}: {took:?}");
        eventually(DEADLINE, async || proxy.count(calls(script)) >= 3).await;
        assert_eq!(proxy.count(calls(script)), 3, "{script}");
        proxy.clear();
    };

    proxy.answer(calls("rw_read_acquire"), LOADING, FOR_EVER);
    let started = Instant::now();
    let failed = guard.downgrade().await.unwrap_err();
    refused("rw_read_acquire", failed.error(), started).await;

    proxy.answer(calls("touch"), LOADING, FOR_EVER);
    proxy.answer("WAIT", LOADING, FOR_EVER);
    let options = LockOptions::new().replica_ack(ReplicaAck::AtLeast(1));
    let started = Instant::now();
    let lock = client.rlock("acked");
    let error = lock.lock_with(options.wait(DEADLINE)).await.unwrap_err();
    refused("touch", &error, started).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_are_as_far_apart_as_the_policy_says() {
    const PAUSE: Duration = Duration::from_millis(400);
    let policy = RetryPolicy::new().interval(PAUSE).jitter(0.0);
    let (_server, proxy, client) = stage(policy.max_interval(PAUSE)).await;
    for asks in [false, true] {
        proxy.answer(CALL, LOADING, 2);
        let started = Instant::now();
        match asks {
            true => drop(client.rlock("a").is_locked().await.unwrap()),
            false => {
                let guard = client.rlock("a").lock().await.unwrap();
                // Its release would be refused instead of the next call.
                guard.unlock().await.unwrap();
            }
        }
        let took = started.elapsed();
        assert!(took >= 2 * PAUSE && took < 10 * PAUSE, "{took:?}");
    }
}

/// Twice the longest interval was more than there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_longest_interval_panicked_when_it_connected() {
    let policy = RetryPolicy::new().interval(Duration::from_millis(1));
    let (_server, proxy, client) = stage(policy.max_interval(Duration::MAX)).await;
    proxy.answer(CALL, LOADING, 4);
    let guard = within(DEADLINE, client.rlock("a").lock()).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Only this call would be refused again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_alone_is_refused_holds_no_others_back() {
    // At least half of it is longer than the deadline.
    const PAUSE: Duration = Duration::from_secs(60);
    let policy = RetryPolicy::new().interval(PAUSE).max_interval(PAUSE);
    let (_server, proxy, client) = stage(policy).await;
    let full = Matcher::command(CALL).mentioning("full");
    proxy.answer(
        full,
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        FOR_EVER,
    );
    let lock = client.rlock("full");
    let refused = tokio::spawn(async move { lock.lock().await });
    let asked = async || proxy.count(Matcher::command(CALL).mentioning("full")) > 0;
    eventually(DEADLINE, asked).await;
    let other = client.rlock("other");
    drop(within(DEADLINE, other.lock()).await.unwrap());
    refused.abort();
}

#[tokio::test]
async fn a_policy_that_makes_no_sense_is_refused_with_the_client() {
    let policy = RetryPolicy::new;
    for wrong in [
        policy().attempts(0),
        policy().interval(Duration::ZERO),
        policy().max_interval(Duration::from_millis(1)),
        policy().jitter(1.5),
    ] {
        let error = Client::builder()
            .url("redis://h")
            .retry(wrong)
            .build()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        assert!(error.to_string().contains("retry: "), "{error}");
    }
}

/// A call whose reply is lost, and whose repeat is refused.
async fn refused_when_repeated<T: Send + 'static>(
    proxy: &Proxy,
    script: &'static str,
    refusal: &'static str,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Error {
    let gate = proxy.hold_reply(calls(script));
    let call = tokio::spawn(call);
    gate.reached().await;
    proxy.answer(calls(script), refusal, FOR_EVER);
    proxy.cut(Which::All);
    gate.open();
    within(DEADLINE, call).await.unwrap().map(drop).unwrap_err()
}

/// A caller that counted again counted down by two.
#[tokio::test]
async fn a_call_whose_reply_was_lost_was_called_refused_since_its_repeat_was() {
    let (_server, proxy, client) = stage(RetryPolicy::new().attempts(2)).await;
    let latch = client.count_down_latch("latch");
    assert!(latch.try_set_count(3).await.unwrap());
    // Loads the script.
    assert_eq!(latch.count_down().await.unwrap(), 2);
    for (refusal, left) in [(LOADING, 1), (DENIED, 0)] {
        let counting = latch.clone();
        let counting = async move { counting.count_down().await };
        let error = refused_when_repeated(&proxy, "latch_count_down", refusal, counting).await;
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert_eq!(latch.count().await.unwrap(), left);
        proxy.clear();
    }
}

/// Redis was called unavailable.
#[tokio::test]
async fn a_look_did_not_say_why_it_was_refused_since_an_earlier_reply_was_lost() {
    let (_server, proxy, client) = stage(RetryPolicy::new()).await;
    let latch = client.count_down_latch("latch");
    assert!(latch.try_set_count(3).await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 3);
    let looking = async move { latch.count().await };
    let error = refused_when_repeated(&proxy, "latch_check", DENIED, looking).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}
