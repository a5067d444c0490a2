//! Every waiter wakes, whatever happens to connections and messages.

use std::time::Duration;

use redlock_rt::Shutdown;
use tests::{Driver, Proxy, RedisServer, Which, calls, shared_server};

use crate::stage::{DEADLINE, Stage, ended, wait, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_all_clients_and_processes_wake() {
    const CLIENTS: usize = 4;
    const EACH: usize = 200;
    let stage = Stage::open("latch-all").await;
    let latch = stage.latch();
    latch.try_set_count(2).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..CLIENTS {
        let client = stage.client();
        let latch = client.count_down_latch(&stage.name);
        waits.extend((0..EACH).map(|_| wait(&latch)));
        waiting(&client, EACH).await;
    }
    let drivers: Vec<_> = (0..2)
        .map(|_| Driver::start(env!("CARGO_BIN_EXE_driver")))
        .collect();
    let mut pending = Vec::new();
    for driver in &drivers {
        driver
            .ok(&format!("connect {}", shared_server().url()))
            .await;
        pending.extend((0..3).map(|_| driver.send(&format!("latch.await {}", stage.name))));
    }
    stage.subscribed(CLIENTS + drivers.len()).await;
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert!(waits.iter().all(|waits| !waits.is_finished()));
    assert_eq!(latch.count_down().await.unwrap(), 0);
    for waits in waits {
        ended(waits).await.unwrap();
    }
    for pending in pending {
        assert_eq!(pending.answer().await.ok(), "true");
    }
    for driver in drivers {
        driver.ok("close").await;
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_late_subscriber_looks_again_and_returns() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-late").await;
    let gate = proxy.hold_request("SUBSCRIBE");
    let waits = wait(&stage.latch());
    gate.reached().await;
    // The waiter has looked and is not subscribed, so it misses the zero.
    latch.count_down().await.unwrap();
    stage.subscribed(0).await;
    assert!(!waits.is_finished());
    gate.open();
    ended(waits).await.unwrap();
    stage.assert_clean().await;
}

/// The subscription of an earlier waiter is confirmed, and has brought the zero, while it looks.
#[tokio::test]
async fn a_waiter_slept_on_when_an_earlier_one_had_subscribed_while_it_looked() {
    let proxy = Proxy::to(&shared_server());
    let mut stage = Stage::open("latch-joins").await;
    let latch = stage.latch();
    latch.try_set_count(1).await.unwrap();
    let second = format!("{}:second", stage.name);
    let other = stage.client().count_down_latch(&second);
    other.try_set_count(1).await.unwrap();
    stage.clients_connect_to(proxy.url());
    let client = stage.client_with(|builder| builder.linger(DEADLINE));
    let look = |name: &str| calls("latch_check").mentioning(format!("{{{name}}}"));
    // The server has the script from here on.
    let now = other.wait_with(Duration::ZERO).await;
    assert!(now.unwrap_err().is_timed_out());
    let others = wait(&client.count_down_latch(&second));
    proxy.wait_for_count(look(&second), 2).await;

    let subscribed = proxy.hold_reply("SUBSCRIBE");
    let earlier = wait(&client.count_down_latch(&stage.name));
    subscribed.reached().await;
    earlier.abort();
    waiting(&client, 1).await;
    let looked = proxy.hold_reply(look(&stage.name));
    let waits = wait(&client.count_down_latch(&stage.name));
    looked.reached().await;
    latch.count_down().await.unwrap();
    subscribed.open();
    // Whoever hears this has heard all that was said before.
    other.count_down().await.unwrap();
    proxy.wait_for_count(look(&second), 3).await;
    looked.open();
    ended(waits).await.unwrap();
    ended(others).await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_waiter_looks_again_after_a_lost_connection_and_returns() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-cut").await;
    let waits: Vec<_> = {
        let latch = stage.latch();
        (0..10).map(|_| wait(&latch)).collect()
    };
    stage.subscribed(1).await;
    proxy.refuse();
    proxy.cut_all();
    stage.subscribed(0).await;
    latch.count_down().await.unwrap();
    proxy.accept();
    for waits in waits {
        ended(waits).await.unwrap();
    }
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_message_that_is_lost_is_found_by_polling() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-swallow").await;
    let every = Duration::from_millis(100);
    let client = stage.client_with(|builder| builder.poll_interval(every));
    let waits = wait(&client.count_down_latch(&stage.name));
    stage.subscribed(1).await;
    // After the look that follows the confirmation.
    proxy.mark();
    proxy.wait_for_answer(calls("latch_check")).await;
    proxy.swallow_message("message", 1);
    latch.count_down().await.unwrap();
    ended(waits).await.unwrap();
    stage.assert_clean().await;
}

/// The first waiter has the timer, and passes it on when it leaves.
#[tokio::test]
async fn polling_goes_on_when_the_first_waiter_goes() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-heir").await;
    let every = Duration::from_millis(100);
    let client = stage.client_with(|builder| builder.poll_interval(every));
    let theirs = client.count_down_latch(&stage.name);
    let first = wait(&theirs);
    waiting(&client, 1).await;
    let second = wait(&theirs);
    waiting(&client, 2).await;
    stage.subscribed(1).await;
    first.abort();
    waiting(&client, 1).await;
    proxy.swallow_message("message", 1);
    latch.count_down().await.unwrap();
    ended(second).await.unwrap();
    stage.assert_clean().await;
}

/// As in Redisson: a new count closes the latch again before the waiters have seen the zero.
#[tokio::test]
async fn a_new_count_before_they_looked_holds_them_up_again() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-anew").await;
    let client = stage.client();
    let waits = wait(&client.count_down_latch(&stage.name));
    stage.subscribed(1).await;
    // The look after the confirmation.
    proxy.wait_for_count(calls("latch_check"), 2).await;
    proxy.wait_for_answer("SUBSCRIBE").await;
    let gate = proxy.hold_message("message");
    latch.count_down().await.unwrap();
    assert!(latch.try_set_count(1).await.unwrap());
    gate.reached().await;
    proxy.mark();
    gate.open();
    proxy.wait_for_answer(calls("latch_check")).await;
    assert!(!waits.is_finished());
    waiting(&client, 1).await;
    latch.count_down().await.unwrap();
    ended(waits).await.unwrap();
    stage.assert_clean().await;
}

