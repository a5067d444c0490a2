//! The commands of fair locks.

use tests::{LeakCheck, eventually, shared_server, unique};

use crate::{DEADLINE, connected};

#[tokio::test]
async fn owners_of_two_processes_stand_in_one_queue() {
    let name = unique("fair-driver");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let (one, two) = (connected().await, connected().await);
    assert_eq!(one.ok(&format!("fair.lock {name} a")).await, "ok");
    assert_eq!(one.ok(&format!("fair.len {name}")).await, "0");
    assert_eq!(one.ok(&format!("fair.position {name} a")).await, "nil");
    let queued = async |count: &str| {
        eventually(DEADLINE, async || {
            one.ok(&format!("fair.len {name}")).await == count
        })
        .await;
    };
    let b = two.send(&format!("fair.lock {name} b"));
    queued("1").await;
    let c = one.send(&format!("fair.lock {name} c"));
    queued("2").await;
    assert_eq!(two.ok(&format!("fair.position {name} b")).await, "0");
    assert_eq!(one.ok(&format!("fair.position {name} c")).await, "1");
    let uuid = one.ok("uuid").await;
    let waiting = one.ok(&format!("owner {name} c")).await;
    assert!(waiting.starts_with(&format!("{uuid}:")), "{waiting}");
    assert_eq!(one.ok(&format!("fair.owner {name} c")).await, waiting);
    assert_eq!(two.ok(&format!("fair.trylock {name} d")).await, "false");

    assert_eq!(one.ok(&format!("fair.unlock {name} a")).await, "true");
    assert_eq!(b.answer().await.ok(), "ok");
    assert_eq!(one.ok(&format!("fair.position {name} c")).await, "0");
    assert_eq!(two.ok(&format!("fair.unlock {name} b")).await, "true");
    assert_eq!(c.answer().await.ok(), "ok");
    // The waiting owner becomes the holder.
    assert_eq!(one.ok(&format!("owner {name} c")).await, waiting);
    assert_eq!(one.ok(&format!("fair.unlock {name} c")).await, "true");
    assert_eq!(one.call(&format!("len {name}")).await.err_kind(), "usage");
    leaks.assert_clean().await;
}
