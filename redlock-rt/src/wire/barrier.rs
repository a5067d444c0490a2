//! A barrier on the wire: its parties, a sorted set by the ends of their leases as for permits, and a hash
//! with the number of the present generation and the ends of the last ones.
//!
//! Each round of a double barrier is two generations: the parties enter in one, and leave in the next.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::keys::{self, Channel};
use super::latch::{Gate, GateState};
use super::operation::{NOTED, Operation};
use super::permits::{ID_DIGITS, ids_of};
use super::profile::{self, Profile};
use super::recipe::{Ask, Recipe, WantedLease};
use super::reply::{AcquireReply, Acquired, Malformed, Reply, Tokens, ttl_of};
use super::script::{Call, Script, millis, script};
use crate::error::ErrorKind;
use crate::name::LockName;

script!(ARRIVE = "permit_ids" + "barrier" + "barrier_arrive");
script!(UPDATE = "permit_ids" + "barrier" + "barrier_update");
script!(LEAVE = "permit_ids" + "barrier" + "barrier_leave");
script!(LOOK = "barrier" + "barrier_look");
script!(RESET = "barrier" + "barrier_reset");

/// How a generation ended in which all parties have left.
pub(crate) const LEFT: &str = "left";
/// How a generation ended in which a party died.
pub(crate) const BROKEN: &str = "broken";

/// The calls of one caller at a barrier.
#[derive(Debug)]
pub(crate) struct BarrierWire {
    name: LockName,
    profile: &'static Profile,
    keys: [String; 2],
    parties: u32,
    /// Why Redis did not let the caller arrive: the barrier is [`BROKEN`], or the other parties have set this
    /// other number of parties.
    pub(crate) refused: OnceLock<String>,
}

/// A generation of a barrier.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) wire: Arc<BarrierWire>,
    pub(crate) number: u64,
}

impl BarrierWire {
    pub(crate) fn new(name: LockName, double: bool, parties: u32) -> Self {
        let profile = match double {
            true => &profile::DOUBLE_BARRIER,
            false => &profile::BARRIER,
        };
        Self {
            keys: keys::barrier(profile.kind, &name),
            name,
            profile,
            parties,
            refused: OnceLock::new(),
        }
    }

    /// A call that may store this operation.
    fn call(&self, script: &'static Script, operation: Option<&str>) -> Call {
        let [state, parties] = &self.keys;
        let call = Call::new(script).key(state).key(parties);
        let call = match operation {
            Some(id) => call.key(&keys::operation(&self.name, id)),
            None => call,
        };
        call.announcing(keys::barrier_channel(&self.name))
    }

    /// Ends the present generation. Returns 1 or 0.
    pub(crate) fn reset(&self, operation: &Operation) -> Call {
        let call = self.call(&RESET, Some(operation.id.as_str()));
        call.number(millis(operation.noted))
    }

    /// The index of a party among those whose generation ended in this way.
    pub(crate) fn place(ended: &str, owner: &str) -> Option<usize> {
        let id = ids_of(owner, 1);
        let ids = ended.as_bytes().chunks(ID_DIGITS);
        ids.into_iter().position(|party| party == id.as_bytes())
    }
}

impl Recipe for BarrierWire {
    fn profile(&self) -> &'static Profile {
        self.profile
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        self.call(&ARRIVE, Some(ask.owner))
            .arg(&ids_of(ask.owner, 1))
            .number(millis(ask.lease))
            .number(self.parties.into())
            .number(millis(NOTED))
            .number((self.profile.kind == profile::DOUBLE_BARRIER.kind).into())
    }

    /// The generation takes the place of a fencing token.
    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        match reply {
            Reply::Int(rest @ 0..) => Ok(AcquireReply::Held(ttl_of(rest))),
            Reply::Text(why) if why == BROKEN || why.parse::<u32>().is_ok() => {
                // A repeat may be refused for another reason; the first one is as good.
                let _ = self.refused.set(why);
                Ok(AcquireReply::Over)
            }
            arrived => Ok(AcquireReply::Acquired(Acquired {
                tokens: Some(arrived.read(Tokens::read)?),
                ..Acquired::default()
            })),
        }
    }

    fn update(&self, owner: &str, wanted: WantedLease, _count: u32) -> Option<Call> {
        let call = self.call(&UPDATE, None).arg(&ids_of(owner, 1));
        Some(call.number(millis(wanted.lease.max(wanted.most))))
    }

    fn end(&self, owner: &str, noted: Duration) -> Call {
        let call = self.call(&LEAVE, Some(owner)).arg(&ids_of(owner, 1));
        call.number(millis(noted))
    }

    fn lease_keys(&self, _owner: &str) -> Option<String> {
        Some(self.keys[1].clone())
    }

    fn permit_ids(&self, owner: &str) -> Option<String> {
        Some(ids_of(owner, 1))
    }

    /// The TTL of the parties does not depend on another key: a key `NAME` does not belong to the barrier.
    fn renewed_key(&self) -> &str {
        &self.keys[1]
    }
}

