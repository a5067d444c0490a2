//! Bodies that run under a lock: `run` and `with`.

use std::time::Duration;

use redlock_rt::LockOptions;
use tests::{eventually, within};
use tokio::sync::oneshot;
use tokio_test::{assert_pending, assert_ready, task};

use crate::{
    locks::{Guard, Held},
    party::Party,
    world::*,
};

/// Records that it was dropped.
struct Witness<F: Fn()>(F);

impl<F: Fn()> Drop for Witness<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A guard that soon notices when its lock is deleted.
async fn watchful(world: &World, client: &Party) -> Held {
    let options = LockOptions::new().renew(Duration::from_millis(20));
    let lock = world.open(client);
    lock.lock_with(options).await.unwrap()
}

pub(crate) async fn run_gives_the_output(world: &World) {
    let client = world.client();
    let guard = world.open(&client).lock().await.unwrap();
    let borrowed = String::from("output");
    let body = async {
        tokio::task::yield_now().await;
        assert!(guard.is_valid());
        borrowed.as_str()
    };
    assert_eq!(guard.run(body).await.unwrap(), "output");
    // The guard outlives its body, and runs another.
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    assert!(world.is_there().await);
    guard.unlock().await.unwrap();
}

pub(crate) async fn with_locks_and_releases(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let body = async |guard: &dyn Guard| {
        assert_eq!(world.count(guard).await, Some(1));
        Err::<(), _>("the body's own error")
    };
    let output = lock.with(body).await.unwrap();
    assert_eq!(output, Err("the body's own error"));
    assert!(!world.is_there().await, "released when it returns");
}

pub(crate) async fn loss_drops_the_body_first(world: &World) {
    let client = world.client();
    let guard = watchful(world, &client).await;
    let log = Log::default();
    let body = async {
        let _outer = Witness(|| log.add("outermost dropped"));
        let _inner = Witness(|| log.add("innermost dropped"));
        log.add("started");
        world.delete().await;
        std::future::pending::<()>().await;
    };
    let error = within(DEADLINE, guard.run(body)).await.unwrap_err();
    log.add("returned");
    assert!(error.is_lost());
    let text = error.to_string();
    assert!(text.contains("outcome is unknown"), "{text}");
    assert!(text.contains(&world.name), "{text}");
    assert_eq!(
        log.all(),
        [
            "started",
            "innermost dropped",
            "outermost dropped",
            "returned"
        ]
    );
}

pub(crate) async fn with_drops_the_body_before_the_guard(world: &World) {
    let client = world.client();
    let lock = world.open(&client);
    let held = Log::default();
    let (started, start) = oneshot::channel();
    let body = async |_: &dyn Guard| {
        // The hold outlives the body.
        let _witness = Witness(|| held.add(client.stats().held));
        let _ = started.send(());
        std::future::pending::<()>().await;
    };
    let call = async {
        tokio::select! {
            never = lock.with(body) => never.unwrap(),
            started = start => started.unwrap(),
        }
    };
    within(DEADLINE, call).await;
    let held = held.all();
    assert_eq!(held.len(), 1);
    world.assert_one_hold(held[0]);
    assert_eq!(client.stats().held, 0);
    eventually(DEADLINE, async || !world.is_there().await).await;
}

pub(crate) async fn a_body_that_completed_is_not_called_lost(world: &World) {
    let client = world.client();
    // At the poll both the body and the loss are ready. The body has completed, so its output counts.
    for completes in [true, false] {
        let guard = watchful(world, &client).await;
        let (complete, completed) = oneshot::channel();
        let body = async { completed.await.unwrap() };
        let mut run = task::spawn(guard.run(body));
        assert_pending!(run.poll());
        world.delete().await;
        within(DEADLINE, guard.lost()).await;
        if completes {
            complete.send(7).unwrap();
            assert_eq!(assert_ready!(run.poll()).unwrap(), 7);
        } else {
            assert!(assert_ready!(run.poll()).unwrap_err().is_lost());
            assert!(complete.is_closed(), "the body was dropped");
        }
    }
}

pub(crate) async fn a_body_does_not_start_under_a_lost_lock(world: &World) {
    let client = world.client();
    let guard = watchful(world, &client).await;
    world.delete().await;
    within(DEADLINE, guard.lost()).await;
    let body = async { panic!("the body runs only under the lock") };
    let error = guard.run(body).await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let text = error.to_string();
    assert!(!text.contains("outcome is unknown"), "{text}");
}

pub(crate) async fn spawned_work_goes_on_after_a_loss(world: &World) {
    let client = world.client();
    let guard = watchful(world, &client).await;
    let (go_on, told) = oneshot::channel();
    let (done, end) = oneshot::channel();
    let body = async {
        tokio::spawn(async move {
            let told: u32 = told.await.unwrap();
            done.send(told).unwrap();
        });
        world.delete().await;
        std::future::pending::<()>().await;
    };
    assert!(
        within(DEADLINE, guard.run(body))
            .await
            .unwrap_err()
            .is_lost()
    );
    go_on.send(7).unwrap();
    assert_eq!(within(DEADLINE, end).await, Ok(7));
}
