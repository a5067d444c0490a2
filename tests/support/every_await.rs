//! Calls that are dropped at each of their awaits.

use std::{future::poll_fn, pin::pin, task::Poll};

use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
};

/// More than the number of points of any call.
const MOST: usize = 2000;

/// Polls the call this often, and runs all tasks between two polls; returns whether it completed.
pub async fn polled<F: Future>(call: F, times: usize) -> bool {
    let mut call = pin!(call);
    for _ in 0..times {
        let done = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if done {
            return true;
        }
        yield_now().await;
    }
    false
}

/// Lets everything run that can, without time.
pub async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

/// A runtime that runs one task between two polls.
pub fn stepping_runtime(start_paused: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(start_paused);
    builder.event_interval(1).build().unwrap()
}

/// Runs the case with one more poll each time, until its call completes.
pub fn at_every_await(least: usize, case: impl AsyncFn(usize) -> bool) {
    stepping_runtime(false).block_on(async {
        for times in 0..MOST {
            if case(times).await {
                assert!(times >= least, "only {times} polls");
                return;
            }
        }
        panic!("not done after {MOST} polls");
    });
}
