//! Calls that take effect once, however often they are sent.

use std::time::Duration;

use super::keys;
use crate::name::{HoldId, LockName};

/// The shortest time for which an operation or a withdrawal is stored: far longer than the delay of
/// a repeat, or of a call that was lost in a connection.
pub(crate) const NOTED: Duration = Duration::from_secs(120);

/// Identifies one call, including its repeats.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: HoldId,
    /// How long Redis keeps the note.
    pub(crate) noted: Duration,
}

impl Operation {
    /// The key of the note.
    pub(super) fn key(&self, name: &LockName) -> String {
        keys::operation(name, self.id.as_str())
    }
}
