//! With tracking, Redis tells of a lock that is gone: long before a renewal would have noticed it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, LockOptions, LostReason, RLockGuard, Unlocked};
use tests::{
    Matcher, Proxy, RedisServer, ask, assert_clean, assert_held, calls, eventually, trace_init,
    unique, within,
};

use crate::{DEADLINE, LINGER, all_renewed};

/// No renewal is due before the end of the test.
const LONG: Duration = Duration::from_secs(600);
/// Of Redis.
const INVALIDATED: &str = "__redis__:invalidate";

pub(crate) fn tracking(url: &str) -> Client {
    let builder = Client::builder().url(url).tracking(true).lease(LONG);
    builder.linger(LINGER).build().unwrap()
}

/// The number of keys that the server watches.
pub(crate) async fn watched(redis: &MultiplexedConnection) -> usize {
    let stats: String = ask(redis, &["INFO", "stats"]).await;
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("tracking_total_keys:"));
    line.unwrap().parse().unwrap()
}

/// Waits until the server watches so many keys.
pub(crate) async fn until_watched(redis: &MultiplexedConnection, keys: usize) {
    eventually(DEADLINE, async || match watched(redis).await {
        found if found == keys => Ok(()),
        found => Err(format!("{found} keys are watched, not {keys}")),
    })
    .await;
}

/// What ends a lock, or takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Deleted,
    Forced,
    Stolen,
    Overwritten,
    Flushed,
    Evicted,
    Expired,
}

const ENDS: [End; 7] = [
    End::Deleted,
    End::Forced,
    End::Stolen,
    End::Overwritten,
    End::Flushed,
    End::Evicted,
    End::Expired,
];

impl End {
    /// Of one lock alone.
    fn is_of_one(self) -> bool {
        !matches!(self, Self::Flushed | Self::Evicted)
    }

    /// When it began, if it has ended now; `asked`: when it was asked for.
    fn began(self, asked: Instant) -> Instant {
        match self {
            // These take the server long by themselves.
            Self::Evicted | Self::Expired => Instant::now(),
            _ => asked,
        }
    }

    pub(crate) fn reason(self) -> LostReason {
        match self {
            Self::Stolen | Self::Overwritten => LostReason::Taken,
            _ => LostReason::Deleted,
        }
    }

    pub(crate) async fn come(self, name: &str, redis: &MultiplexedConnection, other: &Client) {
        match self {
            Self::Deleted => assert!(ask::<bool>(redis, &["DEL", name]).await),
            Self::Forced => assert!(other.rlock(name).force_unlock().await.unwrap()),
            Self::Stolen => {
                let script = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'thief', 1) \
                              redis.call('PEXPIRE', KEYS[1], 60000) return 1";
                let _: u8 = ask(redis, &["EVAL", script, "1", name]).await;
            }
            Self::Overwritten => drop(ask::<String>(redis, &["SET", name, "x"]).await),
            Self::Flushed => drop(ask::<String>(redis, &["FLUSHALL"]).await),
            Self::Evicted => {
                for most in ["1", "0"] {
                    let _: String = ask(redis, &["CONFIG", "SET", "maxmemory", most]).await;
                }
            }
            Self::Expired => {
                // The server has run nothing else by the time when the lease is over: a verification
                // would lengthen it.
                let script = "redis.call('PEXPIRE', KEYS[1], 1) for _ = 1, 1e7 do end return 1";
                let _: u8 = ask(redis, &["EVAL", script, "1", name]).await;
            }
        }
    }
}

/// Locks of a client, and who can do something to them.
struct Stage {
    server: RedisServer,
    redis: MultiplexedConnection,
    client: Client,
    other: Client,
}

impl Stage {
    /// The server is of its own, since some flush it.
    async fn set() -> Self {
        trace_init();
        let server = RedisServer::options().args(["--maxmemory-policy", "allkeys-random"]);
        let server = server.start();
        Self {
            redis: server.connect().await.unwrap(),
            client: tracking(&server.url()),
            other: Client::connect(&server.url()).await.unwrap(),
            server,
        }
    }

    /// So many locks, which the server watches.
    async fn hold(&self, prefix: &str, locks: usize) -> Vec<(String, RLockGuard)> {
        let before = watched(&self.redis).await;
        let locks = (0..locks).map(async |at| {
            let name = format!("{prefix}:{at}");
            let guard = self.client.rlock(&name).lock().await.unwrap();
            (name, guard)
        });
        let locks = join_all(locks).await;
        until_watched(&self.redis, before + locks.len()).await;
        locks
    }

