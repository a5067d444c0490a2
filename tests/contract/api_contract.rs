//! The promises of the public types: `Send`, `Sync`, `'static`, `Debug`, futures that can be spawned,
//! errors that can be passed on.
//!
//! Most of this fails at compile time.

use std::{
    collections::BTreeSet,
    error::Error as StdError,
    fmt::{Debug, Display},
    future::Future,
    hash::Hash,
    io,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use redlock_rt::{
    Answer, Arrival, Backoff, Client, ClientBuilder, ClientConfig, CountDownLatch, Credentials,
    CyclicBarrier, DoubleBarrier, Error, ErrorKind, FencedValue, Fsync, GuardState, HoldId,
    Idempotent, Leader, LeaderElection, LockOptions, LostReason, MultiLock, Once, Owner, Part,
    PermitExpirableSemaphore, PermitOptions, Quorum, RLock, RLockGuard, ReadWriteLock, RedLock,
    Reentrant, Renew, ReplicaAck, Replicas, Reply, Semaphore, Shutdown, Stats, Unlocked, embedded,
};
use tests::{LeakCheck, ask, connection_over, told, unique};
use tokio::{io::AsyncWriteExt, task::yield_now};

fn shared<T: Send + Sync + Unpin + 'static>() {}
fn shown<T: Debug>() {}
fn failed<T: StdError>() {}
fn cloned<T: Clone>() {}
fn compared<T: PartialEq>() {}
fn keyed<T: Eq + Hash>() {}

macro_rules! all {
    ($check:ident: $($type:ty),+ $(,)?) => {
        $($check::<$type>();)+
    };
}

/// Names every public type, and checks the promises of all of them.
macro_rules! public_types {
    ($($module:ident: $($name:ident $(<$of:tt>)?),+;)+) => {
        const PUBLIC_TYPES: &[&str] = &[$($(stringify!($name)),+),+];

        #[test]
        fn public_types_are_shared_and_shown() {
            $($(
                shared::<$module::$name $(<$of>)?>();
                shown::<$module::$name $(<$of>)?>();
            )+)+
        }
    };
}

public_types! {
    redlock_rt: AclKind, Answer, Arrival, Backoff, Client, ClientBuilder, ClientConfig, ConvertError<Reentrant>, CountDownGuard,
        CyclicBarrier, DoubleBarrier, DoubleBarrierGuard,
        CountDownLatch, Credentials, DowngradeError, Error, ErrorKind, Event, Events, Fair, FairLock, FairLockGuard, FenceGate,
        Fenced, FencedLock, FencedLockGuard, FencedValue, Fire, FireGuard, Fires, FoundKind, Fsync, GuardState, Health, HoldId, Holding, Idempotent, ClientIdentity, Inspection, LateLoss, Leader, LeaderElection, Leadership,
        LeasedPermit, Lock<Reentrant>, LockEvent, LockGuard<Reentrant>, LockOptions, LostReason, MultiLock,
        MultiLockGuard, OnLost<'static>, Once, Owner, Part, PermitExpirableSemaphore, PermitOptions, Quorum, RLock,
        RLockGuard, Read, ReadGuard, ReadLock, ReadWriteLock, RedLock, RedLockGuard, Reentrant,
        Renew, ReplicaAck, Replicas, Reply, RetryPolicy, Semaphore, SemaphorePermit, ServerEvent, ServerHealth, Shutdown, Spin, SpinLock, SpinLockGuard,
        StaleToken, Stats, Theft, Ticket, Unlocked, UpgradeError, Write, WriteGuard, WriteLock;
    embedded: Engine, Listener, Session;
}

/// Implemented by this crate alone.
const PUBLIC_TRAITS: [&str; 2] = ["Adoptable", "Kind"];

/// The public types and traits at the outermost level of a source file.
fn public_names(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut rest = source;
    while let Some(at) = rest.find("\npub ") {
        rest = &rest[at + "\npub ".len()..];
        let end = rest.find([';', '(', '<']).unwrap_or(rest.len());
        let item = match rest.split_once(' ') {
            Some(("use", _)) => &rest["use ".len()..end],
            Some(("struct" | "enum" | "trait" | "type", name)) => {
                let end = name.find(|c: char| !c.is_alphanumeric());
                &name[..end.unwrap_or(name.len())]
            }
            _ => continue,
        };
        let words = item.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        names.extend(words.filter(|word| word.starts_with(char::is_uppercase)));
    }
    names
}

#[test]
fn public_names_are_read_from_a_source_file() {
    let source = "\nmod a;\npub use a::{\n    One,\n    two, Three,\n};\npub use a::Four;\n\
        pub struct Five {\n    pub six: Seven,\n}\npub fn eight(nine: Ten) {}\npub enum Eleven {\n";
    let expected = ["One", "Three", "Four", "Five", "Eleven"];
    assert_eq!(public_names(source), BTreeSet::from(expected));
}

/// A new, removed or renamed type is a change for users.
#[test]
fn the_list_of_public_types_is_complete() {
    let sources = [
        include_str!("../../redlock-rt/src/lib.rs"),
        include_str!("../../redlock-embedded/src/lib.rs"),
    ];
    let public: BTreeSet<_> = sources.into_iter().flat_map(public_names).collect();
    let listed = PUBLIC_TYPES.iter().chain(&PUBLIC_TRAITS).copied();
    assert_eq!(public, listed.collect());
}

#[test]
fn values_are_cloned_and_compared() {
    all!(
        cloned: Client, ClientBuilder, ClientConfig, Stats, Shutdown, RLock, LockOptions, PermitOptions, Owner,
        HoldId, Renew, GuardState, LostReason, Unlocked, ErrorKind, Fsync, ReplicaAck, Replicas, Credentials, embedded::Engine,
        ReadWriteLock, MultiLock, Part, Quorum, RedLock, CountDownLatch, Semaphore,
        PermitExpirableSemaphore, FencedValue, Backoff, Once, Idempotent, Answer, LeaderElection, Leader,
        CyclicBarrier, DoubleBarrier, Arrival,
    );
    all!(
        compared: Stats, Shutdown, HoldId, Renew, Fsync, ReplicaAck, Replicas, GuardState, LostReason, Unlocked, ErrorKind, Reply,
        Arrival,
    );
    all!(keyed: HoldId);
    all!(failed: Error, redlock_rt::StaleToken);
}

/// The future is `Send`; dropped unpolled, it has done nothing.
fn sent<F: Future + Send>(future: F) {
    drop(future);
}

/// A branch of `select!` may make the handle in its place.
fn owned<F: Future + Send + 'static>(future: F) {
    sent(future);
}

