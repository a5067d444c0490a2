//! A TTL that another program took away or set too far, or that is too far since the clock of the server was
//! set back: the lock of a holder that is killed later was never free.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, HoldId, LockOptions, PermitOptions, embedded::Engine};
use tests::{
    Driver, Proxy, ask, assert_clean, calls, connection_over, eventually, shared_server,
    trace_init, unique, within,
};

use crate::{DEADLINE, LATE, LINGER};

const LEASE: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(60);
const HOUR: u64 = 3_600_000;
/// Renewed often, so that a renewal comes soon.
const OFTEN: Duration = Duration::from_millis(100);
/// Each of these makes a TTL longer than it ever was.
const TAMPERING: [&[&str]; 2] = [&["PERSIST"], &["PEXPIRE", "3600000"]];

fn options() -> LockOptions {
    LockOptions::new().lease(LEASE).renew(OFTEN)
}

fn leases_of(name: &str, owner: &HoldId) -> String {
    format!("{{{name}}}:{owner}:rwlock_timeout:1")
}

/// A lock of each kind with a lease, held by a client.
struct Held {
    /// The keys whose TTLs are the leases.
    keys: Vec<String>,
    guards: Vec<Box<dyn Any>>,
}

impl Held {
    async fn of(client: &Client, name: &str) -> Self {
        let mut held = Self {
            keys: Vec::new(),
            guards: Vec::new(),
        };
        let of = |kind: &str| format!("{name}:{kind}");
        let names = ["rlock", "fenced", "spin", "fair", "write", "both", "read"].map(of);
        held.keys.extend(names.clone());
        let [rlock, fenced, spin, fair, write, both, read] = names;
        let lock = client.rlock(rlock);
        held.add(lock.lock_with(options()).await.unwrap());
        let lock = client.fenced_lock(fenced);
        held.add(lock.lock_with(options()).await.unwrap());
        let lock = client.spin_lock(spin);
        held.add(lock.lock_with(options()).await.unwrap());
        let lock = client.fair_lock(fair);
        held.add(lock.lock_with(options()).await.unwrap());
        let lock = client.read_write_lock(write);
        held.add(lock.write_with(options()).await.unwrap());
        // Reading under writing: the TTL is that of the writer, or longer.
        let lock = client.read_write_lock(&both);
        let writes = lock.write_with(options()).await.unwrap();
        let reads = writes.run(lock.read_with(options())).await.unwrap();
        held.keys.push(leases_of(&both, writes.hold_id()));
        held.add((writes, reads.unwrap()));
        let lock = client.read_write_lock(&read);
        for _ in 0..2 {
            let guard = lock.read_with(options()).await.unwrap();
            held.keys.push(leases_of(&read, guard.hold_id()));
            held.add(guard);
        }
        held
    }

    fn add(&mut self, guard: impl Any) {
        self.guards.push(Box::new(guard));
    }

