//! Functions that run once for a nominal time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock_rt::{Client, Error, distributed_lock, embedded::Engine};
use tests::{DEADLINE, eventually, within};
use tokio::sync::Notify;

#[derive(Debug)]
struct Failed(Option<Error>);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(Some(error))
    }
}

fn clients() -> [Client; 2] {
    let engine = Engine::new();
    [(); 2].map(|()| Client::builder().embedded(&engine).build().unwrap())
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[distributed_lock(key = "count:<job>", once = fire, client = locks)]
async fn count(
    locks: &Client,
    job: &str,
    fire: SystemTime,
    runs: &AtomicUsize,
) -> Result<Option<usize>, Error> {
    Ok(Some(runs.fetch_add(1, Ordering::SeqCst)))
}

#[tokio::test]
async fn it_runs_once_for_each_fire_of_each_job() {
    let [one, other] = clients();
    let runs = AtomicUsize::new(0);
    let mut seen = vec![];
    for job in ["a", "b"] {
        for fire in [time(1), time(2)] {
            for client in [&one, &other, &one] {
                seen.push(count(client, job, fire, &runs).await.unwrap());
            }
        }
    }
    let each = |at| [Some(at), None, None];
    assert_eq!(seen, [0, 1, 2, 3].map(each).concat());
}

#[distributed_lock(key = "fails", once = time(1), client = locks)]
async fn fails(locks: &Client, how: &str) -> Result<Option<()>, Failed> {
    match how {
        "returns" => Err(Failed(None)),
        "panics" => panic!("as it should"),
        _ => Ok(None),
    }
}

#[tokio::test]
async fn a_body_that_fails_leaves_it_open_and_one_that_has_nothing_to_say_has_done_it() {
    let [one, other] = clients();
    let error = fails(&one, "returns").await.unwrap_err();
    assert!(error.0.is_none(), "{error:?}");
    let client = one.clone();
    let panics = tokio::spawn(async move { fails(&client, "panics").await });
    assert!(panics.await.unwrap_err().is_panic());
    assert!(fails(&other, "succeeds").await.unwrap().is_none());
    // It would fail again.
    assert!(fails(&one, "returns").await.unwrap().is_none());
}

#[distributed_lock(key = "waits", once = time(1), wait = wait, client = locks, guard = guard, token = token)]
async fn waits(
    locks: &Client,
    wait: Duration,
    begun: &Notify,
    go: &Notify,
) -> Result<Option<u64>, Error> {
    assert_eq!(guard.token(), token);
    assert_eq!(guard.name(), "once:waits:1000");
    begun.notify_one();
    go.notified().await;
    Ok(Some(token))
}

#[tokio::test]
async fn others_wait_for_it_as_long_as_they_are_told() {
    let [one, other] = clients();
    let (begun, go) = (Notify::new(), Notify::new());
    let first = waits(&one, DEADLINE, &begun, &go);
    let others = async {
        begun.notified().await;
        let tried = waits(&other, Duration::ZERO, &begun, &go).await;
        assert_eq!(tried.unwrap(), None);
        let waited = waits(&other, DEADLINE, &begun, &go);
        let end = async {
            eventually(DEADLINE, async || other.stats().waiting == 1).await;
            go.notify_one();
        };
        let (waited, ()) = tokio::join!(waited, end);
        assert_eq!(waited.unwrap(), None);
    };
    let (first, ()) = within(DEADLINE, async { tokio::join!(first, others) }).await;
    assert!(first.unwrap().is_some());
}

#[tokio::test]
async fn what_is_dropped_is_begun_again_by_another() {
    let [one, other] = clients();
    let (begun, go) = (Notify::new(), Notify::new());
    {
        let mut first = Box::pin(waits(&one, DEADLINE, &begun, &go));
        tokio::select! {
            _ = &mut first => panic!("it waits"),
            () = begun.notified() => {}
        }
    }
    go.notify_one();
    let second = within(DEADLINE, waits(&other, DEADLINE, &begun, &go)).await;
    assert!(second.unwrap().is_some());
    eventually(DEADLINE, async || one.stats().releases == 0).await;
}

#[tokio::test]
async fn an_outage_is_an_error_and_not_nothing() {
    // Nobody listens there.
    let client = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let (begun, go) = (Notify::new(), Notify::new());
    let short = Duration::from_millis(50);
    let error = waits(&client, short, &begun, &go).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let runs = AtomicUsize::new(0);
    let early = UNIX_EPOCH - Duration::from_secs(1);
    let error = count(&client, "a", early, &runs).await.unwrap_err();
    assert!(error.is_bad_input(), "{error}");
}
