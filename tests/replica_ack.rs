//! Locks and permits that replicas must have before they are returned.

use std::future::ready;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use redlock_rt::{
    Client, ClientBuilder, Error, ErrorKind, Fsync, Kind, Lock, LockOptions, LostReason, Owner,
    PermitOptions, ReplicaAck, RetryPolicy, distributed_lock,
};
use tests::{
    CALL, Gate, Matcher, Proxy, RedisServer, Replicated, ServerOptions, eventually, told,
    trace_init, valid_until, within,
};
use tokio::task::{JoinHandle, block_in_place};

const DEADLINE: Duration = Duration::from_secs(15);
/// For what does not come.
const PATIENCE: Duration = Duration::from_millis(500);

struct Stage {
    servers: Replicated,
    client: Client,
}

impl Stage {
    async fn open(replicas: usize) -> Self {
        Self::with(replicas, |builder| builder).await
    }

    async fn with(replicas: usize, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::of(RedisServer::options(), replicas, set).await
    }

    async fn of(
        options: ServerOptions,
        replicas: usize,
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        trace_init();
        let servers = Replicated::start(options, replicas).await;
        servers.is_counted(0, replicas).await;
        let builder = Client::builder().url(&servers.server(0).url());
        let builder = set(builder.replica_timeout(DEADLINE));
        Self {
            client: builder.build().unwrap(),
            servers,
        }
    }

    /// A client whose way to the master is this proxy.
    fn behind_a_proxy(&self) -> (Proxy, Client) {
        let proxy = Proxy::to(self.servers.server(0));
        let builder = Client::builder().url(&proxy.url());
        (proxy, builder.replica_timeout(DEADLINE).build().unwrap())
    }

    /// These replicas stand still, and their connections stay open.
    fn stop(&self, replicas: &[usize]) {
        let pause = |at: &usize| self.servers.server(*at).pause();
        block_in_place(|| replicas.iter().for_each(pause));
    }

    /// A replica that has just been synchronized acknowledges nothing for up to a second.
    async fn is_warm(&self, replicas: u32) {
        let lock = self.client.rlock("warm");
        let options = asking(ReplicaAck::AtLeast(replicas)).wait(DEADLINE);
        let works = async || lock.lock_with(options.clone()).await.map(drop);
        eventually(DEADLINE, works).await;
    }

    /// A caller is in WAIT.
    async fn is_waited_for(&self) {
        let blocked = async || {
            let info: String = self.servers.command(0, &["INFO", "clients"]).await;
            info.contains("blocked_clients:1")
        };
        eventually(DEADLINE, blocked).await;
    }

    fn go_on(&self, replicas: &[usize]) {
        let resume = |at: &usize| self.servers.server(*at).resume();
        block_in_place(|| replicas.iter().for_each(resume));
    }

    async fn exists(&self, at: usize, key: &str) -> bool {
        self.servers.command(at, &["EXISTS", key]).await
    }
}

fn asking(ack: ReplicaAck) -> LockOptions {
    LockOptions::new().replica_ack(ack)
}