    async fn end(self, prefix: &str) {
        let keys: Vec<String> = ask(&self.redis, &["KEYS", &format!("{prefix}*")]).await;
        for key in keys {
            let _: usize = ask(&self.redis, &["DEL", &key]).await;
        }
        assert_clean(&self.server, prefix, [&self.client, &self.other]).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_gone_is_lost_at_once_whatever_ended_it() {
    join_all(ENDS.map(async |end| {
        let (stage, name) = (Stage::set().await, unique("gone"));
        for (name, guard) in stage.hold(&name, 2).await {
            if guard.is_valid() {
                end.come(&name, &stage.redis, &stage.other).await;
            }
            let reason = within(DEADLINE, guard.lost()).await;
            assert_eq!(reason, end.reason(), "{end:?}");
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        }
        // A key that is gone is not watched: nobody might ever write to it.
        assert_eq!(watched(&stage.redis).await, 0);
        stage.end(&name).await;
    }))
    .await;
}

/// Until a guard is lost, from before it was ended until it says so.
async fn took(end: End, stage: &Stage, locks: Vec<(String, RLockGuard)>) -> Vec<Duration> {
    let mut took = Vec::new();
    if end.is_of_one() {
        for (name, guard) in locks {
            let start = Instant::now();
            end.come(&name, &stage.redis, &stage.other).await;
            let start = end.began(start);
            within(DEADLINE, guard.lost()).await;
            took.push(start.elapsed());
        }
        return took;
    }
    let start = Instant::now();
    end.come("", &stage.redis, &stage.other).await;
    let start = end.began(start);
    for (_, guard) in locks {
        within(DEADLINE, guard.lost()).await;
        took.push(start.elapsed());
    }
    took
}

/// In a long run 10 000 cases.
#[tokio::test]
async fn a_loss_is_told_within_a_round_trip() {
    const CAUSES: [End; 5] = [
        End::Deleted,
        End::Forced,
        End::Flushed,
        End::Evicted,
        End::Expired,
    ];
    let soaks = std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0");
    let stage = Stage::set().await;
    let prefix = unique("soon");
    for end in CAUSES {
        let (mut all, mut trips) = (Vec::new(), Vec::new());
        // What ends all at once ends few.
        let count = if end.is_of_one() { 50 } else { 10 };
        let rounds = if soaks { 2000 / count } else { 1 };
        for round in 0..rounds {
            let locks = stage.hold(&format!("{prefix}:{round}"), count).await;
            for _ in 0..count {
                let start = Instant::now();
                let _: String = ask(&stage.redis, &["PING"]).await;
                trips.push(start.elapsed());
            }
            all.extend(took(end, &stage, locks).await);
        }
        all.sort_unstable();
        trips.sort_unstable();
        let part = |times: &[Duration], percent: usize| times[times.len() * percent / 100];
        let (p50, p99, most) = (part(&all, 50), part(&all, 99), all[all.len() - 1]);
        let trip = part(&trips, 50);
        println!(
            "{end:?}: lost after p50 {p50:?}, p99 {p99:?}, at most {most:?}, a round trip is {trip:?}, \
             {} cases",
            all.len()
        );
        // The message, and the verification. A short run has the processor with other tests.
        assert!(!soaks || p99 <= trip + Duration::from_millis(5), "{end:?}");
    }
    stage.end(&prefix).await;
}

/// Every kind that excludes all others.
#[tokio::test]
async fn locks_of_all_kinds_that_exclude_all_others_are_tracked() {
    trace_init();
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let client = tracking(&server.url());
    let prefix = unique("kinds");
    let name = |kind: &str| format!("{prefix}:{kind}");
    let spin = client.spin_lock(name("spin")).lock().await.unwrap();
    let fair = client.fair_lock(name("fair")).lock().await.unwrap();
    let fenced = client.fenced_lock(name("fenced")).lock().await.unwrap();
    let write = client.read_write_lock(name("write")).write().await.unwrap();
    // The keys of these change all the time.
    let read = client.read_write_lock(name("read")).read().await.unwrap();
    let permits = client.permit_expirable_semaphore(name("permits")).limit(2);
    let permit = permits.acquire().await.unwrap();
    until_watched(&redis, 4).await;
    for kind in ["spin", "fair", "fenced", "write"] {
        assert!(ask::<bool>(&redis, &["DEL", &name(kind)]).await);
    }
    within(DEADLINE, async {
        assert_eq!(spin.lost().await, LostReason::Deleted);
        assert_eq!(fair.lost().await, LostReason::Deleted);
        assert_eq!(fenced.lost().await, LostReason::Deleted);
        assert_eq!(write.lost().await, LostReason::Deleted);
    })
    .await;
    assert!(read.is_valid() && permit.is_valid());
    assert_eq!(watched(&redis).await, 0);
}

/// Once a renewal, and nothing for the locks that are held for less than a second.
#[tokio::test]
async fn what_this_client_renews_is_told_to_nobody() {
    const LOCKS: usize = 150;
    const ROUNDS: usize = 10;
    trace_init();
    let (server, prefix) = (RedisServer::start(), unique("quiet"));
    let proxy = Proxy::to(&server);
    let redis = server.connect().await.unwrap();
    let client = tracking(&proxy.url());
    let options = LockOptions::new().renew(Duration::from_millis(200));
    let locks = (0..LOCKS).map(async |at| {
        let lock = client.rlock(format!("{prefix}:{at}"));
        lock.lock_with(options.clone()).await.unwrap()
    });
    let guards = join_all(locks).await;
    until_watched(&redis, LOCKS).await;
    let told = proxy.hold_message(Matcher::command("message").mentioning(INVALIDATED));
    proxy.mark();
    proxy
        .wait_for_count(calls("renew"), ROUNDS * LOCKS.div_ceil(100))
        .await;
    all_renewed(&guards).await;
    assert_eq!(told.held(), 0);
    assert_eq!(watched(&redis).await, LOCKS, "one key for each");
    // A gate that counts what is told.
    assert!(ask::<bool>(&redis, &["DEL", &format!("{prefix}:0")]).await);
    told.reached().await;
    told.open();
    within(DEADLINE, guards[0].lost()).await;
    drop(guards);
    until_watched(&redis, 0).await;
    assert_clean(&server, &prefix, [&client]).await;
}

/// A lock that is held for less than a second costs nothing more.
#[tokio::test]
async fn a_short_hold_is_not_tracked() {
    let (server, name) = (RedisServer::start(), unique("short"));
    let proxy = Proxy::to(&server);
    let redis = server.connect().await.unwrap();
    let client = tracking(&proxy.url());
    let long = client.rlock(format!("{name}:long")).lock().await.unwrap();
    until_watched(&redis, 1).await;
    let lock = client.rlock(&name);
    for _ in 0..20 {
        proxy.mark();
        let start = Instant::now();
        let guard = lock.lock().await.unwrap();
        // There is time to track it.
        for _ in 0..5 {
            assert!(lock.is_locked().await.unwrap());
        }
        guard.unlock().await.unwrap();
        if start.elapsed() < Duration::from_millis(900) {
            assert_eq!((proxy.count("EXISTS"), proxy.count(calls("renew"))), (0, 0));
        }
    }
    assert!(long.is_valid());
}

/// What this client does with a lock over its other connections is told like what others do.
#[tokio::test]
async fn no_guard_is_lost_by_what_its_own_client_does() {
    trace_init();
    let (server, name) = (RedisServer::start(), unique("own"));
    let redis = server.connect().await.unwrap();
    let client = tracking(&server.url());
    let lock = client.rlock(&name);
    let guard = lock.lock().await.unwrap();
    until_watched(&redis, 1).await;
    for round in 1..=50 {
        let inner = guard.reenter().await.unwrap();
        guard
            .extend(LONG + round * Duration::from_secs(1))
            .await
            .unwrap();
        assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
        assert_held(&guard.state());
    }
    // It is watched again after all that, and lost if it is.
    until_watched(&redis, 1).await;
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || client.stats().waiting == 1).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let next = within(DEADLINE, waiter).await.unwrap();
    until_watched(&redis, 1).await;
    assert!(next.is_valid());
    let write = client
        .read_write_lock(format!("{name}:rw"))
        .write()
        .await
        .unwrap();
    until_watched(&redis, 2).await;
    let read = write.downgrade().await.unwrap();
    eventually(DEADLINE, async || watched(&redis).await == 1).await;
    assert!(read.is_valid());
    read.unlock().await.unwrap();
    assert!(ask::<bool>(&redis, &["DEL", &name]).await);
    assert_eq!(within(DEADLINE, next.lost()).await, LostReason::Deleted);
    drop(next);
    assert_clean(&server, &name, [&client]).await;
}

/// The key was watched in vain. If the key was gone before it was watched again, it stayed in the server's table.
#[tokio::test]
async fn no_key_is_watched_before_the_client_listens() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let redis = server.connect().await.unwrap();
    let (client, name) = (tracking(&proxy.url()), unique("unheard"));
    let first = client.rlock(&name).lock().await.unwrap();
    until_watched(&redis, 1).await;
    first.unlock().await.unwrap();
    eventually(DEADLINE, async || client.stats().subscriptions == 0).await;
    proxy.mark();
    let gate = proxy.hold_request(Matcher::command("SUBSCRIBE").mentioning(INVALIDATED));
    let guard = client.rlock(&name).lock().await.unwrap();
    gate.reached().await;
    proxy.wait_for_answer(calls("renew")).await;
    assert_eq!((proxy.count("EXISTS"), watched(&redis).await), (0, 0));
    gate.open();
    until_watched(&redis, 1).await;
    assert!(ask::<bool>(&redis, &["DEL", &name]).await);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
}
