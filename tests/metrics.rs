//! What a service learns of its locks by the `metrics` facade, through the exporter of Prometheus.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlock_rt::{
    Client, Error, ErrorKind, GuardState, LockOptions, PermitOptions, Shutdown, distributed_lock,
};
use tests::{DEADLINE, RedisServer, eventually, trace_init, unique};
use tokio::sync::RwLock;
use tokio::task::{block_in_place, yield_now};

/// One recorder for the process: each test has labels of its own.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        trace_init();
        PrometheusBuilder::new()
            .install_recorder()
            .expect("there is no other")
    })
}

/// For tests that read numbers of the process: no other test runs beside them.
static TURNS: RwLock<()> = RwLock::const_new(());

async fn shared() -> impl Sized {
    recorder();
    TURNS.read().await
}

async fn alone() -> impl Sized {
    let turn = TURNS.write().await;
    recorder();
    turn
}

/// The value of a series without labels, or with this one; zero, if there is none.
fn of_process(name: &str, labels: &[(&str, &str)]) -> f64 {
    value(name, labels).unwrap_or(0.0)
}

/// The value of the only series with this name and these labels; `None`: there is none.
fn value(name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let page = recorder().render();
    let labels = labels
        .iter()
        .map(|(key, value)| format!("{key}=\"{value}\""));
    let labels: Vec<String> = labels.collect();
    let mut lines = page.lines().filter(|line| {
        let named = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '));
        named && labels.iter().all(|label| line.contains(label))
    });
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{name} {labels:?}");
    line.rsplit(' ').next()?.parse().ok()
}

fn of(name: &str, label: &str) -> Option<f64> {
    value(name, &[("lock", label)])
}

fn outcomes(label: &str, outcome: &str) -> f64 {
    let labels = [("lock", label), ("outcome", outcome)];
    value("redlock_acquisitions_total", &labels).unwrap_or(0.0)
}

fn losses(label: &str, reason: &str) -> f64 {
    let labels = [("lock", label), ("reason", reason)];
    value("redlock_losses_total", &labels).unwrap_or(0.0)
}

/// Waits until nobody has or wants what has this label.
async fn at_rest(label: &str) {
    eventually(DEADLINE, async || {
        let gauges = ["redlock_held", "redlock_waiting"].map(|name| of(name, label));
        match gauges {
            [Some(0.0), Some(0.0)] => Ok(()),
            gauges => Err(format!("{gauges:?}")),
        }
    })
    .await;
}

fn labelled(label: &str) -> LockOptions {
    LockOptions::new().label(label)
}

#[tokio::test]
async fn a_lock_is_counted_while_it_is_held_and_timed_when_it_ends() {
    let _turn = shared().await;
    let client = Client::embedded();
    let guard = client.rlock("a").lock_with(labelled("held")).await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0));
    assert_eq!(of("redlock_waiting", "held"), Some(0.0));
    assert_eq!(outcomes("held", "acquired"), 1.0);
    assert_eq!(of("redlock_wait_seconds_count", "held"), Some(1.0));
    assert_eq!(of("redlock_contentions_total", "held"), Some(0.0));
    let inner = guard.reenter().await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0), "one lock");
    guard.unlock().await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0));
    drop(inner);
    assert_eq!(of("redlock_held", "held"), Some(0.0));
    assert_eq!(of("redlock_hold_seconds_count", "held"), Some(1.0));
    let labels = [("lock", "held"), ("kind", "rlock")];
    assert_eq!(value("redlock_held", &labels), Some(0.0));
    let page = recorder().render();
    for meaning in [
        "redlock_acquisitions_total calls that asked for a lock, by outcome",
        "redlock_held locks and permits that are held now",
        "redlock_hold_seconds how long locks were held",
    ] {
        assert!(page.contains(&format!("# HELP {meaning}\n")), "{page}");
    }
}

