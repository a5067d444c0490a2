//! Calls that block their thread, and calls under other executors than Tokio's.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join;
use redlock_rt::blocking::BlockOn as _;
use redlock_rt::{
    Client, Error, GuardState, LockOptions, LostReason, RLockGuard, distributed_lock,
};
use tests::{CALL, DEADLINE, Proxy, RedisServer, shared_server, unique};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::timeout;

static LOCKS: LazyLock<Client> = LazyLock::new(|| client(&shared_server().url()));

fn client(url: &str) -> Client {
    let builder = Client::builder().url(url).dedicated_thread(true);
    builder.connect().block_on().unwrap()
}

fn until(guard: &RLockGuard) -> Instant {
    match guard.state() {
        GuardState::Held { until } => until,
        other => panic!("{other:?}"),
    }
}

/// Adds one in two steps.
fn add_one(number: &AtomicUsize) {
    let before = number.load(Ordering::Relaxed);
    thread::yield_now();
    number.store(before + 1, Ordering::Relaxed);
}

#[test]
fn threads_take_turns() {
    const EACH: usize = 25;
    let (number, clients) = (
        AtomicUsize::new(0),
        [&*LOCKS, &client(&shared_server().url())],
    );
    let name = unique("threads");
    thread::scope(|scope| {
        for at in 0..4 {
            let lock = clients[at % 2].rlock(&name);
            let number = &number;
            scope.spawn(move || {
                for _ in 0..EACH {
                    let guard = lock.lock().block_on().unwrap();
                    add_one(number);
                    guard.unlock().block_on().unwrap();
                }
            });
        }
    });
    assert_eq!(number.into_inner(), 4 * EACH);
}

#[test]
fn a_lease_is_renewed_while_its_thread_works() {
    let options = LockOptions::new().renew(Duration::from_millis(10));
    let lock = LOCKS.rlock(unique("works"));
    let guard = lock.lock_with(options).block_on().unwrap();
    let first = until(&guard);
    while until(&guard) == first {
        thread::yield_now();
    }
}

#[test]
fn a_drop_does_not_wait_for_redis() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = client(&proxy.url());
    let lock = client.rlock("a");
    let guard = lock.lock().block_on().unwrap();
    let gate = proxy.hold_request(CALL);
    drop(guard);
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.unwrap().block_on(gate.reached());
    gate.open();
    drop(lock.lock().block_on().unwrap());
}

/// The inner call slept through what the thread was woken for.
#[test]
fn a_call_inside_another_lost_its_wake_up() {
    let (over, end) = mpsc::channel();
    thread::spawn(move || {
        let ((tell, told), (tell_inner, told_inner)) = (oneshot::channel(), oneshot::channel());
        let (begin, begun) = mpsc::channel();
        thread::spawn(move || {
            begun.recv().unwrap();
            tell.send(()).unwrap();
            tell_inner.send(()).unwrap();
        });
        let inner = async move {
            begin.send(()).unwrap();
            told_inner.block_on().unwrap();
        };
        let (told, ()) = join(told, inner).block_on();
        over.send(told).unwrap();
    });
    end.recv_timeout(DEADLINE)
        .expect("it waits for ever")
        .unwrap();
}

/// The text of the panic.
fn panics(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_asynchronous_task_a_call_panics_and_in_places_that_may_block_it_does_not() {
    tokio::task::spawn_blocking(|| LazyLock::force(&LOCKS))
        .await
        .unwrap();
    let lock = LOCKS.rlock(unique("here"));
    let text = panics(|| drop(lock.lock().block_on()));
    assert!(
        text.starts_with("Cannot start a runtime from within a runtime"),
        "{text}"
    );
    let text = panics(|| drop(place(7, Ok(1))));
    assert!(
        text.starts_with("Cannot start a runtime from within a runtime"),
        "{text}"
    );
    let guard = tokio::task::block_in_place(|| lock.lock().block_on().unwrap());
    drop(guard);
    let locking = tokio::task::spawn_blocking(move || lock.lock().block_on().unwrap());
    assert!(locking.await.unwrap().is_valid());
}

#[distributed_lock(key = "<name>", client = LOCKS, blocking = true)]
fn outer(name: &str) -> Result<u32, Error> {
    let (tell, told) = oneshot::channel();
    tell.send(7).unwrap();
    assert_eq!(told.blocking_recv(), Ok(7));
    let soon = timeout(Duration::from_millis(1), pending::<()>());
    assert!(soon.block_on().is_err());
    inner(name)
}

#[distributed_lock(key = "<name>", client = LOCKS, blocking = true)]
fn inner(name: &str) -> Result<u32, Error> {
    assert!(name.contains("nested"));
    Ok(3)
}

/// The body ran within a `block_on` of the runtime.
#[test]
fn a_body_that_blocked_within_panicked_on_a_thread_for_calls_that_block() {
    let name: &str = unique("nested").leak();
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        let blocking = runtime.spawn_blocking(|| outer(name));
        assert_eq!(runtime.block_on(blocking).unwrap().unwrap(), 3);
    }
    let workers = Builder::new_multi_thread().enable_all().build().unwrap();
    let in_place = workers.spawn(async { tokio::task::block_in_place(|| outer(name)) });
    assert_eq!(workers.block_on(in_place).unwrap().unwrap(), 3);
}