#[tokio::test]
async fn futures_are_send() {
    let client = Client::embedded();
    owned(client.rlock("a").lock_owned(LockOptions::new()));
    owned(client.fair_lock("a").lock_owned(LockOptions::new()));
    sent(client.idempotent("a").run(async { Ok::<_, Error>(vec![]) }));
    sent(client.once("a", std::time::UNIX_EPOCH).start());
    let latch = client.count_down_latch("a");
    sent(latch.try_set_count(1));
    sent(latch.count_down());
    sent(latch.wait());
    sent(latch.wait_with(Duration::from_secs(1)));
    sent(latch.count());
    sent(latch.delete());
    // Dropping it does not count down either.
    sent(latch.count_down_guard().unwrap().count_down());
    let barrier = client.cyclic_barrier("a", 1);
    sent(barrier.wait());
    sent(barrier.reset());
    let double = client.double_barrier("a", 1);
    sent(double.enter());
    let inside = double.enter().await.unwrap();
    sent(inside.broken());
    sent(inside.leave());
    let lock = client.rlock("a");
    sent(Client::connect("redis://127.0.0.1:1"));
    sent(Client::builder().connect());
    sent(client.shutdown(Shutdown::Abandon));
    sent(lock.lock());
    sent(lock.try_lock());
    sent(lock.lock_with(LockOptions::new().owner(&Owner::new())));
    sent(lock.with(async |_| yield_now().await));
    sent(lock.force_unlock());
    sent(lock.is_locked());
    sent(lock.holder());
    sent(lock.hold_count());
    sent(lock.remaining_ttl());
    let guard = lock.lock().await.unwrap();
    sent(guard.lost());
    sent(guard.extend(Duration::from_secs(1)));
    sent(guard.reenter());
    sent(guard.run(async { yield_now().await }));
    sent(guard.unlock());
}

