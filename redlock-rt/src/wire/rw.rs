//! The read-write lock on the wire: a hash `NAME` with the field `mode`, one field for each reader
//! (`owner -> hold count`) or for the writer (`owner:write -> hold count`), and a key with the lease
//! for each count of each reader. The writer's lease is the TTL of `NAME`.

use std::time::Duration;

use super::keys::{self, Channel};
use super::profile::{self, Profile};
use super::recipe::{Ask, LockRecipe, Recipe, WantedLease};
use super::reply::{AcquireReply, Malformed, Reply};
use super::rlock;
use super::script::{Call, Script, millis, script};
use crate::name::LockName;

script!(READ_ACQUIRE = "undeclared_keys" + "lock_hash" + "rw_read_acquire");
script!(READ_UPDATE = "undeclared_keys" + "rw_leases" + "loss" + "rw_read_update");
script!(READ_RELEASE = "undeclared_keys" + "rw_leases" + "rw_read_release");
script!(
    READ_INSPECT = "undeclared_keys" + "lock_hash" + "looked_at" + "rw_leases" + "rw_read_inspect"
);
script!(WRITE_ACQUIRE = "undeclared_keys" + "lock_hash" + "rw_leases" + "rw_write_acquire");
script!(WRITE_RELEASE = "undeclared_keys" + "rw_leases" + "rw_write_release");
script!(WRITE_MIN_HOLD = "undeclared_keys" + "rw_leases" + "rw_write_min_hold");
script!(FORCE_RELEASE = "undeclared_keys" + "lock_hash" + "rw_force_release");
script!(WRITE_INSPECT = "lock_hash" + "looked_at" + "rw_write_inspect");

/// The parts that both modes share.
#[derive(Debug)]
struct RwKeys {
    name: LockName,
    waiting_writers: String,
    leases: String,
}

impl RwKeys {
    fn new(name: LockName) -> Self {
        Self {
            waiting_writers: keys::rw_waiting_writers(&name),
            leases: keys::rw_leases(&name),
            name,
        }
    }

    fn channel(&self) -> Channel<'_> {
        keys::rw_channel(&self.name)
    }

    /// The script also reads the keys of leases.
    fn call(&self, script: &'static Script) -> Call {
        Call::new(script).reading_more().key(self.name.as_str())
    }

    fn force_release(&self, mode: &str) -> Call {
        self.call(&FORCE_RELEASE)
            .arg(mode)
            .arg(&self.leases)
            .announcing(self.channel())
    }
}

fn acquired(reply: Reply) -> Result<AcquireReply, Malformed> {
    match reply {
        Reply::Int(-2) => Ok(AcquireReply::Orphaned),
        reply => AcquireReply::try_from(reply),
    }
}

fn write_field(owner: &str) -> String {
    format!("{owner}:write")
}

/// The calls of the lock for reading.
#[derive(Debug)]
pub(crate) struct ReadWire(RwKeys);

impl ReadWire {
    pub(crate) fn new(name: LockName) -> Self {
        Self(RwKeys::new(name))
    }

    fn leases_of(&self, owner: &str) -> String {
        keys::rw_leases_of(&self.0.leases, owner)
    }
}

impl Recipe for ReadWire {
    fn profile(&self) -> &'static Profile {
        &profile::READ
    }

    fn name(&self) -> &LockName {
        &self.0.name
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        self.0
            .call(&READ_ACQUIRE)
            .key(&self.0.waiting_writers)
            .number(millis(ask.lease))
            .arg(ask.owner)
            .arg(&self.leases_of(ask.owner))
            .arg(&ask.under.map(write_field).unwrap_or_default())
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        acquired(reply)
    }

    fn update(&self, owner: &str, wanted: WantedLease, count: u32) -> Option<Call> {
        let call = self
            .0
            .call(&READ_UPDATE)
            .number(millis(wanted.lease))
            .arg(owner)
            .number(count.into())
            .number(millis(wanted.most))
            .arg(&self.0.leases);
        Some(call)
    }

    fn end(&self, owner: &str, _noted: Duration) -> Call {
        self.0
            .call(&READ_RELEASE)
            .arg(owner)
            .arg(&self.0.leases)
            .announcing(self.0.channel())
    }

    fn lease_keys(&self, owner: &str) -> Option<String> {
        Some(self.leases_of(owner))
    }
}

impl LockRecipe for ReadWire {
    fn force_release(&self) -> Call {
        self.0.force_release("read")
    }

    fn inspect(&self) -> Call {
        self.0.call(&READ_INSPECT).arg(&self.0.leases)
    }
}

/// The calls of the lock for writing.
#[derive(Debug)]
pub(crate) struct WriteWire {
    shared: RwKeys,
    /// For how long an attempt that waits keeps new readers out; zero: not at all.
    preference: Duration,
}

impl WriteWire {
    pub(crate) fn new(name: LockName, preference: Duration) -> Self {
        Self {
            shared: RwKeys::new(name),
            preference,
        }
    }

    /// A preferred writer in the set of waiting writers, with the time for which it keeps readers out.
    fn wish(&self, owner: &str) -> String {
        format!("{owner}/{}", millis(self.preference))
    }
}

