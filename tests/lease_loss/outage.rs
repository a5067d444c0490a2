//! Redis is away for a while: stopped, unreachable, restarted with or without its data.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, GuardState, LockOptions, LostReason, RLock, RLockGuard, Unlocked};
use tests::{
    Matcher, Proxy, RedisServer, ServerOptions, Which, ask, calls, eventually, trace_init, unique,
    valid_until, within,
};
use tokio::task::{JoinHandle, block_in_place};

use crate::{DEADLINE, LATE, LINGER, held_beyond};

const INTERVAL: Duration = Duration::from_millis(200);
/// The response time-out: longer than threads wait for a processor, and well below the lease.
const RESPONSE: Duration = Duration::from_millis(1500);
/// A lease that is longer than several response time-outs.
const LEASE: Duration = Duration::from_secs(12);
/// A lease whose end a test waits for, longer than one response time-out.
const SHORT: Duration = Duration::from_secs(5);

/// A separate server with a proxy, a client behind the proxy, and a client without it.
struct Rig {
    name: String,
    server: RedisServer,
    proxy: Proxy,
    client: Client,
    lock: RLock,
    other: Client,
}

impl Rig {
    fn set(what: &str, server: ServerOptions) -> Self {
        trace_init();
        let (name, server) = (unique(what), server.start());
        let proxy = Proxy::to(&server);
        let builder = |url: &str| {
            let builder = Client::builder().url(url).linger(LINGER);
            builder.poll_interval(RESPONSE)
        };
        let client = |url: &str| builder(url).response_timeout(RESPONSE).build().unwrap();
        let other = |url: &str| builder(url).build().unwrap();
        let (client, other) = (client(&proxy.url()), other(&server.url()));
        Self {
            lock: client.rlock(&name),
            client,
            other,
            name,
            server,
            proxy,
        }
    }

    async fn redis(&self) -> MultiplexedConnection {
        self.server.connect().await.unwrap()
    }

    async fn hold(&self, lease: Duration) -> RLockGuard {
        let options = LockOptions::new().lease(lease).renew(INTERVAL);
        let guard = self.lock.lock_with(options).await.unwrap();
        // Renewed once, so that the connection for renewals exists and the script is loaded.
        held_beyond(&guard, valid_until(&guard.state())).await;
        guard
    }

    /// A task of the other client that waits for the lock and was refused.
    async fn waiter(&self) -> JoinHandle<RLockGuard> {
        let lock = self.other.rlock(&self.name);
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        let redis = self.redis().await;
        let pattern = format!("*{}*", self.name);
        eventually(DEADLINE, async || {
            let channels: Vec<String> = ask(&redis, &["PUBSUB", "CHANNELS", &pattern]).await;
            channels.len() == 1
        })
        .await;
        waiter
    }

    /// Asserts that the lock is free for others, and that nothing is left.
    async fn assert_clean(&self) {
        tests::assert_clean(&self.server, &self.name, [&self.client, &self.other]).await;
    }
}

/// A way in which a server is unreachable while its connections stay open.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// The process is stopped.
    Pause,
    /// All bytes are lost, in both directions.
    Silence,
    /// Likewise, but only on the connection for renewals.
    RenewalsOnly,
}

impl Outage {
    fn begin(self, rig: &Rig) {
        match self {
            Self::Pause => block_in_place(|| rig.server.pause()),
            Self::Silence => rig.proxy.go_silent(),
            Self::RenewalsOnly => {
                let renewals = *rig.proxy.connections(Which::Scripts).last().unwrap();
                rig.proxy.go_silent_on(Which::Connection(renewals));
            }
        }
    }

    fn end(self, rig: &Rig) {
        match self {
            Self::Pause => block_in_place(|| rig.server.resume()),
            Self::Silence | Self::RenewalsOnly => rig.proxy.resume(),
        }
    }
}

