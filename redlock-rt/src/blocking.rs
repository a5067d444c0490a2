//! Calls that block their thread: for threads without a runtime, rayon, and a plain `main`.
//!
//! Append [`block_on`](BlockOn::block_on) to any call of this crate to wait for its end. The client needs a [thread of
//! its own](crate::ClientBuilder::dedicated_thread), which renews leases while other threads work.
//!
//! ```
//! use redlock_rt::blocking::BlockOn as _;
//! use redlock_rt::{Client, Error};
//!
//! fn main() -> Result<(), Error> {
//!     let redis = redlock_rt::embedded::Engine::new();
//!     // For a real server, call .url("redis://localhost") instead of .embedded(…).
//!     let client = Client::builder().embedded(&redis).dedicated_thread(true).connect().block_on()?;
//!     let stock = client.rlock("stock");
//!
//!     std::thread::scope(|scope| {
//!         for _ in 0..4 {
//!             scope.spawn(|| -> Result<(), Error> {
//!                 let guard = stock.lock().block_on()?;
//!                 assert!(guard.is_valid());
//!                 // The drop sends the release, and does not block.
//!                 Ok(())
//!             });
//!         }
//!     });
//!     Ok(())
//! }
//! ```
//!
//! A body that blocks cannot be cancelled when its lock is lost. Before each step, ask
//! [`is_valid`](crate::LockGuard::is_valid) (no round trip), or let [`on_lost`](crate::LockGuard::on_lost) interrupt it.
//!
//! Do not wait for rayon jobs (`join`, `scope`, a parallel iterator) under a lock: the waiting thread runs other jobs.
//! A job that takes the same lock re-enters it in the middle of the body, or under a guard waits for ever.
#![cfg_attr(
    feature = "macros",
    doc = r##"
The attribute runs a function that is not async with `blocking = true`:

```
# use std::sync::LazyLock;
use redlock_rt::{Client, Error, distributed_lock};

static LOCKS: LazyLock<Client> = LazyLock::new(|| {
    # let redis = redlock_rt::embedded::Engine::new();
    # let client = Client::builder().embedded(&redis).dedicated_thread(true).build();
    # #[cfg(any())]
    let client = Client::builder().url("redis://localhost").dedicated_thread(true).build();
    client.expect("the URL is valid")
});

#[distributed_lock(key = "order:<user_id>", client = LOCKS, blocking = true)]
fn place_order(user_id: u64) -> Result<&'static str, Error> {
    Ok("paid")
}

assert_eq!(place_order(7).unwrap(), "paid");
```
"##
)]
//!
//! # Panics
//!
//! The call panics in an asynchronous task of Tokio ("Cannot start a runtime from within a runtime …"), because it
//! would block all tasks of its thread. Await the call there instead. `tokio::task::spawn_blocking` and
//! `block_in_place` allow it. In tasks of other executors the call blocks the thread without a panic.

use std::future::{IntoFuture, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;

use crate::clock;

/// Waits for the end of a call by blocking the thread.
pub trait BlockOn: IntoFuture + Sized {
    /// Runs the call on this thread, and returns what it returns.
    ///
    /// # Panics
    ///
    /// In an asynchronous task; see the [module](self#panics).
    #[track_caller]
    fn block_on(self) -> Self::Output {
        if let Ok(runtime) = Handle::try_current() {
            // Panics in an asynchronous task, but not on a thread for blocking calls.
            runtime.block_on(ready(()));
        }
        // Not within the runtime's `block_on`: a call within the body, or Tokio's own, would panic.
        clock::parking(|| park_on(self.into_future()))
    }
}

impl<F: IntoFuture> BlockOn for F {}

fn park_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                while !unpark.woken.swap(false, Ordering::Acquire) {
                    thread::park();
                }
            }
        }
    }
}

struct Unpark {
    thread: Thread,
    /// The unpark of the thread may have been meant for a nested call on the same thread.
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
