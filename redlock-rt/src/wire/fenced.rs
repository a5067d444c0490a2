//! FencedLock on the wire: an RLock, and a second key with the last fencing token.

use std::time::Duration;

use super::keys;
use super::profile::{self, Profile};
use super::recipe::{Ask, LockRecipe, Recipe};
use super::reply::{AcquireReply, Acquired, Malformed, Reply, Tokens};
use super::rlock::RLockWire;
use super::script::{Call, LONGEST_SPAN, millis, script};
use crate::name::{HoldId, LockName};

script!(ACQUIRE = "lock_hash" + "take" + "fencing" + "fenced_acquire");
script!(STEAL = "lock_hash" + "take" + "steal" + "fencing" + "fenced_steal");
script!(TOKEN = "fenced_token");
script!(LEADER = "lock_hash" + "looked_at" + "leader");

/// The calls of a FencedLock.
#[derive(Debug)]
pub(crate) struct FencedWire {
    lock: RLockWire,
    profile: &'static Profile,
    token_key: String,
    token_ttl: Option<Duration>,
}

impl FencedWire {
    /// `token_ttl`: how long Redis keeps the last token; `None`: for ever.
    pub(crate) fn new(name: LockName, token_ttl: Option<Duration>) -> Self {
        Self {
            token_key: keys::lock_token(&name),
            lock: RLockWire::new(name),
            profile: &profile::FENCED,
            token_ttl,
        }
    }

    /// The calls of an election, whose holders are leaders.
    pub(crate) fn leading(name: LockName) -> Self {
        Self {
            profile: &profile::LEADER,
            ..Self::new(name, None)
        }
    }
}

impl Recipe for FencedWire {
    fn profile(&self) -> &'static Profile {
        self.profile
    }

    fn name(&self) -> &LockName {
        self.lock.name()
    }

    fn flaw(&self, lease: Duration) -> Option<&'static str> {
        match self.token_ttl {
            Some(ttl) if ttl < lease => Some("the token_ttl is shorter than the lease"),
            Some(ttl) if ttl > LONGEST_SPAN => Some("the token_ttl is longer than redis can keep"),
            _ => None,
        }
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let ttl = self.token_ttl.map_or(0, millis);
        if let (Some(steal), Some(channel)) = (ask.steal, self.channel()) {
            let token = Some(&*self.token_key);
            let call = steal.call(&STEAL, self.name(), token, channel, ask);
            return call.number(ttl);
        }
        Call::new(&ACQUIRE)
            .key(self.name().as_str())
            .key(&self.token_key)
            .number(millis(ask.lease))
            .arg(ask.owner)
            .number(ttl)
            .number(ask.tokens.into())
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        let tokens = match reply {
            held @ Reply::Int(_) => return AcquireReply::try_from(held),
            taken => taken.read(Tokens::read)?,
        };
        Ok(AcquireReply::Acquired(Acquired {
            tokens: Some(tokens),
            ..Acquired::default()
        }))
    }

    fn token_ttl(&self) -> Option<Duration> {
        self.token_ttl
    }

    fn end(&self, owner: &str, noted: Duration) -> Call {
        self.lock.end(owner, noted)
    }
}

impl LockRecipe for FencedWire {
    fn force_release(&self) -> Call {
        self.lock.force_release()
    }
}

/// Asks for the last token that was given for the lock of this name. [`present_token`] reads the
/// reply.
pub(crate) fn ask_token(name: &LockName) -> Call {
    Call::new(&TOKEN).key(&keys::lock_token(name))
}

/// Reads the reply to [`ask_token`].
pub(crate) fn present_token(reply: Reply) -> Result<Option<u64>, Malformed> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Text(ref text) => text.parse().map(Some).map_err(|_| Malformed(reply)),
        other => Err(Malformed(other)),
    }
}

/// Asks for the leader. [`present_leader`] reads the reply.
pub(crate) fn ask_leader(name: &LockName) -> Call {
    let call = Call::new(&LEADER).key(name.as_str());
    call.key(&keys::lock_token(name))
}

