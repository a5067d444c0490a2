//! More calls than the server can serve, and servers that answer slowly.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use redlock_rt::{Client, ErrorKind, LockOptions};
use tests::SlowServer;
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

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_now_and_then_holds_nobody_up() {
    let server = SlowServer::new(ms(0));
    let client = warm(&server).await;
    let connections = server.connections();
    // Never silent for as long as a reply may take.
    server.set_pace(RESPONSE / 3);
    let began = Instant::now();
    let calls = (0..100).map(|at| {
        let lock = client.rlock(format!("lock:{at}"));
        async move { lock.lock_with(LockOptions::new().wait(20 * RESPONSE)).await }
    });
    let calls = tokio::spawn(join_all(calls.collect::<Vec<_>>()));
    while server.connections() == connections {
        tokio::time::sleep(ms(100)).await;
        let waited = began.elapsed();
        assert!(waited <= 4 * RESPONSE + ms(1000), "{waited:?}");
    }
    assert!(began.elapsed() >= 4 * RESPONSE);
    server.set_pace(ms(0));
    for outcome in calls.await.unwrap() {
        drop(outcome.unwrap());
    }
}
