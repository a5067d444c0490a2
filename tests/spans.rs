//! The spans that a service gets for its traces, by a subscriber that collects them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_rt::{Client, ErrorKind, LockOptions, LostReason};
use tests::{DEADLINE, RedisServer, eventually, unique};
use tokio::sync::{Mutex as TurnMutex, MutexGuard};
use tokio::task::block_in_place;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// A span of the library.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(Id, Seen)>>>);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S> Layer<S> for Collector
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != "redlock_rt::span" {
            return;
        }
        let span = context.span(id).unwrap();
        let mut seen = Seen {
            name: attributes.metadata().name(),
            parent: span.parent().map(|parent| parent.name()),
            ..Seen::default()
        };
        attributes.record(&mut Fields(&mut seen.fields));
        self.0.lock().unwrap().push((id.clone(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |seen| values.record(&mut Fields(&mut seen.fields)));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.change(&id, |seen| seen.closed = true);
    }
}

impl Collector {
    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        let mut all = self.0.lock().unwrap();
        // An id is used again once its span is closed.
        let open = all.iter_mut().find(|(of, seen)| of == id && !seen.closed);
        if let Some((_, seen)) = open {
            change(seen);
        }
    }

    fn of(&self, name: &str) -> Vec<Seen> {
        let all = self.0.lock().unwrap();
        let named = all.iter().filter(|(_, seen)| seen.name == name);
        named.map(|(_, seen)| seen.clone()).collect()
    }

    #[track_caller]
    fn only(&self, name: &str) -> Seen {
        let mut all = self.of(name);
        assert_eq!(all.len(), 1, "{name}: {all:?}");
        all.remove(0)
    }

    fn take(&self) -> Vec<(Id, Seen)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Collects on this thread, on which all tasks of the test run. One test at a time: what a span's place in the
/// code knows of its subscribers is one for the process.
async fn collect(level: LevelFilter) -> (Collector, (DefaultGuard, MutexGuard<'static, ()>)) {
    static TURN: TurnMutex<()> = TurnMutex::const_new(());
    let turn = TURN.lock().await;
    let collector = Collector::default();
    let subscriber = Registry::default().with(collector.clone().with_filter(level));
    let guard = tracing::subscriber::set_default(subscriber);
    (collector, (guard, turn))
}

#[track_caller]
fn assert_fields(seen: &Seen, fields: &[(&str, &str)]) {
    let all = seen.fields.iter().map(|(name, value)| (*name, &**value));
    assert_eq!(all.collect::<Vec<_>>(), fields, "{seen:?}");
}

const FREE: [(&str, &str); 4] = [
    ("kind", "rlock"),
    ("lock", "orders"),
    ("otel.kind", "client"),
    ("outcome", "acquired"),
];

fn orders() -> LockOptions {
    LockOptions::new().label("orders")
}

#[tokio::test]
async fn a_lock_has_spans_for_the_call_to_redis_the_acquisition_and_the_hold() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let lock = client.rlock(unique("spans"));
    let guard = lock.lock_with(orders()).await.unwrap();
    let acquire = spans.only("redlock.acquire");
    assert_fields(&acquire, &FREE);
    assert!(acquire.closed && acquire.parent.is_none(), "{acquire:?}");
    let call = spans.only("redlock.call");
    assert_eq!(call.parent, Some("redlock.acquire"));
    let port = server.port().to_string();
    assert_fields(
        &call,
        &[
            ("db.operation.name", "rlock_acquire"),
            ("db.system.name", "redis"),
            ("otel.kind", "client"),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
        ],
    );
    assert!(call.closed);
    let held = spans.only("redlock.held");
    assert_eq!(held.parent, None, "it would keep the other one open");
    assert_fields(&held, &[("kind", "rlock"), ("lock", "orders")]);
    assert!(!held.closed);
    guard.unlock().await.unwrap();
    eventually(DEADLINE, async || spans.only("redlock.held").closed).await;
    assert_eq!(
        spans.of("redlock.call").len(),
        1,
        "an unlock is in no span here"
    );
}

#[tokio::test]
async fn a_lock_that_nobody_waited_for_any_more_did_not_say_so() {
    let client = Client::embedded();
    let lock = client.rlock(unique("spans"));
    let _held = lock.lock().await.unwrap();
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let other = lock.clone();
    let task = tokio::spawn(async move { other.lock().await.map(drop) });
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let cancelled = spans.of("redlock.acquire");
    assert_eq!(cancelled[0].fields["outcome"], "cancelled");
}

