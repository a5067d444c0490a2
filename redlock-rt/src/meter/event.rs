//! The events of a client.

use std::sync::Arc;

use crate::error::LostReason;

/// Something that happened to a client; see [`Client::events`](crate::Client::events).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Something happened to a lock, or to permits, that the client has or wants.
    #[non_exhaustive]
    Lock {
        /// Its name in Redis, with the namespace.
        name: Arc<str>,
        /// Its kind, as in the metrics: `rlock`, `fair`, `rw.read`, `semaphore` …
        kind: &'static str,
        /// What happened.
        what: LockEvent,
    },
    /// Something happened to the connections to a server.
    #[non_exhaustive]
    Server {
        /// Its name, as in errors and log lines.
        server: Arc<str>,
        /// What happened.
        what: ServerEvent,
    },
    /// This many events before the next one were dropped: the listener was too slow.
    Missed(u64),
}

/// An event of a lock, or of permits.
///
/// For one hold, `Acquired` is first, and either `Lost` or `Released` is last. A re-entered lock is one
/// hold, as is one acquisition of several permits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// The client has acquired it.
    Acquired,
    /// Renewals fail. It is held until its lease ends.
    Suspect,
    /// A renewal has succeeded again.
    ValidAgain,
    /// It is lost, for this reason.
    Lost(LostReason),
    /// Its last guard has ended, and the release begins.
    Released,
    /// A call that waited for it gave up at the end of its wait.
    TimedOut,
}

/// An event of the connections to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// A connection was lost, or could not be made. Once, until they are back.
    Lost,
    /// A call was answered again.
    Back,
    /// Another server process has the locks, after a failover or a restart: all locks are verified. In a
    /// cluster the server is the one that serves the slots now.
    Failover,
}
