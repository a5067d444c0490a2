//! What is to be done in Redis once, whoever waits for it: now, or when it is dropped.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::settle::{self, Settlement, Unsettled};
use super::{Engine, Repeat, clock};
use crate::connection::Fault;
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::wire::{Call, Malformed, Reply};

impl Engine {
    /// Makes a call that changes something, and says by an id which one it is; reads the answer.
    ///
    /// Unlike an [`Errand`] it does not go on in the background: after an error that says that
    /// nothing was sent the caller may make another.
    ///
    /// # Cancel safety
    ///
    /// It may or may not run.
    pub(crate) async fn once<T>(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: Call,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let reply = self.send(action, name, call, Repeat::Always).await?;
        read(reply).map_err(|malformed| misread(action, name, malformed))
    }

    /// Makes a call that changes nothing, or that sets what it means, and may be made again; reads
    /// the answer.
    ///
    /// # Cancel safety
    ///
    /// It may or may not run.
    pub(crate) async fn look<T>(
        self: &Arc<Self>,
        action: &'static str,
        name: &LockName,
        call: Call,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let reply = self.ask(action, name, call).await?;
        read(reply).map_err(|malformed| misread(action, name, malformed))
    }
}

fn misread(action: &'static str, name: &LockName, malformed: Malformed) -> Error {
    Error::new(ErrorKind::Protocol, action)
        .named(name.as_arc())
        .caused_by(Arc::new(malformed))
}

/// A call that is made once, by [`run`](Self::run), or in the background when this is dropped. It
/// says by an id which one it is.
pub(crate) struct Errand {
    /// `None` once it is somebody else's.
    call: Option<Call>,
    engine: Arc<Engine>,
    name: LockName,
    noted: Duration,
}

impl Errand {
    /// `noted`: for how long Redis remembers the id of the call.
    pub(crate) fn new(engine: &Arc<Engine>, name: &LockName, call: Call, noted: Duration) -> Self {
        Self {
            call: Some(call),
            engine: Arc::clone(engine),
            name: name.clone(),
            noted,
        }
    }

    /// Makes the call, waits for the answer, and reads it.
    ///
    /// # Cancel safety
    ///
    /// It goes on in the background.
    pub(crate) async fn run<T>(
        mut self,
        action: &'static str,
        read: impl FnOnce(Reply) -> Result<T, Malformed>,
    ) -> Result<T, Error> {
        let engine = Arc::clone(&self.engine);
        let name = self.name.clone();
        let named = |error: Error| error.named(name.as_arc());
        let Some((settlement, reply)) = self.take() else {
            // Only a drop takes it besides.
            return Err(named(Fault::Closed.into_error(action)));
        };
        // Not refused while the client shuts down: it waits for what is still to be told.
        engine.ensure_tasks();
        let mut unsettled = Unsettled::new(settlement);
        match unsettled.run(Some(engine.patience(clock::now()))).await {
            Some(Ok(_)) => {}
            Some(Err(fault)) => return Err(named(fault.into_error(action))),
            None => return Err(unsettled.out_of_time(action)),
        }
        let reply = reply.get().cloned();
        read(reply.unwrap_or(Reply::Nil)).map_err(|malformed| misread(action, &name, malformed))
    }

    fn take(&mut self) -> Option<(Settlement, Arc<OnceLock<Reply>>)> {
        let reply = Arc::new(OnceLock::new());
        let errand = settle::Errand {
            engine: Arc::clone(&self.engine),
            name: self.name.clone(),
            call: self.call.take()?,
            noted: self.noted,
            reply: Arc::clone(&reply),
        };
        Some((Settlement::errand(errand), reply))
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some((settlement, _)) = self.take() {
            self.engine.releases.push(settlement);
            self.engine.ensure_tasks();
        }
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
