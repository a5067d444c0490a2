//! Releases and other final calls of a hold: run by a caller that waits for the reply, or in the
//! background.
//!
//! ```text
//! unlock, re-enter, extend ──▶ PendingCleanup ──runs──▶ Cleanup ──▶ connection
//!                                  │ dropped in the middle
//! a dropped guard ─────────────────┴──▶ Releases (queue) ──▶ task
//! ```
//!
//! A release that was sent at the drop needs no task: the task that reads its reply ends it.

mod cleanup;
mod endings;
mod once;
mod outstanding;
mod queue;
mod releases;

pub(super) use self::cleanup::{Cleanup, PendingCleanup, abandon};
pub(super) use self::endings::OrphanedAttempt;
pub(crate) use self::once::OnceCall;
pub(super) use self::outstanding::Outstanding;
pub(super) use self::releases::{Releases, run};