#[tokio::test]
async fn futures_of_a_read_write_lock_are_send() {
    let lock = Client::embedded().read_write_lock("a");
    sent(lock.read());
    sent(lock.try_read());
    sent(lock.read_with(LockOptions::new()));
    sent(lock.with_read(async |_| yield_now().await));
    sent(lock.write());
    sent(lock.try_write());
    sent(lock.write_with(LockOptions::new()));
    sent(lock.with_write(async |_| yield_now().await));
    sent(lock.read().await.unwrap().try_upgrade());
    sent(lock.write().await.unwrap().downgrade());
    let refused = {
        let (one, _other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        one.try_upgrade().await.unwrap_err()
    };
    // As any error, with the guard in it.
    let boxed: Box<dyn StdError + Send + Sync> = Box::new(refused);
    assert!(boxed.to_string().contains("upgrade read lock"), "{boxed}");
}

#[tokio::test]
async fn futures_of_locks_made_of_several_are_send() {
    let client = Client::embedded();
    let lock = client.multi_lock(["a", "b"]);
    sent(lock.lock());
    sent(lock.try_lock());
    sent(lock.lock_with(LockOptions::new().owner(&Owner::new())));
    sent(lock.with(async |_| yield_now().await));
    sent(lock.force_unlock());
    sent(lock.is_locked());
    sent(lock.holders());
    sent(lock.remaining_ttl());
    let guard = lock.lock().await.unwrap();
    sent(guard.lost());
    sent(guard.extend(Duration::from_secs(1)));
    sent(guard.run(async { yield_now().await }));
    sent(guard.unlock());

    let lock = Quorum::new([client]).unwrap().redlock("c");
    sent(lock.lock());
    sent(lock.try_lock());
    sent(lock.lock_with(LockOptions::new().owner(&Owner::new())));
    sent(lock.with(async |_| yield_now().await));
    sent(lock.force_unlock());
    sent(lock.is_locked());
    sent(lock.holder());
    sent(lock.holders());
    sent(lock.hold_count());
    sent(lock.remaining_ttl());
    let guard = lock.lock().await.unwrap();
    sent(guard.lost());
    sent(guard.extend(Duration::from_secs(1)));
    sent(guard.run(async { yield_now().await }));
    sent(guard.unlock());
}

/// A lock in a test; its holder is checked at the end.
struct Fixture {
    client: Client,
    name: String,
    leaks: LeakCheck,
}

impl Fixture {
    async fn new(what: &str) -> Self {
        let engine = embedded::Engine::new();
        let client = Client::builder().embedded(&engine).build().unwrap();
        let name = unique(what);
        let connection = connection_over(engine.connect()).await.unwrap();
        let leaks = LeakCheck::over(connection, &name).client(&client);
        Self {
            client,
            name,
            leaks,
        }
    }

    fn lock(&self) -> RLock {
        self.client.rlock(&self.name)
    }
}

async fn body(guard: &RLockGuard) -> u32 {
    yield_now().await;
    guard.hold_count()
}

fn boxed(guard: &RLockGuard) -> Pin<Box<dyn Future<Output = u32> + Send + '_>> {
    Box::pin(body(guard))
}

#[tokio::test]
async fn with_can_be_spawned_whatever_its_body_is() {
    let fixture = Fixture::new("spawn").await;
    let lock = fixture.lock();
    let spawned = {
        let lock = lock.clone();
        tokio::spawn(async move {
            let mut changed = String::from("a body");
            let borrowed = [1, 2, 3];
            let nested = async |outer: &RLockGuard| {
                yield_now().await;
                changed.push_str(" that borrows");
                let inner = outer.reenter().await?;
                let count = inner.run(async { lock.with(body).await }).await??;
                inner.unlock().await?;
                Ok::<_, Error>(count as usize + borrowed.len() + outer.name().len())
            };
            let sum = lock.with(nested).await??;
            Ok::<_, Error>((changed, sum))
        })
    };
    let (changed, sum) = spawned.await.unwrap().unwrap();
    assert_eq!(changed, "a body that borrows");
    assert_eq!(sum, 3 + 3 + fixture.name.len());

    let lock_too = lock.clone();
    let function = tokio::spawn(async move { lock_too.with(body).await });
    assert_eq!(function.await.unwrap().unwrap(), 1);
    let lock_too = lock.clone();
    let function = tokio::spawn(async move { lock_too.with(boxed).await });
    assert_eq!(function.await.unwrap().unwrap(), 1);
    let lock_too = Arc::new(lock);
    let moved =
        tokio::spawn(async move { lock_too.with(async move |guard| body(guard).await).await });
    assert_eq!(moved.await.unwrap().unwrap(), 1);
    fixture.leaks.assert_clean().await;
}

