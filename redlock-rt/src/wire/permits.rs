//! A semaphore with leases on the wire: a string `NAME` with the number of free permits, and a
//! sorted set of the ids of those that are held, by the ends of their leases.

use std::fmt::Write as _;
use std::time::Duration;

use super::keys;
use super::operation::Operation;
use super::profile::{self, Profile};
use super::recipe::{Ask, Recipe, WantedLease};
use super::reply::{AcquireReply, Malformed, Reply};
use super::script::{Call, millis, script};
use super::semaphore::acquired;
use crate::name::LockName;

script!(ACQUIRE = "permit_ids" + "permits" + "permits_acquire");
script!(RELEASE = "permit_ids" + "permits" + "permits_release");
script!(RELEASE_ID = "permit_ids" + "permits" + "permits_release_id");
script!(UPDATE = "permit_ids" + "permits" + "permits_update");
script!(SET = "permits" + "permits_set");
script!(INSPECT = "permits" + "permits_inspect");

/// Hexadecimal digits of an id.
pub(crate) const ID_DIGITS: usize = 32;

/// Redisson treats a lease that ends after this time as no lease: its mark for that is
/// 922337203685477 ms since 1970.
const TOO_LONG: Duration = Duration::from_millis(900_000_000_000_000);

/// The calls of a semaphore whose holds take this many permits each.
#[derive(Debug)]
pub(crate) struct PermitsWire {
    name: LockName,
    leases: String,
    permits: u32,
    /// The number to set if none is set; 0: none.
    limit: u32,
}

impl PermitsWire {
    pub(crate) fn new(name: LockName, permits: u32, limit: u32) -> Self {
        Self {
            leases: keys::permit_leases(&name),
            name,
            permits,
            limit,
        }
    }

    /// A call that stores this operation.
    fn call_of(&self, script: &'static super::Script, operation: &str) -> Call {
        self.begin(script, Some(operation))
            .announcing(keys::semaphore_channel(&self.name))
    }

    fn begin(&self, script: &'static super::Script, operation: Option<&str>) -> Call {
        let call = Call::new(script).key(self.name.as_str()).key(&self.leases);
        match operation {
            Some(id) => call.key(&keys::operation(&self.name, id)),
            None => call,
        }
    }

    /// The ids of the permits of a hold, concatenated. They are computed from the owner, so that a
    /// repeat takes the same permits.
    pub(crate) fn ids(&self, owner: &str) -> String {
        ids_of(owner, self.permits)
    }

    /// Asks for the numbers of free and held permits. Returns a list of both.
    pub(crate) fn inspect(&self) -> Call {
        let call = self.begin(&INSPECT, None);
        call.channel_arg(keys::semaphore_channel(&self.name))
            .publishing()
    }

    /// Gives one permit back. Returns 1 or 0.
    pub(crate) fn release_id(&self, operation: &Operation, id: &str) -> Call {
        self.call_of(&RELEASE_ID, operation.id.as_str())
            .arg(id)
            .number(millis(operation.noted))
    }

    /// Sets the lease of one permit, also to a shorter one. Returns 1 or 0.
    pub(crate) fn update_lease(&self, id: &str, lease: Duration) -> Call {
        let most = Duration::ZERO;
        self.update_leases(id, WantedLease { lease, most })
    }

    fn update_leases(&self, ids: &str, wanted: WantedLease) -> Call {
        self.begin(&UPDATE, None)
            .announcing(keys::semaphore_channel(&self.name))
            .number(millis(wanted.lease))
            .arg(ids)
            .number(millis(wanted.most))
    }

    /// Sets the total number of permits. Returns the number of free permits afterwards. `once`: only if none is
    /// set; returns 1 or 0.
    pub(crate) fn set(&self, operation: &Operation, permits: u32, once: bool) -> Call {
        self.call_of(&SET, operation.id.as_str())
            .number(permits.into())
            .number(millis(operation.noted))
            .arg(if once { "once" } else { "" })
    }
}

impl Recipe for PermitsWire {
    fn profile(&self) -> &'static Profile {
        &profile::PERMITS
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn permits(&self) -> u32 {
        self.permits
    }

    fn flaw(&self, lease: Duration) -> Option<&'static str> {
        (lease >= TOO_LONG).then_some("the lease is longer than a permit can have")
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        self.call_of(&ACQUIRE, ask.owner)
            .number(millis(ask.lease))
            .arg(&self.ids(ask.owner))
            .number(self.limit.into())
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        acquired(reply)
    }

    fn update(&self, owner: &str, wanted: WantedLease, _count: u32) -> Option<Call> {
        Some(self.update_leases(&self.ids(owner), wanted))
    }

    fn end(&self, owner: &str, noted: Duration) -> Call {
        let call = self.call_of(&RELEASE, owner).arg(&self.ids(owner));
        call.number(millis(noted))
    }

    fn lease_keys(&self, _owner: &str) -> Option<String> {
        Some(self.leases.clone())
    }

    fn permit_ids(&self, owner: &str) -> Option<String> {
        Some(self.ids(owner))
    }
}

pub(super) fn ids_of(owner: &str, permits: u32) -> String {
    let mut ids = String::with_capacity(ID_DIGITS * permits as usize);
    for index in 0..permits {
        let digest = sha1_smol::Sha1::from(format!("{owner}:{index}")).digest();
        for byte in &digest.bytes()[..ID_DIGITS / 2] {
            // Writing to a String cannot fail.
            let _ = write!(ids, "{byte:02x}");
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::HoldId;
    use crate::wire::NOTED;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = PermitsWire::new(LockName::new(None, "n").unwrap(), 2, 0);
        let owner = "u:1";
        let second = Duration::from_secs(1);
        let operation = Operation {
            id: HoldId::from_wire(owner),
            noted: NOTED,
        };
        let ask = Ask {
            owner,
            lease: second,
            waits: true,
            rest: None,
            tokens: 1,
            under: None,
            steal: None,
        };
        let calls = [
            wire.acquire(&ask),
            wire.update(
                owner,
                WantedLease {
                    lease: second,
                    most: second,
                },
                1,
            )
            .unwrap(),
            wire.release(owner),
            wire.withdraw(owner),
            wire.inspect(),
            wire.release_id(&operation, "00"),
            wire.update_lease("00", second),
            wire.set(&operation, 3, false),
            wire.set(&operation, 3, true),
        ];
        calls.iter().for_each(assert_agrees);
    }

    #[test]
    fn ids_are_of_the_owner_and_each_is_another() {
        let wire = PermitsWire::new(LockName::new(None, "n").unwrap(), 2, 0);
        let ids = |owner| wire.ids(owner);
        assert_eq!(ids("u:1"), ids("u:1"));
        assert_ne!(ids("u:1"), ids("u:2"));
        let two = ids("u:1");
        assert_eq!(two.len(), 2 * ID_DIGITS);
        assert_ne!(two[..ID_DIGITS], two[ID_DIGITS..]);
        assert!(two.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn a_lease_that_redisson_would_take_for_none_is_refused() {
        let wire = PermitsWire::new(LockName::new(None, "n").unwrap(), 1, 0);
        assert_eq!(wire.flaw(Duration::from_secs(3600)), None);
        assert!(wire.flaw(TOO_LONG).is_some());
    }
}