/// Redis returns in time: the guard was suspect, is renewed, and was valid all the time.
async fn recovers(outage: Outage) {
    let rig = Rig::set("recovers", RedisServer::options());
    let guard = rig.hold(LEASE).await;
    let waiter = rig.waiter().await;
    outage.begin(&rig);
    eventually(DEADLINE, async || match guard.state() {
        GuardState::Suspect { .. } => true,
        GuardState::Held { .. } => false,
        state => panic!("{state:?}"),
    })
    .await;
    let until = valid_until(&guard.state());
    outage.end(&rig);
    held_beyond(&guard, until).await;
    assert!(Instant::now() < until, "not renewed in time to tell");
    let holder = rig.other.rlock(&rig.name).holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(guard.hold_id()));
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let next = within(DEADLINE, waiter).await.unwrap();
    next.unlock().await.unwrap();
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_that_goes_on_in_time() {
    recovers(Outage::Pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_that_opens_in_time() {
    recovers(Outage::Silence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_for_renewals_is_replaced() {
    let rig = Rig::set("replaced", RedisServer::options());
    let guard = rig.hold(LEASE).await;
    let outage = Outage::RenewalsOnly;
    outage.begin(&rig);
    // Without the end of the silence.
    let until = valid_until(&guard.state());
    held_beyond(&guard, until + 3 * INTERVAL).await;
    assert!(Instant::now() < until, "not renewed in time to tell");
    outage.end(&rig);
    guard.unlock().await.unwrap();
    rig.assert_clean().await;
}

/// Redis stays away: the guard is suspect and then lost, no later than its local deadline; the waiter
/// gets the lock when Redis is back.
async fn loses(outage: Outage) {
    let rig = Rig::set("loses", RedisServer::options());
    let guard = rig.hold(SHORT).await;
    let waiter = rig.waiter().await;
    outage.begin(&rig);
    let mut lost = Box::pin(guard.lost());
    let (mut doubted, mut until) = (false, valid_until(&guard.state()));
    let reason = loop {
        let now = Instant::now();
        match guard.state() {
            GuardState::Held { until: until_now } => until = until_now,
            GuardState::Suspect { until: until_now } => {
                (doubted, until) = (true, until_now);
            }
            GuardState::Lost(reason) => break reason,
            state => panic!("{state:?}"),
        }
        assert!(now < until, "valid after its deadline");
        // Checked at the signal, or again soon.
        tokio::select! {
            reason = &mut lost => break reason,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    };
    drop(lost);
    let told = within(LATE, guard.lost()).await;
    let late = Instant::now().saturating_duration_since(until);
    assert!(late < LATE, "told {late:?} after the deadline");
    assert_eq!((reason, told), (LostReason::Expired, LostReason::Expired));
    assert!(doubted, "lost without a doubt");
    outage.end(&rig);
    let next = within(DEADLINE, waiter).await.unwrap();
    assert!(next.is_valid() && !guard.is_valid());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    eventually(DEADLINE, async || rig.client.stats().releases == 0).await;
    let holder = rig.other.rlock(&rig.name).holder().await.unwrap();
    assert_eq!(
        holder.as_ref(),
        Some(next.hold_id()),
        "freed by the late release"
    );
    next.unlock().await.unwrap();
    rig.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_that_goes_on_too_late() {
    loses(Outage::Pause).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_that_opens_too_late() {
    loses(Outage::Silence).await;
}

/// A server that returns with its data still has the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_its_data_keeps_the_lock() {
    let rig = Rig::set("aof", RedisServer::options().aof());
    let guard = rig.hold(LEASE).await;
    let waiter = rig.waiter().await;
    let until = valid_until(&guard.state());
    block_in_place(|| rig.server.kill());
    eventually(DEADLINE, async || {
        matches!(guard.state(), GuardState::Suspect { .. })
    })
    .await;
    block_in_place(|| rig.server.restart());
    held_beyond(&guard, until).await;
    assert!(Instant::now() < until, "not renewed in time to tell");
    let holder = rig.other.rlock(&rig.name).holder().await.unwrap();
    assert_eq!(holder.as_ref(), Some(guard.hold_id()));
    assert!(!waiter.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let next = within(DEADLINE, waiter).await.unwrap();
    next.unlock().await.unwrap();
    rig.assert_clean().await;
}

/// A server that returns without its data: all its locks are lost at the first verification, which
/// does not wait for the next renewal, and nothing is created again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_its_data_loses_every_lock_at_once() {
    const COUNT: usize = 150;
    let rig = Rig::set("gone", RedisServer::options());
    let mut guards = vec![rig.hold(Duration::from_secs(60)).await];
    for number in 1..COUNT {
        // Some locks are renewed, some are not; no renewal is due during this test.
        let options = LockOptions::new().lease(Duration::from_secs(60));
        let options = options.renew(number % 2 == 0);
        let lock = rig.client.rlock(format!("{}:{number}", rig.name));
        guards.push(lock.lock_with(options).await.unwrap());
    }
    let waiter = rig.waiter().await;
    block_in_place(|| rig.server.restart());
    let back = Instant::now();
    for (number, guard) in guards.iter().enumerate() {
        let reason = within(DEADLINE, guard.lost()).await;
        // The waiter may already have the first lock.
        let taken = number == 0 && reason == LostReason::Taken;
        assert!(taken || reason == LostReason::Deleted, "{number}: {reason}");
    }
    let took = back.elapsed();
    // The longest pauses between two tries, and between two attempts to connect.
    assert!(took < Duration::from_millis(1500) + LATE, "{took:?}");
    let next = within(DEADLINE, waiter).await.unwrap();
    for guard in guards {
        assert!(!guard.is_valid());
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
    }
    eventually(DEADLINE, async || rig.client.stats().releases == 0).await;
    let keys: usize = ask(&rig.redis().await, &["DBSIZE"]).await;
    assert_eq!(keys, 1, "only what the waiter holds");
    next.unlock().await.unwrap();
    rig.assert_clean().await;
}

/// A reply to a renewal is lost, several times: the lock is not.
#[tokio::test]
async fn lost_replies_to_renewals() {
    let rig = Rig::set("renewal", RedisServer::options());
    let guard = rig.hold(LEASE).await;
    let renewals = || calls("renew").mentioning(&rig.name);
    type Lose = fn(&Proxy, Matcher);
    let lose: [(&str, Lose); 4] = [
        ("swallowed reply", |proxy, calls| {
            proxy.swallow_reply(calls, 3)
        }),
        ("swallowed request", |proxy, calls| {
            proxy.swallow_request(calls, 3)
        }),
        ("cut after", |proxy, calls| proxy.cut_after_request(calls)),
        ("cut before", |proxy, calls| proxy.cut_before_request(calls)),
    ];
    for (what, lose) in lose {
        let until = valid_until(&guard.state());
        rig.proxy.mark();
        lose(&rig.proxy, renewals());
        rig.proxy.wait_for_answer(renewals()).await;
        held_beyond(&guard, until).await;
        assert!(Instant::now() < until, "{what}: not in time to tell");
    }
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    rig.assert_clean().await;
}
