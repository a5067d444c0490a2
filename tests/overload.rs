//! More calls than the server can serve, and servers that answer slowly.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use redlock_rt::{Client, ErrorKind, LockOptions};
use tests::{Random, SlowServer};
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The default.
const RESPONSE: Duration = ms(3000);

/// A client whose connections are there and whose scripts are loaded.
async fn warm(server: &SlowServer) -> Client {
    // No connection for renewals is needed meanwhile.
    let builder = server.builder().lease(ms(3_600_000));
    let client = builder.connect().await.unwrap();
    let guard = client.rlock("warm").lock().await.unwrap();
    guard.unlock().await.unwrap();
    client
}

/// Each call that waited for half of the response time-out ended the connection, although replies to
/// earlier calls kept coming. All were lost, and sent again with more work each time.
#[tokio::test(start_paused = true)]
async fn a_connection_that_delivered_replies_was_given_up_for_calls_that_waited_long() {
    const CALLERS: usize = 400;
    let server = SlowServer::new(ms(5));
    let client = warm(&server).await;
    let (connections, commands) = (server.connections(), server.commands());
    let held = join_all((0..CALLERS).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        async move { lock.lock().await.unwrap() }
    }));
    let held = held.await;
    assert!(held.iter().all(|guard| guard.is_valid()));
    assert_eq!(server.connections(), connections);
    assert_eq!(server.commands() - commands, CALLERS, "one for each lock");
    server.set_pace(ms(1));
    try_join_all(held.into_iter().map(|guard| guard.unlock()))
        .await
        .unwrap();
    assert_eq!(server.connections(), connections);
}

/// A lease was counted from before the call waited for room on its connection.
#[tokio::test(start_paused = true)]
async fn a_lease_was_over_when_the_lock_came() {
    // Four times as many as there is room for.
    const CALLERS: usize = 4096;
    let server = SlowServer::new(ms(1));
    let client = warm(&server).await;
    let commands = server.commands();
    let options = || LockOptions::new().lease(ms(2000)).renew(false);
    let came = join_all((0..CALLERS).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        async move {
            let guard = lock.lock_with(options()).await.unwrap();
            (guard.is_valid(), guard)
        }
    }));
    assert!(came.await.iter().all(|(was_valid, _)| *was_valid));
    assert_eq!(server.commands() - commands, CALLERS, "one for each lock");
}

/// The connection does not wake who waits for room.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_room_outlasted_its_wait() {
    const WAIT: Duration = ms(3500);
    let server = SlowServer::new(ms(2));
    let client = warm(&server).await;
    let began = Instant::now();
    let calls = (0..4096).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        let options = LockOptions::new().wait(WAIT);
        async move { (lock.lock_with(options).await, began.elapsed()) }
    });
    let ended = join_all(calls).await;
    assert!(
        ended.iter().any(|(call, _)| call.is_ok()) && ended.iter().any(|(call, _)| call.is_err())
    );
    let longest = ended.iter().map(|(_, after)| *after).max().unwrap();
    assert!(longest < WAIT + ms(100), "{longest:?}");
}

/// They may have run, said the error, but had not left the client.
#[tokio::test(start_paused = true)]
async fn calls_that_were_never_sent_had_an_unknown_outcome() {
    const CALLERS: usize = 2000;
    let server = SlowServer::new(ms(5));
    let client = warm(&server).await;
    let commands = server.commands();
    let calls = (0..CALLERS).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        async move { lock.force_unlock().await }
    });
    let ended = join_all(calls).await;
    let kinds = ended
        .iter()
        .filter_map(|call| Some(call.as_ref().err()?.kind()));
    let (unknown, unsent): (Vec<_>, Vec<_>) =
        kinds.partition(|kind| *kind == ErrorKind::OutcomeUnknown);
    let sent = server.commands() - commands;
    assert!(unknown.len() <= sent, "{} of {sent}", unknown.len());
    assert!(!unsent.is_empty());
    assert!(unsent.iter().all(|kind| *kind == ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_fails_alone() {
    const WAIT: Duration = ms(300);
    let server = SlowServer::new(ms(10));
    let client = warm(&server).await;
    let connections = server.connections();
    let others = (0..300).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        async move { lock.lock().await.unwrap() }
    });
    let late = client.rlock("late");
    let asks = async {
        let began = Instant::now();
        let error = late
            .lock_with(LockOptions::new().wait(WAIT))
            .await
            .unwrap_err();
        (error.kind(), began.elapsed())
    };
    let (guards, (kind, waited)) = tokio::join!(join_all(others), asks);
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(waited < WAIT + ms(5), "{waited:?}");
    assert!(guards.iter().all(|guard| guard.is_valid()));
    assert_eq!(server.connections(), connections);
    // What that call may have taken is released before this is asked.
    while client.stats().releases > 0 {
        tokio::time::sleep(ms(10)).await;
    }
    assert!(!late.is_locked().await.unwrap());
}

