//! The Redisson player: against itself, and its leftovers in Redis.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use tests::{
    LeakCheck, Monitor, Proxy, RedisServer, RedissonClient, RedissonUnlock, shared_server, unique,
    within,
};

use crate::DEADLINE;

async fn two_clients() -> (RedissonClient, RedissonClient) {
    let url = shared_server().url();
    let connect = || RedissonClient::connect(&url);
    (connect().await.unwrap(), connect().await.unwrap())
}

#[tokio::test]
async fn two_clients_exclude_and_wake_each_other() {
    let name = unique("exclude");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let (one, other) = two_clients().await;
    let (first, second) = (one.rlock(&name), other.rlock(&name));
    assert!(first.try_lock(1, None).await.unwrap());
    assert!(
        !second.try_lock(1, None).await.unwrap(),
        "the same thread id of another client"
    );
    assert!(
        !first.try_lock(2, None).await.unwrap(),
        "another thread of the same client"
    );

    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.lock(7, None).await.unwrap() }
    });
    let mut server = shared_server().connect().await.unwrap();
    tests::eventually(DEADLINE, async || {
        let mut server = server.clone();
        let mut command = redis::cmd("PUBSUB");
        let counts = command
            .arg("NUMSUB")
            .arg(first.channel())
            .query_async(&mut server)
            .await;
        let (_, count): (String, usize) = counts.unwrap();
        count == 1
    })
    .await;
    let released = Instant::now();
    assert_eq!(first.unlock(1).await.unwrap(), RedissonUnlock::Freed);
    assert!(within(DEADLINE, waits).await.unwrap());
    assert!(
        released.elapsed() < Duration::from_secs(5),
        "woken, not timed out by the TTL"
    );
    assert!(second.is_held_by(7).await.unwrap() && !first.is_held_by(1).await.unwrap());
    assert!(other.channels().is_empty(), "unsubscribed");
    assert_eq!(second.unlock(7).await.unwrap(), RedissonUnlock::Freed);
    let there: bool = server.exists(&name).await.unwrap();
    assert!(!there);
    leaks.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_of_two_clients_take_turns() {
    const TURNS: usize = 20;
    let name = unique("turns");
    let leaks = LeakCheck::on(&shared_server(), &name).await;
    let counter = format!("{name}:counter");
    let (one, other) = two_clients().await;
    let mut server = shared_server().connect().await.unwrap();
    let mut threads = Vec::new();
    for (client, thread) in [(&one, 1), (&one, 2), (&one, 3), (&other, 1), (&other, 2)] {
        let (lock, counter, mut server) = (client.rlock(&name), counter.clone(), server.clone());
        threads.push(tokio::spawn(async move {
            for _ in 0..TURNS {
                assert!(lock.lock(thread, None).await.unwrap());
                assert_eq!(server.incr::<_, _, i64>(&counter, 1).await.unwrap(), 1);
                assert_eq!(server.decr::<_, _, i64>(&counter, 1).await.unwrap(), 0);
                assert_eq!(lock.unlock(thread).await.unwrap(), RedissonUnlock::Freed);
            }
        }));
    }
    for thread in threads {
        within(Duration::from_secs(60), thread).await.unwrap();
    }
    let _: bool = server.del(&counter).await.unwrap();
    leaks.assert_clean().await;
}

#[tokio::test]
async fn a_wait_ends() {
    let name = unique("wait");
    let (one, other) = two_clients().await;
    assert!(one.rlock(&name).try_lock(1, None).await.unwrap());
    let start = Instant::now();
    let wait = Duration::from_millis(200);
    assert!(
        !within(DEADLINE, other.rlock(&name).lock(1, Some(wait)))
            .await
            .unwrap()
    );
    assert!(start.elapsed() >= wait);
    assert!(other.channels().is_empty());
    assert!(one.rlock(&name).force_unlock().await.unwrap());
    assert!(!one.rlock(&name).force_unlock().await.unwrap());
}

#[tokio::test]
async fn an_expired_lease_is_waited_for() {
    let name = unique("expired");
    let (one, other) = two_clients().await;
    let lease = Duration::from_millis(200);
    assert!(one.rlock(&name).try_lock(1, Some(lease)).await.unwrap());
    assert!(
        within(DEADLINE, other.rlock(&name).lock(1, None))
            .await
            .unwrap()
    );
    assert_eq!(
        one.rlock(&name).unlock(1).await.unwrap(),
        RedissonUnlock::NotOwner
    );
    assert!(!one.rlock(&name).renew(&[1]).await.unwrap());
    assert_eq!(
        other.rlock(&name).unlock(1).await.unwrap(),
        RedissonUnlock::Freed
    );
}

#[tokio::test]
async fn holds_are_counted_in_the_hash() {
    let name = unique("holds");
    let client = two_clients().await.0;
    let lock = client.rlock(&name);
    let mut server = shared_server().connect().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    for count in 1..=2 {
        assert!(
            lock.try_lock(5, Some(Duration::from_secs(9)))
                .await
                .unwrap()
        );
        assert_eq!(lock.hold_count(5).await.unwrap(), count);
    }
    let hash: Vec<(String, String)> = server.hgetall(&name).await.unwrap();
    assert_eq!(hash, [(format!("{}:5", client.uuid()), "2".to_owned())]);
    assert!((8_000..=9_000).contains(&lock.remaining_ttl().await.unwrap()));
    assert!(lock.renew(&[5]).await.unwrap());
    assert!((29_000..=30_000).contains(&lock.remaining_ttl().await.unwrap()));
    assert_eq!(lock.unlock(5).await.unwrap(), RedissonUnlock::StillHeld);
    assert!(
        (8_000..=9_000).contains(&lock.remaining_ttl().await.unwrap()),
        "the object's lease"
    );
    assert_eq!(lock.hold_count(5).await.unwrap(), 1);
    assert_eq!(lock.unlock(5).await.unwrap(), RedissonUnlock::Freed);
    assert_eq!(
        (
            lock.hold_count(5).await.unwrap(),
            lock.remaining_ttl().await.unwrap()
        ),
        (0, -2)
    );
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
