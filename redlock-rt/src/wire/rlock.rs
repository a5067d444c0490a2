//! RLock and SpinLock on the wire: a hash `NAME` with one field `owner -> hold count` and a TTL.

use std::time::Duration;

use super::fair_queue::FairQueue;
use super::fast_path::FastPath;
use super::keys;
use super::profile::{self, Profile};
use super::recipe::{Ask, LockRecipe, Recipe, WantedLease};
use super::script::{Call, millis, script};
use crate::name::LockName;

script!(ACQUIRE = "lock_hash" + "take" + "rlock_acquire");
script!(STEAL = "lock_hash" + "take" + "steal" + "rlock_steal");
script!(UPDATE = "undeclared_keys" + "loss" + "rlock_update");
script!(RELEASE = "rlock_release");
script!(FORCE_RELEASE = "lock_hash" + "freed" + "rlock_force_release");
script!(INSPECT = "lock_hash" + "looked_at" + "rlock_inspect");
script!(MIN_HOLD = "fair_wake" + "lock_min_hold");

/// The calls of an RLock, or of a SpinLock: an RLock whose releases are not announced.
#[derive(Debug)]
pub(crate) struct RLockWire {
    name: LockName,
    /// Releases are not announced.
    spins: bool,
}

impl RLockWire {
    pub(crate) fn new(name: LockName) -> Self {
        Self { name, spins: false }
    }

    pub(crate) fn spinning(name: LockName) -> Self {
        Self { name, spins: true }
    }

    /// The call that wakes waiters, if waiters of this kind can be woken.
    fn announced(&self, call: Call) -> Call {
        match self.channel() {
            Some(channel) => call.announcing(channel),
            None => call,
        }
    }
}

impl Recipe for RLockWire {
    fn profile(&self) -> &'static Profile {
        match self.spins {
            true => &profile::SPIN,
            false => &profile::RLOCK,
        }
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        if let (Some(steal), Some(channel)) = (ask.steal, self.channel()) {
            return steal.call(&STEAL, &self.name, None, channel, ask);
        }
        Call::new(&ACQUIRE)
            .key(self.name.as_str())
            .number(millis(ask.lease))
            .arg(ask.owner)
            .or(FastPath::Create)
    }

    fn end(&self, owner: &str, _noted: Duration) -> Call {
        let call = Call::new(&RELEASE).key(self.name.as_str()).arg(owner);
        self.announced(call).or(FastPath::Delete)
    }
}

impl LockRecipe for RLockWire {
    fn force_release(&self) -> Call {
        self.announced(Call::new(&FORCE_RELEASE).key(self.name.as_str()))
    }
}

/// For every kind whose lock is a hash with one field `owner -> hold count`.
pub(super) fn update(
    recipe: &(impl Recipe + ?Sized),
    owner: &str,
    of: WantedLease,
    count: u32,
    reads: &str,
) -> Call {
    Call::new(&UPDATE)
        .key(recipe.name().as_str())
        .number(millis(of.lease))
        .arg(&recipe.field(owner))
        .number(count.into())
        .number(millis(of.most))
        .arg(reads)
}

/// For every kind whose lock is a hash with one field `owner -> hold count`.
pub(super) fn min_hold(recipe: &(impl Recipe + ?Sized), owner: &str, rest: Duration) -> Call {
    let (name, queue) = (recipe.name(), recipe.queue());
    let call = Call::new(&MIN_HOLD).key(name.as_str());
    let call = match queue {
        Some(_) => call.key(&keys::fair_queue(name)),
        None => call.key(name.as_str()),
    };
    let call = call.arg(&recipe.field(owner)).number(millis(rest));
    let call = match queue.map(FairQueue::prefix).or_else(|| recipe.channel()) {
        Some(channel) => call.channel_arg(channel),
        None => call.arg(""),
    };
    call.publishing().arg(keys::WAKE)
}

/// For every kind whose lock is a hash with one field `owner -> hold count`.
pub(super) fn inspect(name: &LockName) -> Call {
    Call::new(&INSPECT).key(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Steal;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = RLockWire::new(LockName::new(None, "n").unwrap());
        let owner = "u:1";
        let lease = Duration::from_secs(1);
        let ask = Ask {
            owner,
            lease,
            waits: true,
            rest: None,
            tokens: 1,
            under: None,
            steal: None,
        };
        let calls = [
            wire.acquire(&ask),
            wire.update(owner, WantedLease { lease, most: lease }, 2)
                .unwrap(),
            wire.release(owner),
            wire.min_hold(owner, lease).unwrap(),
            wire.force_release(),
            wire.inspect(),
            wire.acquire(&Ask {
                steal: Some(&Steal::for_tests()),
                ..ask
            }),
        ];
        calls.iter().for_each(assert_agrees);
    }
}
