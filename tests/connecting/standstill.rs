//! A server that is stopped for longer than a lease, with calls in its sockets that have timed out
//! meanwhile: when it continues, it runs them, and they leave nothing.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, Kind, Lock, LockOptions, PermitOptions, Quorum};
use tests::{DEADLINE, RedisServer, World, eventually, within};
use tokio::task::block_in_place;

const LEASE: Duration = Duration::from_secs(1);
/// Longer than a lease and all margins.
const STANDSTILL: Duration = Duration::from_millis(2800);
const BRIEF: Duration = Duration::from_millis(200);

struct Stage {
    world: World,
    server: RedisServer,
    client: Client,
}

tests::is_a_world!(Stage);

impl Stage {
    async fn open(what: &str) -> Self {
        Self::at(what, |url| url.to_owned()).await
    }

    async fn at(what: &str, login: impl FnOnce(&str) -> String) -> Self {
        let server = RedisServer::start();
        let mut world = World::on(&server, what).await;
        world.clients_connect_to(login(&server.url()));
        // Connects at its first use, after the rights are set.
        let client = world.client_with(|builder| {
            let builder = builder.lease(LEASE).response_timeout(BRIEF);
            builder.connect_timeout(BRIEF)
        });
        Self {
            world,
            server,
            client,
        }
    }

    /// Takes and frees a lock, however long that takes: the response time-out is short.
    async fn turn<K: Kind>(&self, lock: &Lock<K>) {
        drop(within(DEADLINE, lock.lock()).await.unwrap());
        self.settled().await;
    }

    async fn settled(&self) {
        eventually(DEADLINE, async || self.client.stats().releases == 0).await;
    }

    fn stand_still(&self) {
        block_in_place(|| self.server.pause());
    }

    /// Lets the server continue after some time; returns when the client has no release left.
    async fn go_on(&self) {
        tokio::time::sleep(STANDSTILL).await;
        block_in_place(|| self.server.resume());
        self.settled().await;
    }

    /// The keys, without notes, which expire.
    async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.redis(&["KEYS", "*"]).await;
        keys.retain(|key| !key.starts_with("redlock_op"));
        keys.sort();
        keys
    }

    /// Asserts that only these keys and notes are left; removes them, and checks for leaks.
    async fn assert_left(&self, keys: &[String]) {
        assert_eq!(self.keys().await, keys);
        for key in keys {
            let _: bool = self.redis(&["DEL", key]).await;
        }
        self.remove_notes().await;
        self.assert_clean().await;
    }
}