/// Reads the reply to [`ask_leader`]: the last term, and the hold of its leader if it still leads.
pub(crate) fn present_leader(reply: Reply) -> Result<(u64, Option<HoldId>), Malformed> {
    reply.read(|items| {
        let (term, owner) = match items {
            [] => return Some((0, None)),
            [Reply::Text(term)] => (term, None),
            [Reply::Text(term), Reply::Text(owner)] => (term, Some(HoldId::from_wire(owner))),
            _ => return None,
        };
        Some((term.parse().ok()?, owner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Steal;
    use crate::wire::script::headers::assert_agrees;

    fn wire(token_ttl: Option<Duration>) -> FencedWire {
        FencedWire::new(LockName::new(None, "n").unwrap(), token_ttl)
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let owner = "u:1";
        let ask = Ask {
            owner,
            lease: Duration::from_secs(1),
            waits: true,
            rest: None,
            tokens: 7,
            under: None,
            steal: None,
        };
        for (ttl, word) in [(None, "0"), (Some(Duration::from_secs(60)), "60000")] {
            let call = wire(ttl).acquire(&ask);
            assert_agrees(&call);
            let tokens = "redisson_lock_token:{n}";
            assert_eq!(call.texts(), ["n", tokens, "1000", "u:1", word, "7"]);
            let theft = Steal::for_tests();
            let steal = Some(&theft);
            let call = wire(ttl).acquire(&Ask { steal, ..ask });
            assert_agrees(&call);
            assert_eq!(call.texts()[1..3], ["redlock_stolen:{n}:v:1", tokens]);
        }
        assert_agrees(&ask_token(wire(None).name()));
        assert_agrees(&ask_leader(wire(None).name()));
    }

    #[test]
    fn tokens_and_remaining_times_are_told_apart() {
        let read = |reply| wire(None).acquired(reply);
        let last = u64::from(u32::MAX) << 20;
        let reply =
            |last: u64, count| Reply::List(vec![Reply::Text(last.to_string()), Reply::Int(count)]);
        let given = |last, count| {
            let Ok(AcquireReply::Acquired(acquired)) = read(reply(last, count)) else {
                panic!("{count} up to {last} are no tokens")
            };
            let next = |tokens: &Tokens| tokens.next();
            let all = std::iter::successors(acquired.tokens, next);
            all.map(Tokens::first).collect::<Vec<_>>()
        };
        assert_eq!(given(last, 1), [last]);
        assert_eq!(given(last, 3), [last - 2, last - 1, last]);
        for (last, count) in [(0, 1), (3, 4), (last, 0), (last, -1), (last, 1 << 40)] {
            let odd = reply(last, count);
            assert_eq!(read(odd.clone()), Err(Malformed(odd)));
        }
        let held = AcquireReply::Held(Some(Duration::from_millis(5)));
        assert_eq!(read(Reply::Int(5)), Ok(held));
        assert_eq!(read(Reply::Int(-1)), Ok(AcquireReply::Held(None)));
        // No resource would refuse a hold without a token.
        let text = |text: &str| Reply::Text(text.into());
        let words = |word| Reply::List(vec![text(word), Reply::Int(1)]);
        for odd in [Reply::Nil, text("7"), words("1e+15"), Reply::List(vec![])] {
            assert_eq!(read(odd.clone()), Err(Malformed(odd)));
        }
    }

    #[test]
    fn a_guard_was_given_the_token_zero() {
        let zero = || Reply::Text("0".into());
        let given = || Reply::List(vec![zero(), Reply::Int(1)]);
        assert_eq!(wire(None).acquired(given()), Err(Malformed(given())));
        // A counter that another program has set is shown as it is.
        assert_eq!(present_token(zero()), Ok(Some(0)));
    }

    #[test]
    fn the_token_is_not_forgotten_before_the_lease_is_over() {
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis(1));
        assert_eq!(wire(None).flaw(second), None);
        assert_eq!(wire(Some(second)).flaw(second), None);
        assert!(wire(Some(second - ms)).flaw(second).is_some());
        assert!(wire(Some(LONGEST_SPAN + ms)).flaw(second).is_some());
    }
}
