//! SpinLock on the wire: an RLock whose releases are not announced.

use super::fast_path::FastPath;
use super::keys::Channel;
use super::profile::{self, Profile};
use super::recipe::{Ask, LockRecipe, Recipe};
use super::rlock;
use super::script::{Call, script};
use crate::name::LockName;

script!(RELEASE = "spin_release");
script!(FORCE_RELEASE = "lock_hash" + "spin_force_release");

/// The calls of a SpinLock.
#[derive(Debug)]
pub(crate) struct SpinWire {
    name: LockName,
}

impl SpinWire {
    pub(crate) fn new(name: LockName) -> Self {
        Self { name }
    }
}

impl Recipe for SpinWire {
    fn profile(&self) -> &'static Profile {
        &profile::SPIN
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn channel(&self) -> Option<Channel<'_>> {
        None
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        rlock::acquire(&self.name, ask)
    }

    fn release(&self, owner: &str) -> Call {
        Call::new(&RELEASE)
            .key(self.name.as_str())
            .arg(owner)
            .or(FastPath::Delete)
    }
}

impl LockRecipe for SpinWire {
    fn force_release(&self) -> Call {
        Call::new(&FORCE_RELEASE).key(self.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = SpinWire::new(LockName::new(None, "n").unwrap());
        let owner = "u:1";
        [wire.release(owner), wire.force_release()]
            .iter()
            .for_each(assert_agrees);
    }
}
