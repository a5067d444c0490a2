//! Releases and other final calls of a hold: run by a caller that waits for the reply, or in the
//! background.
//!
//! ```text
//! unlock, re-enter, extend ──▶ PendingCleanup ──runs──▶ Cleanup ──▶ connection
//!                                  │ dropped in the middle
//! a dropped guard ─────────────────┴──▶ Releases (queue) ──▶ task
//! ```

mod cleanup;
mod end;
mod once;
mod queue;
mod tally;

pub(super) use self::cleanup::{Cleanup, Goal, OrphanedAttempt, PendingCleanup, abandon};
pub(crate) use self::once::OnceCall;
pub(super) use self::queue::{Releases, run};
pub(super) use self::tally::Open;