trait Shop {
    fn order(&self, user: u64) -> impl Future<Output = Result<u64, Error>> + Send;

    fn refund(&self, user: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + '_>>;
}

struct Locked(RLock);

impl Shop for Locked {
    async fn order(&self, user: u64) -> Result<u64, Error> {
        let sold = async |guard: &RLockGuard| user + u64::from(body(guard).await);
        self.0.with(sold).await
    }

    fn refund(&self, user: u64) -> Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + '_>> {
        let paid = async move |guard: &RLockGuard| user - u64::from(body(guard).await);
        Box::pin(async move { self.0.with(paid).await })
    }
}

#[tokio::test]
async fn with_serves_methods_that_promise_send() {
    async fn serve<S: Shop + Sync + 'static>(shop: &'static S) -> Result<u64, Error> {
        let order = tokio::spawn(async { shop.order(7).await });
        let sold = order.await.unwrap()?;
        tokio::spawn(shop.refund(sold)).await.unwrap()
    }
    let fixture = Fixture::new("trait").await;
    // A spawned task can only borrow for `'static`.
    let shop: &'static Locked = Box::leak(Box::new(Locked(fixture.lock())));
    assert_eq!(serve(shop).await.unwrap(), 7);
    fixture.leaks.assert_clean().await;
}

/// A generic body: its future has a name, so a bound can require `Send`.
#[allow(clippy::manual_async_fn, reason = "an async function promises no Send")]
fn generic<F>(lock: RLock, body: F) -> impl Future<Output = Result<F::Output, Error>> + Send
where
    F: Future<Output: Send> + Send,
{
    async move {
        let guard = lock.lock().await?;
        let output = guard.run(body).await?;
        guard.unlock().await?;
        Ok(output)
    }
}

#[tokio::test]
async fn run_serves_generic_bodies_that_are_spawned() {
    let fixture = Fixture::new("generic").await;
    let call = generic(fixture.lock(), async {
        yield_now().await;
        7
    });
    assert_eq!(tokio::spawn(call).await.unwrap().unwrap(), 7);
    fixture.leaks.assert_clean().await;
}

/// On one thread a body need not be `Send`.
#[tokio::test]
async fn bodies_may_be_local() {
    let fixture = Fixture::new("local").await;
    let lock = fixture.lock();
    let local = std::rc::Rc::new(7);
    let body = async |_: &_| {
        let held = std::rc::Rc::clone(&local);
        yield_now().await;
        *held
    };
    assert_eq!(lock.with(body).await.unwrap(), 7);
    fixture.leaks.assert_clean().await;
}

/// An async function stores its arguments, and again the future that it awaits. Nested bodies once
/// grew eightfold with each level, and overflowed the stack at the third.
#[tokio::test]
async fn nested_bodies_do_not_multiply_the_size_of_futures() {
    let client = Client::embedded();
    let (a, b, c) = (client.rlock("a"), client.rlock("b"), client.rlock("c"));
    let waiting = size_of_val(&a.lock());
    // With the numbers of the feature `metrics`, which are 24 of these.
    assert!(waiting <= 832, "a waiting task takes {waiting} bytes");
    let nested = a.with(async |_| {
        let nested = b.with(async |_| c.with(async |_| yield_now().await).await);
        nested.await.unwrap().unwrap();
    });
    let size = size_of_val(&nested);
    assert!(size < 2 * waiting, "{size} bytes");
    let large = [0_u8; 4096];
    let run = async move {
        yield_now().await;
        large.len()
    };
    let guard = a.lock().await.unwrap();
    let run = guard.run(run);
    let size = size_of_val(&run);
    assert!(size <= 896, "{size} bytes");
    assert_eq!(run.await.unwrap(), 4096);
}

