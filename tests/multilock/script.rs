//! Unusual cases of the script that takes several locks.

use redis::{RedisResult, aio::MultiplexedConnection};
use tests::{RedisServer, SharedServer, ask, script_text};

use crate::names;

/// Takes these locks for `u:1`, `u:2` and so on; returns the index, from 1, of the first held lock.
async fn acquire(
    redis: &mut MultiplexedConnection,
    names: &[String],
    lease: u64,
) -> RedisResult<Option<usize>> {
    let mut call = redis::cmd("EVAL");
    call.arg(script_text("multi_acquire"))
        .arg(names.len())
        .arg(names);
    call.arg(lease);
    for number in 1..=names.len() {
        call.arg(format!("u:{number}"));
    }
    call.query_async(redis).await
}

async fn there(redis: &mut MultiplexedConnection, names: &[String]) -> Vec<bool> {
    let mut there = Vec::new();
    for name in names {
        there.push(ask(redis, &["EXISTS", name]).await);
    }
    there
}

async fn clean(server: &SharedServer, names: &[String]) {
    let redis = server.connect().await.unwrap();
    for name in names {
        let _: u8 = ask(&redis, &["DEL", name]).await;
    }
}

#[tokio::test]
async fn a_repeat_takes_nothing_more_and_shortens_nothing() {
    let (server, _, names) = names("repeat");
    let mut redis = server.connect().await.unwrap();
    for lease in [60_000, 1_000] {
        assert_eq!(acquire(&mut redis, &names, lease).await.unwrap(), None);
        for (number, name) in names.iter().enumerate() {
            let owner = format!("u:{}", number + 1);
            let count: u8 = ask(&redis, &["HGET", name, &owner]).await;
            let ttl: u64 = ask(&redis, &["PTTL", name]).await;
            assert!(count == 1 && ttl > 50_000, "{count}, {ttl}");
        }
    }
    clean(&server, &names).await;
}

/// One of the locks was lost since then, and another owner has it.
#[tokio::test]
async fn a_repeat_that_finds_one_taken_gives_the_others_back() {
    let (server, _, names) = names("taken");
    let mut redis = server.connect().await.unwrap();
    assert_eq!(acquire(&mut redis, &names, 60_000).await.unwrap(), None);
    let _: u8 = ask(&redis, &["DEL", &names[1]]).await;
    let _: u8 = ask(&redis, &["HSET", &names[1], "other:1", "1"]).await;
    assert_eq!(acquire(&mut redis, &names, 60_000).await.unwrap(), Some(2));
    assert_eq!(there(&mut redis, &names).await, [false, true, false]);
    let owners: Vec<String> = ask(&redis, &["HKEYS", &names[1]]).await;
    assert_eq!(owners, ["other:1"]);
    clean(&server, &names).await;
}

#[tokio::test]
async fn a_key_of_another_type_is_seen_before_anything_is_written() {
    let (server, _, names) = names("text");
    let mut redis = server.connect().await.unwrap();
    let _: () = ask(&redis, &["SET", &names[2], "text"]).await;
    let error = acquire(&mut redis, &names, 60_000).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"), "{error}");
    assert_eq!(there(&mut redis, &names).await, [false, false, true]);
    clean(&server, &names).await;
}

/// Without a lease the locks would stay for ever.
#[tokio::test]
async fn where_no_lease_may_be_set_nothing_stays() {
    let server = RedisServer::start();
    let mut redis = server.connect().await.unwrap();
    let _: () = ask(
        &redis,
        &[
            "ACL", "SETUSER", "poor", "on", "nopass", "~*", "+@all", "-pexpire",
        ],
    )
    .await;
    let names = ["a", "b"].map(str::to_owned);
    let mut poor = server.connect().await.unwrap();
    let _: () = ask(&poor, &["AUTH", "poor", "any"]).await;
    assert!(acquire(&mut poor, &names, 60_000).await.is_err());
    assert_eq!(there(&mut redis, &names).await, [false, false]);
}
