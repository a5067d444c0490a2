//! The Redisson player: against itself, and its leftovers in Redis.

use redis::AsyncCommands;
use tests::{Monitor, Proxy, RedisServer, RedissonClient, RedissonUnlock, shared_server, unique};

async fn two_clients() -> (RedissonClient, RedissonClient) {
    let url = shared_server().url();
    let connect = || RedissonClient::connect(&url);
    (connect().await.unwrap(), connect().await.unwrap())
}

#[tokio::test]
async fn a_repeated_unlock_is_recognised_by_its_latch() {
    let name = unique("latch");
    let lock = two_clients().await.0.rlock(&name);
    for _ in 0..2 {
        assert!(lock.try_lock(1, None).await.unwrap());
    }
    let request = "0123456789abcdef0123456789abcdef";
    for _ in 0..2 {
        let answer = lock.unlock_request(1, request).await.unwrap();
        assert_eq!(
            (answer, lock.hold_count(1).await.unwrap()),
            (RedissonUnlock::StillHeld, 1)
        );
    }
    let mut server = shared_server().connect().await.unwrap();
    let latch = format!("redisson_unlock_latch:{{{name}}}:{request}");
    let ttl: i64 = server.pttl(&latch).await.unwrap();
    assert!((15_000..=20_000).contains(&ttl), "{ttl}");
    let _: bool = server.del(latch).await.unwrap();
    assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::Freed);
}

#[tokio::test]
async fn a_lost_reply_does_not_unlock_twice() {
    let name = unique("lost");
    let proxy = Proxy::to(&shared_server());
    let lock = RedissonClient::connect(&proxy.url())
        .await
        .unwrap()
        .rlock(&name);
    for _ in 0..2 {
        assert!(lock.try_lock(1, None).await.unwrap());
    }
    // Loads the script, so that the lost reply is not a NOSCRIPT.
    assert_eq!(lock.unlock(2).await.unwrap(), RedissonUnlock::NotOwner);
    proxy.cut_after_request(tests::Matcher::command("EVALSHA").mentioning("unlock_latch"));
    assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::StillHeld);
    assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::Freed);
}

/// The random tests flush the scripts of the server at any moment.
#[tokio::test]
async fn a_script_that_is_flushed_before_its_repeat_is_loaded_again() {
    let proxy = Proxy::to(&shared_server());
    let lock = RedissonClient::connect(&proxy.url()).await.unwrap();
    let lock = lock.rlock(unique("flushed"));
    let noscript = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    proxy.answer(tests::Matcher::command("EVALSHA"), noscript, 3);
    assert!(lock.try_lock(1, None).await.unwrap());
    assert_eq!(proxy.count(tests::Matcher::command("SCRIPT")), 3);
    assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::Freed);
}

#[tokio::test]
async fn the_wire_looks_as_redissons() {
    let server = RedisServer::start();
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let mut monitor = Monitor::start(&server).await;
    let lock = client.rlock("a{b}c");
    assert!(lock.try_lock(1, None).await.unwrap());
    assert_eq!(lock.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    let lines = monitor.lines().await;
    let sent: Vec<_> = lines.iter().filter(|line| !line.is_inner()).collect();
    let commands: Vec<_> = sent.iter().map(|line| line.command()).collect();
    assert_eq!(
        commands,
        [
            "EVALSHA", "SCRIPT", "EVALSHA", "EVALSHA", "SCRIPT", "EVALSHA", "DEL"
        ],
        "each script is loaded when it is not known"
    );
    let owner = lock.owner(1);
    assert_eq!(sent[0].args[2..], ["1", "a{b}c", "30000", &owner]);
    let [
        _,
        _,
        count,
        name,
        channel,
        latch,
        message,
        lease,
        by,
        publish,
        _,
    ] = &sent[3].args[..]
    else {
        panic!("{:?}", sent[3])
    };
    assert_eq!(
        [count, name, message, lease, by, publish],
        ["3", "a{b}c", "0", "30000", &owner, "PUBLISH"]
    );
    assert_eq!(channel, "redisson_lock__channel:a{b}c");
    assert_eq!(&sent[6].args[1], latch);
    assert!(
        lines
            .iter()
            .any(|line| line.is_inner() && line.args == ["PUBLISH", channel, "0"])
    );
}
