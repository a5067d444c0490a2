//! The operations of owners on locks.

use std::time::Duration;

use redis::AsyncCommands;
use tests::{Driver, LeakCheck, shared_server, unique};

use crate::{DEADLINE, PROGRAM, connected, waits_for};

#[tokio::test]
async fn a_lock_is_taken_asked_about_and_released() {
    let name = unique("driver");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    let uuid = driver.ok("uuid").await;
    assert_eq!(driver.ok(&format!("holder {name}")).await, "nil");
    assert_eq!(driver.ok(&format!("ttl {name}")).await, "nil");
    assert_eq!(driver.ok(&format!("owner {name} a")).await, "nil");
    assert_eq!(driver.ok(&format!("lock {name} a")).await, "ok");
    let holder = driver.ok(&format!("holder {name}")).await;
    assert!(holder.starts_with(&format!("{uuid}:")), "{holder}");
    assert_eq!(driver.ok(&format!("owner {name} a")).await, holder);
    for (question, answer) in [
        ("islocked", "true"),
        ("held a", "true"),
        ("held b", "false"),
        ("heldby a", "true"),
        ("heldby b", "false"),
        ("holdcount a", "1"),
        ("holdcount b", "0"),
    ] {
        let (command, owner) = question.split_once(' ').unwrap_or((question, ""));
        assert_eq!(
            driver.ok(&format!("{command} {name} {owner}")).await,
            answer,
            "{question}"
        );
    }
    let ttl: u64 = driver.ok(&format!("ttl {name}")).await.parse().unwrap();
    assert!((25_000..=30_000).contains(&ttl), "{ttl}");

    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("islocked {name}")).await, "false");
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "not_owner"
    );
    leaks.assert_clean().await;
}

#[tokio::test]
async fn an_owner_re_enters_and_another_does_not() {
    let name = unique("reenter");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("trylock {name} a")).await, "true");
    assert_eq!(driver.ok(&format!("holdcount {name} a")).await, "2");
    assert_eq!(driver.ok(&format!("trylock {name} b")).await, "false");
    assert_eq!(
        driver.ok(&format!("trylock {name} b 1000 1000")).await,
        "false"
    );
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "false");
    assert_eq!(
        driver.call(&format!("unlock {name} b")).await.err_kind(),
        "not_owner"
    );
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(
        driver.ok(&format!("trylock {name} b 0 20000")).await,
        "true"
    );
    let ttl: u64 = driver.ok(&format!("ttl {name}")).await.parse().unwrap();
    assert!((15_000..=20_000).contains(&ttl), "{ttl}");
    assert_eq!(driver.ok(&format!("unlock {name} b")).await, "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn owners_run_side_by_side_and_each_in_order() {
    let name = unique("order");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let mut lock = driver.send(&format!("lock {name} b"));
    let mut unlock = driver.send(&format!("unlock {name} b"));
    waits_for(&driver, 1).await;
    // The other owner, and commands that answer at once, do not wait behind them.
    assert_eq!(driver.ok(&format!("held {name} b")).await, "false");
    assert_eq!(driver.ok(&format!("holdcount {name} b")).await, "0");
    assert_eq!(driver.ok(&format!("owner {name} b")).await, "nil");
    assert_eq!(
        driver.call(&format!("lost {name} b 5")).await.err_kind(),
        "not_owner"
    );
    assert!(lock.is_pending() && unlock.is_pending());
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(lock.answer().await.ok(), "ok");
    assert_eq!(unlock.answer().await.ok(), "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn many_commands_of_an_owner_stay_in_order() {
    let name = unique("many");
    let driver = connected().await;
    let mut pending = Vec::new();
    for _ in 0..100 {
        pending.push((driver.send(&format!("trylock {name} a")), "true"));
        pending.push((driver.send(&format!("unlock {name} a")), "true"));
    }
    for (pending, answer) in pending {
        assert_eq!(pending.answer().await.ok(), answer);
    }
}

#[tokio::test]
async fn a_running_command_is_cancelled() {
    let name = unique("cancel");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let lock = driver.send(&format!("lock {name} b"));
    waits_for(&driver, 1).await;
    let behind = driver.send(&format!("trylock {name} b"));
    assert_eq!(driver.cancel(&lock).await.ok(), "true");
    assert_eq!(lock.answer().await.err_kind(), "cancelled");
    assert_eq!(behind.answer().await.ok(), "false");
    waits_for(&driver, 0).await;
    assert_eq!(driver.ok("cancel nothing").await, "false");
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    leaks.assert_clean().await;
}

#[tokio::test]
async fn the_answer_says_how_long_it_took() {
    let name = unique("took");
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let answer = driver.call(&format!("trylock {name} b 1000")).await;
    let took = answer.took.unwrap();
    assert!(
        took >= Duration::from_secs(1) && took < DEADLINE,
        "{took:?}"
    );
    assert_eq!(answer.ok(), "false");
}

#[tokio::test]
async fn a_lost_lock_is_told() {
    let name = unique("lost");
    let server = shared_server();
    let driver = Driver::start(PROGRAM);
    driver.ok(&format!("connect {} 3000", server.url())).await;
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("lost {name} a 50")).await, "false");
    let lost = driver.send(&format!("lost {name} a 10000"));
    assert_eq!(driver.ok(&format!("held {name} a")).await, "true");
    let _: bool = server.connect().await.unwrap().del(&name).await.unwrap();
    assert_eq!(lost.answer().await.ok(), "true");
    assert_eq!(driver.ok(&format!("held {name} a")).await, "false");
    assert_eq!(driver.ok(&format!("holdcount {name} a")).await, "0");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );

    // A fixed lease ends by itself.
    driver.ok(&format!("lock {name} a 200")).await;
    assert_eq!(driver.ok(&format!("lost {name} a 10000")).await, "true");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
}

