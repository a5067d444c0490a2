//! The commands of read-write locks.

use tests::{Driver, LeakCheck, eventually, shared_server, unique, within};

use crate::{DEADLINE, PROGRAM, connected, waits_for};

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

/// A killed reader counts no longer than its lease, whatever other readers do.
#[tokio::test]
async fn a_killed_reader_is_not_kept_alive_by_others() {
    let name = unique("rw-killed");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let mut dying = Driver::start(PROGRAM);
    let url = shared_server().url();
    dying.ok(&format!("connect {url} 3900")).await;
    let living = Driver::start(PROGRAM);
    living.ok(&format!("connect {url} 3000")).await;
    dying.ok(&format!("rw.read.lock {name} a")).await;
    living.ok(&format!("rw.read.lock {name} b")).await;
    let writer = living.send(&format!("rw.write.lock {name} c"));
    dying.kill();
    let redis = shared_server().connect().await.unwrap();
    let pattern = format!("*{name}*:rwlock_timeout:1");
    let leases = async || {
        let mut command = redis::cmd("KEYS");
        let keys = command.arg(&pattern).query_async(&mut redis.clone()).await;
        keys.map(|keys: Vec<String>| keys.len()).unwrap()
    };
    assert_eq!(leases().await, 2);
    eventually(DEADLINE, async || leases().await == 1).await;
    assert_eq!(living.ok(&format!("rw.read.unlock {name} b")).await, "true");
    let answer = within(DEADLINE, writer.answer()).await;
    assert!(
        answer.took.is_some_and(|took| took < DEADLINE / 4),
        "{answer:?}"
    );
    assert_eq!(
        living.ok(&format!("rw.write.unlock {name} c")).await,
        "true"
    );
    leaks.assert_clean().await;
}
