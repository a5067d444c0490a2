//! Requests and replies that are lost: no attempt counts twice, and nothing is marked that was not done.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, Fire};
use tests::{Loss, Proxy, World, calls, eventually, shared_server, within};

use crate::stage::{DEADLINE, KEEP, Stage, fire_time, run};

const RESPONSE: Duration = Duration::from_millis(2400);

struct Scene {
    stage: Stage,
    proxy: Proxy,
    client: Client,
    /// Beside the proxy.
    other: Client,
}

impl Scene {
    async fn open(what: &str) -> Self {
        let server = shared_server();
        let proxy = Proxy::to(&server);
        let mut stage = Stage::of(World::on(&server, what).await);
        let other = stage.client();
        // Loads the scripts, so that a loss meets the call and not its NOSCRIPT.
        let first = other.once(&stage.name, fire_time() - Duration::from_secs(1));
        run(&first.keep(KEEP)).await.done().await.unwrap();
        stage.clients_connect_to(proxy.url());
        let client = stage.client_with(|builder| builder.response_timeout(RESPONSE));
        Self {
            stage,
            proxy,
            client,
            other,
        }
    }

    async fn forget(&self) {
        let _: bool = self.stage.redis(&["DEL", &self.stage.mark_key()]).await;
    }
}

#[tokio::test]
async fn an_attempt_counts_once() {
    let scene = Scene::open("once-lost-start").await;
    for loss in Loss::ALL {
        for times in [1, 3] {
            let once = scene.stage.once(&scene.client).attempts(1);
            scene.proxy.lose(loss, calls("once_acquire"), times);
            let guard = run(&once).await;
            assert!(guard.is_valid());
            assert_eq!(scene.stage.attempts().await, 1, "{loss:?}");
            guard.unlock().await.unwrap();
            assert!(matches!(once.start().await.unwrap(), Fire::Failed));
            scene.forget().await;
        }
    }
    scene.stage.assert_clean().await;
}

#[tokio::test]
async fn it_is_marked_once_and_the_caller_is_told() {
    let scene = Scene::open("once-lost-done").await;
    for loss in Loss::ALL {
        let guard = run(&scene.stage.once(&scene.client)).await;
        scene.proxy.lose(loss, calls("once_finish"), 1);
        within(DEADLINE, guard.done()).await.unwrap();
        let fire = scene.stage.once(&scene.other).start().await.unwrap();
        assert!(matches!(fire, Fire::Done(_)), "{loss:?}");
        scene.forget().await;
    }
    scene.stage.assert_clean().await;
}

/// The first call never ran, and by the time of the second the hold is another's.
#[tokio::test]
async fn a_mark_that_was_never_made_was_called_made() {
    let scene = Scene::open("once-lost-taken").await;
    for taken in [true, false] {
        let first = run(&scene.stage.once(&scene.client)).await;
        scene.proxy.cut_before_request(calls("once_finish"));
        let gate = scene.proxy.hold_request("INFO");
        let done = tokio::spawn(first.done());
        within(DEADLINE, gate.reached()).await;
        let _: bool = scene.stage.redis(&["DEL", &scene.stage.lock()]).await;
        let second = match taken {
            true => Some(run(&scene.stage.once(&scene.other)).await),
            false => None,
        };
        gate.open();
        let error = within(DEADLINE, done).await.unwrap().unwrap_err();
        assert!(error.is_lost(), "{error}");
        assert!(!scene.stage.is_done().await);
        drop(second);
    }
    scene.stage.assert_clean().await;
}

/// Without an answer the outcome is unknown, and the call goes on until Redis has it.
#[tokio::test]
async fn a_mark_that_redis_does_not_answer_is_made_later() {
    let scene = Scene::open("once-lost-silence").await;
    let guard = run(&scene.stage.once(&scene.client)).await;
    scene.proxy.go_silent();
    let error = within(DEADLINE, guard.done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    scene.proxy.cut_all();
    scene.proxy.resume();
    eventually(DEADLINE, async || scene.stage.is_done().await).await;
    eventually(DEADLINE, async || scene.client.stats().releases == 0).await;
    scene.stage.assert_clean().await;
}

/// Its body never began.
#[tokio::test]
async fn a_start_that_was_dropped_counted_as_an_attempt() {
    let scene = Scene::open("once-lost-dropped").await;
    let gate = scene.proxy.hold_reply(calls("once_acquire"));
    let once = scene.stage.once(&scene.client).attempts(1);
    let starting = crate::stage::start(&once);
    within(DEADLINE, gate.reached()).await;
    assert_eq!(scene.stage.attempts().await, 1);
    starting.abort();
    gate.open();
    eventually(DEADLINE, async || scene.stage.attempts().await == 0).await;
    drop(run(&scene.stage.once(&scene.other).attempts(1)).await);
    scene.stage.assert_clean().await;
}
