//! Calls that do not wait for another client have one limit, the response time-out, whatever fails.

use std::{
    pin::Pin,
    time::{Duration, Instant as RealInstant},
};

use redlock_rt::{
    Client, ConvertError, DoubleBarrierGuard, ErrorKind, LeasedPermit, LockOptions, MultiLock,
    MultiLockGuard, RLockGuard, ReadGuard, Reentrant, SemaphorePermit, Shutdown, Ticket,
    WriteGuard, embedded::Engine,
};
use tests::{Proxy, RedisServer, unique};
use tokio::time::Instant;

use crate::{
    ms,
    valve::{Dial, Valve},
};

const DIALS: [Dial; 3] = [Dial::Hangs, Dial::Succeeds, Dial::Refused];
const RESPONSE: Duration = Duration::from_millis(200);

/// The holds at the time when Redis goes away.
struct Held {
    lock: RLockGuard,
    other: RLockGuard,
    reading: ReadGuard,
    writing: WriteGuard,
    permits: SemaphorePermit,
    permit: LeasedPermit,
    both: MultiLockGuard,
    inside: DoubleBarrierGuard,
    ticket: Ticket,
}

impl Held {
    async fn take(client: &Client, name: &str) -> Self {
        let at = |what: &str| format!("{name}:held:{what}");
        let semaphore = client.semaphore(at("permits")).limit(3);
        let expirable = client.permit_expirable_semaphore(at("permit")).limit(3);
        let ticket = client.rlock(at("ticket")).lock().await.unwrap();
        let ticket = ticket.into_ticket().map_err(ConvertError::into_error);
        Self {
            lock: client.rlock(at("lock")).lock().await.unwrap(),
            other: client.rlock(at("other")).lock().await.unwrap(),
            reading: client.read_write_lock(at("read")).read().await.unwrap(),
            writing: client.read_write_lock(at("write")).write().await.unwrap(),
            permits: semaphore.acquire_many(2).await.unwrap(),
            permit: expirable.acquire().await.unwrap(),
            both: multi(client, &at("both")).lock().await.unwrap(),
            inside: client
                .double_barrier(at("inside"), 1)
                .enter()
                .await
                .unwrap(),
            ticket: ticket.unwrap(),
        }
    }
}

fn multi(client: &Client, name: &str) -> MultiLock {
    client.multi_lock([format!("{name}:1"), format!("{name}:2")])
}

type Call = Pin<Box<dyn Future<Output = Option<ErrorKind>>>>;

