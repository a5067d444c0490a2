//! The wait limits the whole call, and the error says why it ended.

use std::time::{Duration, Instant};

use redlock_rt::{CountDownLatch, Error, ErrorKind};
use tests::{Proxy, Which, calls, shared_server, within};

use crate::stage::{DEADLINE, Stage, wait, waiting};

const WAIT: Duration = Duration::from_millis(400);
/// The delay of a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// Waits, and asserts the length of the wait.
async fn bounded(latch: &CountDownLatch) -> Error {
    let started = Instant::now();
    let error = within(DEADLINE, latch.wait_with(WAIT)).await.unwrap_err();
    let took = started.elapsed();
    assert!(took >= WAIT && took < WAIT + SLACK, "{took:?}: {error}");
    error
}

#[tokio::test]
async fn a_closed_latch_times_out() {
    let stage = Stage::open("latch-closed").await;
    let latch = stage.latch();
    latch.try_set_count(1).await.unwrap();
    // The first task asks, the others are behind it.
    let all = futures::future::join_all((0..10).map(|_| bounded(&latch))).await;
    for error in all {
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn redis_that_does_not_answer_is_unavailable() {
    let proxy = Proxy::to(&shared_server());
    let mut stage = Stage::open("latch-silent").await;
    stage.latch().try_set_count(1).await.unwrap();
    stage.clients_connect_to(proxy.url());
    let latch = stage.latch();
    assert_eq!(latch.count().await.unwrap(), 1);
    proxy.go_silent();
    let all = futures::future::join_all((0..10).map(|_| bounded(&latch))).await;
    for error in all {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(&stage.name), "{error}");
    }
    // The same during the first connection.
    let fresh = stage.latch();
    assert_eq!(bounded(&fresh).await.kind(), ErrorKind::Unavailable);
    proxy.resume();
    let error = bounded(&latch).await;
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    stage.assert_clean().await;
}

#[tokio::test]
async fn redis_that_is_not_there_is_unavailable() {
    let proxy = Proxy::to(&shared_server());
    let mut stage = Stage::open("latch-refused").await;
    stage.latch().try_set_count(1).await.unwrap();
    proxy.refuse();
    stage.clients_connect_to(proxy.url());
    let latch = stage.latch();
    assert_eq!(bounded(&latch).await.kind(), ErrorKind::Unavailable);
    // Without a limit the call waits through the outage.
    let waits = wait(&latch);
    proxy.accept();
    stage.subscribed(1).await;
    stage.latch().count_down().await.unwrap();
    crate::stage::ended(waits).await.unwrap();
    stage.assert_clean().await;
}

/// A missing confirmation of the subscription does not prolong the wait.
#[tokio::test]
async fn a_silent_subscriber_bounds_too() {
    let proxy = Proxy::to(&shared_server());
    let mut stage = Stage::open("latch-mute").await;
    stage.latch().try_set_count(1).await.unwrap();
    let gate = proxy.hold_request("SUBSCRIBE");
    stage.clients_connect_to(proxy.url());
    let client = stage.client();
    let latch = client.count_down_latch(&stage.name);
    assert_eq!(latch.count().await.unwrap(), 1);
    let (error, ()) = futures::join!(bounded(&latch), gate.reached());
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    gate.open();
    let _: usize = stage.redis(&["DEL", &stage.name]).await;
    stage.assert_clean().await;
}

/// A look without a reply ends with its connection, and is repeated.
#[tokio::test]
async fn a_look_that_is_not_answered_is_made_again() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-stuck").await;
    let brief = Duration::from_millis(200);
    let client = stage.client_with(|builder| builder.response_timeout(brief));
    let theirs = client.count_down_latch(&stage.name);
    assert_eq!(theirs.count().await.unwrap(), 1);
    proxy.swallow_reply(calls("latch_check").on(Which::Scripts), 1);
    let waits = [wait(&theirs), wait(&theirs)];
    waiting(&client, 2).await;
    stage.subscribed(1).await;
    latch.count_down().await.unwrap();
    for waits in waits {
        crate::stage::ended(waits).await.unwrap();
    }
    stage.assert_clean().await;
}
