//! FairLock on the wire: an RLock, and a queue of those who wait for it.

use std::time::Duration;

use super::recipe::{Ask, Recipe};
use super::reply::{AcquireReply, Malformed, Reply, ttl_of};
use super::script::{Call, PUBLISH, millis, script};
use super::{keys, rlock};
use crate::name::{ClientId, LockName, OwnerId};

script!(ACQUIRE = "lock_hash" + "fair_queue" + "fair_acquire");
script!(RELEASE = "fair_queue" + "fair_release");
script!(FORCE_RELEASE = "lock_hash" + "fair_queue" + "fair_force_release");
script!(BEAT = "fair_queue" + "fair_beat");
script!(POSITION = "fair_position");

/// What the waiters of a fair lock are granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FairTerms {
    /// How long the waiters of a client that was not heard count as alive.
    pub(crate) alive: Duration,
    /// How long a waiter counts at most for the deadlines by which Redisson judges those behind it.
    /// Redisson's `fairLockWaitTimeout`.
    pub(crate) longest: Duration,
}

/// A turn that nobody announced is found after so long at the latest; and often enough that no
/// deadline passes between two beats, which put it off a minute before.
const LONGEST_BEAT: Duration = Duration::from_secs(30);

/// The keys and channels of a queue.
#[derive(Debug)]
pub(crate) struct FairQueue {
    name: LockName,
    queue: String,
    deadlines: String,
    notes: String,
    /// A waiter's channel is this, a colon, and its owner.
    prefix: String,
    terms: FairTerms,
}

impl FairQueue {
    fn new(name: LockName, terms: FairTerms) -> Self {
        Self {
            queue: keys::fair_queue(&name),
            deadlines: keys::fair_deadlines(&name),
            notes: keys::fair_notes(&name),
            prefix: keys::lock_channel(&name),
            name,
            terms,
        }
    }

    /// How often a client must be heard, and hears whose turn it is.
    pub(crate) fn beat_every(&self) -> Duration {
        (self.terms.alive / 3).min(LONGEST_BEAT)
    }

    /// The pattern that the channels of all waiters of a client match, and no others.
    pub(crate) fn channels_of(&self, client: &ClientId) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 48);
        for c in self.prefix.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        [&pattern, ":", client.as_str(), ":*"].concat()
    }

    /// The channel of one waiter.
    pub(crate) fn channel_of(&self, waiter: &OwnerId) -> String {
        [&self.prefix, ":", waiter.as_str()].concat()
    }

    fn call(&self, script: &'static super::Script) -> Call {
        Call::new(script)
            .key(self.name.as_str())
            .key(&self.queue)
            .key(&self.deadlines)
            .key(&self.notes)
            .arg(&self.prefix)
            .arg(PUBLISH)
            .number(millis(self.terms.longest))
    }

    /// Says that the client is alive, takes those out of the queue that nobody waits as, and asks
    /// who is next. Answered by [`Beat::decode`].
    pub(crate) fn beat(&self, client: &ClientId, gone: &[OwnerId], oldest: &[OwnerId]) -> Call {
        let call = self
            .call(&BEAT)
            .arg(client.as_str())
            .number(millis(self.terms.alive))
            .number(gone.len() as u64);
        let owners = gone.iter().chain(oldest);
        owners.fold(call, |call, owner| call.arg(owner.as_str()))
    }
}

/// Asks how many wait, and how many of them before `owner`. Answered by a list of both, with -1
/// where it does not wait.
pub(crate) fn position(name: &LockName, owner: Option<&OwnerId>) -> Call {
    Call::new(&POSITION)
        .key(&keys::fair_queue(name))
        .arg(owner.map_or("", OwnerId::as_str))
}

/// The answer to a beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beat {
    /// Who is next.
    pub(crate) head: Option<OwnerId>,
    pub(crate) is_free: bool,
    /// Those of the oldest that are not queued any more.
    pub(crate) missing: Vec<OwnerId>,
}

impl Beat {
    pub(crate) fn decode(reply: Reply) -> Result<Self, Malformed> {
        let Reply::List(items) = &reply else {
            return Err(Malformed(reply));
        };
        let [Reply::Text(head), Reply::Int(free @ 0..=1), missing @ ..] = items.as_slice() else {
            return Err(Malformed(reply));
        };
        let missing = missing.iter().map(|item| match item {
            Reply::Text(owner) => Some(OwnerId::from_wire(owner)),
            _ => None,
        });
        let Some(missing) = missing.collect() else {
            return Err(Malformed(reply));
        };
        Ok(Self {
            head: (!head.is_empty()).then(|| OwnerId::from_wire(head)),
            is_free: *free == 1,
            missing,
        })
    }
}

/// The calls of a FairLock.
#[derive(Debug)]
pub(crate) struct FairWire {
    queue: FairQueue,
}

impl FairWire {
    pub(crate) fn new(name: LockName, terms: FairTerms) -> Self {
        Self {
            queue: FairQueue::new(name, terms),
        }
    }
}