#[tokio::test]
async fn a_lock_that_was_not_to_be_had_says_why_and_whether_it_was_waited_for() {
    let client = Client::embedded();
    let lock = client.rlock(unique("spans"));
    let _held = lock.lock().await.unwrap();
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let other = lock.clone();
    let task = tokio::spawn(async move {
        let now = other
            .lock_with(orders().wait(Duration::ZERO))
            .await
            .unwrap_err();
        let brief = orders().wait(Duration::from_millis(20));
        let waited = other.lock_with(brief).await;
        (now.kind(), waited.unwrap_err().kind())
    });
    let kinds = (ErrorKind::Contended, ErrorKind::TimedOut);
    assert_eq!(task.await.unwrap(), kinds);
    let [now, waited] = &spans.of("redlock.acquire")[..] else {
        panic!("{:?}", spans.of("redlock.acquire"));
    };
    assert_eq!(now.fields["outcome"], "contended");
    assert_eq!(waited.fields["outcome"], "timed_out");
    assert_eq!(waited.fields["contended"], "true");
    for one in [now, waited] {
        assert!(!one.fields.contains_key("error.type"), "{one:?}");
    }
    assert!(spans.of("redlock.held").is_empty());
}

#[tokio::test]
async fn a_fault_is_an_error_of_the_call_and_of_the_acquisition() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let key = unique("spans");
    let _: () = server.ask(&["LPUSH", &key, "no lock"]).await;
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let error = client.rlock(&key).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType);
    let acquire = spans.only("redlock.acquire");
    assert_eq!(acquire.fields["error.type"], "wrong_type");
    let failed = spans.of("redlock.call");
    let failed = failed.last().unwrap();
    assert_eq!(failed.fields["error.type"], "wrong_type");
}

#[tokio::test]
async fn the_span_of_a_hold_says_why_it_was_lost() {
    let client = Client::embedded();
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let often = orders().renew(Duration::from_millis(20));
    let lock = client.rlock(unique("spans"));
    let guard = lock.lock_with(often).await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(guard.lost().await, LostReason::Deleted);
    let closed = async || spans.only("redlock.held").closed;
    eventually(DEADLINE, closed).await;
    let held = spans.only("redlock.held");
    assert_fields(
        &held,
        &[("kind", "rlock"), ("lock", "orders"), ("lost", "deleted")],
    );
}

#[tokio::test]
async fn names_with_values_are_in_spans_at_debug_only_and_nothing_is_made_below_info() {
    let client = Client::embedded();
    let lock = client.rlock("order:7");
    for (level, name) in [
        (LevelFilter::DEBUG, Some("order:7")),
        (LevelFilter::INFO, None),
    ] {
        let (spans, _guard) = collect(level).await;
        lock.lock().await.unwrap().unlock().await.unwrap();
        for span in ["redlock.acquire", "redlock.held"] {
            let seen = spans.only(span);
            assert_eq!(
                seen.fields.get("name").map(|name| &**name),
                name,
                "{seen:?}"
            );
        }
    }
    let (spans, _guard) = collect(LevelFilter::WARN).await;
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert!(spans.take().is_empty());
}

/// A call that was given up looked like one that was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_an_answer_is_an_error() {
    let server = RedisServer::start();
    let brief = Duration::from_millis(200);
    let builder = Client::builder().url(&server.url());
    let client = builder.response_timeout(brief).connect().await.unwrap();
    let lock = client.rlock(unique("spans"));
    block_in_place(|| server.pause());
    let (spans, _guard) = collect(LevelFilter::INFO).await;
    let now = LockOptions::new().wait(Duration::ZERO);
    let error = lock.lock_with(now).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let acquire = spans.only("redlock.acquire");
    assert!(acquire.fields.contains_key("error.type"), "{acquire:?}");
    let failed = async || {
        let calls = spans.of("redlock.call");
        let told = calls.first().and_then(|call| call.fields.get("error.type"));
        (told.map(|told| &**told) == Some("timed_out"))
            .then_some(())
            .ok_or_else(|| format!("{calls:?}"))
    };
    eventually(DEADLINE, failed).await;
    server.resume();
}

/// The span of a hold ended under mutexes of the client.
#[test]
fn a_subscriber_may_ask_the_client_as_the_span_of_a_hold_ends() {
    struct Asks(Client);
    impl<S: tracing::Subscriber> Layer<S> for Asks {
        fn on_close(&self, _: Id, _: Context<'_, S>) {
            let _ = self.0.stats();
        }
    }
    let (ended, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::embedded();
            let (spans, _guard) = collect(LevelFilter::INFO).await;
            let asks = Registry::default()
                .with(spans.clone())
                .with(Asks(client.clone()));
            let _asks = tracing::subscriber::set_default(asks);
            let guard = client.rlock("asked").lock().await.unwrap();
            guard.unlock().await.unwrap();
            eventually(DEADLINE, async || spans.only("redlock.held").closed).await;
            ended.send(()).unwrap();
        });
    });
    told.recv_timeout(2 * DEADLINE)
        .expect("it does not wait for itself");
}
