//! FairLock on the wire: an RLock, and a queue of its waiters.
//!
//! # Deadlines of mixed queues
//!
//! Redisson subtracts its own wait from all deadlines for each of its waiters that takes the lock. A Java
//! waiter that queues behind ours gets our deadline plus its own wait. So a live waiter of ours needs room,
//! and if it dies, others would wait for all of it.
//!
//! * A waiter of ours also has Redisson's deadline, which Redisson's shifts keep right, whatever the waits
//!   before it. Beyond that, its client renews the deadline with each beat for as long as the client counts
//!   as alive, with room for the known waits before it. So a live waiter stays, and a dead one costs what
//!   Redisson's would, or 5 s.
//! * The scripts store only values that Redisson's shifts do not change: the distance of two deadlines is
//!   the wait of the second waiter, and the distance of a deadline from Redisson's value is one number. A
//!   corrected deadline of a Java waiter carries its mark in itself (a fraction of `.5`), because a
//!   separate note could be older than the waiter.
//! * One case is left: the wait of a Java waiter that is next, and came while none of ours was queued, is
//!   not known. The estimate is never too long. It may be too short by the time for which that waiter had
//!   already waited. Our waiter then loses its place and queues again, if the Java waiter got the lock too
//!   late: later than the present lease and the whole wait of ours (5 min without a limit) after it came. A
//!   Redisson client would lose its place too.

use std::time::Duration;

use super::fair_queue::{FairPlace, FairQueue, LONGEST};
use super::keys;
use super::profile::{self, Profile};
use super::recipe::{Ask, LockRecipe, Recipe};
use super::reply::{AcquireReply, Acquired, Malformed, Reply, ttl_of};
use super::script::{Call, millis, script};
use crate::name::{ClientId, HoldId, LockName};

script!(
    ACQUIRE =
        "lock_hash" + "fair_wake" + "fair_turn" + "fair_enter" + "fair_queue" + "fair_acquire"
);
script!(RELEASE = "fair_wake" + "fair_turn" + "fair_give" + "fair_queue" + "fair_release");
script!(
    FORCE_RELEASE =
        "lock_hash" + "fair_wake" + "fair_turn" + "fair_queue" + "freed" + "fair_force_release"
);
script!(BEAT = "lock_hash" + "fair_wake" + "fair_turn" + "fair_queue" + "fair_beat");
script!(POSITION = "fair_position");

/// The part of a beat about one queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heartbeat<'a> {
    pub(crate) queue: &'a FairQueue,
    /// Queued waiters that no longer wait, to be removed from the queue.
    pub(crate) left_over: &'a [u64],
    /// The oldest waiters, for which the beat asks whether they are still queued.
    pub(crate) oldest: &'a [u64],
}

/// Reports that the client is alive, removes waiters that no longer wait, and asks for the head of
/// each queue. [`Beat::decode_all`] reads the reply.
pub(crate) fn beat(client: &ClientId, of: &[Heartbeat<'_>]) -> Call {
    let keyed = of
        .iter()
        .fold(Call::new(&BEAT), |call, of| of.queue.keyed(call));
    let call = keyed.publishing().arg(keys::WAKE).arg(client.as_str());
    of.iter().fold(call, |call, of| {
        let call = call
            .channel_arg(of.queue.prefix())
            .number(millis(LONGEST))
            .number(millis(of.queue.alive))
            .number(of.left_over.len() as u64)
            .number(of.oldest.len() as u64);
        let numbers = of.left_over.iter().chain(of.oldest);
        numbers.fold(call, |call, &number| call.number(number))
    })
}

/// Asks how many waiters there are, and how many of them are before `owner`. Returns a list of both;
/// the second is -1 if `owner` does not wait.
pub(crate) fn position(name: &LockName, owner: Option<&HoldId>) -> Call {
    Call::new(&POSITION)
        .key(&keys::fair_queue(name))
        .arg(owner.map_or("", HoldId::as_str))
}

/// A message on the [channel](keys::wake_channel) of a client: the waiter that is next, and the name of its
/// lock. If two names have one queue, it may be the other name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnMessage<'a> {
    pub(crate) number: u64,
    pub(crate) name: &'a str,
    /// The time until the holder's lease ends; `None`: the waiter may try now.
    pub(crate) left: Option<Duration>,
}

