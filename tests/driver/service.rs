//! Leaderships, and what is to be done once.

use tests::{ask, shared_server, unique};

use crate::{connected, waits_for};

#[tokio::test]
async fn one_leads_until_it_resigns() {
    let (one, two) = (connected().await, connected().await);
    let name = unique("leader");
    let who = format!("leader.who {name}");
    assert_eq!(one.ok(&who).await, "nil");
    let first = one.ok(&format!("leader.campaign {name} a")).await;
    let hold = two.ok(&who).await;
    assert!(hold.starts_with(&format!("{first} {}:", one.ok("uuid").await)));
    assert_eq!(two.ok(&format!("leader.campaign {name} b 1")).await, "nil");
    let pending = two.send(&format!("leader.campaign {name} b"));
    waits_for(&two, 1).await;
    let other = two.call(&format!("leader.resign {name} b")).await;
    assert_eq!(other.err_kind(), "not_owner");
    assert_eq!(one.ok(&format!("leader.resign {name} a")).await, "true");
    let second = pending.answer().await.ok();
    assert!(second.parse::<u64>().unwrap() > first.parse().unwrap());
    let redis = shared_server().connect().await.unwrap();
    let _: usize = ask(&redis, &["DEL", &name]).await;
    let resigned = two.call(&format!("leader.resign {name} b")).await;
    assert_eq!(resigned.err_kind(), "lost");
    let token = format!("redisson_lock_token:{{{name}}}");
    let _: usize = ask(&redis, &["DEL", &token]).await;
}

#[tokio::test]
async fn a_fire_is_left_and_done_and_others_are_told() {
    let (one, two) = (connected().await, connected().await);
    let name = unique("fire");
    let command = |verb: &str, rest: &str| format!("once.{verb} {name} 1000 {rest}");
    assert!(one.ok(&command("start", "a")).await.starts_with("run "));
    let running = two.ok(&command("start", "b 0")).await;
    assert!(running.starts_with(&format!("running {}:", one.ok("uuid").await)));
    assert_eq!(one.ok(&command("leave", "a")).await, "true");
    let failed = two.ok(&command("start", "b 0 1")).await;
    assert_eq!(failed, "failed", "the one attempt was left");
    assert!(two.ok(&command("start", "b 0 2")).await.starts_with("run "));
    let pending = one.send(&command("start", "a"));
    waits_for(&one, 1).await;
    assert_eq!(two.ok(&command("done", "b")).await, "ok");
    let done = pending.answer().await.ok();
    assert!(done.starts_with("done "));
    assert_eq!(two.ok(&command("start", "b")).await, done);
    let again = two.call(&command("done", "b")).await;
    assert_eq!(again.err_kind(), "not_owner");
}
