//! How the client's tasks are woken, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::connection::Spawner;

/// Wakes one task. A wake that comes while it is busy is not lost.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    notify: Notify,
    closed: AtomicBool,
    /// Whether the task is alive: it is not when the runtime that it ran on is gone.
    running: AtomicBool,
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
        self.running.load(Ordering::Acquire)
    }

    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }
}

/// Marks the end of a task, also when its runtime drops it.
struct Running<O: Fn(), A: Fn()> {
    signal: Arc<dyn AsRef<Signal> + Send + Sync>,
    /// While nobody else can start the task yet.
    on_end: O,
    /// Once it may be started again.
    after: A,
}

impl<O: Fn(), A: Fn()> Drop for Running<O, A> {
    fn drop(&mut self) {
        (self.on_end)();
        let signal = (*self.signal).as_ref();
        signal.running.store(false, Ordering::Release);
        // After a panic it would be the same again; the next use of the client starts it.
        if !signal.is_closed() && !std::thread::panicking() {
            (self.after)();
        }
    }
}

/// Starts the task of `owner` unless it runs. A client outlives runtimes (each `#[tokio::test]`
/// has its own), so this is asked on every use.
pub(crate) fn ensure<T, F>(
    spawner: &Spawner,
    owner: &Arc<T>,
    on_end: impl Fn() + Send + 'static,
    after: impl Fn() + Send + 'static,
    task: impl FnOnce() -> F,
) where
    T: AsRef<Signal> + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let signal: &Signal = (**owner).as_ref();
    if signal.is_running() || signal.is_closed() {
        return;
    }
    if signal.running.swap(true, Ordering::AcqRel) {
        return;
    }
    let running = Running {
        signal: Arc::clone(owner) as _,
        on_end,
        after,
    };
    let future = task();
    // Where there is no runtime the future is dropped, which marks the task as not running.
    let _ = spawner.spawn(async move {
        let _running = running;
        future.await;
    });
    // What was asked for while no task ran is looked for at once.
    signal.notify();
}
