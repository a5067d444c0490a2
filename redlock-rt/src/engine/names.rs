//! The names of a client's locks.

use super::engine::ClientEngine;
use crate::name::{BadName, LockName};
use crate::wire::Named;

impl ClientEngine {
    /// The name of a lock of this client, with its namespace; for a client of a cluster, only if its
    /// keys are in one slot.
    pub(crate) fn name(&self, named: Named, name: &str) -> Result<LockName, BadName> {
        self.in_one_slot(
            named,
            LockName::new(self.config.namespace.as_deref(), name)?,
        )
    }

    /// The name of a key of this client, without the namespace; for a client of a cluster, only if its keys
    /// are in one slot.
    pub(crate) fn key(&self, named: Named, key: &str) -> Result<LockName, BadName> {
        self.in_one_slot(named, LockName::new(None, key)?)
    }

    fn in_one_slot(&self, named: Named, name: LockName) -> Result<LockName, BadName> {
        let torn = self.is_of_cluster().then(|| named.torn(&name));
        match torn.flatten() {
            None => Ok(name),
            Some(why) => Err(BadName::new(name.as_str(), why)),
        }
    }
}
