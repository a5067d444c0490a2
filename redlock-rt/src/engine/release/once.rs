//! A call that Redis runs once, even if no caller waits for its reply.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cleanup::{Cleanup, PendingCleanup};
use super::endings::OnceRequest;
use crate::clock;
use crate::connection::Fault;
use crate::engine::{ClientEngine, Handle};
use crate::error::Error;
use crate::name::LockName;
use crate::wire::{Call, Malformed, Reply};

/// A call that is made once, by [`run`](Self::run), or in the background when this is dropped. The
/// call carries an id, by which Redis recognises a second delivery.
pub(crate) struct OnceCall {
    /// `None` once the call has been taken.
    request: Option<OnceRequest>,
    engine: Handle,
}

impl OnceCall {
    /// `noted`: for how long Redis keeps the id of the call. `read`: reads the reply.
    pub(crate) fn new(
        engine: &Arc<ClientEngine>,
        name: &LockName,
        call: Call,
        noted: Duration,
        read: fn(Reply) -> Result<u64, Malformed>,
    ) -> Self {
        let request = OnceRequest {
            engine: Arc::clone(engine),
            name: name.clone(),
            call,
            noted,
            read,
            reply: Arc::default(),
        };
        engine.once_calls.fetch_add(1, Ordering::Relaxed);
        Self {
            request: Some(request),
            engine: Handle::new(engine),
        }
    }

    /// Makes the call, and waits for the reply.
    ///
    /// # Cancel safety
    ///
    /// The call goes on in the background.
    pub(crate) async fn run(mut self, action: &'static str) -> Result<u64, Error> {
        let engine = Arc::clone(&self.engine);
        let Some(request) = self.request.take() else {
            // Otherwise only a drop takes the call.
            return Err(Fault::closed().into_error(action));
        };
        let (name, reply) = (request.name.clone(), Arc::clone(&request.reply));
        // Not refused while the client shuts down: the client waits for such calls.
        engine.ensure_tasks();
        let mut pending = PendingCleanup::new(Cleanup::once(request));
        let until = engine.patience(clock::now());
        pending.finish(action, &name, until, None).await?;
        match reply.get() {
            Some(reply) => Ok(*reply),
            // The reply is set before the call is over, and this call was not over before.
            None => Err(Fault::closed().into_error(action).named(name.as_arc())),
        }
    }
}

impl Drop for OnceCall {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.engine.leave(Cleanup::once(request));
        }
        // The call is over, or in the queue: a shut-down finds one of the two.
        self.engine.once_calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for OnceCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceCall")
            .field("name", &self.request.as_ref().map(|request| &request.name))
            .finish_non_exhaustive()
    }
}
