//! What another user of the same Redis writes into keys that this user may write: a call on such a key may
//! fail, and nothing else.

use std::time::{Duration, Instant};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, Error, GuardState, LockOptions, LostReason, RLockGuard};
use tests::{DEADLINE, RedisServer, ask, eventually, told, within};
use tokio::time::timeout;

/// More than a reply may have.
const HUGE: usize = 17 << 20;
const SHORT: Duration = Duration::from_millis(600);
const LEASE: Duration = Duration::from_secs(30);

/// A client with a lock that nobody interferes with, and another user.
struct Stage {
    _server: RedisServer,
    client: Client,
    bystander: RLockGuard,
    tenant: MultiplexedConnection,
    connections: u64,
}

impl Stage {
    async fn open() -> Self {
        let server = RedisServer::start();
        let builder = Client::builder().url(&server.url()).tracking(true);
        // A loaded machine takes seconds for what is huge. A call that is given up breaks its connection too, and a
        // renewal is given up within a part of the lease.
        let builder = builder.response_timeout(DEADLINE).lease(LEASE);
        let client = builder.connect().await.unwrap();
        let bystander = client.rlock("bystander").lock().await.unwrap();
        let mut stage = Self {
            tenant: server.connect().await.unwrap(),
            _server: server,
            client,
            bystander,
            connections: 0,
        };
        // Every connection that the client may need is there.
        stage.wait_in_queue("warm").await;
        stage.connections = stage.stat("total_connections_received").await;
        stage
    }

    async fn write<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.tenant, words).await
    }

    /// A number of INFO, or how often a command was called.
    async fn stat(&self, name: &str) -> u64 {
        let stats: String = self.write(&["INFO", "everything"]).await;
        let value = stats
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.map(|value| value.strip_prefix("calls=").unwrap_or(value));
        let value = value.and_then(|value| value.split(',').next());
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits for a fair lock that another client has, for several beats.
    async fn wait_in_queue(&self, name: &str) {
        let _: i64 = self.write(&["HSET", name, "other:1", "1"]).await;
        let options = LockOptions::new().wait(SHORT);
        let waited = self.client.fair_lock(name).lock_with(options).await;
        waited.unwrap_err();
    }

    /// No connection has broken, and the other lock was never in doubt.
    async fn is_unharmed(&self, what: &str) {
        let connections = self.stat("total_connections_received").await;
        assert_eq!(connections, self.connections, "{what} broke connections");
        let state = self.bystander.state();
        assert!(
            matches!(state, GuardState::Held { .. }),
            "{what}: {state:?}"
        );
    }
}

#[tokio::test]
async fn a_long_note_of_a_theft_cost_other_locks_their_leases() {
    let stage = Stage::open().await;
    let robbed = stage.client.rlock("robbed").lock().await.unwrap();
    let note = format!("redlock_stolen:{{robbed}}:{}", robbed.hold_id());
    let _: String = stage.write(&["SET", &note, &"\0".repeat(HUGE)]).await;
    let _: i64 = stage.write(&["DEL", "robbed"]).await;
    let reason = within(DEADLINE, robbed.lost()).await;
    assert_eq!(reason, LostReason::Deleted);
    stage.is_unharmed("the note").await;
}

#[tokio::test]
async fn a_long_entry_of_a_fair_queue_broke_connections() {
    let stage = Stage::open().await;
    let queue = "redisson_lock_queue:{f}";
    let _: i64 = stage.write(&["RPUSH", queue, &"x".repeat(HUGE)]).await;
    stage.wait_in_queue("f").await;
    // A release wakes the waiter that is next.
    let _: i64 = stage.write(&["DEL", "f", queue]).await;
    let guard = stage.client.fair_lock("f").lock().await.unwrap();
    let _: i64 = stage.write(&["RPUSH", queue, &"x".repeat(HUGE)]).await;
    guard.unlock().await.unwrap();
    let queue = "redisson_lock_queue:{g}";
    let options = LockOptions::new().min_hold(Duration::from_secs(1));
    let guard = stage.client.fair_lock("g").lock_with(options).await;
    let _: i64 = stage.write(&["RPUSH", queue, &"x".repeat(HUGE)]).await;
    guard.unwrap().unlock().await.unwrap();
    stage.is_unharmed("the entry").await;
}

#[tokio::test]
async fn a_writers_wish_without_end_hung_the_server() {
    let stage = Stage::open().await;
    let wishes = "redlock_rw_writers:{w}";
    let lock = stage.client.read_write_lock("w").read_lock();
    for (until, wish) in [
        ("1e300", "x/9007199254740994"),
        ("inf", "x/9007199254740993"),
        ("inf", "x"),
        ("inf", "x/1000000000000"),
    ] {
        let _: i64 = stage.write(&["ZADD", wishes, until, wish]).await;
        for _ in 0..20 {
            let tried = within(DEADLINE, lock.try_lock()).await;
            assert!(tried.unwrap().is_none(), "{until} {wish}");
        }
        let _: i64 = stage.write(&["DEL", wishes]).await;
        stage.is_unharmed(wish).await;
    }
}