/// Every call that does not wait for another client. Calls on `held` run in this order.
fn calls(client: &Client, name: &str, held: Held) -> Vec<(&'static str, Call)> {
    let mut calls: Vec<(&'static str, Call)> = Vec::new();
    macro_rules! call {
        ($what:literal, $client:pat_param, $name:pat_param => $call:expr) => {{
            let ($client, $name) = (client.clone(), name.to_owned());
            let call = async move { $call.await.err().map(kind) };
            calls.push(($what, Box::pin(call)));
        }};
    }
    fn kind(error: impl IntoKind) -> ErrorKind {
        error.into_kind()
    }
    call!("is_locked", c, n => c.rlock(n).is_locked());
    call!("holder", c, n => c.fair_lock(n).holder());
    call!("hold_count", c, n => c.rlock(n).hold_count());
    call!("force_unlock", c, n => c.rlock(n).force_unlock());
    call!("try_lock", c, n => c.rlock(n).try_lock());
    call!("fair try_lock", c, n => c.fair_lock(n).try_lock());
    call!("queue_len", c, n => c.fair_lock(n).queue_len());
    call!("spin try_lock", c, n => c.spin_lock(n).try_lock());
    let at_once = LockOptions::new().wait(Duration::ZERO);
    call!("a wait of zero", c, n => c.rlock(n).lock_with(at_once));
    call!("try_read", c, n => c.read_write_lock(n).try_read());
    call!("try_write", c, n => c.read_write_lock(n).try_write());
    call!("token", c, n => c.fenced_lock(n).token());
    let once = client.once(name, std::time::UNIX_EPOCH);
    let once = once.wait(Duration::ZERO);
    call!("start", _, _ => once.start());
    call!("fenced set", c, n => c.fenced_value(n).set("v", 1));
    call!("fenced exec", c, n => c.fenced_value(n).exec("return 1", &[], 1));
    call!("fenced get", c, n => c.fenced_value(n).get(1));
    call!("a look at a barrier", c, n => c.cyclic_barrier(n, 2).wait_with(Duration::ZERO));
    call!("reset", c, n => c.cyclic_barrier(n, 2).reset());
    call!("enter", c, n => c.double_barrier(n, 1).enter_with(Duration::ZERO));
    call!("available", c, n => c.semaphore(n).available_permits());
    call!("try_acquire", c, n => c.semaphore(n).try_acquire());
    call!("release", c, n => c.semaphore(n).release(1));
    call!("add_permits", c, n => c.semaphore(n).add_permits(1));
    call!("drain", c, n => c.semaphore(n).drain());
    call!("try_set_permits", c, n => c.semaphore(n).try_set_permits(1));
    call!("permits", c, n => c.permit_expirable_semaphore(n).permits());
    call!("set_permits", c, n => c.permit_expirable_semaphore(n).set_permits(1));
    call!("try_acquire with a lease", c, n => c.permit_expirable_semaphore(n).try_acquire());
    call!("count", c, n => c.count_down_latch(n).count());
    call!("count_down", c, n => c.count_down_latch(n).count_down());
    call!("try_set_count", c, n => c.count_down_latch(n).try_set_count(1));
    call!("delete", c, n => c.count_down_latch(n).delete());
    call!("a look at a latch", c, n => c.count_down_latch(n).wait_with(Duration::ZERO));
    call!("multi is_locked", c, n => multi(&c, &n).is_locked());
    call!("multi try_lock", c, n => multi(&c, &n).try_lock());
    let Held {
        lock,
        other,
        reading,
        writing,
        permits,
        permit,
        both,
        inside,
        ticket,
    } = held;
    call!("extend", _, _ => lock.extend(Duration::from_secs(60)));
    call!("reenter", _, _ => other.reenter());
    call!("downgrade", _, _ => writing.downgrade());
    call!("try_upgrade", _, _ => reading.try_upgrade());
    call!("release permits", _, _ => permits.release());
    call!("release a permit", _, _ => permit.release());
    call!("multi unlock", _, _ => both.unlock());
    call!("leave", _, _ => inside.leave());
    call!("adopt", c, _ => c.adopt::<Reentrant>(&ticket));
    calls
}

trait IntoKind {
    fn into_kind(self) -> ErrorKind;
}

impl IntoKind for redlock_rt::Error {
    fn into_kind(self) -> ErrorKind {
        self.kind()
    }
}

impl IntoKind for redlock_rt::DowngradeError {
    fn into_kind(self) -> ErrorKind {
        self.error().kind()
    }
}

impl IntoKind for redlock_rt::UpgradeError {
    fn into_kind(self) -> ErrorKind {
        self.error().kind()
    }
}

/// Once, some calls took two response time-outs and the time to connect: 9 s by default.
#[tokio::test(start_paused = true)]
async fn every_call_that_waits_for_nobody_ends_with_the_response_time_out() {
    for dial in DIALS {
        let valve = Valve::open(&Engine::new());
        let client = valve.client(dial).response_timeout(RESPONSE);
        let client = client.build().unwrap();
        let name = unique("bounds");
        let held = Held::take(&client, &name).await;
        valve.turn();
        for (what, call) in calls(&client, &name, held) {
            let start = Instant::now();
            let kind = call.await;
            let took = start.elapsed();
            assert!(took <= RESPONSE + ms(1), "{dial:?}: {what} took {took:?}");
            let Some(kind) = kind else {
                panic!("{dial:?}: {what} succeeded");
            };
            assert!(
                matches!(kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown),
                "{dial:?}: {what}: {kind:?}"
            );
        }
        // The silent connections are closed meanwhile. A new one is made at the latest when the
        // attempt in progress reaches its connect time-out.
        valve.turn();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(!client.rlock(&name).is_locked().await.unwrap(), "{dial:?}");
    }
}

/// Once, a drain took three time-outs more than its limit.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_response_time_out_after_its_own_time() {
    const DRAIN: Duration = Duration::from_secs(1);
    for dial in DIALS {
        for (how, most) in [
            (Shutdown::Drain(DRAIN), DRAIN + RESPONSE),
            (Shutdown::ReleaseAll, RESPONSE),
            (Shutdown::Abandon, Duration::ZERO),
        ] {
            let valve = Valve::open(&Engine::new());
            let client = valve.client(dial).response_timeout(RESPONSE);
            let client = client.build().unwrap();
            let held = Held::take(&client, &unique("drain")).await;
            valve.turn();
            let start = Instant::now();
            let outcome = client.shutdown(how).await;
            let took = start.elapsed();
            // The drain checks every 2 ms.
            assert!(took <= most + ms(5), "{dial:?}: {how:?} took {took:?}");
            match how {
                Shutdown::Abandon => outcome.unwrap(),
                _ => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable),
            }
            drop(held);
        }
    }
}

/// A server that reads nothing, as when it is stopped, or that does not listen.
#[tokio::test]
async fn on_sockets_they_end_in_time_too() {
    const RESPONSE: Duration = Duration::from_millis(500);
    /// Less than the calls once took, and long for a busy machine.
    const LATE: Duration = Duration::from_secs(3);
    let server = RedisServer::start();
    for refuses in [false, true] {
        let proxy = Proxy::to(&server);
        let client = Client::builder().url(&proxy.url());
        let client = client.response_timeout(RESPONSE).connect().await.unwrap();
        let guard = client.rlock(unique("sockets")).lock().await.unwrap();
        match refuses {
            true => {
                proxy.refuse();
                proxy.cut_all();
            }
            false => proxy.go_silent(),
        }
        let start = RealInstant::now();
        let other = client.rlock(unique("other"));
        assert!(other.is_locked().await.unwrap_err().is_unavailable());
        let took = start.elapsed();
        assert!(took < RESPONSE + LATE, "is_locked took {took:?}");
        let start = RealInstant::now();
        let drained = client.shutdown(Shutdown::Drain(ms(100))).await;
        let took = start.elapsed();
        assert!(drained.unwrap_err().is_unavailable());
        assert!(took < ms(100) + RESPONSE + LATE, "the drain took {took:?}");
        drop(guard);
    }
}
