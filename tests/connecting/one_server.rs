//! An address that leads to another server than before, as after a failover. All connections of a
//! client follow the first one that reaches the new server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, ErrorKind, LockOptions, LostReason, RLockGuard};
use tests::{
    CALL, DEADLINE, Matcher, Proxy, RedisServer, Which, eventually, lock_and_unlock, trace_init,
    within,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);

const OLD: usize = 0;
const NEW: usize = 1;

/// Renewed several times a second.
fn often() -> LockOptions {
    LockOptions::new().renew(Duration::from_millis(300))
}

/// Two servers behind one address, each behind a separate proxy.
struct Stage {
    servers: [RedisServer; 2],
    proxies: [Proxy; 2],
    /// The server of new connections.
    leads_to: Arc<AtomicUsize>,
}

impl Stage {
    fn open() -> Self {
        trace_init();
        let servers = [RedisServer::start(), RedisServer::start()];
        Self {
            proxies: [Proxy::to(&servers[OLD]), Proxy::to(&servers[NEW])],
            servers,
            leads_to: Arc::default(),
        }
    }

    fn builder(&self) -> ClientBuilder {
        let addresses = [OLD, NEW].map(|at| self.proxies[at].address());
        let leads_to = Arc::clone(&self.leads_to);
        let builder = Client::builder()
            .connector(move || TcpStream::connect(addresses[leads_to.load(Ordering::SeqCst)]));
        builder.poll_interval(NEVER)
    }

    fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// A client of one server.
    async fn client_of(&self, server: usize) -> Client {
        Client::connect(&self.servers[server].url()).await.unwrap()
    }

    fn fail_over(&self) {
        self.lead_to(NEW);
    }

    fn lead_to(&self, server: usize) {
        self.leads_to.store(server, Ordering::SeqCst);
    }

    /// A lock that is held and renewed, and the connections for commands and for renewals.
    async fn renewed(&self, client: &Client, name: &str) -> (RLockGuard, Which, Which) {
        let guard = client.rlock(name).lock_with(often()).await.unwrap();
        let connections = || self.proxies[OLD].connections(Which::Scripts);
        let main = connections()[0];
        let renewals = eventually(DEADLINE, async || {
            connections().into_iter().find(|other| *other != main)
        });
        let renewals = renewals.await;
        (guard, Which::Connection(main), Which::Connection(renewals))
    }

    /// A task that waits for a lock of another client on the old server, and is subscribed there.
    async fn waiting(&self, client: &Client, name: &str) -> JoinHandle<RLockGuard> {
        let holder = self.client_of(OLD).await;
        std::mem::forget(holder.rlock(name).lock().await.unwrap());
        let lock = client.rlock(name);
        let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
        self.proxies[OLD].wait_for_answer("SUBSCRIBE").await;
        waiter
    }

    /// The task gets the lock when `held` is released on the new server, by an announcement.
    async fn assert_hears_the_new_server(&self, waiter: JoinHandle<RLockGuard>, held: RLockGuard) {
        let name = held.name().to_owned();
        // It tries once when it is subscribed, and is refused.
        let tries = Matcher::command(CALL).mentioning(name);
        self.proxies[NEW].wait_for_answer(tries).await;
        held.unlock().await.unwrap();
        let guard = within(DEADLINE, waiter).await.unwrap();
        assert!(guard.is_valid());
    }

    /// Locks that other clients hold on the new server are refused.
    async fn assert_asks_the_new_server(&self, client: &Client, name: &str) {
        let holder = self.client_of(NEW).await;
        let _held = holder.rlock(name).lock().await.unwrap();
        assert!(client.rlock(name).try_lock().await.unwrap().is_none());
    }
}

// Commands and renewals.

#[tokio::test]
async fn a_lock_stayed_valid_on_the_old_server_when_only_commands_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let (guard, main, _) = stage.renewed(&client, "a").await;
    stage.fail_over();
    stage.proxies[OLD].cut(main);
    let taken = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    // The next call goes to the new server.
    assert!(client.rlock("a").is_locked().await.unwrap());
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Taken);
    assert!(taken.is_valid());
    // The proxy sees the end of a connection a moment later than this client.
    let left = async || stage.proxies[OLD].connections(Which::All).is_empty();
    eventually(DEADLINE, left).await;
}

#[tokio::test]
async fn a_lock_was_acquired_on_the_old_server_when_only_renewals_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let (guard, _, renewals) = stage.renewed(&client, "a").await;
    stage.fail_over();
    stage.proxies[OLD].cut(renewals);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    stage.assert_asks_the_new_server(&client, "b").await;
}

/// The reply is in flight when the client moves to the new server.
#[tokio::test]
async fn an_acquisition_that_the_old_server_answered_late_gave_a_second_valid_guard() {
    let stage = Stage::open();
    let client = stage.client();
    let (guard, main, renewals) = stage.renewed(&client, "a").await;
    let held = stage.client_of(NEW).await.rlock("b").lock().await.unwrap();
    let acquire = Matcher::command(CALL).mentioning("b").on(main);
    let answer = stage.proxies[OLD].hold_reply(acquire);
    let options = LockOptions::new().wait(Duration::from_secs(5));
    let (lock, name) = (client.rlock("b"), "b");
    let late = tokio::spawn(async move { lock.lock_with(options).await });
    answer.reached().await;
    stage.fail_over();
    stage.proxies[OLD].cut(renewals);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    answer.open();
    let error = within(DEADLINE, late).await.unwrap().unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(held.is_valid());
    assert_eq!(held.name(), name);
}

// Commands and the subscription.