#[tokio::test]
async fn numbers_that_no_lock_has_broke_connections() {
    type Call = fn(&Client) -> futures::future::BoxFuture<'_, Result<(), Error>>;
    let digits = "9".repeat(30);
    let large = "10000000000000000000000";
    let cases: [(&[&str], Call); 5] = [
        (&["SET", "l", &digits], |client| {
            Box::pin(async { client.count_down_latch("l").wait().await })
        }),
        (&["SET", "i", &digits.repeat(2)], |client| {
            Box::pin(async { client.inspect("i").await.map(drop) })
        }),
        (&["SET", "s", large], |client| {
            Box::pin(async { client.semaphore("s").available_permits().await.map(drop) })
        }),
        (&["SET", "redisson_lock_token:{t}", &digits], |client| {
            Box::pin(async { client.fenced_lock("t").token().await.map(drop) })
        }),
        (&["SET", "redisson_lock_token:{e}", &digits], |client| {
            Box::pin(async { client.leader_election("e").leader().await.map(drop) })
        }),
    ];
    let stage = Stage::open().await;
    for (words, call) in cases {
        let _: redis::Value = stage.write(words).await;
        let called = within(DEADLINE, call(&stage.client)).await;
        if let Err(error) = called {
            let said = told(&error);
            assert!(said.contains("WRONGTYPE"), "{words:?}: {said}");
        }
        stage.is_unharmed(words[1]).await;
    }
    for (field, value) in [("generation", "-1"), ("parties", "1e300")] {
        let _: i64 = stage
            .write(&["HSET", "redlock_barrier:{a}", field, value])
            .await;
        let error = stage.client.cyclic_barrier("a", 3).wait().await;
        let text = told(&error.unwrap_err());
        assert!(text.contains("WRONGTYPE"), "{field}: {text}");
        let _: i64 = stage.write(&["DEL", "redlock_barrier:{a}"]).await;
        stage.is_unharmed(field).await;
    }
    let state = [
        "HSET",
        "redlock_barrier:{b}",
        "generation",
        "1",
        "parties",
        "3",
    ];
    let _: i64 = stage.write(&state).await;
    let _: i64 = stage
        .write(&["ZADD", "redlock_barrier_parties:{b}", "inf", "x"])
        .await;
    let barrier = stage.client.cyclic_barrier("b", 3);
    timeout(SHORT, barrier.wait()).await.unwrap_err();
    stage.is_unharmed("a party").await;
}

#[tokio::test]
async fn hold_counts_of_many_readers_kept_the_server_busy() {
    let stage = Stage::open().await;
    let fields: Vec<_> = (1..=500).map(|at| format!("other:{at}")).collect();
    let mut words = vec!["HSET", "r", "mode", "read", "other:0", "-1e300"];
    for field in &fields {
        words.extend([field, "1000"]);
    }
    let _: i64 = stage.write(&words).await;
    let before = stage.stat("cmdstat_pttl").await;
    let holders = stage
        .client
        .read_write_lock("r")
        .read_lock()
        .holders()
        .await;
    assert_eq!(holders.unwrap().len(), 501);
    let read = stage.stat("cmdstat_pttl").await - before;
    // With a few of renewals.
    assert!((99_000..101_000).contains(&read), "{read}");
}

#[tokio::test]
async fn messages_that_all_keys_have_changed_made_a_client_verify_its_locks_without_a_pause() {
    let stage = Stage::open().await;
    eventually(DEADLINE, async || {
        stage.stat("tracking_total_keys").await == 1
    })
    .await;
    // Of another age.
    let other = stage.client.rlock("other").lock().await.unwrap();
    let (before, began) = (stage.stat("cmdstat_evalsha").await, Instant::now());
    let empty = ["PUBLISH", "__redis__:invalidate", ""];
    for _ in 0..500 {
        let heard: i64 = stage.write(&empty).await;
        assert_eq!(heard, 1);
    }
    let _: i64 = stage.write(&["DEL", "bystander"]).await;
    within(DEADLINE, stage.bystander.lost()).await;
    let calls = stage.stat("cmdstat_evalsha").await - before;
    // A verification, and a renewal behind which the keys are watched again.
    let most = 4 + 2 * (began.elapsed().as_millis() / 100);
    assert!(u128::from(calls) <= most, "{calls} calls, not {most}");
    assert!(other.is_valid());
}

#[tokio::test]
async fn a_password_was_in_the_error_of_a_server_that_does_not_know_auth() {
    let arguments = ["--rename-command", "AUTH", ""];
    let server = RedisServer::options().args(arguments).start();
    let url = server.url().replace("redis://", "redis://app:hunter2@");
    let error = Client::builder().url(&url).connect().await.unwrap_err();
    let text = format!("{} {error:?}", told(&error));
    assert!(text.contains("unknown command"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}
