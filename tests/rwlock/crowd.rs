//! The end of one of many readers: the script against a model of the state in Redis.

use std::collections::BTreeMap;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::embedded::Engine;
use tests::{RedisServer, ask, connection_over, script_text};

const NAME: &str = "crowd";
/// Leases are multiples of this, so that the duration of a test does not matter.
const UNIT: u64 = 1_000_000;

struct Crowd {
    redis: MultiplexedConnection,
    /// The leases of the readers in units; zero: it is dead.
    leases: BTreeMap<u64, u64>,
}

impl Crowd {
    async fn gather(redis: MultiplexedConnection, leases: impl IntoIterator<Item = u64>) -> Self {
        let mut crowd = Self {
            redis,
            leases: (0..).zip(leases).collect(),
        };
        let _: () = crowd.ask(&["FLUSHALL"]).await;
        let _: () = crowd.ask(&["HSET", NAME, "mode", "read"]).await;
        for (reader, lease) in crowd.leases.clone() {
            let _: () = crowd.ask(&["HSET", NAME, &owner(reader), "1"]).await;
            if lease > 0 {
                let (key, lease) = (key(reader), (lease * UNIT).to_string());
                let _: () = crowd.ask(&["SET", &key, "1", "PX", &lease]).await;
            }
        }
        let ttl = crowd.longest().max(1) * UNIT;
        let _: () = crowd.ask(&["PEXPIRE", NAME, &ttl.to_string()]).await;
        crowd
    }