impl Gate for Generation {
    fn name(&self) -> &LockName {
        &self.wire.name
    }

    fn queue(&self) -> (&'static str, LockName) {
        let name = self.wire.name.part(self.number);
        (self.wire.profile.kind, name)
    }

    fn channel(&self) -> Channel<'_> {
        keys::barrier_channel(&self.wire.name)
    }

    fn check(&self) -> Call {
        self.wire.call(&LOOK, None).number(self.number)
    }

    fn read(&self, reply: Reply) -> Result<GateState, Malformed> {
        let Reply::Text(how) = reply else {
            return reply.read(|items| match items {
                [Reply::Int(count @ 0..), Reply::Int(rest @ 0..)] => {
                    Some(GateState::Closed(count.unsigned_abs(), ttl_of(*rest)))
                }
                _ => None,
            });
        };
        Ok(GateState::Ended(match &*how {
            BROKEN => Err(ErrorKind::BarrierBroken),
            "reset" => Err(ErrorKind::BarrierReset),
            how => Ok(how.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::HoldId;
    use crate::wire::script::headers::assert_agrees;

    const SECOND: Duration = Duration::from_secs(1);

    fn wire(double: bool) -> Arc<BarrierWire> {
        let name = LockName::new(None, "n").unwrap();
        Arc::new(BarrierWire::new(name, double, 3))
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let owner = "u:1";
        let ask = Ask {
            owner,
            lease: SECOND,
            waits: true,
            rest: None,
            tokens: 1,
            under: None,
            steal: None,
        };
        let operation = Operation {
            id: HoldId::from_wire(owner),
            noted: NOTED,
        };
        for (double, kind) in [(false, "barrier"), (true, "double_barrier")] {
            let wire = wire(double);
            let wanted = WantedLease {
                lease: Duration::ZERO,
                most: SECOND,
            };
            let look = Generation {
                wire: Arc::clone(&wire),
                number: 7,
            };
            let arrive = wire.acquire(&ask);
            let parties = format!("redlock_{kind}_parties:{{n}}");
            let keys = [&format!("redlock_{kind}:{{n}}"), &parties];
            assert_eq!(arrive.texts()[..2], keys);
            assert_eq!(arrive.texts()[2], "redlock_op:{n}:u:1");
            let calls = [
                arrive,
                wire.update(owner, wanted, 1).unwrap(),
                wire.release(owner),
                wire.withdraw(owner),
                wire.reset(&operation),
                look.check(),
            ];
            calls.iter().for_each(assert_agrees);
        }
    }

    #[test]
    fn arrivals_are_told_apart() {
        let read = |reply| {
            let wire = wire(false);
            let reply = wire.acquired(reply);
            (reply, wire.refused.get().cloned())
        };
        let (arrived, refused) = read(Reply::List(vec![text("7"), Reply::Int(1)]));
        let Ok(AcquireReply::Acquired(acquired)) = arrived else {
            panic!("{arrived:?}");
        };
        assert_eq!((acquired.tokens.unwrap().first(), refused), (7, None));
        let over = |why: &str| (Ok(AcquireReply::Over), Some(why.to_owned()));
        assert_eq!(read(text("broken")), over("broken"));
        assert_eq!(read(text("4")), over("4"));
        let inside = Ok(AcquireReply::Held(Some(Duration::from_millis(5))));
        assert_eq!(read(Reply::Int(5)), (inside, None));
        for odd in [
            Reply::Nil,
            Reply::Int(-1),
            Reply::List(vec![]),
            text("soon"),
        ] {
            assert_eq!(read(odd.clone()), (Err(Malformed(odd)), None));
        }
    }

    #[test]
    fn ends_are_told_apart_and_a_party_finds_its_place_in_them() {
        let generation = Generation {
            wire: wire(false),
            number: 7,
        };
        let open = Reply::List(vec![Reply::Int(2), Reply::Int(1000)]);
        let closed = GateState::Closed(2, Some(SECOND));
        assert_eq!(generation.read(open), Ok(closed));
        for (how, ended) in [
            ("broken", Err(ErrorKind::BarrierBroken)),
            ("reset", Err(ErrorKind::BarrierReset)),
            ("left", Ok("left".into())),
            ("", Ok("".into())),
        ] {
            assert_eq!(generation.read(text(how)), Ok(GateState::Ended(ended)));
        }
        assert!(generation.read(Reply::Nil).is_err());
        assert!(generation.read(Reply::List(vec![])).is_err());
        let ended = ids_of("u:1", 1) + &ids_of("u:2", 1);
        assert_eq!(BarrierWire::place(&ended, "u:1"), Some(0));
        assert_eq!(BarrierWire::place(&ended, "u:2"), Some(1));
        for ended in [&ended, "left", ""] {
            assert_eq!(BarrierWire::place(ended, "u:3"), None);
        }
    }
}
