//! What a service learns of its locks by the `metrics` facade, through the exporter of Prometheus.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use redlock_rt::{
    Client, Error, ErrorKind, LockOptions, PermitOptions, Shutdown, distributed_lock,
};
use tests::{DEADLINE, RedisServer, eventually, trace_init, unique};
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
    recorder();
    let client = Client::embedded();
    let guard = client.rlock("a").lock_with(labelled("held")).await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0));
    assert_eq!(of("redlock_waiting", "held"), Some(0.0));
    assert_eq!(outcomes("held", "acquired"), 1.0);
    assert_eq!(of("redlock_wait_seconds_count", "held"), Some(1.0));
    let inner = guard.reenter().await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0), "one lock");
    guard.unlock().await.unwrap();
    assert_eq!(of("redlock_held", "held"), Some(1.0));
    drop(inner);
    assert_eq!(of("redlock_held", "held"), Some(0.0));
    assert_eq!(of("redlock_hold_seconds_count", "held"), Some(1.0));
    let labels = [("lock", "held"), ("kind", "rlock")];
    assert_eq!(value("redlock_held", &labels), Some(0.0));
}

#[tokio::test]
async fn each_outcome_is_counted() {
    recorder();
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
    recorder();
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
    recorder();
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
    let permit = semaphore.acquire_with(options.clone()).await.unwrap();
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
        ("semaphore", 1.0),
        ("permits", 1.0),
        ("rlock", 2.0),
    ] {
        assert_eq!(held(kind), Some(count), "{kind}");
    }
    let read = write.downgrade().await.unwrap();
    assert_eq!((held("rw.write"), held("rw.read")), (Some(0.0), Some(1.0)));
    drop((fair, fenced, spin, read, permit, leased, multi));
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
    recorder();
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
    recorder();
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
    recorder();
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
    recorder();
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
    recorder();
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let before = value("redlock_reconnections_total", &[]).unwrap_or(0.0);
    block_in_place(|| server.restart());
    let guard = client.rlock(unique("outage")).lock().await.unwrap();
    assert!(value("redlock_reconnections_total", &[]) > Some(before));
    guard.unlock().await.unwrap();
}
