//! Calls that are carried out once, however often they are sent.

use std::time::Duration;

use super::keys;
use crate::name::{HoldId, LockName};

/// How long it is noted at least that something was done or withdrawn: far longer than a repeat, or
/// a call that was lost in a connection, can be late.
pub(crate) const NOTED: Duration = Duration::from_secs(120);

/// Tells one call from all others, also where it is repeated.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: HoldId,
    /// For how long Redis notes what it did.
    pub(crate) noted: Duration,
}

impl Operation {
    /// Where Redis notes that.
    pub(super) fn key(&self, name: &LockName) -> String {
        keys::operation(name, self.id.as_str())
    }
}
