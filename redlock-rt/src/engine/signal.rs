//! Waking and ending the client's tasks.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use tokio::runtime::Id;
use tokio::sync::Notify;

use crate::connection::Spawner;
use crate::shim::lock_std;

/// Wakes one task. A wake-up during its work is not lost.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    notify: Notify,
    closed: AtomicBool,
    /// Whether the task is alive. It is not alive after its runtime has ended.
    running: AtomicBool,
    /// A runtime that ended before it began the task. No other task begins there. Tokio's ids increase.
    over: Mutex<Option<Id>>,
}

impl Signal {
    pub(crate) fn notify(&self) {
        self.notify.notify_one();
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// Behaves as if its task ran, for the models.
    #[cfg(test)]
    pub(crate) fn runs(&self) {
        self.running.store(true, Ordering::SeqCst);
    }

    /// Behaves as if its task had ended.
    #[cfg(test)]
    pub(crate) fn ends(&self) {
        self.running.store(false, Ordering::SeqCst);
    }

    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }
}

/// Marks the end of a task, also when its runtime drops it.
struct RunningTask<A: Fn() -> B, B: FnOnce()> {
    signal: Arc<Signal>,
    /// Called at its end. The returned function runs once the task may be started again.
    ending: A,
    /// The task itself has panicked. A panic of its thread can also end the runtime.
    failed: bool,
    /// The runtime of a task that has not begun.
    unbegun: Option<Id>,
}

impl<A: Fn() -> B, B: FnOnce()> Drop for RunningTask<A, B> {
    fn drop(&mut self) {
        let signal = &*self.signal;
        if self.unbegun.is_some() {
            *lock_std(&signal.over) = self.unbegun;
        }
        let after = (self.ending)();
        signal.running.store(false, Ordering::SeqCst);
        // A restart after a panic would fail again; the next use of the client starts the task.
        if !signal.is_closed() && !self.failed {
            after();
        }
    }
}

/// Starts the task of `signal` unless it runs. A client outlives runtimes (each `#[tokio::test]`
/// has its own), so this is called on every use.
pub(crate) fn ensure<F, B>(
    spawner: &Spawner,
    signal: &Arc<Signal>,
    ending: impl Fn() -> B + Send + 'static,
    task: impl FnOnce() -> F,
) where
    B: FnOnce() + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    if signal.is_running() || signal.is_closed() {
        return;
    }
    // Without a runtime no task begins, so none can end, and no waiter is notified. Otherwise every guard dropped
    // there would wake all waiters.
    let Some(site) = spawner.site() else {
        return;
    };
    // Nor in a runtime that is ending: the first attempt has reported that end.
    if *lock_std(&signal.over) == Some(site.id()) {
        return;
    }
    if signal.running.swap(true, Ordering::AcqRel) {
        return;
    }
    let running = RunningTask {
        signal: Arc::clone(signal),
        ending,
        failed: false,
        unbegun: Some(site.id()),
    };
    let future = task();
    // If the runtime has ended, the future is dropped, which marks the task as not running.
    site.spawn(async move {
        let mut running = running;
        running.unbegun = None;
        if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
            running.failed = true;
            drop(running);
            resume_unwind(panic);
        }
    });
    // The task first looks for requests that were made while no task ran.
    signal.notify();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// How often the end of the task was reported when it was to start `times`.
    fn told(times: usize) -> usize {
        let (signal, told) = (Arc::<Signal>::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..times {
            let told = Arc::clone(&told);
            let ending = move || {
                let told = Arc::clone(&told);
                move || {
                    told.fetch_add(1, Ordering::Relaxed);
                }
            };
            ensure(&Spawner::default(), &signal, ending, || async {});
        }
        assert!(!signal.is_running());
        told.load(Ordering::Relaxed)
    }

    /// Each guard that was dropped outside a runtime looked at all holds and all lines.
    #[test]
    fn outside_a_runtime_no_task_ends_because_none_begins() {
        assert_eq!(told(100), 0);
    }

    /// Another runtime may have relied on the task in the meantime. Each guard that an ending runtime dropped
    /// reported that to all waiters again.
    #[test]
    fn in_a_runtime_that_has_ended_the_end_of_a_task_is_told_once() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _inside = handle.enter();
        assert_eq!(told(100), 1);
    }
}