impl Recipe for WriteWire {
    fn profile(&self) -> &'static Profile {
        match self.preference.is_zero() {
            true => &profile::WRITE,
            false => &profile::WRITE_PREFERRED,
        }
    }

    fn name(&self) -> &LockName {
        &self.shared.name
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let preference = match ask.waits {
            true => self.preference,
            false => Duration::ZERO,
        };
        self.shared
            .call(&WRITE_ACQUIRE)
            .key(&self.shared.waiting_writers)
            .number(millis(ask.lease))
            .arg(&self.wish(ask.owner))
            .arg(&write_field(ask.owner))
            .arg(ask.under.unwrap_or_default())
            .arg(&self.shared.leases)
            .number(millis(preference))
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        acquired(reply)
    }

    fn update(&self, owner: &str, wanted: WantedLease, count: u32) -> Option<Call> {
        let reads = keys::rw_leases_of(&self.shared.leases, owner);
        Some(rlock::update(self, owner, wanted, count, &reads).reading_more())
    }

    fn end(&self, owner: &str, _noted: Duration) -> Call {
        self.shared
            .call(&WRITE_RELEASE)
            .key(&self.shared.waiting_writers)
            .arg(&self.wish(owner))
            .arg(&write_field(owner))
            .arg(&self.shared.leases)
            .announcing(self.shared.channel())
    }

    fn min_hold(&self, owner: &str, rest: Duration) -> Option<Call> {
        let call = self
            .shared
            .call(&WRITE_MIN_HOLD)
            .arg(&write_field(owner))
            .number(millis(rest))
            .arg(&self.shared.leases)
            .announcing(self.shared.channel());
        Some(call)
    }

    fn field(&self, owner: &str) -> String {
        write_field(owner)
    }
}

impl LockRecipe for WriteWire {
    fn force_release(&self) -> Call {
        self.shared.force_release("write")
    }

    fn inspect(&self) -> Call {
        Call::new(&WRITE_INSPECT).key(self.shared.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script::headers::assert_agrees;
    use crate::wire::{RLockWire, Relation};

    fn name(name: &str) -> LockName {
        LockName::new(None, name).unwrap()
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let read = ReadWire::new(name("n"));
        let write = WriteWire::new(name("n"), Duration::from_secs(5));
        let owner = "u:1";
        let wanted = WantedLease {
            lease: Duration::from_secs(1),
            most: Duration::from_secs(2),
        };
        let wires: [&dyn LockRecipe; 2] = [&read, &write];
        for wire in wires {
            let calls = [
                wire.acquire(&Ask {
                    owner,
                    lease: Duration::from_secs(1),
                    waits: true,
                    rest: None,
                    tokens: 1,
                    under: Some(owner),
                    steal: None,
                }),
                wire.update(owner, wanted, 2).unwrap(),
                wire.release(owner),
                wire.force_release(),
                wire.inspect(),
            ];
            calls.iter().for_each(assert_agrees);
            let min_hold = wire.min_hold(owner, Duration::from_secs(1));
            min_hold.iter().for_each(assert_agrees);
        }
    }

    #[test]
    fn replies_are_decoded() {
        let wires: [&dyn Recipe; 2] = [
            &ReadWire::new(name("n")),
            &WriteWire::new(name("n"), Duration::ZERO),
        ];
        for wire in wires {
            assert_eq!(wire.acquired(Reply::Int(-2)), Ok(AcquireReply::Orphaned));
            assert_eq!(wire.acquired(Reply::Int(-1)), Ok(AcquireReply::Held(None)));
            assert!(wire.acquired(Reply::Int(-3)).is_err());
        }
    }

    #[test]
    fn only_a_waiting_writer_is_preferred() {
        let write = WriteWire::new(name("n"), Duration::from_secs(5));
        let owner = "u:1";
        let last = |waits| {
            let ask = Ask {
                owner,
                lease: Duration::from_secs(1),
                waits,
                rest: None,
                tokens: 1,
                under: None,
                steal: None,
            };
            write
                .acquire(&ask)
                .texts()
                .last()
                .map(|last| (*last).to_owned())
        };
        assert_eq!(last(true).as_deref(), Some("5000"));
        assert_eq!(last(false).as_deref(), Some("0"));
    }

    #[test]
    fn relations_between_the_modes() {
        let (read, write) = (
            ReadWire::new(name("n")),
            WriteWire::new(name("n"), Duration::ZERO),
        );
        assert_eq!(read.relation(&read), Relation::Same);
        assert_eq!(read.relation(&write), Relation::Joins);
        assert_eq!(write.relation(&write), Relation::Same);
        assert_eq!(write.relation(&read), Relation::Deadlocks);
        let preferred = WriteWire::new(name("n"), Duration::from_secs(5));
        assert_ne!(preferred.profile().kind, write.profile().kind);
        assert_eq!(read.relation(&preferred), Relation::Joins);
        assert_eq!(write.relation(&preferred), Relation::Same);
        assert_eq!(preferred.relation(&write), Relation::Same);
        assert_eq!(preferred.relation(&read), Relation::Deadlocks);
        let other = ReadWire::new(name("other"));
        assert_eq!(write.relation(&other), Relation::None);
        assert_eq!(read.relation(&RLockWire::new(name("n"))), Relation::None);
    }
}
