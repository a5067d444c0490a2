//! Count-down latches.

use tests::{ask, shared_server, unique};

use crate::{connected, waits_for};

#[tokio::test]
async fn a_latch_is_set_awaited_and_counted_down() {
    let (one, two) = (connected().await, connected().await);
    let name = unique("latch");
    assert_eq!(one.ok(&format!("latch.set {name} 2")).await, "true");
    assert_eq!(two.ok(&format!("latch.set {name} 2")).await, "false");
    let pending = [
        one.send(&format!("latch.await {name}")),
        two.send(&format!("latch.await {name} 10000")),
    ];
    waits_for(&one, 1).await;
    waits_for(&two, 1).await;
    assert_eq!(two.ok(&format!("latch.await {name} 1000")).await, "false");
    assert_eq!(two.ok(&format!("latch.await {name} 0")).await, "false");
    assert_eq!(one.ok(&format!("latch.down {name}")).await, "1");
    assert_eq!(two.ok(&format!("latch.count {name}")).await, "1");
    assert_eq!(two.ok(&format!("latch.down {name}")).await, "0");
    for pending in pending {
        assert_eq!(pending.answer().await.ok(), "true");
    }
    assert_eq!(one.ok(&format!("latch.down {name}")).await, "0");
    assert_eq!(one.ok(&format!("latch.delete {name}")).await, "false");
}

#[tokio::test]
async fn deleted_and_cancelled_waits_are_reported() {
    let driver = connected().await;
    let name = unique("latch-gone");
    driver.ok(&format!("latch.set {name} 1")).await;
    let pending = driver.send(&format!("latch.await {name}"));
    waits_for(&driver, 1).await;
    assert_eq!(driver.ok(&format!("latch.delete {name}")).await, "true");
    assert_eq!(pending.answer().await.err_kind(), "lost");

    driver.ok(&format!("latch.set {name} 1")).await;
    let pending = driver.send(&format!("latch.await {name}"));
    waits_for(&driver, 1).await;
    assert_eq!(driver.cancel(&pending).await.ok(), "true");
    assert_eq!(pending.answer().await.err_kind(), "cancelled");
    let zero = driver.call(&format!("latch.set {name}2 0")).await;
    assert_eq!(zero.err_kind(), "bad_input");
    driver.ok(&format!("latch.delete {name}")).await;
    let redis = shared_server().connect().await.unwrap();
    let mark = format!("redlock_latch_end:{{{name}}}");
    let _: usize = ask(&redis, &["DEL", &mark]).await;
}