    async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    /// How often a command was called since the last RESETSTAT.
    async fn calls(&mut self, command: &str) -> u64 {
        let info: String = self.ask(&["INFO", "commandstats"]).await;
        let begin = format!("cmdstat_{command}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&begin));
        let calls = line.and_then(|line| line.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    fn longest(&self) -> u64 {
        self.leases.values().copied().max().unwrap_or(0)
    }

    /// The TTL of the lock in units; 0: there is none.
    async fn ttl(&mut self) -> u64 {
        let millis: i64 = self.ask(&["PTTL", NAME]).await;
        assert_ne!(millis, -1, "no TTL");
        u64::try_from(millis).map_or(0, |millis| millis.div_ceil(UNIT))
    }

    /// Ends a reader and returns the TTL of the lock afterwards.
    async fn end(&mut self, reader: u64) -> u64 {
        let prefix = format!("{{{NAME}}}");
        let words = [
            "EVAL",
            &script_text("rw_read_release"),
            "1",
            NAME,
            &owner(reader),
            &prefix,
            "channel",
            "PUBLISH",
        ];
        use redis::Value::{Array, Int};
        let ended: redis::Value = self.ask(&words).await;
        // The release of the last living reader is announced. Dead ones may have been removed before.
        let ends = [Int(1), Array(vec![Int(1), Int(1)]), Int(-1)];
        let is_dead = self.leases.remove(&reader) == Some(0);
        let ends = &ends[..2 + usize::from(is_dead)];
        assert!(ends.contains(&ended), "{ended:?}");
        self.ttl().await
    }
}

/// Of one of our clients.
fn owner(reader: u64) -> String {
    format!("01234567-89ab-8fa1-8000-0123456789ab:{reader}")
}

fn key(reader: u64) -> String {
    format!("{{{NAME}}}:{}:rwlock_timeout:1", owner(reader))
}

/// Once, each release read the lease of every reader: 3.5 ms of the server's time with 4 000.
#[tokio::test]
async fn the_end_of_one_of_many_readers_looks_at_few_of_them() {
    const ENDS: u64 = 20;
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    // Equal leases, and a longer one, which ends last.
    let leases = (0..1000).map(|reader| if reader == ENDS { 9 } else { 3 });
    let mut crowd = Crowd::gather(redis, leases).await;
    let _: () = crowd.ask(&["CONFIG", "RESETSTAT"]).await;
    for reader in 0..ENDS {
        assert_eq!(crowd.end(reader).await, 9);
    }
    assert!(crowd.calls("pttl").await <= ENDS * 40);
    assert_eq!(crowd.calls("hgetall").await, 0);
    // That reader had kept the lock for longer than all others.
    assert_eq!(crowd.end(ENDS).await, 3);
}

/// With any number of fields of dead readers.
#[tokio::test]
async fn the_end_of_the_last_living_reader_frees_the_lock() {
    let server = RedisServer::start();
    for dead in [0, 1, 63, 64, 65, 500] {
        let redis = server.connect().await.unwrap();
        let leases = std::iter::once(5).chain((0..dead).map(|_| 0));
        let mut crowd = Crowd::gather(redis, leases).await;
        assert_eq!(crowd.end(0).await, 0, "beside {dead} dead ones");
    }
}

/// Each end of a reader read the leases of all of them, where some reader was always alive.
#[tokio::test]
async fn dead_readers_are_forgotten_while_others_come_and_go() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let leases = (0..1002).map(|reader| if reader < 2 { 5 } else { 0 });
    let mut crowd = Crowd::gather(redis, leases).await;
    let theirs = "01234567-89ab-4def-8000-0123456789ab:1";
    let _: u8 = crowd.ask(&["HSET", NAME, theirs, "1"]).await;
    // All are looked at, and not only if none of the drawn ones is alive.
    let _: () = crowd
        .ask(&["ACL", "SETUSER", "default", "-hrandfield"])
        .await;
    assert_eq!(crowd.end(0).await, 5);
    let left: u64 = crowd.ask(&["HLEN", NAME]).await;
    assert_eq!(left, 3, "the mode, the last of the living, Redisson's");
    let _: () = crowd.ask(&["CONFIG", "RESETSTAT"]).await;
    assert_eq!(crowd.end(1).await, 0);
    assert!(crowd.calls("pttl").await < 10);
}

async fn at_random(redis: MultiplexedConnection) {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let (readers, longest) = (random.u64(2..150), random.u64(1..12));
        let dead = random.u64(0..100);
        let lease = |_| match random.u64(0..100) < dead {
            true => 0,
            false => random.u64(1..=longest),
        };
        let leases: Vec<u64> = (0..readers).map(lease).collect();
        let mut crowd = Crowd::gather(redis.clone(), leases).await;
        let mut order: Vec<u64> = (0..readers).collect();
        random.shuffle(&mut order);
        for reader in order {
            let (ended, before) = (crowd.leases[&reader], crowd.ttl().await);
            if before == 0 {
                break;
            }
            let (fields, after) = (crowd.leases.len(), crowd.end(reader).await);
            let longest = crowd.longest();
            let what = format!("{ended} of {before} ends, {longest} is left: {after}");
            assert!(after >= longest, "too short: {what}");
            assert_eq!(after == 0, longest == 0, "free: {what}");
            // Includes the field of the mode, without the field of the reader.
            if fields <= 64 {
                assert_eq!(after, longest, "exact: {what}");
            } else if after > 2 * longest {
                assert!(after == before && 2 * ended <= before, "too long: {what}");
            }
        }
    }
}

#[tokio::test]
async fn the_lock_outlives_every_reader_and_the_dead_by_little() {
    let server = RedisServer::start();
    at_random(server.connect().await.unwrap()).await;
    at_random(connection_over(Engine::new().connect()).await.unwrap()).await;
}

/// Without the right to draw fields, the script reads all of them.
#[tokio::test]
async fn without_the_right_to_draw_all_readers_are_looked_at() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let mut crowd = Crowd::gather(redis, (0..200).map(|reader| 2 + reader % 2)).await;
    let _: () = crowd
        .ask(&["ACL", "SETUSER", "default", "-hrandfield"])
        .await;
    for reader in 0..150 {
        assert_eq!(crowd.end(reader).await, 3);
    }
}