/// The result of a look does not apply to waiters that came after it was sent.
#[tokio::test]
async fn a_look_sent_before_a_new_count_does_not_open_the_latch() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let mut stage = Stage::on(&server, "latch-older").await;
    let latch = stage.latch();
    // Loads the script.
    assert_eq!(latch.count().await.unwrap(), 0);
    stage.clients_connect_to(proxy.url());
    let client = stage.client();
    let theirs = client.count_down_latch(&stage.name);
    // There is no latch yet, so the first waiter finds it open.
    let gate = proxy.hold_reply(calls("latch_check"));
    let first = wait(&theirs);
    gate.reached().await;
    latch.try_set_count(1).await.unwrap();
    let second = wait(&theirs);
    waiting(&client, 2).await;
    gate.open();
    ended(first).await.unwrap();
    stage.subscribed(1).await;
    assert!(!second.is_finished());
    latch.count_down().await.unwrap();
    ended(second).await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn without_the_right_to_subscribe_they_poll() {
    let (stage, proxy, latch) = Stage::behind_a_proxy("latch-noperm").await;
    proxy.answer("SUBSCRIBE", "-NOPERM no channel for you\r\n", 100);
    let every = Duration::from_millis(50);
    let client = stage.client_with(|builder| builder.poll_interval(every));
    let waits = wait(&client.count_down_latch(&stage.name));
    proxy.wait_for_count(calls("latch_check"), 3).await;
    latch.count_down().await.unwrap();
    ended(waits).await.unwrap();
    assert_eq!(
        proxy.connections(Which::All).len(),
        3,
        "and one for renewals"
    );
    stage.assert_clean().await;
}

/// The client's tasks run in the first runtime, and so does the head of the waiters.
#[test]
fn waiters_in_a_second_runtime_wake_after_the_first_runtime_ends() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    for _ in 0..10 {
        let (first, second) = (runtime(), runtime());
        let stage = second.block_on(Stage::open("latch-runtimes"));
        let client = stage.client();
        let other = stage.latch();
        let latch = client.count_down_latch(&stage.name);
        second.block_on(other.try_set_count(1)).unwrap();
        let joins = |runtime: &tokio::runtime::Runtime, count| {
            let entered = runtime.enter();
            let waits = wait(&latch);
            drop(entered);
            second.block_on(waiting(&client, count));
            waits
        };
        let _ended = joins(&first, 1);
        let waits = joins(&second, 2);
        first.shutdown_background();
        second.block_on(async {
            assert_eq!(other.count_down().await.unwrap(), 0);
            ended(waits).await.unwrap();
            stage.assert_clean().await;
        });
    }
}