#[tokio::test]
async fn a_release_ends_the_wait_for_the_loss() {
    let name = unique("unlost");
    let driver = connected().await;
    driver.ok(&format!("lock {name} a")).await;
    let mut lost = driver.send(&format!("lost {name} a 60000"));
    assert_eq!(driver.ok("uuid").await.len(), 36);
    assert!(lost.is_pending());
    assert_eq!(driver.ok(&format!("unlock {name} a")).await, "true");
    assert_eq!(lost.answer().await.ok(), "false");
}

#[tokio::test]
async fn a_wait_for_the_loss_missed_the_guard_that_the_next_line_released() {
    let driver = connected().await;
    for _ in 0..100 {
        let name = unique("released-next");
        driver.ok(&format!("lock {name} a")).await;
        let lost = driver.send(&format!("lost {name} a 60000"));
        let unlocked = driver.send(&format!("unlock {name} a"));
        assert_eq!(lost.answer().await.ok(), "false");
        assert_eq!(unlocked.answer().await.ok(), "true");
    }
}

#[tokio::test]
async fn the_other_kinds_have_the_same_commands() {
    let driver = connected().await;
    for kind in ["fenced", "spin"] {
        let name = unique(kind);
        let taken = driver.ok(&format!("{kind}.lock {name} a")).await;
        assert_eq!(taken == "ok", kind != "fenced", "{taken}");
        let refused = driver.ok(&format!("{kind}.trylock {name} b 1000")).await;
        assert_eq!(refused == "false", kind != "fenced", "{refused}");
        let holder = driver.ok(&format!("{kind}.holder {name}")).await;
        for (command, answer) in [
            (
                "trylock a",
                &*if kind == "fenced" {
                    taken
                } else {
                    "true".into()
                },
            ),
            ("held a", "true"),
            ("heldby a", "true"),
            ("heldby b", "false"),
            ("holdcount a", "2"),
            ("owner a", &holder),
            ("islocked", "true"),
            ("unlock a", "false"),
            ("lost a 1", "false"),
            ("forceunlock", "true"),
            ("holder", "nil"),
            ("ttl", "nil"),
        ] {
            let (command, owner) = command.split_once(' ').unwrap_or((command, ""));
            let command = format!("{kind}.{command} {name} {owner}");
            assert_eq!(driver.ok(&command).await, answer, "{command}");
        }
        let unlocked = driver.call(&format!("{kind}.unlock {name} a")).await;
        assert_eq!(unlocked.err_kind(), "lost");
    }
    let unknown = driver.call("fence.lock n a").await;
    assert_eq!(unknown.err_kind(), "usage");
}

#[tokio::test]
async fn a_forced_release_is_answered() {
    let name = unique("force");
    let driver = connected().await;
    assert_eq!(driver.ok(&format!("forceunlock {name}")).await, "false");
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(driver.ok(&format!("forceunlock {name}")).await, "true");
    assert_eq!(
        driver.call(&format!("unlock {name} a")).await.err_kind(),
        "lost"
    );
}

/// A lock that begins in one process, and is finished in another.
#[tokio::test]
async fn a_hold_goes_from_one_process_to_another() {
    let name = unique("ticket");
    let (one, two) = (connected().await, connected().await);
    for kind in ["", "fenced."] {
        let lock = async |driver: &Driver, what: &str| driver.ok(&format!("{kind}{what}")).await;
        let token = lock(&one, &format!("lock {name} a")).await;
        let ticket = lock(&one, &format!("ticket {name} a")).await;
        assert_eq!(lock(&one, &format!("held {name} a")).await, "false");
        assert_eq!(lock(&one, &format!("islocked {name}")).await, "true");
        let adopt = |owner: &str| format!("{kind}adopt {name} {owner} {ticket}");
        let adopted = two.ok(&adopt("b")).await;
        match (token.parse::<u64>(), adopted.parse::<u64>()) {
            (Ok(first), Ok(second)) => assert!(second > first && kind == "fenced."),
            _ => assert_eq!((&*token, &*adopted), ("ok", "ok")),
        }
        for driver in [&one, &two] {
            assert_eq!(driver.call(&adopt("c")).await.err_kind(), "not_owner");
        }
        assert_eq!(lock(&two, &format!("held {name} b")).await, "true");
        let wrong = two.call(&format!("fair.adopt {name} b {ticket}")).await;
        assert_eq!(wrong.err_kind(), "usage");
        assert_eq!(lock(&two, &format!("unlock {name} b")).await, "true");
        assert_eq!(lock(&one, &format!("islocked {name}")).await, "false");
    }
    let wrong = one.call(&format!("adopt {name} a rlock.1")).await;
    assert_eq!(wrong.err_kind(), "bad_input");
}