#[track_caller]
fn assert_misses(error: &Error, wanted: u32, got: u32) {
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    assert!(error.is_not_replicated());
    let replicas = error.replicas().unwrap();
    assert_eq!((replicas.wanted, replicas.got), (wanted, got), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("{got} of {wanted}")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_too_few_replicas_have_is_released_and_the_error_counts_them() {
    let stage = Stage::open(2).await;
    let lock = stage.client.rlock("a");
    for ack in [
        ReplicaAck::AtLeast(2),
        ReplicaAck::Majority,
        ReplicaAck::All,
    ] {
        let guard = lock.lock_with(asking(ack)).await.unwrap();
        let has = [stage.exists(1, "a").await, stage.exists(2, "a").await];
        assert!(has.contains(&true) && (ack == ReplicaAck::Majority || !has.contains(&false)));
        guard.unlock().await.unwrap();
    }
    stage.stop(&[1]);
    // Two of three servers have it.
    let guard = lock.lock_with(asking(ReplicaAck::Majority)).await.unwrap();
    assert!(stage.exists(2, "a").await);
    guard.unlock().await.unwrap();
    for ack in [ReplicaAck::All, ReplicaAck::AtLeast(2)] {
        let error = lock.lock_with(asking(ack).wait(2 * PATIENCE)).await;
        assert_misses(&error.unwrap_err(), 2, 1);
        assert!(!stage.exists(0, "a").await, "it was released");
    }
    stage.stop(&[2]);
    let short = Client::builder().url(&stage.servers.server(0).url());
    let short = short.replica_timeout(PATIENCE).build().unwrap();
    let started = Instant::now();
    let error = short
        .rlock("a")
        .lock_with(asking(ReplicaAck::Majority))
        .await;
    assert_misses(&error.unwrap_err(), 1, 0);
    let took = started.elapsed();
    assert!(took >= PATIENCE / 2 && took < DEADLINE / 3, "{took:?}");
    // The wait limits everything.
    let started = Instant::now();
    let options = asking(ReplicaAck::AtLeast(1)).wait(PATIENCE);
    assert_misses(&lock.lock_with(options).await.unwrap_err(), 1, 0);
    assert!(started.elapsed() < DEADLINE / 3);
    assert!(!stage.exists(0, "a").await);
    stage.go_on(&[1, 2]);
    let all = asking(ReplicaAck::All).wait(DEADLINE);
    let works = async || lock.lock_with(all.clone()).await.map(drop);
    eventually(DEADLINE, works).await;
}

/// Gets the lock from another task of the client: without a call, after a release, by a release that gives
/// the lock to the next in a queue.
async fn a_lock_of_another_task<K: Kind>(
    stage: &Stage,
    name: &str,
    lock: Lock<K>,
    options: LockOptions,
) {
    let behind = async |ack: ReplicaAck, wait: Duration| {
        let guard = lock.lock_with(options.clone()).await.unwrap();
        let (next, asking) = (lock.clone(), options.clone().replica_ack(ack).wait(wait));
        let next = tokio::spawn(async move { next.lock_with(asking).await });
        eventually(DEADLINE, async || stage.client.stats().waiting == 1).await;
        guard.unlock().await.unwrap();
        within(DEADLINE, next).await.unwrap()
    };
    let guard = behind(ReplicaAck::AtLeast(1), DEADLINE).await.unwrap();
    let replica: Vec<String> = stage.servers.command(1, &["HKEYS", name]).await;
    assert_eq!(replica, [guard.hold_id().to_string()]);
    guard.unlock().await.unwrap();
    let error = behind(ReplicaAck::AtLeast(2), 2 * PATIENCE).await;
    let error = error.unwrap_err();
    // On a busy machine the one replica may take longer, too.
    let got = error.replicas().map_or(0, |replicas| replicas.got.min(1));
    assert_misses(&error, 2, got);
    eventually(DEADLINE, async || !stage.exists(0, name).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_have_a_lock_that_was_another_tasks_of_the_same_client() {
    let stage = Stage::with(1, |builder| builder.hand_over(Duration::from_secs(1))).await;
    stage.is_warm(1).await;
    let client = &stage.client;
    let renewed = LockOptions::new;
    let [over, fixed, fenced, fair] = ["handed over", "fixed", "fenced", "fair"];
    a_lock_of_another_task(&stage, over, client.rlock(over), renewed()).await;
    a_lock_of_another_task(&stage, fixed, client.rlock(fixed), renewed().renew(false)).await;
    a_lock_of_another_task(&stage, fenced, client.fenced_lock(fenced), renewed()).await;
    a_lock_of_another_task(&stage, fair, client.fair_lock(fair), renewed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_calls_keep_their_latency_while_all_replicas_hang() {
    const LONG: Duration = Duration::from_secs(3);
    let stage = Stage::with(2, |builder| builder.replica_timeout(LONG)).await;
    let client = &stage.client;
    let often = LockOptions::new().renew(LONG / 10);
    let held = client.rlock("held").lock_with(often).await.unwrap();
    let until = || valid_until(&held.state());
    stage.stop(&[1, 2]);
    let asking = (0..8).map(|at| {
        let lock = client.rlock(format!("asking:{at}"));
        tokio::spawn(async move { lock.lock_with(asking(ReplicaAck::All)).await })
    });
    let asking: Vec<_> = asking.collect();
    stage.is_waited_for().await;
    let (started, before) = (Instant::now(), until());
    let (mut longest, mut pairs) = (Duration::ZERO, 0);
    // The held lock is renewed meanwhile.
    while started.elapsed() < LONG / 3 || until() == before {
        let one = Instant::now();
        let guard = client.rlock("plain").lock().await.unwrap();
        guard.unlock().await.unwrap();
        longest = longest.max(one.elapsed());
        pairs += 1;
    }
    assert!(asking.iter().all(|asking| !asking.is_finished()));
    eprintln!("the slowest of {pairs} plain pairs took {longest:?}");
    // Behind WAIT each would take a quarter of a second.
    assert!(pairs > 10 && longest < LONG / 2, "{pairs}, {longest:?}");
    for asking in asking {
        let error = within(DEADLINE, asking).await.unwrap().unwrap_err();
        assert!(error.is_not_replicated(), "{error}");
    }
    stage.go_on(&[1, 2]);
    assert!(held.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_over_while_replicas_were_waited_for_was_called_deleted() {
    let stage = Stage::open(1).await;
    stage.stop(&[1]);
    let lock = stage.client.rlock("short");
    let options = asking(ReplicaAck::All).lease(PATIENCE).renew(false);
    let error = lock.lock_with(options).await.unwrap_err();
    stage.go_on(&[1]);
    assert_eq!(error.lost_reason(), Some(LostReason::Expired), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_that_is_not_replicated_gives_back_one_hold_only() {
    let stage = Stage::open(1).await;
    let owner = Owner::new();
    let lock = stage.client.rlock("a");
    let outer = LockOptions::new().owner(&owner);
    let outer = lock.lock_with(outer).await.unwrap();
    stage.stop(&[1]);
    let inner = asking(ReplicaAck::AtLeast(1)).owner(&owner).wait(PATIENCE);
    assert_misses(&lock.lock_with(inner).await.unwrap_err(), 1, 0);
    assert!(outer.is_valid());
    let counts: Vec<String> = stage.servers.command(0, &["HVALS", "a"]).await;
    assert_eq!(counts, ["1"]);
    stage.go_on(&[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_are_not_replicated_are_given_back() {
    let stage = Stage::with(1, |builder| builder.replica_ack(ReplicaAck::All)).await;
    let semaphore = stage.client.semaphore("s").limit(3);
    let leased = stage.client.permit_expirable_semaphore("p").limit(3);
    let (one, other) = (semaphore.acquire().await, leased.acquire().await);
    drop((one.unwrap(), other.unwrap()));
    eventually(DEADLINE, async || stage.client.stats().releases == 0).await;
    stage.stop(&[1]);
    let two = || PermitOptions::new().permits(2).wait(PATIENCE);
    let error = semaphore.acquire_with(two()).await.unwrap_err();
    assert_misses(&error, 1, 0);
    let error = leased.acquire_with(two()).await.unwrap_err();
    assert_misses(&error, 1, 0);
    assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    assert_eq!(leased.available_permits().await.unwrap(), 3);
    // This one asks for none.
    let none = two().replica_ack(ReplicaAck::None);
    drop(semaphore.acquire_with(none).await.unwrap());
    stage.go_on(&[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_ready_together_share_one_wait() {
    let stage = Stage::open(1).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let client = Client::builder()
        .url(&proxy.url())
        .replica_timeout(DEADLINE);
    let client = client.connect().await.unwrap();
    let one = asking(ReplicaAck::AtLeast(1));
    drop(client.rlock("first").lock_with(one.clone()).await.unwrap());
    let gate = proxy.hold_request("WAIT");
    let all = (0..64).map(|at| {
        let (lock, one) = (client.rlock(format!("l:{at}")), one.clone());
        tokio::spawn(async move { lock.lock_with(one).await })
    });
    let all: Vec<_> = all.collect();
    gate.reached().await;
    let acquired = async || client.stats().held >= 64;
    eventually(DEADLINE, acquired).await;
    gate.open();
    let guards = within(DEADLINE, join_all(all)).await;
    let guards: Vec<_> = guards
        .into_iter()
        .map(|one| one.unwrap().unwrap())
        .collect();
    assert!(guards.iter().all(redlock_rt::RLockGuard::is_valid));
    let waits = proxy.count("WAIT");
    // The first, that at the gate, one for all that are ready by then, and some for tasks that the machine
    // has not let run by then.
    assert!((2..=8).contains(&waits), "{waits} WAITs for 65 locks");
}

/// Found out with the first lock, which is released; the next one is not even taken.
#[tokio::test]
async fn a_server_without_wait_is_named() {
    trace_init();
    let server = RedisServer::options()
        .args(["--rename-command", "WAIT", ""])
        .start();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.rlock("a");
    for again in [false, true] {
        proxy.mark();
        let error = lock
            .lock_with(asking(ReplicaAck::AtLeast(1)))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(told(&error).contains("has no WAIT"), "{}", told(&error));
        assert_eq!(proxy.count(CALL) == 0, again);
    }
    assert!(!lock.is_locked().await.unwrap());
    drop(lock.lock().await.unwrap());

    let embedded = Client::embedded();
    let lock = embedded.rlock("a");
    let error = lock
        .lock_with(asking(ReplicaAck::AtLeast(1)))
        .await
        .unwrap_err();
    assert!(told(&error).contains("has no WAIT"), "{}", told(&error));
    assert!(!lock.is_locked().await.unwrap());
}

/// What the replica has not got is lost with the master, and what it has acknowledged is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_acknowledged_survives_a_failover() {
    let stage = Stage::open(1).await;
    let url = stage.servers.url();
    let client = Client::builder().url(&url).replica_timeout(DEADLINE);
    let client = client.connect().await.unwrap();
    let acknowledged = client.rlock("kept");
    let acknowledged = acknowledged
        .lock_with(asking(ReplicaAck::All))
        .await
        .unwrap();
    stage.stop(&[1]);
    let plain = client.rlock("lost").lock().await.unwrap();
    block_in_place(|| stage.servers.server(0).kill());
    stage.go_on(&[1]);
    // What is in its sockets is not read: the master is gone, but its last bytes may be there.
    stage.servers.promote(1).await;
    let has: bool = stage.exists(1, "lost").await;
    if !has {
        assert_eq!(within(DEADLINE, plain.lost()).await, LostReason::Deleted);
    }
    let asked = async || client.rlock("kept").is_locked().await;
    assert!(eventually(DEADLINE, asked).await, "it was acknowledged");
    assert!(acknowledged.is_valid());
    acknowledged.unlock().await.unwrap();
}

/// How many locks are lost of those for which the master dies as soon as they are returned.
async fn lost_in_failovers(ack: ReplicaAck, failovers: usize) -> usize {
    let servers = Replicated::start(RedisServer::options(), 1).await;
    let mut lost = 0;
    for at in 0..failovers {
        let (master, replica) = (at % 2, 1 - at % 2);
        servers.is_counted(master, 1).await;
        let client = Client::builder().url(&servers.url());
        let client = client.replica_timeout(DEADLINE).connect().await.unwrap();
        let name = format!("lock:{at}");
        let guard = client.rlock(&name).lock_with(asking(ack)).await.unwrap();
        block_in_place(|| servers.server(master).kill());
        servers.promote(replica).await;
        // Before the guard's release can delete it.
        let has: bool = servers.command(replica, &["EXISTS", &name]).await;
        lost += usize::from(!has);
        drop(guard);
        block_in_place(|| servers.server(master).restart());
        servers.follow(master, replica).await;
    }
    lost
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_lock_is_lost_when_the_master_dies_at_once() {
    trace_init();
    let failovers = match std::env::var_os("REDLOCK_SOAK") {
        Some(_) => 1000,
        None => 10,
    };
    let plain = lost_in_failovers(ReplicaAck::None, failovers).await;
    let acknowledged = lost_in_failovers(ReplicaAck::AtLeast(1), failovers).await;
    eprintln!("lost in {failovers} failovers: {plain} plain, {acknowledged} acknowledged");
    assert_eq!(acknowledged, 0);
}

/// Whether the body ran, and which of the replicas had the lock meanwhile.
type Had = Result<[bool; 2], Error>;

macro_rules! on_replicas {
    ($($function:ident: $kind:expr, $ack:expr;)+) => {
        $(#[distributed_lock(
            key = "<name>", kind = $kind, wait = 2 * PATIENCE, replica_ack = $ack,
            client = stage.client
        )]
        async fn $function(stage: &Stage, name: &str) -> Had {
            Ok([stage.exists(1, name).await, stage.exists(2, name).await])
        })+
    };
}

on_replicas! {
    on_none: reentrant, none;
    on_majority: reentrant, majority;
    on_all: fair, all;
    on_two: semaphore(limit = 3), 2;
}

#[distributed_lock(
    key = "<name>", kind = write, wait = 2 * PATIENCE, replica_ack = { ack }, client = stage.client
)]
async fn on_ack(stage: &Stage, name: &str, ack: ReplicaAck) -> Had {
    Ok([stage.exists(1, name).await, stage.exists(2, name).await])
}

#[distributed_lock(
    keys = ["<name>", "<name>:b"], wait = 2 * PATIENCE, replica_ack = all, client = stage.client
)]
async fn several_on_all(stage: &Stage, name: &str) -> Had {
    let there = [stage.exists(1, name).await, stage.exists(2, name).await];
    let more = [1, 2].map(|at| async move { stage.exists(at, &format!("{name}:b")).await });
    let more = join_all(more).await;
    Ok([there[0] && more[0], there[1] && more[1]])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_runs_when_the_replicas_of_its_attribute_have_its_lock() {
    // The attribute decides, whatever the client does.
    let stage = Stage::with(2, |builder| builder.replica_ack(ReplicaAck::AtLeast(7))).await;
    let two = ReplicaAck::AtLeast(2);
    stage.is_warm(2).await;
    on_none(&stage, "none").await.unwrap();
    let had = on_majority(&stage, "m").await.unwrap();
    assert!(had.contains(&true), "{had:?}");
    assert_eq!(on_all(&stage, "a").await.unwrap(), [true; 2]);
    assert_eq!(on_two(&stage, "s").await.unwrap(), [true; 2]);
    assert_eq!(on_ack(&stage, "n", two).await.unwrap(), [true; 2]);
    assert_eq!(several_on_all(&stage, "k").await.unwrap(), [true; 2]);
    stage.stop(&[1]);
    // No body runs: it would wait for the answer of a server that stands still.
    for error in [
        on_all(&stage, "a").await.unwrap_err(),
        on_two(&stage, "s").await.unwrap_err(),
        on_ack(&stage, "n", two).await.unwrap_err(),
        several_on_all(&stage, "k").await.unwrap_err(),
    ] {
        assert_misses(&error, 2, 1);
    }
    stage.go_on(&[1]);
}

#[tokio::test]
async fn a_redlock_refuses_to_wait_for_replicas() {
    let clients = [(); 3].map(|()| Client::embedded());
    let quorum = redlock_rt::Quorum::new(clients).unwrap();
    let lock = quorum.redlock("a");
    for options in [
        asking(ReplicaAck::All),
        asking(ReplicaAck::None).fsync(Fsync::All),
    ] {
        let error = lock.lock_with(options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
}

/// Its caller waited for its second turn, behind a call for more replicas than there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_acknowledged_waited_for_one_that_was_not() {
    let stage = Stage::open(1).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let builder = Client::builder().url(&proxy.url());
    // The connection whose reply is held stays.
    let builder = builder.response_timeout(DEADLINE);
    let client = builder.replica_timeout(DEADLINE / 2).build().unwrap();
    let asks = |name: &str, replicas| {
        let (lock, options) = (client.rlock(name), asking(ReplicaAck::AtLeast(replicas)));
        tokio::spawn(async move { lock.lock_with(options).await })
    };
    // A replica that has just been synchronized acknowledges nothing for up to a second.
    drop(asks("before", 1).await.unwrap().unwrap());
    eventually(DEADLINE, async || client.stats().held == 0).await;
    let gate = proxy.hold_request("WAIT");
    let first = asks("first", 1);
    gate.reached().await;
    let second = asks("second", 2);
    eventually(DEADLINE, async || client.stats().held == 2).await;
    let answer = proxy.hold_reply(Matcher::command("WAIT").and(|frame| frame.text(1) == "2"));
    gate.open();
    answer.reached().await;
    drop(within(DEADLINE, first).await.unwrap().unwrap());
    answer.open();
    assert_misses(&second.await.unwrap().unwrap_err(), 2, 1);
}

/// All callers of a client had one connection, and so one WAIT at a time: those that want all replicas, of
/// which one stands still, held up the others, which were told of no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_one_replica_waited_for_those_that_want_all() {
    let stage = Stage::open(2).await;
    stage.is_warm(2).await;
    stage.stop(&[2]);
    let lock = stage.client.rlock("all");
    let all = tokio::spawn(async move { lock.lock_with(asking(ReplicaAck::All)).await });
    stage.is_waited_for().await;
    for ack in [
        ReplicaAck::AtLeast(1),
        ReplicaAck::Majority,
        ReplicaAck::AtLeast(1),
    ] {
        let lock = stage.client.rlock("one");
        let guard = within(DEADLINE / 3, lock.lock_with(asking(ack))).await;
        guard.unwrap().unlock().await.unwrap();
    }
    assert!(!all.is_finished());
    all.abort();
    stage.go_on(&[2]);
}

/// With the best effort a shard that has lost its replica still gives locks; the others say why they do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_replicas_gives_locks_by_the_best_effort_alone() {
    let stage = Stage::open(1).await;
    stage.is_warm(1).await;
    let lock = stage.client.rlock("a");
    let effort = || asking(ReplicaAck::BestEffort(2)).wait(2 * PATIENCE);
    let guard = lock.lock_with(effort()).await.unwrap();
    assert!(stage.exists(1, "a").await);
    guard.unlock().await.unwrap();
    // It is connected, and so it counts.
    stage.stop(&[1]);
    assert_misses(&lock.lock_with(effort()).await.unwrap_err(), 1, 0);
    block_in_place(|| stage.servers.server(1).kill());
    stage.servers.is_counted(0, 0).await;
    drop(lock.lock_with(effort()).await.unwrap());
    eventually(DEADLINE, async || stage.client.stats().held == 0).await;
    for ack in [
        ReplicaAck::AtLeast(1),
        ReplicaAck::Majority,
        ReplicaAck::All,
    ] {
        let error = lock.lock_with(asking(ack).wait(PATIENCE)).await;
        assert_misses(&error.unwrap_err(), 1, 0);
    }
    block_in_place(|| stage.servers.server(1).restart());
    stage.servers.follow(1, 0).await;
    stage.servers.is_counted(0, 1).await;
    let counts = async || {
        let guard = lock
            .lock_with(effort())
            .await
            .map_err(|error| error.to_string())?;
        let there = stage.exists(1, "a").await;
        guard.unlock().await.unwrap();
        there
            .then_some(())
            .ok_or_else(|| "no replica has it".to_owned())
    };
    eventually(DEADLINE, counts).await;
}

/// Its time was over before the turn of an earlier caller was, which has more of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_less_time_than_the_one_before_it_was_told_of_no_replica() {
    let stage = Stage::open(2).await;
    stage.is_warm(2).await;
    stage.stop(&[2]);
    let lock = stage.client.rlock("long");
    let long = tokio::spawn(async move { lock.lock_with(asking(ReplicaAck::AtLeast(2))).await });
    stage.is_waited_for().await;
    let short = asking(ReplicaAck::AtLeast(2)).wait(2 * PATIENCE);
    let error = stage.client.rlock("short").lock_with(short).await;
    assert_misses(&error.unwrap_err(), 2, 1);
    assert!(!long.is_finished());
    stage.go_on(&[2]);
    drop(within(DEADLINE, long).await.unwrap().unwrap());
}

/// Redis ends WAIT with UNBLOCKED then, which was taken for a server without WAIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_demoted_while_replicas_were_waited_for_had_no_wait() {
    let stage = Stage::open(1).await;
    stage.stop(&[1]);
    let lock = stage.client.rlock("demoted");
    let options = asking(ReplicaAck::AtLeast(1)).wait(4 * PATIENCE);
    let waiting = tokio::spawn(async move { lock.lock_with(options).await });
    stage.is_waited_for().await;
    let port = stage.servers.server(1).port().to_string();
    let words = ["REPLICAOF", "127.0.0.1", &port];
    stage.servers.command::<()>(0, &words).await;
    let error = within(DEADLINE, waiting).await.unwrap().unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Misconfigured, "{}", told(&error));
    stage.go_on(&[1]);
}

/// The script had run, and then the server was busy with another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_was_taken_for_one_without_wait() {
    let stage = Stage::open(1).await;
    let (proxy, client) = stage.behind_a_proxy();
    let lock = client.rlock("busy");
    let options = || asking(ReplicaAck::AtLeast(1)).wait(DEADLINE);
    for _ in 0..2 {
        let busy = "-BUSY Redis is busy running a script.\r\n";
        proxy.answer("WAIT", busy, 1);
        let guard = within(DEADLINE, lock.lock_with(options())).await.unwrap();
        guard.unlock().await.unwrap();
    }
}

/// Redis answers so if the master was demoted between the lock and WAIT. For as long as the connection
/// lived, all locks were told that the server has no WAIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_a_replica_for_a_moment_was_taken_for_one_without_wait() {
    let stage = Stage::open(1).await;
    let (proxy, client) = stage.behind_a_proxy();
    let lock = client.rlock("replica");
    let replica = "-ERR WAIT cannot be used with replica instances.\r\n";
    proxy.answer("WAIT", replica, 1);
    let options = asking(ReplicaAck::AtLeast(1)).wait(DEADLINE);
    let guard = within(DEADLINE, lock.lock_with(options)).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Breaks were counted together, whatever was answered between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_break_in_a_long_wait_for_replicas_was_taken_for_the_second_attempt() {
    let stage = Stage::open(1).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let retry = RetryPolicy::new().attempts(2);
    let builder = Client::builder().url(&proxy.url()).retry(retry);
    let client = builder.replica_timeout(DEADLINE).build().unwrap();
    for _ in 0..3 {
        proxy.answer("WAIT", ":0\r\n", 1);
        proxy.cut_before_request("WAIT");
    }
    let lock = client.rlock("breaks");
    let options = asking(ReplicaAck::AtLeast(1)).wait(DEADLINE);
    let guard = within(DEADLINE, lock.lock_with(options)).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Whatever the error was, it was remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_error_of_one_wait_the_server_had_none() {
    let stage = Stage::open(1).await;
    let (proxy, client) = stage.behind_a_proxy();
    let lock = client.rlock("error");
    let options = || asking(ReplicaAck::AtLeast(1)).wait(DEADLINE);
    proxy.answer("WAIT", "-ERR something went wrong\r\n", 1);
    let error = within(DEADLINE, lock.lock_with(options()))
        .await
        .unwrap_err();
    assert!(told(&error).contains("went wrong"), "{}", told(&error));
    assert!(!told(&error).contains("has no WAIT"), "{}", told(&error));
    assert!(!lock.is_locked().await.unwrap());
    let guard = within(DEADLINE, lock.lock_with(options())).await.unwrap();
    guard.unlock().await.unwrap();
}

/// It had the turn, in which nobody was served any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_waited_for_replicas_behind_a_future_that_was_not_polled() {
    let stage = Stage::open(1).await;
    let (proxy, client) = stage.behind_a_proxy();
    let (kept, lock) = (client.rlock("kept"), client.rlock("polled"));
    let options = || asking(ReplicaAck::AtLeast(1)).wait(DEADLINE);
    let mut kept = tokio_test::task::spawn(kept.lock_with(options()));
    let gate = proxy.hold_request("WAIT");
    eventually(DEADLINE, || {
        tokio_test::assert_pending!(kept.poll());
        ready(gate.held() > 0)
    })
    .await;
    gate.open();
    let guard = within(DEADLINE, lock.lock_with(options())).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Redis reads nothing behind a WAIT, so the calls of later callers piled up there, and these were told
/// of no replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_was_given_up_delayed_the_next_ones() {
    let stage = Stage::open(2).await;
    let lock = |at: usize| stage.client.rlock(format!("given up:{at}"));
    let options = || asking(ReplicaAck::AtLeast(2));
    stage.is_warm(2).await;
    stage.stop(&[1]);
    for at in 1..9 {
        let lock = lock(at);
        let given_up = tokio::time::timeout(PATIENCE / 10, lock.lock_with(options()));
        assert!(given_up.await.is_err());
    }
    // Less than eight turns take.
    let last = options().wait(2 * PATIENCE);
    assert_misses(&lock(9).lock_with(last).await.unwrap_err(), 2, 1);
    stage.go_on(&[1]);
}

/// `RSemaphore.expire`, or EXPIRE by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_semaphore_with_a_ttl_were_taken_for_another_type() {
    let stage = Stage::with(1, |builder| builder.replica_ack(ReplicaAck::AtLeast(1))).await;
    let semaphore = stage.client.semaphore("s");
    semaphore.try_set_permits(3).await.unwrap();
    let set: bool = stage.servers.command(0, &["EXPIRE", "s", "600"]).await;
    assert!(set);
    drop(semaphore.acquire().await.unwrap());
}

/// The release of what was not replicated was waited for as long as for any release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_outlasted_its_bound_when_redis_hung_while_replicas_were_waited_for() {
    let stage = Stage::with(1, |builder| builder.response_timeout(DEADLINE / 3)).await;
    let lock = stage.client.rlock("hung");
    drop(
        lock.lock_with(asking(ReplicaAck::AtLeast(1)))
            .await
            .unwrap(),
    );
    eventually(DEADLINE, async || stage.client.stats().held == 0).await;
    stage.stop(&[1]);
    let wait = 3 * PATIENCE;
    let started = Instant::now();
    let waiting = tokio::spawn({
        let (lock, options) = (lock.clone(), asking(ReplicaAck::AtLeast(1)).wait(wait));
        async move { lock.lock_with(options).await }
    });
    stage.is_waited_for().await;
    stage.stop(&[0]);
    let error = within(DEADLINE, waiting).await.unwrap().unwrap_err();
    let took = started.elapsed();
    assert!(took < DEADLINE / 3, "{took:?}");
    assert_misses(&error, 1, 0);
    stage.go_on(&[0, 1]);
    let released = async || !stage.exists(0, "hung").await;
    eventually(DEADLINE, released).await;
}

/// A permit whose replicas are waited for behind a gate: the call is acquired, and not yet touched.
async fn held_back<P, F>(proxy: &Proxy, acquire: F) -> (Gate, JoinHandle<Result<P, Error>>)
where
    P: Send + 'static,
    F: Future<Output = Result<P, Error>> + Send + 'static,
{
    // Only the connection for replicas sends the script itself: the server knows all of them.
    let gate = proxy.hold_request("SCRIPT");
    let waiting = tokio::spawn(acquire);
    gate.reached().await;
    (gate, waiting)
}

/// That there is such a semaphore was enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_were_gone_were_acknowledged() {
    let stage = Stage::open(1).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let builder = Client::builder()
        .url(&proxy.url())
        .replica_timeout(DEADLINE);
    let client = builder.replica_ack(ReplicaAck::AtLeast(1)).build().unwrap();
    let semaphore = client.semaphore("s").limit(3);
    let leased = client.permit_expirable_semaphore("p").limit(3);
    drop((
        semaphore.acquire().await.unwrap(),
        leased.acquire_many(2).await.unwrap(),
    ));
    eventually(DEADLINE, async || client.stats().releases == 0).await;

    let other = stage.client.semaphore("s");
    for again in [true, false] {
        let semaphore = semaphore.clone();
        let (gate, waiting) = held_back(&proxy, async move { semaphore.acquire().await }).await;
        stage.servers.command::<()>(0, &["DEL", "s"]).await;
        if again {
            // Holds of the deleted semaphore do not count in the new one.
            assert!(other.try_set_permits(3).await.unwrap());
        }
        gate.open();
        let error = within(DEADLINE, waiting).await.unwrap().unwrap_err();
        assert!(error.is_lost(), "{again}: {error}");
    }
    let waiting = leased.clone();
    let (gate, waiting) = held_back(&proxy, async move { waiting.acquire_many(2).await }).await;
    let one = &["ZPOPMIN", "{p}:timeout"];
    let _: Vec<Bytes> = stage.servers.command(0, one).await;
    gate.open();
    let error = within(DEADLINE, waiting).await.unwrap().unwrap_err();
    assert!(error.is_lost(), "{error}");

    // What is there stays as it is.
    let permit = leased.acquire_many(2).await.unwrap();
    let set = || {
        stage
            .servers
            .command::<Vec<(Bytes, f64)>>(0, &["ZRANGE", "{p}:timeout", "0", "-1", "WITHSCORES"])
    };
    let leases = set().await;
    assert_eq!(leases.len(), 2);
    assert!(leases[0].1 == leases[1].1, "{leases:?}");
    drop(permit);
}

/// It was counted when the client connected, and not again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_came_later_need_not_have_the_locks_of_all() {
    let stage = Stage::open(2).await;
    stage.servers.promote(2).await;
    stage.servers.is_counted(0, 1).await;
    let lock = stage.client.rlock("a");
    let all = || asking(ReplicaAck::All).wait(2 * PATIENCE);
    drop(lock.lock_with(all().wait(DEADLINE)).await.unwrap());
    stage.servers.follow(2, 0).await;
    stage.servers.is_counted(0, 2).await;
    let guard = lock.lock_with(all().wait(DEADLINE)).await.unwrap();
    assert!(stage.exists(1, "a").await && stage.exists(2, "a").await);
    drop(guard);
    stage.stop(&[2]);
    assert_misses(&lock.lock_with(all()).await.unwrap_err(), 2, 1);
    // A replica that has gone is missed as long as the client is connected.
    block_in_place(|| stage.servers.server(2).kill());
    stage.servers.is_counted(0, 1).await;
    assert_misses(&lock.lock_with(all()).await.unwrap_err(), 2, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_entries_and_conversions_wait_for_replicas_as_the_client_says() {
    let all = |builder: ClientBuilder| builder.replica_ack(ReplicaAck::All);
    let stage = Stage::with(1, |builder| all(builder).replica_timeout(2 * PATIENCE)).await;
    let client = &stage.client;
    stage.is_warm(1).await;
    let guard = client.rlock("a").lock().await.unwrap();
    drop(guard.reenter().await.unwrap());
    let several = client.multi_lock(["m", "n"]).lock().await.unwrap();
    let reading = client.read_write_lock("r").read().await.unwrap();
    let writing = client.read_write_lock("w").write().await.unwrap();
    stage.stop(&[1]);
    assert_misses(&guard.reenter().await.unwrap_err(), 1, 0);
    assert_misses(&several.reenter().await.unwrap_err(), 1, 0);
    let refused = reading.try_upgrade().await.unwrap_err();
    assert_misses(refused.error(), 1, 0);
    let reading = refused.into_guard();
    let refused = writing.downgrade().await.unwrap_err();
    assert_misses(refused.error(), 1, 0);
    let writing = refused.into_guard();
    // Nothing is left of what was refused.
    assert_eq!((guard.hold_count(), client.stats().held), (1, 5));
    for (key, mode) in [("r", "read"), ("w", "write")] {
        let is: String = stage.servers.command(0, &["HGET", key, "mode"]).await;
        assert_eq!(is, mode);
        let fields: u64 = stage.servers.command(0, &["HLEN", key]).await;
        assert_eq!(fields, 2);
    }
    stage.go_on(&[1]);
    let upgraded = reading.try_upgrade().await.unwrap();
    let downgraded = writing.downgrade().await.unwrap();
    assert!(upgraded.is_valid() && downgraded.is_valid() && several.is_valid());
    let there: String = stage.servers.command(1, &["HGET", "r", "mode"]).await;
    assert_eq!(there, "write");
}

/// Whether the servers of these tests have WAITAOF: Redis from 7.2 on.
async fn has_waitaof(servers: &Replicated) -> bool {
    let info = ["COMMAND", "INFO", "WAITAOF"];
    let known: Vec<Option<redis::Value>> = servers.command(0, &info).await;
    known[0]
        .as_ref()
        .is_some_and(|known| *known != redis::Value::Nil)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_must_be_on_disk_is_acknowledged_there_or_the_server_is_named() {
    let stage = Stage::of(RedisServer::options().aof(), 1, |builder| builder).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let builder = Client::builder()
        .url(&proxy.url())
        .replica_timeout(DEADLINE);
    let client = builder.fsync(Fsync::All).build().unwrap();
    let lock = client.rlock("a");
    if !has_waitaof(&stage.servers).await {
        for again in [false, true] {
            proxy.mark();
            let error = lock.lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(told(&error).contains("has no WAITAOF"), "{}", told(&error));
            assert_eq!(proxy.count(CALL) == 0, again);
        }
        // The server has WAIT, which is something else.
        let memory = asking(ReplicaAck::All).fsync(Fsync::None);
        drop(lock.lock_with(memory).await.unwrap());
        return;
    }
    let semaphore = client.semaphore("s").limit(1);
    drop(semaphore.acquire().await.unwrap());
    for (ack, fsync, words) in [
        (ReplicaAck::None, Fsync::All, ["1", "0"]),
        (ReplicaAck::AtLeast(1), Fsync::Replicas, ["0", "1"]),
        (ReplicaAck::All, Fsync::All, ["1", "1"]),
    ] {
        proxy.mark();
        drop(lock.lock_with(asking(ack).fsync(fsync)).await.unwrap());
        let frames = proxy.frames();
        let asked = frames.iter().filter(|frame| frame.command() == "WAITAOF");
        let mut asked: Vec<_> = asked.map(|frame| [frame.text(1), frame.text(2)]).collect();
        // A disk may take more than one turn.
        asked.dedup();
        assert_eq!(asked, [words], "{frames:?}");
        assert_eq!(proxy.count("WAIT"), 0);
    }
    // Every second: the answer comes after the next fsync.
    let every_second = &["CONFIG", "SET", "appendfsync", "everysec"];
    for server in [0, 1] {
        stage.servers.command::<()>(server, every_second).await;
    }
    let both = || asking(ReplicaAck::All).fsync(Fsync::All);
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let started = Instant::now();
        drop(lock.lock_with(both()).await.unwrap());
        longest = longest.max(started.elapsed());
    }
    eprintln!("with everysec on both, the slowest of three took {longest:?}");
    stage.stop(&[1]);
    let error = lock.lock_with(both().wait(2 * PATIENCE)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    assert!(error.to_string().contains("0 of 1 replicas did"), "{error}");
    stage.go_on(&[1]);
}

macro_rules! on_disk {
    ($($function:ident: $ack:expr, $fsync:expr;)+) => {
        $(#[distributed_lock(
            key = "<name>", wait = DEADLINE, replica_ack = $ack, fsync = $fsync, client = client
        )]
        async fn $function(client: &Client, name: &str) -> Result<(), Error> {
            Ok(())
        })+
    };
}

on_disk! {
    in_memory: 1, none;
    on_disk_of_replicas: 1, replicas;
    on_disk_of_master: none, all;
    on_disk_everywhere: all, all;
}

#[distributed_lock(
    key = "<name>", wait = DEADLINE, replica_ack = 1, fsync = { fsync }, client = client
)]
async fn on_disk_as_told(client: &Client, name: &str, fsync: Fsync) -> Result<(), Error> {
    Ok(())
}

/// The attribute decides, whatever the client does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_runs_when_its_lock_is_on_disk_as_its_attribute_says() {
    let stage = Stage::of(RedisServer::options().aof(), 1, |builder| builder).await;
    let proxy = Proxy::to(stage.servers.server(0));
    let builder = Client::builder().url(&proxy.url());
    let client = builder.replica_timeout(DEADLINE).fsync(Fsync::All);
    let client = client.build().unwrap();
    stage.is_warm(1).await;
    let aof = has_waitaof(&stage.servers).await;
    for which in 0..5 {
        proxy.mark();
        let name = format!("d:{which}");
        let (outcome, sent) = match which {
            0 => (in_memory(&client, &name).await, "WAIT 1"),
            1 => (on_disk_of_replicas(&client, &name).await, "WAITAOF 0 1"),
            2 => (on_disk_of_master(&client, &name).await, "WAITAOF 1 0"),
            3 => (on_disk_everywhere(&client, &name).await, "WAITAOF 1 1"),
            _ => (
                on_disk_as_told(&client, &name, Fsync::Replicas).await,
                "WAITAOF 0 1",
            ),
        };
        if which > 0 && !aof {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{which}: {error}");
            assert!(told(&error).contains("has no WAITAOF"), "{}", told(&error));
            continue;
        }
        outcome.unwrap();
        let frames = proxy.frames();
        let asked = frames
            .iter()
            .filter(|frame| frame.command().starts_with("WAIT"))
            .map(|frame| match frame.command().as_str() {
                "WAIT" => format!("WAIT {}", frame.text(1)),
                command => format!("{command} {} {}", frame.text(1), frame.text(2)),
            });
        let mut asked: Vec<_> = asked.collect();
        // It may take more than one turn.
        asked.dedup();
        assert_eq!(asked, [sent], "{which}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_an_append_only_file_is_named() {
    let stage = Stage::open(1).await;
    if !has_waitaof(&stage.servers).await {
        return;
    }
    let lock = stage.client.rlock("a");
    // It may be turned on meanwhile, so nothing is remembered.
    for appendonly in [false, true] {
        let outcome = lock
            .lock_with(asking(ReplicaAck::None).fsync(Fsync::All))
            .await;
        if appendonly {
            drop(outcome.unwrap());
            break;
        }
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
        assert!(told(&error).contains("appendonly yes"), "{}", told(&error));
        let words = &["CONFIG", "SET", "appendonly", "yes"];
        stage.servers.command::<()>(0, words).await;
    }
    // The replica has none, and so never acknowledges.
    let replicas = asking(ReplicaAck::All)
        .fsync(Fsync::Replicas)
        .wait(2 * PATIENCE);
    let error = lock.lock_with(replicas).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
}