    async fn have_their_lease(&self, redis: &MultiplexedConnection) {
        for key in &self.keys {
            eventually(DEADLINE, async || {
                let ttl: i64 = ask(redis, &["PTTL", key]).await;
                match u128::try_from(ttl) {
                    Ok(ttl) if ttl <= LEASE.as_millis() => Ok(()),
                    _ => Err(format!("{key}: {ttl} ms")),
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_ttl_that_was_taken_off_or_set_too_far_stayed_for_ever() {
    trace_init();
    let (server, name) = (shared_server(), unique("too-long"));
    let redis = server.connect().await.unwrap();
    let client = Client::builder().url(&server.url()).linger(LINGER);
    let client = client.build().unwrap();
    let held = Held::of(&client, &name).await;
    for words in TAMPERING {
        for key in &held.keys {
            let words = [&words[..1], &[key], &words[1..]].concat();
            assert_eq!(ask::<i64>(&redis, &words).await, 1, "{words:?}");
        }
        held.have_their_lease(&redis).await;
    }
    drop(held);
    for kind in ["fenced"] {
        let token = format!("redisson_lock_token:{{{name}:{kind}}}");
        eventually(DEADLINE, async || client.stats().held == 0).await;
        assert_eq!(ask::<i64>(&redis, &["DEL", &token]).await, 1);
    }
    assert_clean(&server, &name, [&client]).await;
}

/// As it was seen: nobody got that lock any more.
#[tokio::test]
async fn behind_a_killed_holder_whose_key_had_lost_its_ttl_the_lock_was_never_free() {
    trace_init();
    const LEASE: Duration = Duration::from_secs(3);
    let (server, name) = (shared_server(), unique("persisted"));
    let redis = server.connect().await.unwrap();
    let mut driver = Driver::start(env!("CARGO_BIN_EXE_driver"));
    driver.ok(&format!("connect {} 3000", server.url())).await;
    driver.ok(&format!("lock {name} a")).await;
    assert_eq!(ask::<i64>(&redis, &["PERSIST", &name]).await, 1);
    eventually(DEADLINE, async || {
        ask::<i64>(&redis, &["PTTL", &name]).await > 0
    })
    .await;
    driver.kill();
    let killed = Instant::now();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.rlock(&name);
    let guard = within(DEADLINE, lock.lock()).await.unwrap();
    assert!(killed.elapsed() < LEASE + LATE, "{:?}", killed.elapsed());
    guard.unlock().await.unwrap();
}

/// What an extension or a re-entry has asked for stays, also where the TTL is cut.
#[tokio::test]
async fn an_extension_is_what_a_ttl_is_cut_to() {
    trace_init();
    let (server, name) = (shared_server(), unique("extended"));
    let redis = server.connect().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let between = async |key: &str| {
        eventually(DEADLINE, async || {
            let ttl: i64 = ask(&redis, &["PTTL", key]).await;
            let ttl = Duration::from_millis(u64::try_from(ttl).unwrap_or(u64::MAX / 2));
            match ttl <= LONG && ttl + LATE > LONG {
                true => Ok(()),
                false => Err(format!("{ttl:?}")),
            }
        })
        .await;
    };
    // Renewed; the renewals ask for less.
    let guard = client.rlock(&name).lock_with(options()).await.unwrap();
    guard.extend(LONG).await.unwrap();
    for words in TAMPERING {
        let words = [&words[..1], &[&name], &words[1..]].concat();
        assert_eq!(ask::<i64>(&redis, &words).await, 1);
        between(&name).await;
    }
    guard.unlock().await.unwrap();
    // Not renewed: the extension itself cuts.
    let fixed = options().renew(false);
    let guard = client.rlock(&name).lock_with(fixed).await.unwrap();
    for words in TAMPERING {
        let words = [&words[..1], &[&name], &words[1..]].concat();
        assert_eq!(ask::<i64>(&redis, &words).await, 1);
        guard.extend(LONG).await.unwrap();
        between(&name).await;
    }
    guard.unlock().await.unwrap();
    // A read lock keeps the lease of the reader that has the longest.
    let lock = client.read_write_lock(&name);
    let long = lock.read_with(options().lease(LONG)).await.unwrap();
    let short = lock.read_with(options()).await.unwrap();
    assert_eq!(ask::<i64>(&redis, &["PERSIST", &name]).await, 1);
    between(&name).await;
    drop((long, short));
}

/// A renewal that the server reads late knows nothing of what was asked for since it was sent.
#[tokio::test]
async fn a_late_renewal_does_not_cut_an_extension() {
    trace_init();
    let (server, name) = (shared_server(), unique("late-cut"));
    let redis = server.connect().await.unwrap();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let guard = client.rlock(&name).lock_with(options()).await.unwrap();
    proxy.wait_for_count(calls("renew"), 2).await;
    let late = proxy.hold_request(calls("renew"));
    late.reached().await;
    guard.extend(LONG).await.unwrap();
    proxy.mark();
    late.open();
    proxy.wait_for_count(calls("renew"), 3).await;
    let ttl: u64 = ask(&redis, &["PTTL", &name]).await;
    assert!(Duration::from_millis(ttl) + LATE > LONG, "{ttl} ms");
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// An engine, and the clock that it has, in ms.
fn engine() -> (Engine, Arc<AtomicU64>) {
    let start = Instant::now();
    let base = Arc::new(AtomicU64::new(1_700_000_000_000));
    let clock = Arc::clone(&base);
    let engine = Engine::simulated(3, move || {
        Duration::from_millis(clock.load(Ordering::Relaxed)) + start.elapsed()
    });
    (engine, base)
}

/// The locks of a client that died before the clock was set back are not cut: nobody knows their leases.
#[tokio::test]
async fn a_clock_that_was_set_back_by_an_hour_made_leases_of_an_hour() {
    trace_init();
    let (engine, clock) = engine();
    let redis = connection_over(engine.connect()).await.unwrap();
    let client = Client::builder().embedded(&engine).build().unwrap();
    let held = Held::of(&client, "back").await;
    let semaphore = client.permit_expirable_semaphore("permits").limit(2);
    let of_two = PermitOptions::new().lease(LEASE).renew(OFTEN).permits(2);
    let permits = semaphore.acquire_with(of_two).await.unwrap();
    clock.fetch_sub(HOUR, Ordering::Relaxed);
    held.have_their_lease(&redis).await;
    eventually(DEADLINE, async || {
        let leases = ["ZRANGE", "{permits}:timeout", "0", "-1", "WITHSCORES"];
        let ends: Vec<(Vec<u8>, f64)> = ask(&redis, &leases).await;
        let (seconds, _): (f64, f64) = ask(&redis, &["TIME"]).await;
        let most = (seconds + 1.0 + LEASE.as_secs_f64()) * 1000.0;
        match ends.len() == 2 && ends.iter().all(|(_, end)| *end <= most) {
            true => Ok(()),
            false => Err(format!("{ends:?}, not {most}")),
        }
    })
    .await;
    assert!(permits.is_valid());
    drop((held, permits));
}

/// Both waited for an hour behind a waiter that was dead.
#[tokio::test]
async fn what_dead_waiters_had_noted_before_the_clock_was_set_back_lasted_for_an_hour() {
    trace_init();
    let (engine, clock) = engine();
    let redis = connection_over(engine.connect()).await.unwrap();
    let client = Client::builder().embedded(&engine).build().unwrap();
    let (fair, rw) = (client.fair_lock("fair"), client.read_write_lock("rw"));
    let guard = fair.lock().await.unwrap();
    let reading = rw.read().await.unwrap();
    // Each would have been dead a second later.
    let now = clock.load(Ordering::Relaxed);
    let dead = "00000000-0000-8fa1-8000-000000000000";
    let (owner, heard) = (format!("{dead}:1"), format!("{}.1000", now + 1000));
    let (deadline, wish) = ((now + 300_000).to_string(), format!("{dead}:2/1000"));
    let until = (now + 1000).to_string();
    let notes: [&[&str]; 4] = [
        &["RPUSH", "redisson_lock_queue:{fair}", &owner],
        &["ZADD", "redisson_lock_timeout:{fair}", &deadline, &owner],
        &["HSET", "redlock_fair:{fair}", dead, &heard, "since", &until],
        &["ZADD", "redlock_rw_writers:{rw}", &until, &wish],
    ];
    for words in notes {
        assert_eq!(ask::<i64>(&redis, words).await.min(1), 1, "{words:?}");
    }
    clock.fetch_sub(HOUR, Ordering::Relaxed);
    let waiting = tokio::spawn(async move { fair.lock().await });
    let second = within(DEADLINE, rw.read()).await.unwrap();
    guard.unlock().await.unwrap();
    let guard = within(DEADLINE, waiting).await.unwrap().unwrap();
    drop((guard, reading, second));
}