#[tokio::test]
async fn errors_pass_as_errors_do() {
    fn is_error<E: StdError + Send + Sync + Unpin + 'static>(
        error: E,
    ) -> Box<dyn StdError + Send + Sync> {
        error.into()
    }
    async fn question_mark(lock: &RLock) -> Result<(), Box<dyn StdError + Send + Sync>> {
        drop(lock.lock().await?);
        Ok(())
    }
    let client = Client::embedded();
    let error = question_mark(&client.rlock("")).await.unwrap_err();
    let error = error.downcast::<Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::BadInput);
    let error = io::Error::other(is_error(*error));
    assert!(error.get_ref().unwrap().is::<Error>());

    // The cause is kept, and is an error itself.
    let error = Client::connect("redis://127.0.0.1:1").await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(error.source().unwrap().is::<io::Error>(), "{error:?}");
}

/// The message of an error: one line, with the action and the lock.
#[track_caller]
fn assert_tells(error: &Error, kind: ErrorKind, name: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert_eq!(error.name(), Some(name), "{text}");
    assert!(text.contains(&format!("{name:?}")), "{text}");
    // The text of a cause may end in any way.
    let ends_well = error.source().is_some() || !text.ends_with('.');
    assert!(ends_well && !text.contains('\n'), "{text}");
    assert!(text.starts_with(char::is_lowercase), "{text}");
    assert!(
        format!("{error:?}").contains(&format!("{name:?}")),
        "{error:?}"
    );
}

#[tokio::test]
async fn messages_name_the_lock() {
    let engine = embedded::Engine::new();
    let builder = Client::builder().embedded(&engine).namespace("svc");
    let client = builder.build().unwrap();
    let lock = client.rlock("order:7");
    let name = "svc:order:7";
    let guard = lock.lock().await.unwrap();
    let wait = |wait| lock.lock_with(LockOptions::new().wait(wait));

    let error = wait(Duration::ZERO).await.unwrap_err();
    assert_tells(&error, ErrorKind::Contended, name);
    let error = wait(Duration::from_millis(5)).await.unwrap_err();
    assert_tells(&error, ErrorKind::TimedOut, name);

    let none = LockOptions::new().lease(Duration::ZERO);
    let error = lock.lock_with(none).await.unwrap_err();
    assert_tells(&error, ErrorKind::BadInput, name);
    let error = guard.extend(Duration::MAX).await.unwrap_err();
    assert_tells(&error, ErrorKind::BadInput, name);

    assert!(lock.force_unlock().await.unwrap());
    assert_tells(&guard.reenter().await.unwrap_err(), ErrorKind::Lost, name);
    let error = guard.extend(Duration::from_secs(1)).await.unwrap_err();
    assert_tells(&error, ErrorKind::Lost, name);
    let error = guard.run(async {}).await.unwrap_err();
    assert_tells(&error, ErrorKind::Lost, name);

    let redis = connection_over(engine.connect()).await.unwrap();
    ask::<()>(&redis, &["SET", name, "data"]).await;
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
    ] {
        assert_tells(&error, ErrorKind::WrongType, name);
    }

    client.shutdown(Shutdown::Abandon).await.unwrap();
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
    ] {
        assert_tells(&error, ErrorKind::ShutDown, name);
    }

    // The answer comes before any request.
    let web = Client::builder().connector(async || {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n").await?;
        tokio::spawn(async move { tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await });
        Ok(ours)
    });
    let error = web.build().unwrap().rlock(name).lock().await.unwrap_err();
    assert_tells(&error, ErrorKind::Misconfigured, name);
    assert!(error.is_misconfigured());

    let refusing = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let lock = refusing.rlock("order:7");
    // Long enough for the refusal, on a busy machine too.
    let options = LockOptions::new().wait(Duration::from_millis(500));
    let error = lock.lock_with(options).await.unwrap_err();
    assert_tells(&error, ErrorKind::Unavailable, "order:7");
}

#[tokio::test]
async fn messages_show_the_start_of_a_bad_name() {
    let client = Client::embedded();
    for (bad, shown) in [
        (String::new(), String::new()),
        ("a\0b".to_owned(), "a\0b".to_owned()),
        ("é".repeat(600), format!("{}…", "é".repeat(40))),
    ] {
        let error = client.rlock(&bad).lock().await.unwrap_err();
        assert_tells(&error, ErrorKind::BadInput, &shown);
        let error = client.rlock(&bad).is_locked().await.unwrap_err();
        assert_tells(&error, ErrorKind::BadInput, &shown);
    }
}