#[test]
fn a_loss_is_told_to_a_function_until_that_is_taken_back() {
    let lock = LOCKS.rlock(unique("told"));
    let options = LockOptions::new().renew(Duration::from_millis(10));
    let guard = lock.lock_with(options).block_on().unwrap();
    let (tell, told) = mpsc::channel();
    let (also, dropped) = mpsc::channel();
    let taken_back = guard.on_lost(move |_| also.send(()).unwrap());
    let watch = guard.on_lost(move |reason| tell.send(reason).unwrap());
    drop(taken_back);
    // The function is gone, with what it owns.
    assert_eq!(
        dropped.recv_timeout(DEADLINE),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    assert!(lock.force_unlock().block_on().unwrap());
    assert_eq!(told.recv_timeout(DEADLINE), Ok(LostReason::Deleted));
    drop(watch);
}

#[test]
fn a_release_was_told_as_a_loss() {
    let options = LockOptions::new().lease(Duration::from_secs(3));
    let lock = LOCKS.rlock(unique("freed"));
    let guard = lock.lock_with(options).block_on().unwrap();
    let (tell, told) = mpsc::channel();
    // It may outlast the guard in a race, and does if it is forgotten.
    std::mem::forget(guard.on_lost(move |reason| tell.send(reason).unwrap()));
    guard.unlock().block_on().unwrap();
    let ended = told.recv_timeout(DEADLINE);
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
}

/// No timer of a runtime runs that was entered and that nobody drives.
#[test]
fn a_wait_never_ended_where_a_runtime_was_only_entered() {
    let name = unique("entered");
    let guard = LOCKS.rlock(&name).lock().block_on().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let options = LockOptions::new().wait(Duration::from_millis(50));
        let other = client(&shared_server().url());
        let waited = other.rlock(&name).lock_with(options).block_on();
        tell.send(waited.unwrap_err().is_timed_out()).unwrap();
    });
    assert_eq!(told.recv_timeout(DEADLINE), Ok(true));
    drop(guard);
}

#[distributed_lock(key = "<user>:place", client = LOCKS, wait = "0s", blocking = true)]
#[distributed_lock(key = "<user>:place:second", client = LOCKS, guard = held)]
fn place(user: u64, outcome: Result<u32, Error>) -> Result<u32, Error> {
    assert!(held.is_valid());
    let number = outcome?;
    if number == 0 {
        return Ok(100);
    }
    Ok(number)
}

struct Shop {
    name: String,
    locks: Client,
}

impl Shop {
    #[distributed_lock(
        key = "<self.name>",
        client = self.locks,
        wait = "0s",
        on_timeout = value(Ok(vec![T::from(0)])),
        blocking = true
    )]
    fn items<T>(&self, items: &[T], one: T) -> Result<Vec<T>, Error>
    where
        T: Clone + From<u8>,
    {
        Ok([items, &[one]].concat())
    }
}

#[test]
fn a_function_that_is_not_async_runs_under_a_lock() {
    assert_eq!(place(1, Ok(3)).unwrap(), 3);
    assert_eq!(place(1, Ok(0)).unwrap(), 100);
    let held = LOCKS.rlock("1:place").lock().block_on().unwrap();
    assert!(place(1, Ok(3)).unwrap_err().is_contended());
    held.unlock().block_on().unwrap();
    let (name, locks) = (unique("shop"), LOCKS.clone());
    let held = locks.rlock(&name);
    let shop = Shop { name, locks };
    assert_eq!(shop.items(&[1_u32, 2], 3).unwrap(), [1, 2, 3]);
    let held = held.lock().block_on().unwrap();
    assert_eq!(shop.items(&[1_u32, 2], 3).unwrap(), [0]);
    held.unlock().block_on().unwrap();
}

/// The timers of a runtime panic once that begins to end, which does not end its blocking jobs.
#[test]
fn a_blocking_job_panicked_when_its_runtime_began_to_end() {
    let name = unique("ends");
    let held = LOCKS.rlock(&name).lock().block_on().unwrap();
    let waits = client(&shared_server().url());
    let lock = waits.rlock(&name);
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let job = runtime.spawn_blocking(move || {
        let guard = lock.lock().block_on().unwrap();
        guard.unlock().block_on().unwrap();
    });
    let until = Instant::now() + DEADLINE;
    while waits.stats().waiting == 0 {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
    // The job is what this waits for.
    runtime.shutdown_timeout(Duration::from_millis(500));
    held.unlock().block_on().unwrap();
    futures_executor::block_on(job).unwrap();
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What runs a future in an executor without Tokio.
const EXECUTORS: [fn(Work); 3] = [
    |work| smol::block_on(smol::spawn(work)),
    futures_executor::block_on,
    |work| work.block_on(),
];

#[test]
fn under_other_executors_tasks_take_turns_and_see_a_loss() {
    for execute in EXECUTORS {
        let name = unique("executor");
        execute(Box::pin(async move {
            let builder = Client::builder().url(&shared_server().url());
            let client = builder.dedicated_thread(true).connect().await.unwrap();
            let (lock, number) = (client.rlock(&name), AtomicUsize::new(0));
            let turns = (0..10).map(async |_| {
                let guard = lock.lock().await.unwrap();
                add_one(&number);
                guard.unlock().await.unwrap();
            });
            futures::future::join_all(turns).await;
            assert_eq!(number.into_inner(), 10);
            let options = LockOptions::new().renew(Duration::from_millis(10));
            let guard = lock.lock_with(options).await.unwrap();
            assert!(lock.force_unlock().await.unwrap());
            assert_eq!(guard.lost().await, LostReason::Deleted);
        }));
    }
}
