//! A holder that is stopped for longer than its lease, and continues where it was.

use redlock_rt::FenceGate;
use tests::{Driver, shared_server};

use crate::Scene;

const PROGRAM: &str = env!("CARGO_BIN_EXE_driver");
const LEASE: u64 = 400;

async fn driver() -> Driver {
    let driver = Driver::start(PROGRAM);
    let url = shared_server().url();
    driver.ok(&format!("connect {url}")).await;
    driver
}

#[tokio::test]
async fn the_late_write_of_a_paused_holder_is_refused() {
    let scene = Scene::open("paused").await;
    let (name, key) = (&scene.name, format!("{}:value", scene.name));
    let (mut first, second) = (driver().await, driver().await);

    let late = first.ok(&format!("fenced.lock {name} a {LEASE}")).await;
    assert_eq!(
        first.ok(&format!("fenced.set {key} early {late}")).await,
        "ok"
    );
    first.pause();
    // It was about to write: the command is in its pipe, as it might be in its socket.
    let write = first.send(&format!("fenced.set {key} late {late}"));

    let token = second
        .ok(&format!("fenced.trylock {name} a 10000 30000"))
        .await;
    let wrote = second.ok(&format!("fenced.set {key} new {token}")).await;
    assert_eq!(wrote, "ok");
    first.resume();
    assert_eq!(write.answer().await.err_kind(), "stale_token");
    let value: String = scene.redis(&["GET", &key]).await;
    assert_eq!(value, "new");
    // By now it knows about the loss.
    assert_eq!(first.ok(&format!("fenced.held {name} a")).await, "false");
    let unlocked = first.call(&format!("fenced.unlock {name} a")).await;
    assert_eq!(unlocked.err_kind(), "lost");

    // A gate in the process of the resource distinguishes the holders too.
    let gate = FenceGate::new();
    let (late, token): (u64, u64) = (late.parse().unwrap(), token.parse().unwrap());
    assert!(gate.check(token).is_ok() && gate.check(late).is_err());

    // The present holder can still write.
    let again = second.ok(&format!("fenced.set {key} newer {token}")).await;
    assert_eq!(again, "ok");
    assert_eq!(second.ok(&format!("fenced.unlock {name} a")).await, "true");
    let fence = format!("redlock_fence:{{{key}}}");
    let _: usize = scene.redis(&["DEL", &key, &fence]).await;
    scene.end().await;
}

#[tokio::test]
async fn the_driver_answers_tokens() {
    let scene = Scene::open("driver").await;
    let name = &scene.name;
    let driver = driver().await;
    assert_eq!(driver.ok(&format!("fenced.token {name}")).await, "nil");
    let token = driver.ok(&format!("fenced.lock {name} a")).await;
    assert_eq!(driver.ok(&format!("fenced.token {name}")).await, token);
    let again = driver.ok(&format!("fenced.trylock {name} a")).await;
    assert_eq!(again, token, "re-entry");
    assert_eq!(driver.ok(&format!("fenced.trylock {name} b")).await, "nil");
    // A lock of another kind under the same name is not re-entered: Redis refuses it.
    assert_eq!(driver.ok(&format!("trylock {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("fenced.holdcount {name} a")).await, "2");
    assert_eq!(driver.ok(&format!("fenced.unlock {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("fenced.unlock {name} a")).await, "true");
    scene.end().await;
}
