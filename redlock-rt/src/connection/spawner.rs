//! Where tasks run: on the caller's runtime, or on the client's own thread, in the process that made the
//! client.
//!
//! The process is checked where a connection is made, where tasks start, and where a connection is polled
//! outside the thread of its task (a dropped guard). Calls in the runtime of the tasks do not check it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{EnterGuard, Handle, Id, RuntimeFlavor};
use tokio::task::{AbortHandle, JoinSet};

use crate::clock;
use crate::error::Error;

/// A process. A child that it forks has a copy of all its state, and may not use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process(u32);

impl Process {
    pub(super) fn is_another(self) -> bool {
        self.0 != std::process::id()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self(std::process::id())
    }
}

/// Spawns the client's tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spawner {
    /// In another process no task is started, and no connection made: the identity of a client belongs to
    /// one process.
    pub(super) process: Process,
    /// `None`: the runtime of the caller at that moment.
    thread: Option<Arc<Thread>>,
}

#[derive(Debug)]
struct Thread {
    handle: Handle,
    /// Dropped with the last spawner, which ends the thread.
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Spawner {
    /// Starts a thread with a runtime that lives as long as any clone of this spawner.
    pub(crate) fn dedicated() -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(
                crate::error::ErrorKind::Unavailable,
                "start the client's thread",
            )
            .detail(error.to_string())
            .caused_by(Arc::new(error))
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("redlock-rt".into())
            .spawn(move || {
                // An error means that the last spawner was dropped, which ends the thread.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        clock::need_no_runtime();
        Ok(Self {
            process: Process::default(),
            thread: Some(Arc::new(Thread {
                handle,
                _stop: stop,
            })),
        })
    }

    /// The runtime of the caller, if tasks run there.
    pub(crate) fn home(&self) -> Option<Home> {
        match self.thread {
            Some(_) => None,
            None => Handle::try_current().ok().map(Home),
        }
    }

    /// Runs `future` in the runtime of the tasks: a socket belongs to the runtime in which it was
    /// opened. `None` if that runtime has ended.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let Some(thread) = &self.thread else {
            return Some(future.await);
        };
        // The task ends with the future that waits for it.
        let mut task = JoinSet::new();
        task.spawn_on(future, &thread.handle);
        match task.join_next().await? {
            Ok(output) => Some(output),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        }
    }

    /// The runtime on which tasks are spawned, if there is one.
    pub(crate) fn site(&self) -> Option<Home> {
        if self.process.is_another() {
            return None;
        }
        match &self.thread {
            Some(thread) => Some(Home(thread.handle.clone())),
            None => Handle::try_current().ok().map(Home),
        }
    }

    /// Runs `future` on the client's thread, and blocks this thread until it ends, at most for `limit`.
    /// Does nothing if there is no such thread here, or if this is that thread.
    pub(crate) fn wait_for(
        &self,
        limit: Duration,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(thread) = &self.thread else { return };
        if Home(thread.handle.clone()).is_here() || self.process.is_another() {
            return;
        }
        let (done, end) = std::sync::mpsc::channel::<()>();
        thread.handle.spawn(async move {
            future.await;
            drop(done);
        });
        // Nothing is ever sent: the end of the task closes the channel.
        let _ = end.recv_timeout(limit);
    }
}

/// A runtime, which may have ended since.
#[derive(Debug, Clone)]
pub(crate) struct Home(Handle);

impl Home {
    /// Runs `work` there; drops it at once if the runtime has ended.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.spawn(async move { work() });
    }

    /// Enters the runtime on this thread. Not in a destructor at the end of a thread; see
    /// [`clock::is_there`].
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    pub(super) fn has_one_thread(&self) -> bool {
        self.0.runtime_flavor() == RuntimeFlavor::CurrentThread
    }

    pub(crate) fn id(&self) -> Id {
        self.0.id()
    }

    /// Whether this thread is in that runtime.
    pub(super) fn is_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.id())
    }

    /// Spawns a task there; drops it at once if the runtime has ended.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task).abort_handle()
    }
}

impl PartialEq for Home {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_its_runtime() {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
        };
        let [one, other] = [runtime(), runtime()];
        let home = |runtime: &tokio::runtime::Runtime| Home(runtime.handle().clone());
        assert!(home(&one) == home(&one) && home(&one) != home(&other));
    }
}