impl<'a> TurnMessage<'a> {
    /// The message that a waiter may try now.
    pub(crate) fn encode_now(number: u64, name: &str) -> String {
        format!("{number} {name}")
    }

    pub(crate) fn decode(payload: &'a str) -> Option<Self> {
        let (number, name) = payload.split_once(' ')?;
        let (number, left) = match number.split_once('@') {
            Some((number, left)) => (number, Some(Duration::from_millis(left.parse().ok()?))),
            None => (number, None),
        };
        let number = number.parse().ok()?;
        Some(Self { number, name, left })
    }
}

/// The reply to a beat about one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beat {
    /// The head of the queue.
    pub(crate) head: Option<HoldId>,
    /// Whether the lock is free.
    pub(crate) is_free: bool,
    /// The remaining lease of the holder; `None` if the lock is free or has no TTL.
    pub(crate) lease: Option<Duration>,
    /// The numbers of the oldest waiters that are no longer queued.
    pub(crate) missing: Vec<u64>,
}

impl Beat {
    /// Reads the reply to a [`beat`] about this many queues.
    pub(crate) fn decode_all(reply: Reply, queues: usize) -> Result<Vec<Self>, Malformed> {
        reply.read(|all| match all.len() == queues {
            true => all.iter().map(Self::decode).collect(),
            false => None,
        })
    }

    fn decode(reply: &Reply) -> Option<Self> {
        let Reply::List(items) = reply else {
            return None;
        };
        let [Reply::Text(head), Reply::Int(ttl @ -1..), missing @ ..] = items.as_slice() else {
            return None;
        };
        let missing = missing.iter().map(|item| match item {
            Reply::Text(number) => number.parse().ok(),
            _ => None,
        });
        Some(Self {
            head: (!head.is_empty()).then(|| HoldId::from_wire(head)),
            is_free: *ttl == 0,
            lease: ttl_of(*ttl).filter(|lease| !lease.is_zero()),
            missing: missing.collect::<Option<_>>()?,
        })
    }
}

impl Recipe for FairQueue {
    fn profile(&self) -> &'static Profile {
        &profile::FAIR
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        self.call(&ACQUIRE)
            .number(millis(ask.lease))
            .arg(ask.owner)
            .number(if ask.waits { millis(self.alive) } else { 0 })
            .number(ask.rest.map_or(0, |rest| millis(rest).max(1)))
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        match reply {
            Reply::Nil => Ok(AcquireReply::Acquired(Acquired::default())),
            refused => FairPlace::decode(refused).map(AcquireReply::Queued),
        }
    }

    fn end(&self, owner: &str, _noted: Duration) -> Call {
        self.call(&RELEASE).arg(owner)
    }

    fn grant(&self, owner: &str, waiters: &[(HoldId, Duration)]) -> Option<Call> {
        let release = self.release(owner);
        Some(waiters.iter().fold(release, |call, (waiter, lease)| {
            call.arg(waiter.as_str()).number(millis(*lease))
        }))
    }

    fn queue(&self) -> Option<&Self> {
        Some(self)
    }
}