#[tokio::test]
async fn secrets_are_not_shown() {
    const SECRET: &str = "hunter2";
    let urls = [
        format!("redis://user:{SECRET}@127.0.0.1:1/0"),
        format!("redis+unix:///nowhere?user=u&pass={SECRET}"),
        format!("redis://:{SECRET}@127.0.0.1:99999"),
        format!("http://:{SECRET}@127.0.0.1"),
    ];
    let hidden = |text: &dyn Display| {
        let text = text.to_string();
        assert!(!text.contains(SECRET), "{text}");
    };
    for url in &urls {
        let builder = Client::builder().url(url);
        hidden(&format!("{builder:?} {builder:#?}"));
        if let Ok(client) = builder.build() {
            hidden(&format!("{client:?} {:?}", client.rlock("a")));
        }
        let error = Client::connect(url).await.unwrap_err();
        hidden(&format!("{error} {error:?} {:?}", error.source()));
    }
    // The address is shown, so that users find a mistake in it.
    let builder = Client::builder().url(&urls[0]);
    assert!(format!("{builder:?}").contains("127.0.0.1"), "{builder:?}");
}

#[tokio::test]
async fn what_is_printed_of_a_handle_or_a_guard_says_which_lock_it_is() {
    let client = Client::embedded();
    let names = |value: &dyn Debug| {
        let text = format!("{value:?}");
        assert!(text.contains("order:7"), "{text}");
    };
    let (name, both) = ("order:7", client.read_write_lock("order:7:both"));
    let quorum = Quorum::new([Client::embedded()]).unwrap();
    names(&client.rlock(name));
    names(&client.fair_lock(name));
    names(&client.fenced_lock(name));
    names(&client.spin_lock(name));
    names(&client.fenced_value(name));
    names(&client.count_down_latch(name));
    names(&client.cyclic_barrier(name, 1));
    names(&client.double_barrier(name, 1));
    names(&client.double_barrier(name, 1).enter().await.unwrap());
    names(&both);
    names(&both.read_lock());
    names(&client.multi_lock([name]));
    names(&quorum.redlock(name));
    names(&client.rlock(name).lock().await.unwrap());
    names(&both.write().await.unwrap());
    names(&client.multi_lock(["order:71"]).lock().await.unwrap());
    names(&quorum.redlock(name).lock().await.unwrap());

    let permits = client.semaphore("order:7:permits");
    names(&permits);
    permits.try_set_permits(1).await.unwrap();
    names(&permits.acquire().await.unwrap());
    let leases = client.permit_expirable_semaphore("order:7:leases");
    names(&leases);
    leases.try_set_permits(1).await.unwrap();
    names(&leases.acquire().await.unwrap());
}