/// How many of the callers of this many tasks were served within their wait, a second. Each task thinks for
/// a second on average, and then wants a lock of its own for so long. Counted for this span, from when the number
/// of those that wait is steady.
async fn served(client: &Client, tasks: usize, wait: Duration, span: Duration) -> f64 {
    let from = Instant::now() + span / 3;
    let until = from + span;
    let tasks = (0..tasks).map(|at| {
        let client = client.clone();
        let mut random = Random::new(at as u64);
        tokio::spawn(async move {
            let lock = client.rlock(format!("lock:{at}"));
            let mut served = 0_u32;
            while Instant::now() < until {
                tokio::time::sleep(ms(random.below(2001) as u64)).await;
                let began = Instant::now();
                match lock.lock_with(LockOptions::new().wait(wait)).await {
                    Ok(guard) => {
                        assert!(began.elapsed() <= wait + ms(5));
                        served += u32::from((from..until).contains(&Instant::now()));
                        guard.unlock().await.unwrap();
                    }
                    // What a call that was too late has taken is not released yet.
                    Err(error) if error.kind() == ErrorKind::TimedOut => {}
                    Err(error) => assert!(error.is_unavailable(), "{error}"),
                }
            }
            served
        })
    });
    let served = join_all(tasks.collect::<Vec<_>>()).await;
    let served: u32 = served.into_iter().map(Result::unwrap).sum();
    f64::from(served) / span.as_secs_f64()
}

/// The more callers there were, the fewer were served: from twice as many as the server serves none,
/// since all waited for each other, and the server worked for those that had gone.
#[tokio::test(start_paused = true)]
async fn with_more_callers_than_the_server_serves_nobody_was_served() {
    // A lock and its release are two commands, and a third that announces it: 111 a second.
    let server = SlowServer::new(ms(3));
    let client = warm(&server).await;
    let connections = server.connections();
    let mut best = 0.0_f64;
    for load in [1, 2, 10, 100] {
        // The tasks of the last are most of the work.
        let span = if load < 100 { ms(30_000) } else { ms(9_000) };
        let served = served(&client, 100 * load, ms(1000), span).await;
        eprintln!("{load} x: {served:.1} served a second");
        best = best.max(served);
        assert!(served >= 0.8 * best, "{load} x: {served:.1} of {best:.1}");
    }
    assert!(
        server.connections() <= connections + 1,
        "one more to subscribe"
    );
}

/// Releases of what came too late had room beside the calls of others, which then came too late as well: with
/// 200 commands in flight, each after 600 ms.
#[tokio::test(start_paused = true)]
async fn callers_with_half_a_second_all_came_a_moment_too_late() {
    let server = SlowServer::new(ms(3));
    let client = warm(&server).await;
    for load in [2, 3, 10] {
        let served = served(&client, 100 * load, ms(500), ms(30_000)).await;
        assert!(served >= 106.0, "{load} x: {served:.1} of 111");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_now_and_then_holds_nobody_up() {
    let server = SlowServer::new(ms(0));
    let client = warm(&server).await;
    let connections = server.connections();
    let locks = (0..100).map(|at| client.rlock(format!("lock:{at}")));
    let locks: Vec<_> = locks.collect();
    let options = || LockOptions::new().wait(20 * RESPONSE);
    let all = || try_join_all(locks.iter().map(|lock| lock.lock_with(options())));
    let guards = all().await.unwrap();
    // Never silent for as long as a reply may take.
    server.set_pace(RESPONSE / 3);
    let began = Instant::now();
    // Of callers no more are in flight than are answered in that time.
    drop(guards);
    while server.connections() == connections {
        tokio::time::sleep(ms(100)).await;
        let waited = began.elapsed();
        assert!(waited <= 4 * RESPONSE + ms(1000), "{waited:?}");
    }
    assert!(began.elapsed() >= 4 * RESPONSE);
    server.set_pace(ms(0));
    drop(all().await.unwrap());
}