impl LockRecipe for FairQueue {
    fn force_release(&self) -> Call {
        self.call(&FORCE_RELEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script::headers::assert_agrees;

    const S: Duration = Duration::from_secs(1);

    fn wire(name: &str) -> FairQueue {
        FairQueue::new(LockName::new(None, name).unwrap(), 5 * S)
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = wire("n");
        let owner = "u:1";
        let ask = |waits| Ask {
            owner,
            lease: S,
            waits,
            rest: waits.then_some(S),
            tokens: 1,
            under: None,
            steal: None,
        };
        let calls = [
            wire.acquire(&ask(true)),
            wire.acquire(&ask(false)),
            wire.release(owner),
            wire.force_release(),
            position(wire.name(), Some(&HoldId::from_wire(owner))),
        ];
        calls.iter().for_each(assert_agrees);
    }

    #[test]
    fn a_release_names_waiters_behind_the_owner() {
        let wire = wire("n");
        let owner = "u:1";
        let [first, second] = ["u:2", "u:3"].map(HoldId::from_wire);
        let call = wire.grant(owner, &[(first, S), (second, 2 * S)]);
        let call = call.unwrap();
        let words = call.texts();
        assert_eq!(words[8..], ["u:1", "u:2", "1000", "u:3", "2000"]);
        assert_eq!(words[..9], wire.release(owner).texts());
    }

    #[test]
    fn the_scripts_know_whose_a_waiter_is() {
        let client = ClientId::random();
        assert_eq!(client.as_str()[14..18], *ClientId::MARK);
        let known = format!("string.sub(owner, 15, 18) == '{}'", ClientId::MARK);
        assert!(ACQUIRE.text.contains(&known));
    }

    #[test]
    fn a_name_may_have_blanks() {
        let heard = |number, name, left| Some(TurnMessage { number, name, left });
        assert_eq!(
            TurnMessage::decode("7 svc:order"),
            heard(7, "svc:order", None)
        );
        assert_eq!(TurnMessage::decode("7  a b"), heard(7, " a b", None));
        assert_eq!(TurnMessage::encode_now(7, " a b"), "7  a b");
        let left = Some(Duration::from_millis(365));
        assert_eq!(TurnMessage::decode("7@365 a@b c"), heard(7, "a@b c", left));
        for payload in ["x a", "0", "7@ a", "7@-1 a", "@5 a"] {
            assert_eq!(TurnMessage::decode(payload), None, "{payload}");
        }
    }

    #[test]
    fn replies_are_decoded() {
        let wire = wire("n");
        let list = |ttl, next| Reply::List([ttl, next, 1, 7].map(Reply::Int).into());
        assert_eq!(
            wire.acquired(Reply::Nil),
            Ok(AcquireReply::Acquired(Acquired::default()))
        );
        let place = |is_next, lease| {
            Ok(AcquireReply::Queued(FairPlace {
                is_next,
                lease,
                mixed: true,
                at: 7,
            }))
        };
        let lease = Some(Duration::from_millis(5));
        assert_eq!(wire.acquired(list(5, 0)), place(true, lease));
        assert_eq!(wire.acquired(list(-1, 1)), place(false, None));
        assert!(wire.acquired(list(-2, 0)).is_err());
        assert!(wire.acquired(Reply::Int(5)).is_err());
        let text = |text: &str| Reply::Text(text.into());
        let beats = || {
            let free = vec![text("u:1"), Reply::Int(0), text("2")];
            let held = vec![text(""), Reply::Int(5)];
            let endless = vec![text(""), Reply::Int(-1)];
            Reply::List([free, held, endless].map(Reply::List).into())
        };
        let held = |lease| Beat {
            head: None,
            is_free: false,
            lease,
            missing: vec![],
        };
        let free = Beat {
            head: Some(HoldId::from_wire("u:1")),
            is_free: true,
            lease: None,
            missing: vec![2],
        };
        let expected = vec![free, held(Some(Duration::from_millis(5))), held(None)];
        assert_eq!(Beat::decode_all(beats(), 3), Ok(expected));
        assert!(Beat::decode_all(beats(), 1).is_err());
        assert!(Beat::decode_all(Reply::List(vec![Reply::Nil]), 1).is_err());
    }

    #[test]
    fn a_beat_of_several_queues_has_their_keys_first() {
        let (a, b) = (wire("a"), wire("b"));
        let first = Heartbeat {
            queue: &a,
            left_over: &[7],
            oldest: &[8, 9],
        };
        let second = Heartbeat {
            queue: &b,
            left_over: &[],
            oldest: &[1],
        };
        let client = ClientId::random();
        let call = beat(&client, &[first, second]);
        assert_eq!(call.key_count(), 8);
        let words = &call.texts()[8..];
        let expected = [
            "PUBLISH",
            "redlock_wake",
            client.as_str(),
            "redisson_lock__channel:{a}",
            "300000",
            "5000",
            "1",
            "2",
            "7",
            "8",
            "9",
            "redisson_lock__channel:{b}",
            "300000",
            "5000",
            "0",
            "1",
            "1",
        ];
        assert_eq!(words, expected);
    }
}
