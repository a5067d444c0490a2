//! Semaphores by the driver, and the permits of a driver that is killed.

use tests::unique;

use crate::{connected, waits_for};

#[tokio::test]
async fn permits_without_leases() {
    let name = unique("sem");
    let driver = connected().await;
    assert_eq!(driver.ok(&format!("sem.setpermits {name} 3")).await, "true");
    assert_eq!(
        driver.ok(&format!("sem.setpermits {name} 9")).await,
        "false"
    );
    assert_eq!(driver.ok(&format!("sem.acquire {name} 2")).await, "ok");
    assert_eq!(
        driver.ok(&format!("sem.tryacquire {name} 2")).await,
        "false"
    );
    assert_eq!(driver.ok(&format!("sem.tryacquire {name} 1")).await, "true");
    assert_eq!(
        driver.ok(&format!("sem.acquire {name} 1 1000")).await,
        "false"
    );
    let waiter = driver.send(&format!("sem.acquire {name} 1 -1"));
    waits_for(&driver, 1).await;
    // Any process can release the permits of another.
    let other = connected().await;
    assert_eq!(other.ok(&format!("sem.release {name} 2")).await, "ok");
    assert_eq!(waiter.answer().await.ok(), "true");
    assert_eq!(other.ok(&format!("sem.available {name}")).await, "1");
    assert_eq!(other.ok(&format!("sem.addpermits {name} 4")).await, "ok");
    assert_eq!(other.ok(&format!("sem.drain {name}")).await, "5");
    let bad = driver.call(&format!("sem.acquire {name} 0")).await;
    assert_eq!(bad.err_kind(), "bad_input");
}

#[tokio::test]
async fn permits_with_leases() {
    let name = unique("psem");
    let driver = connected().await;
    assert_eq!(
        driver.ok(&format!("psem.setpermits {name} 2")).await,
        "true"
    );
    let renewed = driver.ok(&format!("psem.acquire {name} -1 0")).await;
    let fixed = driver.ok(&format!("psem.acquire {name} 0 60000")).await;
    assert_eq!((renewed.len(), fixed.len()), (32, 32));
    assert_eq!(
        driver.ok(&format!("psem.acquire {name} 1000 0")).await,
        "nil"
    );
    assert_eq!(driver.ok(&format!("psem.acquired {name}")).await, "2");
    let update = format!("psem.updatelease {name} {fixed} 90000");
    assert_eq!(driver.ok(&update).await, "true");
    let other = connected().await;
    let waiter = other.send(&format!("psem.acquiren {name} 2 -1 0"));
    waits_for(&other, 1).await;
    for id in [&renewed, &fixed] {
        assert_eq!(driver.ok(&format!("psem.release {name} {id}")).await, "ok");
        let again = driver.call(&format!("psem.release {name} {id}")).await;
        assert_eq!(again.err_kind(), "not_owner");
        let again = format!("psem.tryrelease {name} {id}");
        assert_eq!(driver.ok(&again).await, "false");
    }
    let ids = waiter.answer().await.ok();
    assert_eq!(ids.split(',').count(), 2);
    assert_eq!(driver.ok(&format!("psem.available {name}")).await, "0");
    // A closed client releases the permits that it renews.
    assert_eq!(other.ok("close").await, "ok");
    assert_eq!(driver.ok(&format!("psem.available {name}")).await, "2");
    assert_eq!(driver.ok(&format!("psem.addpermits {name} 3")).await, "ok");
    assert_eq!(driver.ok(&format!("psem.permits {name}")).await, "5");
}