/// An unlocked lock was once called free while nobody could acquire it.
#[tokio::test(start_paused = true)]
async fn an_unlock_under_min_hold_does_not_say_released_while_the_lock_is_locked() {
    const LEAST: Duration = Duration::from_secs(60);
    let client = Client::embedded();
    let options = || LockOptions::new().min_hold(LEAST);
    macro_rules! kept {
        ($($lock:expr),+ $(,)?) => {
            $(let lock = $lock;
            let begin = tokio::time::Instant::now().into_std();
            let guard = lock.lock_with(options()).await.unwrap();
            let (owner, inner) = (guard.hold_id().clone(), guard.reenter().await.unwrap());
            assert_eq!(inner.unlock().await.unwrap(), Unlocked::StillHeld);
            let Unlocked::Kept { until } = guard.unlock().await.unwrap() else {
                panic!("{lock:?} is not free");
            };
            let late = Duration::from_millis(100);
            assert!(until >= begin + LEAST && until <= begin + LEAST + late);
            // The answer for all callers meanwhile.
            assert!(lock.is_locked().await.unwrap(), "{lock:?}");
            assert_eq!(lock.holder().await.unwrap(), Some(owner.clone()));
            assert_eq!(lock.holders().await.unwrap(), [owner]);
            assert_eq!(lock.hold_count().await.unwrap(), 0, "nobody holds it");
            assert!(lock.remaining_ttl().await.unwrap().unwrap() > LEAST - late);
            assert!(lock.try_lock().await.unwrap().is_none());
            tokio::time::sleep_until((until + late).into()).await;
            assert!(!lock.is_locked().await.unwrap());
            assert_eq!(lock.holder().await.unwrap(), None);

            let guard = lock.lock_with(options()).await.unwrap();
            tokio::time::sleep(LEAST).await;
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            assert!(!lock.is_locked().await.unwrap());

            let guard = lock.lock_with(options()).await.unwrap();
            assert!(matches!(guard.unlock().await.unwrap(), Unlocked::Kept { .. }));
            assert!(lock.force_unlock().await.unwrap(), "the way to free it before");
            assert!(lock.try_lock().await.unwrap().is_some());)+
        };
    }
    kept!(
        client.rlock("a"),
        client.fair_lock("b"),
        client.fenced_lock("c"),
        client.spin_lock("d"),
        client.read_write_lock("e").write_lock(),
    );

    // Several locks are locked until the last of them is free.
    let owner = Owner::new();
    let several = client.multi_lock(["f", "g"]);
    let options = || LockOptions::new().owner(&owner);
    let first = client.rlock("f");
    let outer = first.lock_with(options().min_hold(2 * LEAST));
    let outer = outer.await.unwrap();
    let guard = several.lock_with(options().min_hold(LEAST)).await.unwrap();
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::StillHeld);
    let begin = tokio::time::Instant::now().into_std();
    match guard.unlock().await.unwrap() {
        Unlocked::Kept { until } => assert!(until > begin + LEAST, "{:?}", until - begin),
        other => panic!("{other:?}"),
    }

    // A write lock that becomes a read lock admits readers.
    let lock = client.read_write_lock("h");
    let writing = lock.write_with(LockOptions::new().min_hold(LEAST)).await;
    let reading = writing.unwrap().downgrade().await.unwrap();
    assert!(!lock.write_lock().is_locked().await.unwrap());
    assert!(lock.try_read().await.unwrap().is_some());
    assert_eq!(reading.unlock().await.unwrap(), Unlocked::Released);
    assert!(lock.try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_was_tried_and_nothing_twice() {
    const WAIT: Duration = Duration::from_millis(5);
    let client = Client::embedded();
    let lock = client.rlock("a");
    let guard = lock.lock().await.unwrap();
    let with = |wait| lock.lock_with(LockOptions::new().wait(wait));
    let error = with(Duration::ZERO).await.unwrap_err();
    assert_eq!(told(&error), "acquire lock \"a\": held by another owner");
    let error = with(WAIT).await.unwrap_err();
    let text = "acquire lock \"a\": timed out while held by another owner: waited 5ms";
    assert_eq!(told(&error), text);

    let options = |wait| PermitOptions::new().wait(wait);
    let semaphore = client.semaphore("s");
    let error = semaphore.acquire_with(options(WAIT)).await.unwrap_err();
    let text =
        "acquire permits of semaphore \"s\": timed out; the permits were never set: waited 5ms";
    assert_eq!(told(&error), text);
    let leased = client.permit_expirable_semaphore("p");
    let error = leased.acquire_with(options(WAIT)).await.unwrap_err();
    assert_eq!(told(&error), text.replace("\"s\"", "\"p\""));
    semaphore.try_set_permits(0).await.unwrap();
    leased.try_set_permits(0).await.unwrap();
    let error = semaphore.acquire_with(options(WAIT)).await.unwrap_err();
    let text =
        "acquire permits of semaphore \"s\": timed out while too few permits were free: waited 5ms";
    assert_eq!(told(&error), text);
    let error = leased.acquire_with(options(WAIT)).await.unwrap_err();
    assert_eq!(told(&error), text.replace("\"s\"", "\"p\""));
    let error = semaphore
        .acquire_with(options(Duration::ZERO))
        .await
        .unwrap_err();
    let text = "acquire permits of semaphore \"s\": too few permits are free";
    assert_eq!(told(&error), text);

    client.fenced_value("v").set("a string", 1).await.unwrap();
    let error = client.rlock("v").try_lock().await.unwrap_err();
    let text = "acquire lock \"v\": the key holds another type of value";
    assert_eq!(error.to_string(), text);
    assert!(
        told(&error).starts_with(&format!("{text} <- WRONGTYPE ")),
        "{}",
        told(&error)
    );

    let latch = client.count_down_latch("l");
    latch.try_set_count(1).await.unwrap();
    latch.delete().await.unwrap();
    let error = latch.wait().await.unwrap_err();
    assert_eq!(told(&error), "wait for latch \"l\": the latch was deleted");
    let error = client.rlock("").lock().await.unwrap_err();
    assert_eq!(
        told(&error),
        "name a lock \"\": bad input: the name is empty or blank"
    );

    assert!(lock.force_unlock().await.unwrap());
    let error = guard.extend(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(
        told(&error),
        "extend lock \"a\": lost: the key is gone from redis"
    );
    assert_eq!(error.lost_reason(), Some(LostReason::Deleted));
    drop(guard);

    let refusing = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let error = refusing.rlock("a").is_locked().await.unwrap_err();
    let text = told(&error);
    assert_eq!(text.matches("refused").count(), 1, "{text}");
}

/// Once, only the task that had asked Redis got this error.
#[tokio::test(start_paused = true)]
async fn waiters_behind_the_head_heard_of_too_few_permits_where_none_were_set() {
    const WAIT: Duration = Duration::from_secs(5);
    let client = Client::embedded();
    let semaphore = client.semaphore("s");
    let leased = client.permit_expirable_semaphore("p");
    let options = |wait| PermitOptions::new().wait(wait);
    let unset = |name, how| format!("acquire permits of semaphore \"{name}\": {how}");
    let now = "the permits were never set";
    let error = semaphore
        .acquire_with(options(Duration::ZERO))
        .await
        .unwrap_err();
    assert_eq!(told(&error), unset("s", now));
    let error = leased.acquire_with(options(Duration::ZERO)).await;
    assert_eq!(told(&error.unwrap_err()), unset("p", now));

    let heads = [
        tokio::spawn({
            let semaphore = semaphore.clone();
            async move { drop(semaphore.acquire().await.unwrap()) }
        }),
        tokio::spawn({
            let leased = leased.clone();
            async move { drop(leased.acquire().await.unwrap()) }
        }),
    ];
    while client.stats().waiting < heads.len() {
        yield_now().await;
    }
    let later = "timed out; the permits were never set: waited 5s";
    let error = semaphore.acquire_with(options(WAIT)).await.unwrap_err();
    assert_eq!(told(&error), unset("s", later));
    let error = leased.acquire_with(options(WAIT)).await.unwrap_err();
    assert_eq!(told(&error), unset("p", later));

    // The number is set meanwhile, and another client has the permits.
    assert!(semaphore.try_set_permits(0).await.unwrap());
    let error = semaphore.acquire_with(options(WAIT)).await.unwrap_err();
    let later = "timed out while too few permits were free: waited 5s";
    assert_eq!(told(&error), unset("s", later));
    for head in heads {
        head.abort();
    }
}

/// Once, the error was `Lost`, so callers could not tell that no other client had taken the permit.
#[tokio::test]
async fn a_body_that_the_shut_down_ends_is_shut_down() {
    let client = Client::embedded();
    let several = client.multi_lock(["b", "c"]).lock().await.unwrap();
    let guard = client.rlock("a").lock().await.unwrap();
    let ends = async {
        yield_now().await;
        client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    };
    let body = guard.run(std::future::pending::<()>());
    let bodies = several.run(std::future::pending::<()>());
    let (one, all, ()) = tokio::join!(body, bodies, ends);
    for error in [one.unwrap_err(), all.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::ShutDown, "{error}");
        assert_eq!(error.lost_reason(), Some(LostReason::ShutDown));
        let says = "the client is shut down: the body was dropped, its outcome is unknown";
        assert!(error.to_string().ends_with(says), "{error}");
    }
}

/// Once, nothing reported that the number was never set.
#[tokio::test(start_paused = true)]
async fn an_unbounded_wait_for_permits_that_were_never_set_is_logged_once() {
    #[derive(Clone, Default)]
    struct Log(Arc<std::sync::Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _lines = tracing::subscriber::set_default(lines);
    let client = Client::embedded();
    let semaphore = client.semaphore("printers");
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap().release().await.unwrap() }
    });
    // The waiter asks every one to two seconds.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let warned = text.lines().filter(|line| line.contains("never set"));
    let warned: Vec<_> = warned.collect();
    assert_eq!(warned.len(), 1, "{text}");
    assert!(warned[0].contains(" WARN "), "{text}");
    assert!(warned[0].contains("redlock_rt::semaphore: "), "{text}");
    assert!(warned[0].contains("printers"), "{text}");
    assert!(semaphore.try_set_permits(1).await.unwrap());
    assert_eq!(waiter.await.unwrap(), Unlocked::Released);
}