#[tokio::test]
async fn a_waiter_listened_to_the_old_server_when_only_commands_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let waiter = stage.waiting(&client, "a").await;
    let held = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    stage.fail_over();
    stage.proxies[OLD].cut(Which::Scripts);
    assert!(!client.rlock("b").is_locked().await.unwrap());
    stage.assert_hears_the_new_server(waiter, held).await;
}

#[tokio::test]
async fn a_lock_was_acquired_on_the_old_server_when_only_the_subscription_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let waiter = stage.waiting(&client, "a").await;
    let held = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    stage.fail_over();
    stage.proxies[OLD].cut(Which::Subscribers);
    stage.proxies[NEW].wait_for_answer("SUBSCRIBE").await;
    stage.assert_asks_the_new_server(&client, "b").await;
    stage.assert_hears_the_new_server(waiter, held).await;
}

// Renewals and the subscription.

#[tokio::test]
async fn a_waiter_listened_to_the_old_server_when_only_renewals_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let (guard, _, renewals) = stage.renewed(&client, "b").await;
    let waiter = stage.waiting(&client, "a").await;
    let held = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    stage.fail_over();
    stage.proxies[OLD].cut(renewals);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Deleted);
    stage.assert_hears_the_new_server(waiter, held).await;
}

#[tokio::test]
async fn a_lock_stayed_valid_on_the_old_server_when_only_the_subscription_led_to_the_new_one() {
    let stage = Stage::open();
    let client = stage.client();
    let (guard, ..) = stage.renewed(&client, "b").await;
    let waiter = stage.waiting(&client, "a").await;
    let held = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    let taken = stage.client_of(NEW).await.rlock("b").lock().await.unwrap();
    stage.fail_over();
    stage.proxies[OLD].cut(Which::Subscribers);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Taken);
    assert!(taken.is_valid());
    stage.assert_hears_the_new_server(waiter, held).await;
}

// What the old server has not read.

/// It reads that after a failover back. The client has forgotten the connection, and did not end it.
#[tokio::test]
async fn a_call_given_up_before_a_failover_took_the_lock_after_the_one_back() {
    const BRIEF: Duration = Duration::from_millis(200);
    let stage = Stage::open();
    let [old, new] = &stage.proxies;
    let builder = stage.builder().connect_timeout(BRIEF);
    let client = builder.response_timeout(BRIEF).build().unwrap();
    lock_and_unlock(&client.rlock("a")).await;
    let gate = old.hold_request(Matcher::command(CALL).mentioning("late"));
    let given_up = LockOptions::new().wait(BRIEF / 4).lease(4 * DEADLINE);
    let error = client.rlock("late").lock_with(given_up).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    gate.reached().await;
    let held = old
        .frames()
        .into_iter()
        .find(|frame| frame.mentions("late"));
    let held = Which::Connection(held.unwrap().connection);
    stage.fail_over();
    eventually(DEADLINE, async || client.stats().releases == 0).await;

    stage.lead_to(OLD);
    // A server that was left is refused for a while, and a connection may be on its way to the other one.
    old.mark();
    eventually(DEADLINE, async || {
        new.cut_all();
        let _ = client.rlock("a").is_locked().await;
        old.count(CALL) > 0
    })
    .await;
    gate.open();
    eventually(DEADLINE, async || old.connections(held).is_empty()).await;
    let late = stage.client_of(OLD).await.rlock("late");
    assert!(!late.is_locked().await.unwrap());
}

/// It lets others renew than the old one does, and gave out a lock that ended with its lease.
#[tokio::test]
async fn a_server_that_took_over_was_not_asked_for_the_rights_to_renew() {
    let stage = Stage::open();
    let client = stage.client();
    lock_and_unlock(&client.rlock("before")).await;
    let _: () = stage.servers[NEW]
        .ask(&["ACL", "SETUSER", "default", "-evalsha"])
        .await;
    stage.fail_over();
    stage.proxies[OLD].cut_all();
    let error = within(DEADLINE, client.rlock("a").lock())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let keys: usize = stage.servers[NEW].ask(&["EXISTS", "a"]).await;
    assert_eq!(keys, 0);
}

/// Without a failover: each connection leads to the other server than the last one.
#[tokio::test]
async fn an_address_of_two_servers_in_turn_never_gives_two_valid_guards() {
    let stage = Stage::open();
    let addresses = [OLD, NEW].map(|at| stage.proxies[at].address());
    let dials = Arc::new(AtomicUsize::new(0));
    let open = watch::Sender::new(false);
    let (dialed, opened) = (Arc::clone(&dials), open.subscribe());
    let client = Client::builder().connector(move || {
        let (at, mut opened) = (dialed.fetch_add(1, Ordering::SeqCst), opened.clone());
        async move {
            // The connection for renewals comes after both holders.
            if at == 1 {
                opened.wait_for(|open| *open).await.unwrap();
            }
            TcpStream::connect(addresses[at % 2]).await
        }
    });
    let client = client.poll_interval(NEVER).build().unwrap();
    let guard = client.rlock("a").lock_with(often()).await.unwrap();
    let taken = stage.client_of(NEW).await.rlock("a").lock().await.unwrap();
    open.send_replace(true);
    assert_eq!(within(DEADLINE, guard.lost()).await, LostReason::Taken);
    assert!(taken.is_valid());
    // The client stays with that server: holds are renewed and verified there.
    stage.proxies[OLD].mark();
    let guard = client.rlock("b").lock_with(often()).await.unwrap();
    let renewals = Matcher::command(CALL).mentioning("b");
    stage.proxies[NEW].wait_for_count(renewals, 4).await;
    assert!(guard.is_valid());
    assert!(client.rlock("a").is_locked().await.unwrap());
    assert_eq!(stage.proxies[OLD].count(CALL), 0);
    let dials = dials.load(Ordering::SeqCst);
    assert!(dials < 20, "{dials} connections");
}
