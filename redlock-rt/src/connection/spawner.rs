//! Where tasks run: on the caller's runtime, or on a thread of the client's own.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::Error;

/// Spawns the client's tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spawner {
    /// `None`: the runtime that the caller is in at that moment.
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
                // An error means that the last spawner is gone: the end that is waited for.
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        Ok(Self {
            thread: Some(Arc::new(Thread {
                handle,
                _stop: stop,
            })),
        })
    }

    /// Spawns, or gives `None` where there is no runtime to spawn on.
    pub(crate) fn spawn(
        &self,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        let handle = match &self.thread {
            Some(thread) => thread.handle.clone(),
            None => Handle::try_current().ok()?,
        };
        Some(handle.spawn(future))
    }
}
