//! What reads and writes one connection: a task, and whoever cannot wait for that task's turn.
//!
//! A guard that is dropped at the end of `main` has no later moment: its runtime ends before the
//! task is polled again. So the dropping thread polls the same future once, which writes what was
//! handed to the connection to the socket, as far as the socket takes it without waiting.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::unconstrained;

use super::spawner::Home;

/// The future of one connection.
pub(super) struct Driver {
    /// Where its task runs. A stream of a caller's own may need a runtime, and this one.
    home: Home,
    /// Held while the future is polled, which never waits.
    state: Mutex<State>,
}

thread_local! {
    /// Whether this thread is polling a driver, and so has its lock.
    static POLLING: Cell<bool> = const { Cell::new(false) };
}

struct State {
    /// `None` once the connection or its task has ended.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The task's: polled from outside, the future still wakes its task.
    waker: Option<Waker>,
}

/// Set back when dropped, also by a panic.
struct Polling;

impl Polling {
    fn begin() -> Self {
        POLLING.set(true);
        Self
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        POLLING.set(false);
    }
}

impl Driver {
    /// Both the driver and the task that is to be spawned for it.
    pub(super) fn new(
        home: Home,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> (Arc<Self>, Task) {
        let driver = Arc::new(Self {
            home,
            state: Mutex::new(State {
                future: Some(Box::pin(future)),
                waker: None,
            }),
        });
        (Arc::clone(&driver), Task(driver))
    }

    /// Writes what was handed to the connection before, without waiting for the socket.
    pub(super) fn push(&self) {
        // A stream of a caller's own that drops a guard while it is polled. The task of that
        // connection, which is being polled or has been woken, does it in a moment.
        if POLLING.get() {
            return;
        }
        let _inside = self.home.enter();
        // Its end is the task's to know.
        let _ = self.lock().poll();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn poll(&mut self) -> Poll<()> {
        let Some(future) = &mut self.future else {
            // Over, which its task is told of below.
            return Poll::Ready(());
        };
        // Before the task's first poll there is no waker to keep: that poll is still to come.
        let waker = self.waker.as_ref().unwrap_or(Waker::noop());
        // The budget is that of the task in which a guard is dropped: used up, nothing would be
        // written.
        let future = pin!(unconstrained(future.as_mut()));
        let _polling = Polling::begin();
        let polled = future.poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            self.future = None;
            waker.wake_by_ref();
        }
        polled
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Polls the driver for as long as the connection lives. Dropped, also by a runtime that ends, it
/// closes the connection.
pub(super) struct Task(Arc<Driver>);

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        state.poll()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let future = self.0.lock().future.take();
        // The socket is closed under no lock.
        drop(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn home() -> Home {
        crate::connection::Spawner::default().site().unwrap()
    }

    /// A guard that was dropped straight after its client had connected was not told of: the task
    /// of the connection had not been polled yet.
    #[tokio::test]
    async fn what_is_pushed_before_the_task_begins_is_written() {
        let polls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&polls);
        let (driver, task) = Driver::new(
            home(),
            poll_fn(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            }),
        );
        driver.push();
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        drop(task);
        driver.push();
        assert_eq!(polls.load(Ordering::Relaxed), 1, "it is over");
    }

    #[tokio::test]
    async fn a_connection_that_ended_while_it_was_pushed_ends_its_task() {
        let (driver, task) = Driver::new(home(), std::future::ready(()));
        driver.push();
        task.await;
    }
}
