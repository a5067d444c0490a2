//! A client outlives the runtimes that use it, and guards end wherever they are dropped.

use std::{
    any::Any,
    cell::RefCell,
    future::{pending, ready},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::select};
use redlock_rt::{
    Client, ClientBuilder, Error, GuardState, Kind, Lock, LockGuard, LockOptions, LostReason,
    MultiLock, Quorum, RLock, RLockGuard, Unlocked, distributed_lock,
};
use tests::{
    CALL, DEADLINE, Gate, LeakCheck, Matcher, Proxy, RedisServer, SharedServer, World, ask,
    assert_held, calls, eventually, is_renewed, shared_server, unique, within,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

/// The limit for operations that need no time-out.
const PROMPT: Duration = Duration::from_secs(5);
const SHORT_LEASE: Duration = Duration::from_millis(600);

/// Used from many runtimes, one after the other and at the same time.
static CLIENT: LazyLock<Client> = LazyLock::new(|| builder().build().unwrap());

fn builder() -> ClientBuilder {
    Client::builder()
        .url(&shared_server().url())
        .linger(Duration::from_millis(20))
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn workers(count: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(count)
        .enable_all()
        .build()
        .unwrap()
}

/// A runtime of each kind.
fn runtimes() -> impl Iterator<Item = Runtime> {
    [current_thread, || workers(2)]
        .into_iter()
        .map(|make| make())
}

/// Looks at the server without a runtime.
struct Observer {
    _server: SharedServer,
    connection: redis::Connection,
    key: String,
}

impl Observer {
    fn of(key: &str) -> Self {
        let server = shared_server();
        let client = redis::Client::open(server.url()).unwrap();
        Self {
            connection: client.get_connection().unwrap(),
            _server: server,
            key: key.to_owned(),
        }
    }

    /// The remaining TTL of the key in milliseconds, -2 without a key.
    fn ttl(&mut self) -> i64 {
        redis::cmd("PTTL")
            .arg(&self.key)
            .query(&mut self.connection)
            .unwrap()
    }

    fn is_locked(&mut self) -> bool {
        self.ttl() != -2
    }

    #[track_caller]
    fn wait_for(&mut self, limit: Duration, what: &str, mut test: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + limit;
        while !test(self) {
            assert!(Instant::now() < end, "not within {limit:?}: {what}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    fn wait_until_free(&mut self, limit: Duration) {
        self.wait_for(limit, "the key is gone", |observer| !observer.is_locked());
    }
}

/// Ends the test: asserts that nothing of this client and name is left.
fn assert_clean(client: &Client, name: &str) {
    current_thread().block_on(async {
        let check = LeakCheck::on(&shared_server(), name).await;
        // This is a use of the client, for which pending work waits.
        client
            .rlock(format!("{name}:next"))
            .is_locked()
            .await
            .unwrap();
        check.client(client).assert_clean().await;
    });
}

/// Renewed several times within [`SHORT_LEASE`], under a longer one.
fn often() -> LockOptions {
    LockOptions::new().renew(SHORT_LEASE / 3)
}

async fn lock_and_unlock<K: Kind>(lock: &Lock<K>) {
    let guard = within(PROMPT, lock.lock()).await.unwrap();
    assert_eq!(
        within(PROMPT, guard.unlock()).await.unwrap(),
        Unlocked::Released
    );
}

/// A lock call that was polled until it waits for another owner's release.
async fn start_waiting<K: Kind>(
    client: &Client,
    lock: Lock<K>,
) -> tokio::task::JoinHandle<LockGuard<K>> {
    let waiting = client.stats().waiting;
    let waiter = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(DEADLINE, async || client.stats().waiting > waiting).await;
    waiter
}

/// That runtime does not read the reply, and wakes nobody who waits for it too long.
#[test]
fn a_call_on_the_connection_of_a_runtime_that_stands_still_takes_another_one() {
    for home in [current_thread(), workers(1)] {
        let (client, name) = (builder().build().unwrap(), unique("still"));
        home.block_on(lock_and_unlock(&client.rlock(&name)));
        let (go_on, stop) = mpsc::channel::<()>();
        // A worker takes it. Without one, nobody polls this runtime.
        home.spawn(async move { stop.recv() });
        current_thread().block_on(lock_and_unlock(&client.rlock(&name)));
        drop(go_on);
        assert_clean(&client, &name);
    }
}

/// Who is next behind a lock that was handed over relied on the tasks of that runtime alone.
#[test]
fn a_waiter_is_woken_by_a_release_although_the_runtime_of_the_tasks_stands_still() {
    for home in [current_thread(), workers(1)] {
        let time = Duration::from_secs(1);
        let client = builder().hand_over(time).build().unwrap();
        let name = unique("still-next");
        let lock = client.rlock(&name);
        home.block_on(lock_and_unlock(&lock));
        let (begin, begun) = oneshot::channel();
        let (stands, is_still) = mpsc::channel();
        let (go_on, stop) = mpsc::channel::<()>();
        let still = home.spawn(async move {
            begun.await.unwrap();
            stands.send(()).unwrap();
            let _ = stop.recv();
        });
        let home = thread::spawn(move || home.block_on(still).unwrap());
        current_thread().block_on(async {
            let guard = within(PROMPT, lock.lock()).await.unwrap();
            let next = start_waiting(&client, lock.clone()).await;
            let last = start_waiting(&client, lock.clone()).await;
            eventually(DEADLINE, async || client.stats().subscriptions == 1).await;
            begin.send(()).unwrap();
            is_still.recv_timeout(DEADLINE).unwrap();
            drop(guard);
            let guard = within(PROMPT, next).await.unwrap();
            let handed = Instant::now();
            eventually(DEADLINE, async || handed.elapsed() > time).await;
            within(PROMPT, guard.unlock()).await.unwrap();
            drop(within(PROMPT, last).await.unwrap());
        });
        drop(go_on);
        home.join().unwrap();
        assert_clean(&client, &name);
    }
}

/// The task of the connection lies where no other worker takes it.
#[test]
fn a_worker_that_is_blocked_behind_a_call_holds_up_no_other_call() {
    let runtime = workers(2);
    let (client, name) = (builder().build().unwrap(), unique("blocked"));
    runtime.block_on(lock_and_unlock(&client.rlock(&name)));
    let (go_on, stop) = mpsc::channel::<()>();
    let (asks, asked) = mpsc::channel();
    let lock = client.rlock(format!("{name}:other"));
    runtime.spawn(async move {
        let mut call = std::pin::pin!(lock.lock());
        assert!((&mut call).now_or_never().is_none());
        asks.send(()).unwrap();
        let _ = stop.recv();
    });
    asked.recv().unwrap();
    let calls = (0..4).map(|number| {
        let lock = client.rlock(format!("{name}:{number}"));
        runtime.spawn(async move { lock_and_unlock(&lock).await })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        runtime.block_on(call).unwrap();
    }
    drop(go_on);
    drop(runtime);
    assert_clean(&client, &name);
    assert_clean(&client, &format!("{name}:other"));
}

#[test]
fn a_static_client_works_in_one_runtime_after_another() {
    let name = unique("successive");
    for runtime in runtimes().chain(runtimes()) {
        runtime.block_on(async {
            let lock = CLIENT.rlock(&name);
            lock_and_unlock(&lock).await;
            // The hub and the release task also run here.
            let guard = within(PROMPT, lock.lock()).await.unwrap();
            let waiter = start_waiting(&CLIENT, lock.clone()).await;
            drop(guard);
            drop(within(PROMPT, waiter).await.unwrap());
            lock_and_unlock(&lock).await;
        });
    }
    assert_clean(&CLIENT, &name);
}

#[test]
fn a_lock_is_held_from_one_runtime_to_the_next() {
    is_held_in_the_next_runtime(async |_, lock| assert!(lock.is_locked().await.unwrap()));
}

/// It was not renewed where only its guard is used.
#[test]
fn a_lock_is_held_in_the_next_runtime_where_only_its_guard_is_used() {
    is_held_in_the_next_runtime(async |guard, _| guard.extend(SHORT_LEASE).await.unwrap());
    is_held_in_the_next_runtime(async |guard, _| guard.run(ready(())).await.unwrap());
    is_held_in_the_next_runtime(async |guard, _| assert!(guard.lost().now_or_never().is_none()));
}

/// `uses`: how the client is used there, which starts its tasks.
fn is_held_in_the_next_runtime(uses: impl AsyncFn(&RLockGuard, &RLock)) {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("across");
        let client = builder().build().unwrap();
        let lock = client.rlock(&name);
        let guard = first.block_on(lock.lock_with(often())).unwrap();
        drop(first);
        assert!(guard.is_valid());
        second.block_on(async {
            uses(&guard, &lock).await;
            is_renewed(SHORT_LEASE, || guard.state()).await;
            assert!(lock.is_locked().await.unwrap());
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
        drop(second);
        assert_clean(&client, &name);
    }
}

/// These asked their own state alone.
#[test]
fn locks_of_several_names_are_held_in_the_next_runtime_where_only_their_guard_is_used() {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("several");
        let client = builder().build().unwrap();
        let names = ["a", "b"].map(|part| format!("{name}:{part}"));
        let locks = client.multi_lock(names);
        let guard = first.block_on(locks.lock_with(often())).unwrap();
        drop(first);
        second.block_on(async {
            assert!(guard.lost().now_or_never().is_none());
            is_renewed(SHORT_LEASE, || guard.state()).await;
            guard.run(ready(())).await.unwrap();
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
        drop(second);
        assert_clean(&client, &name);
    }
}

/// Neither was it renewed, nor a lost part acquired again.
#[test]
fn a_redlock_is_held_in_the_next_runtime_where_only_its_guard_is_used() {
    let servers = [(); 3].map(|()| RedisServer::start());
    for (first, second) in runtimes().zip(runtimes()) {
        let clients = servers.each_ref().map(|server| {
            let client = Client::builder().url(&server.url());
            client.build().unwrap()
        });
        let lock = Quorum::new(clients).unwrap().redlock("several");
        let guard = first.block_on(lock.lock_with(often())).unwrap();
        drop(first);
        second.block_on(async {
            guard.run(ready(())).await.unwrap();
            is_renewed(SHORT_LEASE, || guard.state()).await;
            let redis = servers[0].connect().await.unwrap();
            let _: u8 = ask(&redis, &["DEL", "several"]).await;
            let is_back = async || ask::<bool>(&redis, &["EXISTS", "several"]).await;
            eventually(DEADLINE, is_back).await;
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
    }
}

#[test]
fn a_waiter_that_dies_with_its_runtime_leaves_nothing() {
    dies_with_its_runtime(|client, name| client.rlock(name));
}

/// The same for its place in the queue.
#[test]
fn a_fair_waiter_that_dies_with_its_runtime_leaves_nothing() {
    dies_with_its_runtime(|client, name| client.fair_lock(name));
}

fn dies_with_its_runtime<K: Kind>(open: fn(&Client, &str) -> Lock<K>) {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = &unique("waiter");
        let client = builder().build().unwrap();
        let lock = open(&client, name);
        let guard = first.block_on(async {
            let guard = lock.lock().await.unwrap();
            for _ in 0..3 {
                drop(start_waiting(&client, lock.clone()).await);
            }
            guard
        });
        drop(first);
        assert_eq!(client.stats().waiting, 0);
        second.block_on(async {
            let waiter = start_waiting(&client, lock.clone()).await;
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            drop(within(PROMPT, waiter).await.unwrap());
            lock_and_unlock(&lock).await;
        });
        drop(second);
        assert_clean(&client, name);
    }
}

/// The first runtime ends with a command in progress; the second gets the lock at once.
fn in_flight(what: &str, hold: fn(&Proxy, Matcher) -> Gate, lost: bool) {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique(what);
        let proxy = Proxy::to(&shared_server());
        let client = Client::builder().url(&proxy.url()).build().unwrap();
        let lock = client.rlock(&name);
        let gate = first.block_on(async {
            lock_and_unlock(&lock).await;
            let guard = client.rlock(format!("{name}:held")).lock().await.unwrap();
            let gate = hold(&proxy, Matcher::command(CALL).mentioning(&name));
            let acquiring = lock.clone();
            tokio::spawn(async move { drop(acquiring.lock().await) });
            gate.reached().await;
            proxy.mark();
            tokio::spawn(async move { drop(guard.unlock().await) });
            eventually(DEADLINE, async || !proxy.frames().is_empty()).await;
            gate
        });
        drop(first);
        if lost {
            proxy.cut_all();
        }
        gate.open();
        second.block_on(async {
            lock_and_unlock(&lock).await;
            lock_and_unlock(&client.rlock(format!("{name}:held"))).await;
        });
        drop(second);
        assert_clean(&client, &name);
    }
}

#[test]
fn a_request_under_way_at_the_end_of_its_runtime_leaves_nothing() {
    in_flight("request", |proxy, script| proxy.hold_request(script), false);
}

#[test]
fn a_reply_under_way_at_the_end_of_its_runtime_leaves_nothing() {
    in_flight("reply", |proxy, script| proxy.hold_reply(script), false);
}

#[test]
fn a_request_lost_at_the_end_of_its_runtime_is_repeated() {
    in_flight("lost", |proxy, script| proxy.hold_request(script), true);
}

/// The first try of a waiter is answered after it was dropped: the waiter is queued, and leaves the
/// queue. Nothing else takes it out before the waiter time-out.
#[test]
fn a_place_in_a_fair_queue_that_was_being_left_at_the_end_of_its_runtime_is_left() {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("fair-place");
        let others = current_thread();
        let holder = builder().build().unwrap().fair_lock(&name);
        let guard = others.block_on(holder.lock()).unwrap();
        let proxy = Proxy::to(&shared_server());
        let client = Client::builder()
            .url(&proxy.url())
            .waiter_timeout(Duration::from_secs(600))
            .build()
            .unwrap();
        let lock = client.fair_lock(&name);
        let leave = first.block_on(async {
            let reply = proxy.hold_reply(calls("fair_acquire"));
            let asks = lock.clone();
            let waiter = tokio::spawn(async move { drop(asks.lock().await) });
            reply.reached().await;
            waiter.abort();
            assert!(waiter.await.unwrap_err().is_cancelled());
            let leave = proxy.hold_request(calls("fair_release"));
            reply.open();
            leave.reached().await;
            assert_eq!(holder.queue_len().await.unwrap(), 1);
            leave
        });
        drop(first);
        proxy.cut_all();
        leave.open();
        second.block_on(async {
            client.rlock(unique("used")).is_locked().await.unwrap();
            eventually(DEADLINE, async || holder.queue_len().await.unwrap() == 0).await;
        });
        others.block_on(guard.unlock()).unwrap();
        drop(second);
        assert_clean(&client, &name);
    }
}

/// Whether a runtime is dropped, or ends by a panic of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Drop,
    Panic,
}

/// Runs the client's tasks in `first`, which ends in the middle of `work` in `second`.
fn while_another_ends<F: Future<Output = ()>>(
    client: &Client,
    (first, second): (Runtime, Runtime),
    by: End,
    work: impl FnOnce(Client, Ends) -> F + Send,
) {
    let (started, is_started) = mpsc::channel();
    let (ready, is_ready) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let lives = move || {
                let runtime = first;
                runtime.block_on(async {
                    client.rlock(unique("first")).is_locked().await.unwrap();
                    started.send(()).unwrap();
                    // A runtime without a driving thread would be blocked.
                    within(DEADLINE, is_ready).await.unwrap();
                    if by == End::Panic {
                        // Without a backtrace, for which the runtime would stand still for long.
                        resume_unwind(Box::new("this is how it ends"));
                    }
                });
            };
            let ended = catch_unwind(AssertUnwindSafe(lives));
            assert_eq!(ended.is_err(), by == End::Panic);
            end.send(()).unwrap();
        });
        is_started.recv_timeout(DEADLINE).unwrap();
        second.block_on(work(client.clone(), Ends { ready, ended }));
    });
}

struct Ends {
    ready: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Ends {
    /// Ends the other runtime, and waits for its end.
    async fn now(self) {
        self.ready.send(()).unwrap();
        self.ended.await.unwrap();
    }
}

/// The second runtime makes no call of the client, and its one task need not be polled.
#[test]
fn a_lock_is_renewed_after_the_end_of_another_runtime() {
    is_renewed_after_another_runtime(End::Drop);
}

/// The tasks that ended there told nobody.
#[test]
fn a_lock_is_renewed_after_a_panic_has_ended_another_runtime() {
    is_renewed_after_another_runtime(End::Panic);
}

fn is_renewed_after_another_runtime(by: End) {
    for runtimes in runtimes().zip(runtimes()) {
        let name = unique("both-held");
        let client = builder().build().unwrap();
        while_another_ends(&client, runtimes, by, async |client, other_runtime| {
            let guard = client.rlock(&name).lock_with(often()).await.unwrap();
            other_runtime.now().await;
            is_renewed(SHORT_LEASE, || guard.state()).await;
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
        assert_clean(&client, &name);
    }
}

/// The answer is here and was not looked at yet, so the tasks end when no hold is known. Nobody else uses
/// the client.
#[test]
fn a_lock_is_renewed_whose_acquisition_was_answered_before_the_end_of_another_runtime() {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("both-answered");
        let proxy = Proxy::to(&shared_server());
        let client = Client::builder().url(&proxy.url()).build().unwrap();
        let (started, is_started) = mpsc::channel();
        let (answered, is_answered) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        thread::scope(|scope| {
            let other = client.rlock(unique("first"));
            scope.spawn(move || {
                first.block_on(async {
                    other.is_locked().await.unwrap();
                    started.send(()).unwrap();
                    within(DEADLINE, is_answered).await.unwrap();
                    // By the same connection, so the answer before is here too.
                    other.is_locked().await.unwrap();
                });
                drop(first);
                end.send(()).unwrap();
            });
            is_started.recv_timeout(DEADLINE).unwrap();
            second.block_on(async {
                let reply = proxy.hold_reply(Matcher::command(CALL).mentioning(&name));
                let lock = client.rlock(&name);
                let acquiring = async { lock.lock_with(often()).await.unwrap() };
                let ending = async {
                    reply.reached().await;
                    reply.open();
                    answered.send(()).unwrap();
                    // This thread, and so the other future, stands still meanwhile.
                    ended.recv_timeout(DEADLINE).unwrap();
                };
                let (guard, ()) = tokio::join!(acquiring, ending);
                is_renewed(SHORT_LEASE, || guard.state()).await;
                assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            });
        });
        drop(second);
        assert_clean(&client, &name);
    }
}

#[test]
fn a_waiter_is_woken_after_the_end_of_another_runtime() {
    is_woken_after_another_runtime(End::Drop, |client, name| client.rlock(name));
}

#[test]
fn a_fair_waiter_is_woken_after_the_end_of_another_runtime() {
    is_woken_after_another_runtime(End::Drop, |client, name| client.fair_lock(name));
}

#[test]
fn a_waiter_is_woken_after_a_panic_has_ended_another_runtime() {
    is_woken_after_another_runtime(End::Panic, |client, name| client.rlock(name));
}

fn is_woken_after_another_runtime<K: Kind>(by: End, open: fn(&Client, &str) -> Lock<K>) {
    for runtimes in runtimes().zip(runtimes()) {
        let name = &unique("both-waiting");
        // Polling would take longer than the test allows.
        let (client, foreign) = (
            builder().poll_interval(DEADLINE),
            builder().build().unwrap(),
        );
        let client = client.build().unwrap();
        while_another_ends(&client, runtimes, by, async |client, other_runtime| {
            let obstacle = open(&foreign, name).lock().await.unwrap();
            let waiter = start_waiting(&client, open(&client, name)).await;
            eventually(DEADLINE, async || client.stats().subscriptions >= 1).await;
            other_runtime.now().await;
            obstacle.unlock().await.unwrap();
            drop(within(PROMPT, waiter).await.unwrap());
        });
        drop(foreign);
        assert_clean(&client, name);
    }
}

/// The beats that keep its place run in the runtime that ends.
#[test]
fn a_fair_waiter_keeps_its_place_after_the_end_of_another_runtime() {
    const WAITER_TIMEOUT: Duration = Duration::from_secs(3);
    for runtimes in runtimes().zip(runtimes()) {
        let name = unique("place");
        let client = builder().waiter_timeout(WAITER_TIMEOUT).build().unwrap();
        let foreign = builder().waiter_timeout(WAITER_TIMEOUT).build().unwrap();
        // A client that had a fair waiter sends beats from any runtime that uses it, so from the first.
        current_thread().block_on(async {
            let obstacle = foreign.fair_lock(&name).lock().await.unwrap();
            let waiter = start_waiting(&client, client.fair_lock(&name)).await;
            obstacle.unlock().await.unwrap();
            let guard = within(DEADLINE, waiter).await.unwrap();
            guard.unlock().await.unwrap();
        });
        while_another_ends(
            &client,
            runtimes,
            End::Drop,
            async |client, other_runtime| {
                let obstacle = foreign.fair_lock(&name).lock().await.unwrap();
                let first = start_waiting(&client, client.fair_lock(&name)).await;
                let lock = foreign.fair_lock(&name);
                eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
                let redis = shared_server().connect().await.unwrap();
                let notes = format!("redlock_fair:{{{name}}}");
                // Each beat writes it.
                let note = async || ask::<String>(&redis, &["HGET", &notes, client.uuid()]).await;
                other_runtime.now().await;
                let ended = note().await;
                eventually(DEADLINE, async || note().await != ended).await;
                // When it joins the queue, it would remove waiters without beats.
                let second = start_waiting(&foreign, lock.clone()).await;
                eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 2).await;
                obstacle.unlock().await.unwrap();
                let guard = within(PROMPT, first).await.unwrap();
                assert!(!second.is_finished());
                guard.unlock().await.unwrap();
                let guard = within(PROMPT, second).await.unwrap();
                guard.unlock().await.unwrap();
            },
        );
        drop(foreign);
        assert_clean(&client, &name);
    }
}

#[test]
fn a_dropped_guard_is_released_after_the_end_of_another_runtime() {
    for runtimes in runtimes().zip(runtimes()) {
        let name = unique("both-dropped");
        let client = builder().build().unwrap();
        while_another_ends(
            &client,
            runtimes,
            End::Drop,
            async |client, other_runtime| {
                let guard = client.rlock(&name).lock().await.unwrap();
                other_runtime.now().await;
                drop(guard);
                let mut observer = Observer::of(&name);
                eventually(PROMPT, || ready(!observer.is_locked())).await;
            },
        );
        assert_clean(&client, &name);
    }
}

#[test]
fn a_guard_dropped_outside_any_runtime_is_released_at_the_next_use() {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("outside");
        let client = builder().build().unwrap();
        let mut observer = Observer::of(&name);
        let lock = client.rlock(&name);
        let guard = first.block_on(lock.lock()).unwrap();
        drop(first);
        drop(guard);
        assert!(observer.is_locked());
        assert_eq!(client.stats().releases, 1);
        // Any call of the client, about any lock.
        let other = client.rlock(format!("{name}:other"));
        second.block_on(async {
            assert!(!other.is_locked().await.unwrap());
            eventually(PROMPT, async || client.stats().releases == 0).await;
        });
        assert!(!observer.is_locked());
        drop(second);
        assert_clean(&client, &name);
    }
}

#[test]
fn a_guard_dropped_outside_any_runtime_ends_with_its_lease_where_nobody_uses_the_client() {
    let name = unique("lease");
    let client = builder().lease(SHORT_LEASE).build().unwrap();
    let mut observer = Observer::of(&name);
    let runtime = current_thread();
    let guard = runtime.block_on(client.rlock(&name).lock()).unwrap();
    drop(runtime);
    drop(guard);
    observer.wait_until_free(SHORT_LEASE + PROMPT);
    // The late release finds nothing and has no effect.
    let (other, runtime) = (builder().build().unwrap(), current_thread());
    runtime.block_on(async {
        let guard = other.rlock(&name).lock().await.unwrap();
        assert!(client.rlock(&name).is_locked().await.unwrap());
        eventually(DEADLINE, async || client.stats().releases == 0).await;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    });
    drop(runtime);
    assert_clean(&client, &name);
}

#[test]
fn with_a_thread_of_its_own_a_guard_dropped_outside_any_runtime_is_released_promptly() {
    for runtime in runtimes() {
        let name = unique("dedicated");
        let client = builder().dedicated_thread(true).build().unwrap();
        let mut observer = Observer::of(&name);
        let guard = runtime.block_on(client.rlock(&name).lock()).unwrap();
        drop(runtime);
        assert!(guard.is_valid());
        drop(guard);
        observer.wait_until_free(PROMPT);
        assert_clean(&client, &name);
    }
}

/// A release that took more than its first reply began a timer in the runtime where the guard was
/// dropped.
#[test]
fn a_guard_dropped_where_there_are_no_timers_panicked() {
    let without = Builder::new_current_thread().build().unwrap();
    let ended = current_thread().handle().clone();
    for elsewhere in [without.handle().clone(), ended] {
        let runtime = current_thread();
        let (_server, world, client, guards) = runtime.block_on(async {
            let server = RedisServer::start();
            let world = World::on(&server, "timers").await;
            let client = world.client_with(|builder| builder.dedicated_thread(true));
            // From now on guards are released by commands that find no lock.
            lock_and_unlock(&client.rlock(&world.name)).await;
            let mut guards = Vec::new();
            for number in 0..1000 {
                let lock = client.rlock(format!("{}:{number}", world.name));
                guards.push(lock.lock().await.unwrap());
            }
            let _: () = world.redis(&["FLUSHALL"]).await;
            (server, world, client, guards)
        });
        {
            let _inside = elsewhere.enter();
            drop(guards);
        }
        runtime.block_on(async {
            eventually(DEADLINE, async || client.stats().names == 0).await;
            world.assert_clean().await;
        });
    }
}

/// Tasks that hold guards, wait for locks, and are in the middle of calls, all dropped by the
/// runtime that shuts down.
fn dropped_with_the_runtime(client: &Client, runtime: Runtime, name: &str) {
    let lock = client.rlock(name);
    runtime.block_on(async {
        let (ready, is_ready) = oneshot::channel();
        let holder = lock.clone();
        tokio::spawn(async move {
            let guard = holder.lock().await.unwrap();
            let inner = guard.reenter().await.unwrap();
            ready.send(()).unwrap();
            inner.run(pending::<()>()).await.unwrap();
        });
        is_ready.await.unwrap();
        drop(start_waiting(client, lock.clone()).await);
        let never = lock.clone();
        let mut polled = Box::pin(async move { never.try_lock().await });
        let other = client.rlock(format!("{name}:other"));
        let mut acquiring = Box::pin(async move { other.lock().await });
        // Polled once, so that a call is in progress, and dropped by the runtime.
        let (polled_once, is_polled) = oneshot::channel();
        tokio::spawn(async move {
            let _ = (futures::poll!(&mut polled), futures::poll!(&mut acquiring));
            polled_once.send(()).unwrap();
            pending::<()>().await;
        });
        is_polled.await.unwrap();
    });
    drop(runtime);
}

#[test]
fn a_guard_dropped_by_the_end_of_its_runtime_is_released_at_the_next_use() {
    for (first, second) in runtimes().zip(runtimes()) {
        let name = unique("ends");
        let client = builder().build().unwrap();
        dropped_with_the_runtime(&client, first, &name);
        assert_eq!(client.stats().waiting, 0);
        assert_eq!(client.stats().renewals, 0);
        assert_eq!(client.stats().tasks, 0);
        second.block_on(async {
            lock_and_unlock(&client.rlock(&name)).await;
            lock_and_unlock(&client.rlock(format!("{name}:other"))).await;
        });
        drop(second);
        assert_clean(&client, &name);
    }
}

#[test]
fn with_a_thread_of_its_own_a_guard_dropped_by_the_end_of_its_runtime_is_released_promptly() {
    for runtime in runtimes() {
        let name = unique("ends-dedicated");
        let client = builder().dedicated_thread(true).build().unwrap();
        let (mut observer, mut other) =
            (Observer::of(&name), Observer::of(&format!("{name}:other")));
        dropped_with_the_runtime(&client, runtime, &name);
        observer.wait_until_free(PROMPT);
        other.wait_until_free(PROMPT);
        assert_eq!(client.stats().tasks, 3);
        assert_clean(&client, &name);
    }
}

/// A guard among the thread-locals of an ending thread, in any order; a panic would end the process.
#[derive(Default)]
struct AtExit {
    guards: Vec<Box<dyn Any>>,
    waiting: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    runtime: Option<Runtime>,
}

#[distributed_lock(key = "<name>", client = client)]
async fn stays(client: &Client, name: String, begins: oneshot::Sender<()>) -> Result<(), Error> {
    begins.send(()).unwrap();
    pending().await
}

#[test]
fn a_guard_dropped_by_a_thread_local_destructor_never_panics() {
    thread_local! {
        static AT_EXIT: RefCell<AtExit> = RefCell::default();
    }
    // From here on Tokio's clock asks for the thread's runtime, as in a user's test.
    drop(
        Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build(),
    );
    for dedicated in [false, true] {
        let name = unique("thread-local");
        let client = builder().dedicated_thread(dedicated).build().unwrap();
        let (for_thread, prefix) = (client.clone(), name.clone());
        // Of another prefix: a count that is done leaves a note.
        let latch = client.count_down_latch(unique("latch"));
        let of_thread = latch.clone();
        let thread = thread::spawn(move || {
            // One is created before the runtime's thread-locals, and so dropped after them, one later.
            AT_EXIT.with_borrow_mut(|_| ());
            let runtime = current_thread();
            runtime.block_on(async {
                let lock = |what: &str| for_thread.rlock(format!("{prefix}:{what}"));
                let guard = lock("held").lock().await.unwrap();
                let in_task = lock("task").lock().await.unwrap();
                tokio::spawn(async move {
                    let _guard = in_task;
                    pending::<()>().await;
                });
                let both = MultiLock::new(["one", "other"].map(lock));
                let both = both.lock().await.unwrap();
                assert!(of_thread.try_set_count(1).await.unwrap());
                let count = of_thread.count_down_guard().unwrap();
                let (begins, begun) = oneshot::channel();
                let (own, name) = (for_thread.clone(), format!("{prefix}:body"));
                let mut body = Box::pin(async move { drop(stays(&own, name, begins).await) });
                select(&mut body, begun).await;
                let mut waiting: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![body];
                for what in ["held", "fresh"] {
                    let lock = lock(what);
                    let mut future = Box::pin(async move { drop(lock.lock().await) });
                    // A separate thread of the client may be fast enough to answer at once.
                    if futures::poll!(&mut future).is_pending() {
                        waiting.push(future);
                    }
                }
                tokio::task::yield_now().await;
                AT_EXIT.with_borrow_mut(|at_exit| {
                    at_exit.guards = vec![Box::new(guard), Box::new(both), Box::new(count)];
                    at_exit.waiting = waiting;
                });
            });
            AT_EXIT.with_borrow_mut(|at_exit| at_exit.runtime = Some(runtime));
        });
        thread.join().unwrap();
        let mut observer = Observer::of(&format!("{name}:held"));
        if dedicated {
            observer.wait_until_free(PROMPT);
        }
        assert_clean(&client, &name);
        assert!(!observer.is_locked());
        current_thread()
            .block_on(within(PROMPT, latch.wait()))
            .unwrap();
    }
}

/// Blocks the thread, and with it a runtime of one thread.
fn block_until(moment: Instant, mut meanwhile: impl FnMut()) {
    while Instant::now() < moment {
        meanwhile();
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn with_a_thread_of_its_own_a_client_of_a_blocked_runtime_keeps_its_locks() {
    // Renewed in time, even if the thread has to wait for a processor.
    const LEASE: Duration = Duration::from_secs(2);
    for runtime in [current_thread(), workers(1)] {
        let name = unique("blocked");
        let client = builder()
            .lease(LEASE)
            .dedicated_thread(true)
            .build()
            .unwrap();
        let mut observer = Observer::of(&name);
        let (lock, holder) = (client.rlock(&name), client.clone());
        let (free, mut freed) = (
            client.rlock(format!("{name}:free")),
            Observer::of(&format!("{name}:free")),
        );
        let work = runtime.spawn(async move {
            let guard = lock.lock().await.unwrap();
            let other = free.lock().await.unwrap();
            block_until(Instant::now() + LEASE * 3 / 2, || {
                assert_held(&guard.state());
                assert!(observer.is_locked());
            });
            // A guard that is dropped here does not wait for the runtime.
            drop(other);
            freed.wait_until_free(PROMPT);
            freed.wait_for(PROMPT, "the release is known", |_| {
                holder.stats().releases == 0
            });
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        });
        runtime.block_on(work).unwrap();
        drop(runtime);
        assert_clean(&client, &name);
    }
}

#[test]
fn a_client_of_a_blocked_runtime_loses_its_locks_and_says_so() {
    for runtime in [current_thread(), workers(1)] {
        let name = unique("blocked-too-long");
        let client = builder().lease(SHORT_LEASE).build().unwrap();
        let mut observer = Observer::of(&name);
        let lock = client.rlock(&name);
        let work = runtime.spawn(async move {
            let guard = lock.lock().await.unwrap();
            let mut lost = false;
            block_until(Instant::now() + SHORT_LEASE * 2, || {
                // Checked first: after the end of the key the guard holds nothing, however late it is.
                let there = observer.is_locked();
                let held = guard.is_valid();
                assert!(there || !held, "held without a key");
                assert!(!held || !lost, "lost and then held again");
                lost |= !held;
            });
            assert!(!observer.is_locked());
            assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
            assert_eq!(guard.lost().await, LostReason::Expired);
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::AlreadyExpired);
        });
        runtime.block_on(work).unwrap();
        drop(runtime);
        assert_clean(&client, &name);
    }
}
