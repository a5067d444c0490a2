//! The common part of both kinds of semaphores.

use std::fmt;
use std::sync::Arc;

use crate::engine::{ClientEngine, Handle, Repeat};
use crate::error::{Error, ErrorKind};
use crate::name::{BadName, LockName};
use crate::wire::{self, Call, Malformed, Named, Operation, Reply};

pub(super) const ACQUIRE: &str = "acquire permits of semaphore";
/// The most permits that a semaphore can have: Redisson counts them in 32 bits.
pub(super) const MOST_PERMITS: u32 = i32::MAX.unsigned_abs();

/// A name with a number of permits.
#[derive(Clone)]
pub(super) struct Counted {
    pub(super) engine: Handle,
    name: Result<LockName, BadName>,
    pub(super) limit: Option<u32>,
}

impl Counted {
    pub(super) fn new(engine: &Arc<ClientEngine>, named: Named, name: &str) -> Self {
        Self {
            engine: Handle::new(engine),
            name: engine.name(named, name),
            limit: None,
        }
    }

    pub(super) fn name(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(|bad| bad.clone().into())
    }

    /// The name, if this number of permits may be requested.
    pub(super) fn taking(
        &self,
        action: &'static str,
        permits: u32,
        most: u32,
    ) -> Result<&LockName, Error> {
        let name = self.name()?;
        let why = match permits {
            0 => "no permits".to_owned(),
            _ if permits > most => format!("more than {most} permits"),
            _ => return Ok(name),
        };
        Err(Error::bad_input(action, why).named(name.as_arc()))
    }

    /// The number of permits that an acquisition sets if none is set; zero: none.
    pub(super) fn limit(&self) -> Result<u32, Error> {
        let why = match self.limit {
            None => return Ok(0),
            Some(0) => "a limit of no permits".to_owned(),
            Some(limit) if limit > MOST_PERMITS => {
                format!("a limit of more than {MOST_PERMITS} permits")
            }
            Some(limit) => return Ok(limit),
        };
        Err(Error::bad_input(ACQUIRE, why).named(self.name()?.as_arc()))
    }

    /// The name, if a semaphore can have this number of permits.
    pub(super) fn having(&self, action: &'static str, permits: u32) -> Result<&LockName, Error> {
        match permits {
            0 => self.name(),
            _ => self.taking(action, permits, MOST_PERMITS),
        }
    }

    /// Converts an error of the engine for a request for permits.
    pub(super) fn acquiring(error: Error) -> Error {
        let error = error.trying(ACQUIRE);
        match error.kind() {
            ErrorKind::Contended => error.saying_unless_said("too few permits are free"),
            ErrorKind::TimedOut => {
                error.saying_unless_said("timed out while too few permits were free")
            }
            _ => error,
        }
    }

    /// Sends a call that takes effect once, however often it is sent.
    pub(super) async fn operate(
        &self,
        action: &'static str,
        call: impl FnOnce(&LockName, &Operation) -> Call,
    ) -> Result<i64, Error> {
        let name = self.name()?;
        let call = call(name, &self.engine.operation());
        let sent = self.engine.send(action, name, call, Repeat::Always, number);
        sent.await
    }

    pub(super) async fn try_set_permits(&self, permits: u32) -> Result<bool, Error> {
        const ACTION: &str = "set the permits of semaphore";
        self.having(ACTION, permits)?;
        let set = self.operate(ACTION, |name, operation| {
            wire::set_permits(name, operation, permits)
        });
        Ok(set.await? == 1)
    }

    pub(super) async fn add(&self, action: &'static str, permits: i64) -> Result<(), Error> {
        let added = self.operate(action, |name, operation| {
            wire::add_permits(name, operation, permits)
        });
        added.await.map(drop)
    }
}

pub(super) fn number(reply: Reply) -> Result<i64, Malformed> {
    match reply {
        Reply::Int(number) => Ok(number),
        other => Err(Malformed(other)),
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_ref().map(LockName::as_str);
        f.debug_struct("Counted")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}
