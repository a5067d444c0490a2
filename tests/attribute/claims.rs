//! What the page of the attribute says of corner cases, on the embedded engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, Error, ErrorKind, Shutdown, distributed_lock};
use tokio::sync::Notify;

#[distributed_lock(key = "k", client = client)]
async fn plain(client: &Client) -> Result<u64, Error> {
    client.rlock("k").hold_count().await
}

/// Notes how many locks its client holds when it ends.
struct Ends(Client, Arc<Mutex<Vec<usize>>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.stats().held);
    }
}

#[distributed_lock(key = "k", client = client)]
async fn with_parameters(client: &Client, mentioned: Ends, _other: Ends) -> Result<(), Error> {
    client.rlock("k").is_locked().await?;
    let _mentioned = &mentioned;
    Ok(())
}

#[tokio::test]
async fn only_parameters_that_the_body_mentions_end_under_the_lock() {
    let client = Client::embedded();
    let seen = Arc::default();
    let ends = || Ends(client.clone(), Arc::clone(&seen));
    with_parameters(&client, ends(), ends()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 0]);
}

#[distributed_lock(key = "k", kind = fair, wait = "500ms", client = client)]
async fn fair(client: &Client) -> Result<(), Error> {
    client.rlock("k").is_locked().await.map(drop)
}

#[distributed_lock(key = "k", client = client)]
async fn another_kind(client: &Client) -> Result<(), Error> {
    fair(client).await
}

#[distributed_lock(key = "k", kind = write, client = client)]
async fn write(client: &Client) -> Result<(), Error> {
    read(client, false).await
}

#[distributed_lock(key = "k", kind = read, client = client)]
async fn read(client: &Client, then_write: bool) -> Result<(), Error> {
    match then_write {
        true => Box::pin(write(client)).await,
        false => Ok(()),
    }
}

#[tokio::test]
async fn of_nested_calls_only_those_of_the_same_kind_and_readers_of_a_writer_reenter() {
    let client = Client::embedded();
    let error = another_kind(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    write(&client).await.unwrap();
    let error = read(&client, true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UpgradeWouldDeadlock);
}

#[distributed_lock(key = "k", on_lost = error_after, client = client)]
async fn freed(client: &Client) -> Result<(), Error> {
    client.rlock("k").force_unlock().await.map(drop)
}

#[distributed_lock(key = "k", on_lost = error_after, client = client)]
async fn freed_not_send(client: &Client) -> Result<Rc<()>, Error> {
    client.rlock("k").force_unlock().await?;
    Ok(Rc::new(()))
}

#[tokio::test]
async fn a_loss_that_only_the_release_finds_is_one_where_the_value_can_wait_for_it() {
    let client = Client::embedded();
    assert!(freed(&client).await.unwrap_err().is_lost());
    assert_eq!(client.stats().late_losses, 1);
    freed_not_send(&client).await.unwrap();
    assert_eq!(client.stats().late_losses, 1);
}

#[tokio::test]
async fn a_hook_that_panics_keeps_no_lock() {
    let builder = Client::builder().on_late_loss(|_| panic!("hook"));
    let client = builder.embedded(&Engine::new()).build().unwrap();
    let caller = client.clone();
    let call = tokio::spawn(async move { freed(&caller).await });
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(plain(&client).await.unwrap(), 1);
    assert_eq!((client.stats().held, client.stats().late_losses), (0, 1));
}

#[test]
fn without_timers_a_call_panics_and_nothing_is_held() {
    let client = Client::embedded();
    let runtime = |time| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        if time {
            builder.enable_time()
        } else {
            &mut builder
        }
        .build()
        .unwrap()
    };
    let without = runtime(false);
    let call = || without.block_on(plain(&client));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(runtime(true).block_on(plain(&client)).unwrap(), 1);
}

#[distributed_lock(key = "a", client = client)]
#[distributed_lock(key = { seen.lock().unwrap().push(client.stats().held); "b" }, client = client)]
async fn two(client: &Client, seen: &Mutex<Vec<usize>>) -> Result<(), Error> {
    seen.lock().unwrap().push(client.stats().held);
    Ok(())
}

#[tokio::test]
async fn options_of_a_second_attribute_are_evaluated_under_the_lock_of_the_first() {
    let (client, seen) = (Client::embedded(), Mutex::default());
    two(&client, &seen).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [1, 2]);
}

#[distributed_lock(key = "user:<user:?>", client = client)]
async fn quoted(client: &Client, user: &str) -> Result<u64, Error> {
    client.rlock("user:\"\"").hold_count().await
}

#[tokio::test]
async fn quotes_around_nothing_are_something() {
    assert_eq!(quoted(&Client::embedded(), "").await.unwrap(), 1);
}

#[distributed_lock(key = "k", min_hold = "10s", client = client)]
async fn kept(client: &Client, how: Option<Shutdown>) -> Result<(), Error> {
    if let Some(how) = how {
        client.shutdown(how).await?;
    }
    client.rlock("k").is_locked().await.map(drop)
}

#[distributed_lock(key = "k", min_hold = "10s", client = client)]
async fn stuck(client: &Client, begun: &Notify) -> Result<(), Error> {
    begun.notify_one();
    std::future::pending().await
}

#[distributed_lock(key = "k", client = client)]
async fn around(client: &Client) -> Result<(), Error> {
    kept(client, None).await?;
    panic!("under the lock")
}

#[tokio::test]
async fn the_shortest_hold_is_kept_however_the_call_ends() {
    for end in 0..4 {
        let engine = Engine::new();
        let client = || Client::builder().embedded(&engine).build().unwrap();
        let (client, other) = (client(), client());
        match end {
            0 => kept(&client, None).await.unwrap(),
            1 => {
                let error = kept(&client, Some(Shutdown::ReleaseAll)).await.unwrap_err();
                assert!(error.is_shut_down());
            }
            // An inner call asked for it, and the outer one panics.
            2 => {
                let call = tokio::spawn(async move { around(&client).await });
                assert!(call.await.unwrap_err().is_panic());
            }
            _ => {
                let begun = Notify::new();
                tokio::select! {
                    biased;
                    done = stuck(&client, &begun) => unreachable!("{done:?}"),
                    () = begun.notified() => {}
                }
                let drain = Shutdown::Drain(Duration::from_secs(5));
                client.shutdown(drain).await.unwrap();
            }
        }
        let lock = other.rlock("k");
        // Until its release, which is in the background, the lease is 30 s.
        let released = async {
            while lock.remaining_ttl().await.unwrap() > Some(Duration::from_secs(10)) {
                tokio::task::yield_now().await;
            }
        };
        let bound = Duration::from_secs(10);
        tokio::time::timeout(bound, released).await.unwrap();
        let rest = lock.remaining_ttl().await.unwrap();
        assert!(rest > Some(Duration::from_secs(5)), "{end}: {rest:?}");
        assert!(lock.try_lock().await.unwrap().is_none());
    }
}
