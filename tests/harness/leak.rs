//! The leak check.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use redis::AsyncCommands;
use tests::{LeakCheck, RedisServer, connection_over, shared_server, unique};

use crate::{DEADLINE, MOMENT};

async fn failure(check: LeakCheck) -> String {
    let check = check.deadline(MOMENT).assert_clean();
    let panic = AssertUnwindSafe(check).catch_unwind().await.unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap()
}

#[tokio::test]
async fn a_clean_test_passes() {
    let prefix = unique("clean");
    let server = shared_server();
    let check = LeakCheck::on(&server, &prefix)
        .await
        .also("waiters", || None);
    let other = unique("other");
    let () = server
        .connect()
        .await
        .unwrap()
        .set_ex(&other, 1, 60)
        .await
        .unwrap();
    check.assert_clean().await;
}

#[tokio::test]
async fn a_leaked_key_is_named_in_every_database() {
    let server = RedisServer::start();
    for db in [0, 15] {
        let prefix = unique("leaked");
        let check = LeakCheck::on(&server, &prefix).await;
        let mut connection = server.connect().await.unwrap();
        redis::cmd("SELECT")
            .arg(db)
            .exec_async(&mut connection)
            .await
            .unwrap();
        let key = format!("redisson_lock_queue:{{{prefix}:1}}");
        let () = connection.set(&key, 1).await.unwrap();
        let text = failure(check).await;
        assert!(text.contains(&format!("key {key} of db {db}")), "{text}");
        assert!(text.contains("leak.rs:"), "names the line: {text}");
    }
}

#[tokio::test]
async fn a_key_that_expires_in_time_is_not_a_leak() {
    let prefix = unique("expires");
    let server = shared_server();
    let check = LeakCheck::on(&server, &prefix).await;
    let mut redis = server.connect().await.unwrap();
    let () = redis.set(&prefix, 1).await.unwrap();
    assert_eq!(check.left().await.len(), 1);
    // The check looks at once, and then repeatedly.
    let expires = async { redis.pexpire::<_, bool>(&prefix, 50).await.unwrap() };
    let ((), expires) = tokio::join!(check.assert_clean(), expires);
    assert!(expires);
}

#[tokio::test]
async fn a_leaked_channel_is_named() {
    let prefix = unique("channel");
    let server = shared_server();
    let check = LeakCheck::on(&server, &prefix).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    let channel = format!("redisson_lock__channel:{{{prefix}}}");
    subscriber.subscribe(&channel).await.unwrap();
    let text = failure(check).await;
    assert!(text.contains(&format!("channel {channel}")), "{text}");
}

#[tokio::test]
async fn a_probe_tells_what_is_left() {
    let check = LeakCheck::without_redis("x").also("waiters", || Some("3".to_owned()));
    assert!(failure(check).await.contains("waiters: 3"));
}

#[tokio::test]
async fn a_check_that_was_not_ended_fails_the_test() {
    let check = LeakCheck::without_redis("x").deadline(Duration::ZERO);
    std::panic::catch_unwind(AssertUnwindSafe(|| drop(check))).unwrap_err();
}

#[tokio::test]
async fn a_check_waits_for_what_is_going_away() {
    let prefix = unique("lingers");
    let server = shared_server();
    let check = LeakCheck::on(&server, &prefix).await.deadline(DEADLINE);
    let mut connection = server.connect().await.unwrap();
    let () = connection.set_ex(&prefix, 1, 60).await.unwrap();
    let clean = tokio::spawn(check.assert_clean());
    let _: usize = connection.del(&prefix).await.unwrap();
    clean.await.unwrap();
}

#[tokio::test]
async fn an_embedded_engine_is_checked_over_a_stream() {
    let prefix = unique("embedded");
    let engine = redlock_rt::embedded::Engine::new();
    let check =
        || async { LeakCheck::over(connection_over(engine.connect()).await.unwrap(), &prefix) };
    check().await.assert_clean().await;
    let client = redlock_rt::Client::builder()
        .embedded(&engine)
        .build()
        .unwrap();
    let guard = client.rlock(&prefix).lock().await.unwrap();
    let (leaks, leaky) = (check().await.client(&client), check().await.client(&client));
    let text = failure(leaky).await;
    assert!(text.contains(&format!("key {prefix} of db 0")), "{text}");
    assert!(text.contains("1 held, 1 renewals, 1 names"), "{text}");
    guard.unlock().await.unwrap();
    leaks.assert_clean().await;
}
