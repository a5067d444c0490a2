//! The commands of read-write locks.

use tests::{Driver, LeakCheck, shared_server, unique, within};

use crate::{DEADLINE, connected, waits_for};

#[tokio::test]
async fn two_processes_read_and_write() {
    let name = unique("rw-driver");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let (one, two) = (connected().await, connected().await);
    let ok = async |driver: &Driver, command: &str, owner: &str| {
        driver.ok(&format!("rw.{command} {name} {owner}")).await
    };
    assert_eq!(ok(&one, "read.lock", "a").await, "ok");
    assert_eq!(ok(&two, "read.trylock", "b").await, "true");
    assert_eq!(ok(&two, "write.trylock", "c").await, "false");
    assert_eq!(ok(&one, "read.heldby", "a").await, "true");
    assert_eq!(ok(&one, "read.islocked", "").await, "true");
    assert_eq!(ok(&one, "write.islocked", "").await, "false");
    // The owner reads, so its call would wait for itself.
    let refused = one.call(&format!("rw.write.lock {name} a")).await;
    assert_eq!(refused.err_kind(), "bad_input");

    let refused = one.call(&format!("rw.tryupgrade {name} a")).await;
    assert_eq!(refused.err_kind(), "contended");
    assert_eq!(ok(&one, "read.held", "a").await, "true");
    assert_eq!(ok(&two, "read.unlock", "b").await, "true");
    assert_eq!(ok(&one, "tryupgrade", "a").await, "ok");
    assert_eq!(ok(&one, "write.held", "a").await, "true");
    assert_eq!(ok(&one, "read.held", "a").await, "false");
    assert_eq!(ok(&one, "read.lock", "a").await, "ok");
    let waiting = two.send(&format!("rw.read.lock {name} b"));
    waits_for(&two, 1).await;
    assert_eq!(ok(&one, "downgrade", "a").await, "ok");
    assert_eq!(within(DEADLINE, waiting.answer()).await.ok(), "ok");
    assert_eq!(ok(&one, "write.holder", "").await, "nil");
    for _ in 0..2 {
        ok(&one, "read.unlock", "a").await;
    }
    assert_eq!(ok(&two, "read.unlock", "b").await, "true");
    for wrong in ["rw.downgrade n", "rw.lock n o", "rw.read.downgrade n o"] {
        assert_eq!(one.call(wrong).await.err_kind(), "usage", "{wrong}");
    }
    let none = one.call(&format!("rw.downgrade {name} a")).await;
    assert_eq!(none.err_kind(), "not_owner");
    leaks.assert_clean().await;
}
