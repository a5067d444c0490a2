//! Requests and replies that are lost, at every position: each call counts once.

use std::time::Duration;

use redlock_rt::{Client, CountDownLatch};
use tests::{Loss, Proxy, calls, eventually, shared_server, within};

use crate::stage::{DEADLINE, Stage};

const RESPONSE: Duration = Duration::from_millis(2400);

struct Scene {
    stage: Stage,
    proxy: Proxy,
    client: Client,
    latch: CountDownLatch,
    /// The latch without the proxy.
    other: CountDownLatch,
}

impl Scene {
    async fn open(what: &str) -> Self {
        let proxy = Proxy::to(&shared_server());
        let mut stage = Stage::open(what).await;
        let other = stage.latch();
        // Loads all scripts, so that a loss meets the call and not its NOSCRIPT.
        other.try_set_count(2).await.unwrap();
        other.count_down().await.unwrap();
        other.delete().await.unwrap();
        stage.clients_connect_to(proxy.url());
        let client = stage.client_with(|builder| builder.response_timeout(RESPONSE));
        let latch = client.count_down_latch(&stage.name);
        latch.count().await.unwrap();
        Self {
            stage,
            proxy,
            client,
            latch,
            other,
        }
    }
}

#[tokio::test]
async fn each_count_is_counted_once() {
    const COUNT: u64 = 4;
    let scene = Scene::open("latch-lost").await;
    for loss in Loss::ALL {
        for lost in 1..=COUNT {
            assert!(scene.other.try_set_count(COUNT).await.unwrap());
            for number in 1..=COUNT {
                if number == lost {
                    scene.proxy.lose(loss, calls("latch_count_down"), 1);
                }
                let left = within(DEADLINE, scene.latch.count_down()).await.unwrap();
                assert_eq!(left, COUNT - number, "{lost} was lost");
                let stands = scene.other.count().await.unwrap();
                assert_eq!(stands, COUNT - number, "{lost} was lost");
            }
        }
    }
    scene.stage.assert_clean().await;
}

#[tokio::test]
async fn each_guard_counts_once() {
    let scene = Scene::open("latch-lost-guard").await;
    for loss in Loss::ALL {
        for dropped in [true, false] {
            assert!(scene.other.try_set_count(5).await.unwrap());
            let guard = scene.latch.count_down_guard().unwrap();
            scene.proxy.lose(loss, calls("latch_count_down"), 1);
            if dropped {
                drop(guard);
                eventually(DEADLINE, async || scene.client.stats().releases == 0).await;
            } else {
                let left = within(DEADLINE, guard.count_down()).await.unwrap();
                assert_eq!(left, 4);
            }
            assert_eq!(scene.other.count().await.unwrap(), 4);
            scene.other.delete().await.unwrap();
        }
    }
    scene.stage.assert_clean().await;
}

/// The repeat finds the note of its own call, also after other counts.
#[tokio::test]
async fn a_repeat_answers_what_the_first_did() {
    let scene = Scene::open("latch-lost-between").await;
    scene.other.try_set_count(3).await.unwrap();
    scene.proxy.cut_after_request(calls("latch_count_down"));
    let gate = scene.proxy.hold_request("INFO");
    let call = tokio::spawn({
        let latch = scene.latch.clone();
        async move { latch.count_down().await }
    });
    // The call has run, the reply is lost, and the new connection is held.
    gate.reached().await;
    assert_eq!(scene.stage.count().await, Some(2));
    assert_eq!(scene.other.count_down().await.unwrap(), 1);
    gate.open();
    assert_eq!(within(DEADLINE, call).await.unwrap().unwrap(), 2);
    assert_eq!(scene.other.count().await.unwrap(), 1);
    scene.other.delete().await.unwrap();
    scene.stage.assert_clean().await;
}

#[tokio::test]
async fn setting_and_deleting_answer_what_they_did() {
    let scene = Scene::open("latch-lost-set").await;
    for loss in Loss::ALL {
        scene.proxy.lose(loss, calls("latch_set"), 1);
        assert!(
            within(DEADLINE, scene.latch.try_set_count(2))
                .await
                .unwrap()
        );
        scene.proxy.lose(loss, calls("latch_set"), 1);
        assert!(
            !within(DEADLINE, scene.latch.try_set_count(2))
                .await
                .unwrap()
        );
        scene.proxy.lose(loss, calls("latch_delete"), 1);
        assert!(within(DEADLINE, scene.latch.delete()).await.unwrap());
        scene.proxy.lose(loss, calls("latch_delete"), 1);
        assert!(!within(DEADLINE, scene.latch.delete()).await.unwrap());
    }
    scene.stage.assert_clean().await;
}

/// At the time of the repeat there is another latch.
#[tokio::test]
async fn a_deletion_whose_reply_was_lost_deleted_the_next_latch() {
    let scene = Scene::open("latch-lost-next").await;
    scene.latch.try_set_count(2).await.unwrap();
    let gate = scene.proxy.hold_reply(calls("latch_delete"));
    let latch = scene.latch.clone();
    let deleting = tokio::spawn(async move { latch.delete().await });
    within(DEADLINE, gate.reached()).await;
    assert!(scene.other.try_set_count(5).await.unwrap());
    scene.proxy.cut_all();
    gate.open();
    assert!(within(DEADLINE, deleting).await.unwrap().unwrap());
    assert_eq!(scene.other.count().await.unwrap(), 5);
    assert!(scene.other.delete().await.unwrap());
    scene.stage.assert_clean().await;
}

/// Without Redis, the caller learns whether the call may have counted, and nothing is sent later.
#[tokio::test]
async fn an_outage_says_whether_it_may_have_counted() {
    let scene = Scene::open("latch-lost-outage").await;
    scene.other.try_set_count(5).await.unwrap();
    scene.proxy.go_silent();
    let error = within(DEADLINE, scene.latch.count_down())
        .await
        .unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    scene.proxy.refuse();
    scene.proxy.cut_all();
    scene.proxy.resume();
    let error = within(DEADLINE, scene.latch.count_down())
        .await
        .unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    // A guard's count is delivered when Redis is back.
    let guard = scene.latch.count_down_guard().unwrap();
    let error = within(DEADLINE, guard.count_down()).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    drop(scene.latch.count_down_guard().unwrap());
    let before = scene.other.count().await.unwrap();
    assert!((4..=5).contains(&before), "{before}");
    scene.proxy.accept();
    eventually(DEADLINE, async || scene.client.stats().releases == 0).await;
    assert_eq!(scene.other.count().await.unwrap(), before - 2);
    scene.other.delete().await.unwrap();
    scene.stage.assert_clean().await;
}