impl Recipe for FairWire {
    fn kind(&self) -> &'static str {
        "fair"
    }

    fn name(&self) -> &LockName {
        &self.queue.name
    }

    /// Waiters are told one by one, through the [`queue`](Self::queue).
    fn channel(&self) -> Option<&str> {
        None
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        let alive = self.queue.terms.alive;
        self.queue
            .call(&ACQUIRE)
            .number(millis(ask.lease))
            .arg(ask.owner.as_str())
            .number(if ask.waits { millis(alive) } else { 0 })
            .number(ask.rest.map_or(0, |rest| millis(rest).max(1)))
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        match &reply {
            Reply::Nil => Ok(AcquireReply::Acquired(None, None)),
            Reply::List(items) => match items.as_slice() {
                [Reply::Int(ttl @ -1..), Reply::Int(0)] => Ok(AcquireReply::Held(ttl_of(*ttl))),
                [Reply::Int(-1..), Reply::Int(1)] => Ok(AcquireReply::Behind),
                _ => Err(Malformed(reply)),
            },
            _ => Err(Malformed(reply)),
        }
    }

    fn update(&self, owner: &OwnerId, lease: Duration, count: u32) -> Call {
        rlock::update(self.name(), owner, lease, count)
    }

    fn release(&self, owner: &OwnerId) -> Call {
        self.queue.call(&RELEASE).arg(owner.as_str())
    }

    fn stay(&self, owner: &OwnerId, rest: Duration) -> Option<Call> {
        let FairQueue {
            name,
            queue,
            prefix,
            ..
        } = &self.queue;
        Some(rlock::stay(name, Some(queue), owner.as_str(), rest, prefix))
    }

    fn force_release(&self) -> Call {
        self.queue.call(&FORCE_RELEASE)
    }

    fn inspect(&self) -> Call {
        rlock::inspect(self.name())
    }

    fn leaves_traces(&self) -> bool {
        true
    }

    fn queue(&self) -> Option<&FairQueue> {
        Some(&self.queue)
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::wire::script::headers::assert_agrees;

    const S: Duration = Duration::from_secs(1);

    fn wire(name: &str) -> FairWire {
        let terms = FairTerms {
            alive: 5 * S,
            longest: 300 * S,
        };
        FairWire::new(LockName::new(None, name).unwrap(), terms)
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = wire("n");
        let owner = OwnerId::from_wire("u:1");
        let ask = |waits| Ask {
            owner: &owner,
            lease: S,
            waits,
            rest: waits.then_some(S),
            under: None,
        };
        let calls = [
            wire.acquire(&ask(true)),
            wire.acquire(&ask(false)),
            wire.release(&owner),
            wire.force_release(),
            wire.queue.beat(&ClientId::random(), &[], from_ref(&owner)),
            position(wire.name(), Some(&owner)),
        ];
        calls.iter().for_each(assert_agrees);
    }

    #[test]
    fn the_scripts_know_whose_a_waiter_is() {
        let client = ClientId::random();
        assert_eq!(client.as_str()[14..18], *ClientId::MARK);
        let known = format!("string.sub(owner, 15, 18) == '{}'", ClientId::MARK);
        assert!(ACQUIRE.text().contains(&known));
    }

    #[test]
    fn the_pattern_means_the_name_itself() {
        let client = ClientId::random();
        let pattern = wire("a*[b]?\\").queue.channels_of(&client);
        let expected = format!(
            "redisson_lock__channel:{{a\\*\\[b\\]\\?\\\\}}:{}:*",
            client.as_str()
        );
        assert_eq!(pattern, expected);
    }

    #[test]
    fn replies_are_decoded() {
        let wire = wire("n");
        let list = |ttl, next| Reply::List(vec![Reply::Int(ttl), Reply::Int(next)]);
        assert_eq!(
            wire.acquired(Reply::Nil),
            Ok(AcquireReply::Acquired(None, None))
        );
        let held = AcquireReply::Held(Some(Duration::from_millis(5)));
        assert_eq!(wire.acquired(list(5, 0)), Ok(held));
        assert_eq!(wire.acquired(list(-1, 1)), Ok(AcquireReply::Behind));
        assert!(wire.acquired(list(-2, 0)).is_err());
        assert!(wire.acquired(Reply::Int(5)).is_err());
        let text = |text: &str| Reply::Text(text.into());
        let beat = Beat::decode(Reply::List(vec![text("u:1"), Reply::Int(1), text("u:2")]));
        let expected = Beat {
            head: Some(OwnerId::from_wire("u:1")),
            is_free: true,
            missing: vec![OwnerId::from_wire("u:2")],
        };
        assert_eq!(beat, Ok(expected));
        let nobody = Beat::decode(Reply::List(vec![text(""), Reply::Int(0)])).unwrap();
        assert_eq!(nobody.head, None);
        assert!(Beat::decode(Reply::List(vec![Reply::Nil])).is_err());
    }
}
