//! A semaphore without leases on the wire: a string `NAME` with the number of free permits.
//!
//! Redisson does not record which client has a permit. Our holds are recorded in a second key, so that
//! each call may be repeated after a lost reply without losing or creating a permit.
//!
//! A repeated `DECRBY` would take permits twice, so the scripts that change the number set and remove the
//! field of the hold. Calls without a hold (`release(n)`, `add_permits`, `drain`) have their own id. Redis
//! keeps their reply under this id for longer than they are repeated. An acquisition with an unknown
//! outcome is *withdrawn*: a note prevents a late original from taking anything.

use std::time::Duration;

use super::keys;
use super::operation::{NOTED, Operation};
use super::profile::{self, Profile};
use super::recipe::{Ask, Recipe, WantedLease};
use super::reply::{AcquireReply, Acquired, Malformed, Reply, ttl_of};
use super::script::{Call, millis, script};
use crate::name::LockName;

script!(ACQUIRE = "semaphore_acquire");
script!(RELEASE = "semaphore_release");
script!(FORGET = "semaphore_forget");
script!(SET = "semaphore_set");
script!(ADD = "semaphore_add");
script!(DRAIN = "semaphore_drain");
script!(AVAILABLE = "semaphore_available");

/// The calls of a semaphore whose holds take this many permits each.
#[derive(Debug)]
pub(crate) struct SemaphoreWire {
    name: LockName,
    holds: String,
    permits: u32,
    /// The number to set if none is set; 0: none.
    limit: u32,
}

impl SemaphoreWire {
    pub(crate) fn new(name: LockName, permits: u32, limit: u32) -> Self {
        Self {
            holds: keys::semaphore_holds(&name),
            name,
            permits,
            limit,
        }
    }
}

impl Recipe for SemaphoreWire {
    fn profile(&self) -> &'static Profile {
        &profile::SEMAPHORE
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn permits(&self) -> u32 {
        self.permits
    }

    fn counted_in(&self) -> &str {
        &self.holds
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        Call::new(&ACQUIRE)
            .key(self.name.as_str())
            .key(&self.holds)
            .key(&keys::operation(&self.name, ask.owner))
            .arg(ask.owner)
            .number(self.permits.into())
            .number(self.limit.into())
            .announcing(keys::semaphore_channel(&self.name))
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        acquired(reply)
    }

    /// A hold has neither a count nor a lease.
    fn update(&self, _owner: &str, _wanted: WantedLease, _count: u32) -> Option<Call> {
        None
    }

    fn end(&self, owner: &str, noted: Duration) -> Call {
        Call::new(&RELEASE)
            .key(self.name.as_str())
            .key(&self.holds)
            .key(&keys::operation(&self.name, owner))
            .arg(owner)
            .announcing(keys::semaphore_channel(&self.name))
            .number(millis(noted))
    }

    fn forget(&self, owner: &str, repeated: bool) -> Option<Call> {
        let noted = if repeated { NOTED } else { Duration::ZERO };
        let call = Call::new(&FORGET)
            .key(&self.holds)
            .key(&keys::operation(&self.name, owner));
        Some(call.arg(owner).number(millis(noted)))
    }
}

/// Reads a list of the permits left and, for a kind with leases, when the next lease is over; or
/// the reply of a refusal.
pub(super) fn acquired(reply: Reply) -> Result<AcquireReply, Malformed> {
    match reply {
        Reply::Int(-2) => Ok(AcquireReply::Unset),
        refused @ Reply::Int(_) => AcquireReply::try_from(refused),
        taken => taken.read(|items| {
            let (left, next_expiry) = match items {
                [Reply::Int(left)] => (left, None),
                [Reply::Int(left), Reply::Int(next)] => (left, ttl_of(*next)),
                _ => return None,
            };
            Some(AcquireReply::Acquired(Acquired {
                tokens: None,
                permits_left: Some(u64::try_from(*left).unwrap_or(0)),
                next_expiry,
            }))
        }),
    }
}

/// Sets the number of permits if there is none. Returns 1 or 0.
pub(crate) fn set(name: &LockName, operation: &Operation, permits: u32) -> Call {
    Call::new(&SET)
        .key(name.as_str())
        .key(&operation.key(name))
        .key(&keys::semaphore_holds(name))
        .number(permits.into())
        .announcing(keys::semaphore_channel(name))
        .number(millis(operation.noted))
}

/// Adds free permits. Returns the number of free permits afterwards.
pub(crate) fn add(name: &LockName, operation: &Operation, permits: i64) -> Call {
    Call::new(&ADD)
        .key(name.as_str())
        .key(&operation.key(name))
        .key(&keys::semaphore_holds(name))
        .arg(&permits.to_string())
        .announcing(keys::semaphore_channel(name))
        .number(millis(operation.noted))
}

/// Takes all free permits. Returns how many there were.
pub(crate) fn drain(name: &LockName, operation: &Operation) -> Call {
    Call::new(&DRAIN)
        .key(name.as_str())
        .key(&operation.key(name))
        .number(millis(operation.noted))
}

/// Returns the number of free permits.
pub(crate) fn available(name: &LockName) -> Call {
    Call::new(&AVAILABLE).key(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::HoldId;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let name = LockName::new(None, "n").unwrap();
        let wire = SemaphoreWire::new(name.clone(), 3, 0);
        let owner = "u:1";
        let operation = Operation {
            id: HoldId::from_wire(owner),
            noted: NOTED,
        };
        let calls = [
            wire.acquire(&Ask {
                owner,
                lease: Duration::from_secs(1),
                waits: true,
                rest: None,
                tokens: 1,
                under: None,
                steal: None,
            }),
            wire.release(owner),
            wire.withdraw(owner),
            set(&name, &operation, 5),
            add(&name, &operation, -5),
            drain(&name, &operation),
            available(&name),
        ];
        calls.iter().for_each(assert_agrees);
        for repeated in [false, true] {
            wire.forget(owner, repeated).iter().for_each(assert_agrees);
        }
    }

    #[test]
    fn the_waiter_of_the_last_permit_does_not_wake_the_next() {
        let wire = SemaphoreWire::new(LockName::new(None, "n").unwrap(), 1, 0);
        let left = |left| wire.acquired(Reply::List(vec![Reply::Int(left)]));
        let acquired = |left, next_expiry| Acquired {
            tokens: None,
            permits_left: Some(left),
            next_expiry,
        };
        let (none, two) = (acquired(0, None), acquired(2, None));
        assert_eq!(left(0), Ok(AcquireReply::Acquired(none)));
        assert_eq!(left(2), Ok(AcquireReply::Acquired(two)));
        assert!(!none.leaves_more() && two.leaves_more());
        assert_eq!(wire.acquired(Reply::Int(-1)), Ok(AcquireReply::Held(None)));
        assert_eq!(wire.acquired(Reply::Int(-2)), Ok(AcquireReply::Unset));
        assert!(wire.acquired(Reply::Nil).is_err());
        let with = |next| wire.acquired(Reply::List(vec![Reply::Int(0), next]));
        let soon = Some(Duration::from_millis(5));
        let last = AcquireReply::Acquired(acquired(0, soon));
        assert_eq!(with(Reply::Int(5)), Ok(last));
        assert_eq!(with(Reply::Int(-1)), Ok(AcquireReply::Acquired(none)));
        assert!(with(Reply::Nil).is_err());
    }
}