fn brief() -> LockOptions {
    LockOptions::new().wait(BRIEF / 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_lock_call_left_a_lock_when_the_server_went_on() {
    let stage = Stage::open("rlock").await;
    let lock = stage.client.rlock(&stage.name);
    stage.turn(&lock).await;
    stage.stand_still();
    let error = lock.lock_with(brief()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    stage.go_on().await;
    stage.assert_left(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_read_or_write_or_several_at_once_left_locks_when_the_server_went_on() {
    let stage = Stage::open("modes").await;
    let name = |what: &str| format!("{}:{what}", stage.name);
    let modes = stage.client.read_write_lock(name("rw"));
    let (read, write) = (modes.read_lock(), modes.write_lock());
    let both = stage.client.multi_lock([name("a"), name("b")]);
    stage.turn(&read).await;
    stage.turn(&write).await;
    drop(both.lock().await.unwrap());
    stage.settled().await;
    stage.stand_still();
    // All calls are in progress before the first of them ends the connection.
    let (read, write, both) = tokio::join!(
        read.lock_with(brief()),
        write.lock_with(brief()),
        both.lock_with(brief())
    );
    assert!(read.is_err() && write.is_err() && both.is_err());
    stage.go_on().await;
    stage.assert_left(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_acquisitions_kept_permits_when_the_server_went_on() {
    let stage = Stage::open("permits").await;
    let name = |what: &str| format!("{}:{what}", stage.name);
    let leased = stage.client.permit_expirable_semaphore(name("leased"));
    let leased = leased.limit(2);
    let plain = stage.client.semaphore(name("plain")).limit(2);
    drop(leased.acquire().await.unwrap());
    drop(plain.acquire().await.unwrap());
    stage.settled().await;
    stage.stand_still();
    let brief = PermitOptions::new().wait(BRIEF / 2);
    let (one, two) = tokio::join!(
        leased.acquire_with(brief.clone()),
        plain.acquire_with(brief.permits(2))
    );
    assert!(one.is_err() && two.is_err());
    stage.go_on().await;
    let free: [u32; 2] = stage
        .redis(&["MGET", &name("leased"), &name("plain")])
        .await;
    assert_eq!(free, [2, 2]);
    stage.assert_left(&[name("leased"), name("plain")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_waiter_is_in_no_queue_when_the_server_goes_on() {
    let stage = Stage::open("fair").await;
    let lock = stage.client.fair_lock(&stage.name);
    stage.turn(&lock).await;
    // Held by an owner that never releases; the call would queue.
    let _: i64 = stage.redis(&["HSET", &stage.name, "else:1", "1"]).await;
    stage.stand_still();
    let error = lock.lock_with(brief()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    stage.go_on().await;
    stage.assert_left(std::slice::from_ref(&stage.name)).await;
}

/// Releases that were sent, and releases that were not, before the server stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drops_while_the_server_is_stopped_are_settled_once_it_continues() {
    let stage = Stage::open("dropped").await;
    let name = |what: &str| format!("{}:{what}", stage.name);
    let guard = stage.client.rlock(name("lock")).lock().await.unwrap();
    let plain = stage.client.semaphore(name("plain")).limit(2);
    let permits = plain.acquire_many(2).await.unwrap();
    let patient = stage.client();
    let count = patient.count_down_latch(name("latch"));
    count.try_set_count(3).await.unwrap();
    let latch = stage.client.count_down_latch(name("latch"));
    let first = latch.count_down_guard().unwrap();
    let second = latch.count_down_guard().unwrap();
    stage.stand_still();
    // Its call is in the server's socket when it times out.
    let told = within(DEADLINE, first.count_down()).await;
    assert!(told.unwrap_err().is_outcome_unknown());
    drop((guard, permits, second));
    stage.go_on().await;
    let plain = patient.semaphore(name("plain"));
    assert_eq!(plain.available_permits().await.unwrap(), 2);
    assert_eq!(count.count().await.unwrap(), 1, "each counted once");
    stage.assert_left(&[name("latch"), name("plain")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_stayed_on_a_server_that_stood_still() {
    let slow = Stage::open("redlock").await;
    let others = [Stage::open("one").await, Stage::open("two").await];
    let clients = others.iter().map(|stage| stage.client.clone());
    let quorum = Quorum::new(clients.chain([slow.client.clone()])).unwrap();
    let lock = quorum.redlock(&slow.name);
    drop(lock.lock().await.unwrap());
    slow.settled().await;
    slow.stand_still();
    drop(within(DEADLINE, lock.lock()).await.unwrap());
    slow.go_on().await;
    for stage in others.iter().chain([&slow]) {
        stage.settled().await;
        stage.assert_left(&[]).await;
    }
}

/// Without a connection nothing is sent, so there is nothing more to undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanups_kept_for_a_stopped_server_do_not_grow() {
    let stage = Stage::open("bounded").await;
    let lock = stage.client.rlock(&stage.name);
    stage.turn(&lock).await;
    stage.stand_still();
    // Until one of them has had no reply for so long that the client closes the connection.
    for _ in 0..6 {
        lock.lock_with(brief()).await.unwrap_err();
    }
    let kept = stage.client.stats().releases;
    assert!((1..=4).contains(&kept), "{kept}");
    for _ in 0..30 {
        let options = LockOptions::new().wait(BRIEF / 20);
        lock.lock_with(options).await.unwrap_err();
    }
    assert!(stage.client.stats().releases <= kept);
    stage.go_on().await;
    stage.assert_left(&[]).await;
}

/// The client cannot end the broken connection, but it sends the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_kill_clients_a_lock_is_still_compensated() {
    let user = |url: &str| url.replace("redis://", "redis://user:pw@");
    let stage = Stage::at("rights", user).await;
    let rules = "ACL SETUSER user on >pw ~* &* +@all -client|kill";
    let _: () = stage.redis(&rules.split(' ').collect::<Vec<_>>()).await;
    let lock = stage.client.rlock(&stage.name);
    stage.turn(&lock).await;
    stage.stand_still();
    lock.lock_with(brief()).await.unwrap_err();
    stage.go_on().await;
    // At the latest with the lease, since the old call may run after its release here.
    eventually(DEADLINE, async || stage.keys().await.is_empty()).await;
    // And the client works again.
    stage.turn(&lock).await;
    stage.assert_left(&[]).await;
}