#[tokio::test]
async fn each_outcome_is_counted() {
    let _turn = shared().await;
    let (client, other) = (Client::embedded(), "outcomes");
    let guard = client.rlock("a").lock().await.unwrap();
    let brief = Duration::from_millis(10);
    for (wait, outcome) in [(Duration::ZERO, "contended"), (brief, "timed_out")] {
        let options = labelled(other).wait(wait);
        client.rlock("a").lock_with(options).await.unwrap_err();
        assert_eq!(outcomes(other, outcome), 1.0, "{outcome}");
    }
    let waiter = tokio::spawn({
        let lock = client.rlock("a");
        async move { lock.lock_with(labelled(other)).await }
    });
    eventually(DEADLINE, async || of("redlock_waiting", other) == Some(1.0)).await;
    // A call that tries once only does not wait; the two others did.
    eventually(DEADLINE, async || {
        of("redlock_contentions_total", other) == Some(2.0)
    })
    .await;
    waiter.abort();
    waiter.await.unwrap_err();
    assert_eq!(outcomes(other, "cancelled"), 1.0);
    // A future that is never polled has asked for nothing.
    drop(client.rlock("a").lock_with(labelled("unpolled")));
    assert_eq!(outcomes("unpolled", "cancelled"), 0.0);
    guard.unlock().await.unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let refused = client.rlock("a").lock_with(labelled(other)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ShutDown);
    assert_eq!(outcomes(other, "shut_down"), 1.0);
    assert_eq!(of("redlock_wait_seconds_count", other), Some(4.0));
    assert_eq!(of("redlock_waiting", other), Some(0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gauges_are_zero_after_a_panic_a_shut_down_and_a_loss() {
    let _turn = shared().await;
    let client = Client::embedded();
    let lock = client.rlock("panics");
    let panics = tokio::spawn(async move {
        let _guard = lock.lock_with(labelled("panics")).await.unwrap();
        panic!("under the lock");
    });
    assert!(panics.await.unwrap_err().is_panic());
    at_rest("panics").await;
    assert_eq!(of("redlock_hold_seconds_count", "panics"), Some(1.0));

    let often = labelled("lost").renew(Duration::from_millis(20));
    let lost = client.rlock("lost").lock_with(often).await.unwrap();
    assert!(client.rlock("lost").force_unlock().await.unwrap());
    lost.lost().await;
    at_rest("lost").await;
    assert_eq!(losses("lost", "deleted"), 1.0);
    assert!(of("redlock_renewal_lag_seconds_count", "lost") >= Some(1.0));

    let brief = labelled("expires")
        .lease(Duration::from_millis(30))
        .renew(false);
    let expires = client.rlock("expires").lock_with(brief).await.unwrap();
    expires.lost().await;
    at_rest("expires").await;
    assert_eq!(losses("expires", "expired"), 1.0);

    let brief = Duration::from_millis(30);
    let ends = labelled("ends").lease(brief).max_hold(brief);
    let ends = client.rlock("ends").lock_with(ends).await.unwrap();
    ends.lost().await;
    at_rest("ends").await;
    assert_eq!(losses("ends", "max_hold"), 1.0);

    let open = client
        .rlock("open")
        .lock_with(labelled("open"))
        .await
        .unwrap();
    client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    at_rest("open").await;
    assert_eq!(losses("open", "shut_down"), 1.0);
    drop((lost, expires, open));
    at_rest("open").await;
    assert_eq!(of("redlock_hold_seconds_count", "open"), Some(1.0), "once");
}

#[tokio::test]
async fn every_kind_is_counted_by_its_name() {
    let _turn = shared().await;
    let client = Client::embedded();
    let label = "kinds";
    let held = |kind: &str| value("redlock_held", &[("lock", label), ("kind", kind)]);
    let fair = client
        .fair_lock("f")
        .lock_with(labelled(label))
        .await
        .unwrap();
    let fenced = client
        .fenced_lock("t")
        .lock_with(labelled(label))
        .await
        .unwrap();
    let spin = client
        .spin_lock("s")
        .lock_with(labelled(label))
        .await
        .unwrap();
    let read_write = client.read_write_lock("rw");
    let write = read_write.write_with(labelled(label)).await.unwrap();
    let semaphore = client.semaphore("n");
    semaphore.try_set_permits(2).await.unwrap();
    let options = PermitOptions::new().label(label);
    let two = options.clone().permits(2);
    let permits = semaphore.acquire_with(two).await.unwrap();
    let leased = client.permit_expirable_semaphore("p").limit(1);
    let leased = leased.acquire_with(options).await.unwrap();
    let multi = client
        .multi_lock(["m1", "m2"])
        .lock_with(labelled(label))
        .await
        .unwrap();
    for (kind, count) in [
        ("fair", 1.0),
        ("fenced", 1.0),
        ("spin", 1.0),
        ("rw.write", 1.0),
        ("semaphore", 2.0),
        ("permits", 1.0),
        ("rlock", 2.0),
    ] {
        assert_eq!(held(kind), Some(count), "{kind}");
    }
    let read = write.downgrade().await.unwrap();
    assert_eq!((held("rw.write"), held("rw.read")), (Some(0.0), Some(1.0)));
    drop((fair, fenced, spin, read, permits, leased, multi));
    for kind in [
        "fair",
        "fenced",
        "spin",
        "rw.read",
        "semaphore",
        "permits",
        "rlock",
    ] {
        assert_eq!(held(kind), Some(0.0), "{kind}");
    }
}

#[tokio::test]
async fn a_lock_without_a_label_is_counted_under_its_kind() {
    let _turn = shared().await;
    let client = Client::embedded();
    let guard = client.fair_lock("a").lock().await.unwrap();
    assert!(value("redlock_held", &[("lock", "fair"), ("kind", "fair")]) >= Some(1.0));
    guard.unlock().await.unwrap();
}

#[distributed_lock(key = "body:<id>", client = client)]
async fn body(client: &Client, id: u32) -> Result<f64, Error> {
    yield_now().await;
    Ok(of("redlock_held", "metrics::body").unwrap_or(-1.0) + f64::from(id) * 0.0)
}

#[tokio::test]
async fn a_function_under_the_attribute_is_counted_by_its_name() {
    let _turn = shared().await;
    let client = Client::embedded();
    for id in 0..3 {
        assert_eq!(body(&client, id).await.unwrap(), 1.0);
    }
    assert_eq!(outcomes("metrics::body", "acquired"), 3.0);
    at_rest("metrics::body").await;
}

#[distributed_lock(key = "turn", client = client)]
async fn in_turn(client: &Client) -> Result<(), Error> {
    yield_now().await;
    Ok(())
}

#[tokio::test]
async fn a_body_that_waited_for_its_turn_under_a_lock_was_counted_twice() {
    let _turn = shared().await;
    let client = Client::embedded();
    let lock = client.rlock("turn");
    let both = lock.with(async |_| tokio::join!(in_turn(&client), in_turn(&client)));
    let (one, other) = both.await.unwrap();
    one.unwrap();
    other.unwrap();
    assert_eq!(outcomes("metrics::in_turn", "acquired"), 2.0);
    at_rest("metrics::in_turn").await;
}

/// Tasks of one client hand a lock over to each other without a call: each hold is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_are_handed_over_are_counted() {
    let _turn = shared().await;
    let client = Client::embedded();
    let tasks = (0..8).map(|_| {
        let lock = client.rlock("chain");
        tokio::spawn(async move {
            for _ in 0..50 {
                let guard = lock.lock_with(labelled("chain")).await.unwrap();
                drop(guard);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    at_rest("chain").await;
    assert_eq!(outcomes("chain", "acquired"), 400.0);
    assert_eq!(of("redlock_hold_seconds_count", "chain"), Some(400.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_counted() {
    let _turn = alone().await;
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let before = of_process("redlock_reconnections_total", &[]);
    block_in_place(|| server.restart());
    let guard = client.rlock(unique("outage")).lock().await.unwrap();
    assert!(of_process("redlock_reconnections_total", &[]) > before);
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_are_pending_until_redis_has_answered() {
    let _turn = alone().await;
    let pending = || of_process("redlock_releases_pending", &[]);
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..3 {
        let lock = client.rlock(unique(&format!("pending:{number}")));
        guards.push(lock.lock_with(labelled("pending")).await.unwrap());
    }
    eventually(DEADLINE, async || pending() == 0.0).await;
    server.pause();
    drop(guards);
    assert_eq!(pending(), 3.0);
    assert_eq!(of("redlock_held", "pending"), Some(0.0));
    server.resume();
    eventually(DEADLINE, async || pending() == 0.0).await;
    // What a client leaves undone when it ends is not pending any more.
    let guard = client.rlock(unique("left")).lock().await.unwrap();
    server.pause();
    drop(guard);
    assert_eq!(pending(), 1.0);
    client.shutdown(Shutdown::Abandon).await.unwrap();
    drop(client);
    eventually(DEADLINE, async || pending() == 0.0).await;
    server.resume();
}

#[tokio::test]
async fn what_is_sent_to_redis_is_counted_by_its_name() {
    let _turn = alone().await;
    let sent = |command| of_process("redlock_commands_total", &[("command", command)]);
    let loads = || of_process("redlock_script_loads_total", &[]);
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let names = [
        "rlock_acquire",
        "rlock_release",
        "fair_acquire",
        "fair_release",
    ];
    let before = names.map(sent);
    for number in 0..3 {
        let lock = client.rlock(unique(&number.to_string()));
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    let lock = client.fair_lock(unique("fair"));
    let first = loads();
    for _ in 0..2 {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(
        loads() - first,
        2.0,
        "one script to acquire, one to release"
    );
    let counts: Vec<f64> = names
        .iter()
        .zip(before)
        .map(|(name, before)| sent(name) - before)
        .collect();
    assert_eq!(
        counts,
        [3.0, 3.0, 3.0, 3.0],
        "the first call of each script is made again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_is_counted_in_which_renewals_fail() {
    let _turn = shared().await;
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url());
    let builder = builder.response_timeout(Duration::from_millis(100));
    let client = builder.connect().await.unwrap();
    let often = labelled("suspect").renew(Duration::from_millis(20));
    let began = Instant::now();
    let lock = client.rlock(unique("suspect"));
    let guard = lock.lock_with(often).await.unwrap();
    let is = async |suspect: bool| {
        eventually(DEADLINE, async || match guard.state() {
            GuardState::Suspect { .. } => suspect,
            GuardState::Held { .. } => !suspect,
            state => panic!("{state:?}"),
        })
        .await;
    };
    server.pause();
    is(true).await;
    // The number has whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    server.resume();
    is(false).await;
    let suspect = of("redlock_suspect_seconds_total", "suspect").unwrap();
    assert!(
        (1.0..=began.elapsed().as_secs_f64()).contains(&suspect),
        "{suspect}"
    );
    guard.unlock().await.unwrap();
    at_rest("suspect").await;
}
