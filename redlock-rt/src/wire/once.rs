//! A job that is done once, on the wire: a FencedLock, and a third key that marks the done job.

use std::sync::Mutex;
use std::time::Duration;

use super::fenced::FencedWire;
use super::keys;
use super::profile::{self, Profile};
use super::recipe::{Ask, Recipe};
use super::reply::{AcquireReply, Malformed, Reply, ttl_of};
use super::script::{Call, LONGEST_SPAN, millis, script};
use crate::name::{HoldId, LockName};
use crate::shim::lock_std;

script!(ACQUIRE = "lock_hash" + "take" + "fencing" + "once_acquire");
script!(FINISH = "once_finish");

/// The terms of a job that is done once, and for how long Redis remembers it.
#[derive(Debug, Clone)]
pub(crate) struct OnceTerms {
    pub(crate) keep: Duration,
    /// `None`: any number.
    pub(crate) attempts: Option<u32>,
    /// The content of the request, if the name alone does not identify it.
    pub(crate) request: String,
}

/// The calls of one caller. They store the replies about the mark, and how the caller's hold must end.
#[derive(Debug)]
pub(crate) struct OnceWire {
    lock: FencedWire,
    key: String,
    terms: OnceTerms,
    pub(crate) mark: Mark,
}

/// What one caller knows about the mark, and does to it.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    found: Mutex<Option<Found>>,
    ends: Mutex<Ends>,
}

/// The reply of Redis if it did not give the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    Running(HoldId),
    /// `at`: since 1970.
    Done {
        at: Duration,
        result: Vec<u8>,
    },
    Failed,
    OtherRequest,
}

/// How a hold ends.
#[derive(Debug, Default)]
enum Ends {
    /// Its guard was not returned, so the attempt does not count.
    #[default]
    Unbegun,
    /// Others may try.
    Open,
    /// It is done, with this result.
    Done(String),
}

impl Mark {
    /// The last reply of Redis.
    pub(crate) fn found(&self) -> Option<Found> {
        lock_std(&self.found).take()
    }

    /// A body may run.
    pub(crate) fn begin(&self) {
        *lock_std(&self.ends) = Ends::Open;
    }

    /// The release must mark the job as done. A byte is one character, since replies are texts.
    pub(crate) fn set(&self, result: &[u8]) {
        let result = result.iter().copied().map(char::from).collect();
        *lock_std(&self.ends) = Ends::Done(result);
    }

    pub(crate) fn is_set(&self) -> bool {
        matches!(*lock_std(&self.ends), Ends::Done(_))
    }
}

impl OnceWire {
    pub(crate) fn new(name: LockName, terms: OnceTerms) -> Self {
        Self {
            key: keys::once_mark(&name),
            lock: FencedWire::new(name, Some(terms.keep)),
            terms,
            mark: Mark::default(),
        }
    }

    /// `keep`: zero if the job is not done.
    fn finish(&self, owner: &str, keep: Duration, result: &str) -> Call {
        Call::new(&FINISH)
            .key(self.name().as_str())
            .key(&self.key)
            .arg(owner)
            .announcing(keys::lock_channel(self.name()))
            .number(millis(keep))
            .arg(&self.terms.request)
            .arg(result)
    }
}

impl Recipe for OnceWire {
    fn profile(&self) -> &'static Profile {
        &profile::ONCE
    }

    fn name(&self) -> &LockName {
        self.lock.name()
    }

    fn flaw(&self, lease: Duration) -> Option<&'static str> {
        match self.terms.keep {
            _ if self.terms.attempts == Some(0) => Some("attempts is zero"),
            keep if keep < lease => Some("keep is shorter than the lease"),
            keep if keep > LONGEST_SPAN => Some("keep is longer than redis can keep"),
            _ => None,
        }
    }

    fn mark(&self) -> Option<&Mark> {
        Some(&self.mark)
    }

    fn acquire(&self, ask: &Ask<'_>) -> Call {
        Call::new(&ACQUIRE)
            .key(self.name().as_str())
            .key(&keys::lock_token(self.name()))
            .key(&self.key)
            .number(millis(ask.lease))
            .arg(ask.owner)
            .number(millis(self.terms.keep))
            .number(self.terms.attempts.unwrap_or(0).into())
            .arg(&self.terms.request)
    }

    fn acquired(&self, reply: Reply) -> Result<AcquireReply, Malformed> {
        let (found, reply) = match &reply {
            Reply::List(items) => match &items[..] {
                [Reply::Int(ttl @ -1..), Reply::Text(by)] => {
                    let by = Found::Running(HoldId::from_wire(by));
                    (by, AcquireReply::Held(ttl_of(*ttl)))
                }
                [_, Reply::Text(at), Reply::Text(result)] => match done(at, result) {
                    Some(done) => (done, AcquireReply::Over),
                    None => return Err(Malformed(reply)),
                },
                _ => return self.lock.acquired(reply),
            },
            Reply::Text(word) if word == "failed" => (Found::Failed, AcquireReply::Over),
            Reply::Text(word) if word == "other" => (Found::OtherRequest, AcquireReply::Over),
            _ => return Err(Malformed(reply)),
        };
        *lock_std(&self.mark.found) = Some(found);
        Ok(reply)
    }

    fn end(&self, owner: &str, _noted: Duration) -> Call {
        match &*lock_std(&self.mark.ends) {
            Ends::Unbegun => self.finish(owner, Duration::ZERO, ""),
            Ends::Open => self.lock.release(owner),
            Ends::Done(result) => self.finish(owner, self.terms.keep, result),
        }
    }
}

fn done(at: &str, result: &str) -> Option<Found> {
    let at = Duration::from_millis(at.parse().ok()?);
    let bytes = result.chars().map(u8::try_from);
    let result = bytes.collect::<Result<_, _>>().ok()?;
    Some(Found::Done { at, result })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::script::headers::assert_agrees;

    const SECOND: Duration = Duration::from_secs(1);

    fn wire() -> OnceWire {
        let terms = OnceTerms {
            keep: SECOND,
            attempts: Some(3),
            request: "r".into(),
        };
        OnceWire::new(LockName::new(None, "n").unwrap(), terms)
    }

    #[test]
    fn calls_agree_with_the_headers() {
        let ask = Ask {
            owner: "u:1",
            lease: SECOND,
            waits: true,
            rest: None,
            tokens: 7,
            under: None,
            steal: None,
        };
        let wire = wire();
        let call = wire.acquire(&ask);
        assert_agrees(&call);
        let keys = ["n", "redisson_lock_token:{n}", "redlock_once:{n}"];
        assert_eq!(call.texts()[..3], keys);
        assert_eq!(call.texts()[3..], ["1000", "u:1", "1000", "3", "r"]);
        let channel = "redisson_lock__channel:{n}";
        let finish = |keep, result| {
            let call = wire.release("u:1");
            assert_agrees(&call);
            let words = ["n", keys[2], "u:1", channel, "PUBLISH", keep, "r", result];
            assert_eq!(call.texts(), words);
        };
        finish("0", "");
        wire.mark.begin();
        assert_eq!(
            wire.release("u:1").texts(),
            ["n", "u:1", channel, "PUBLISH"]
        );
        assert!(!wire.mark.is_set());
        wire.mark.set(b"a\xff");
        finish("1000", "aÿ");
        assert!(wire.mark.is_set());
    }

    #[test]
    fn what_was_found_is_noted_with_every_byte_of_its_result() {
        let text = |text: &str| Reply::Text(text.into());
        let wire = wire();
        let read = |reply| {
            let reply = wire.acquired(reply);
            (reply, wire.mark.found())
        };
        let result: Vec<u8> = (0..=255).collect();
        let stored: String = result.iter().copied().map(char::from).collect();
        let at = Duration::from_millis(1_700_000_000_123);
        let done = vec![text("done"), text("1700000000123"), text(&stored)];
        let found = Some(Found::Done { at, result });
        assert_eq!(read(Reply::List(done)), (Ok(AcquireReply::Over), found));
        let held = Reply::List(vec![Reply::Int(5), text("u:2")]);
        let by = Some(Found::Running(HoldId::from_wire("u:2")));
        let reply = Ok(AcquireReply::Held(Some(Duration::from_millis(5))));
        assert_eq!(read(held), (reply, by));
        let failed = (Ok(AcquireReply::Over), Some(Found::Failed));
        assert_eq!(read(text("failed")), failed);
        let other = (Ok(AcquireReply::Over), Some(Found::OtherRequest));
        assert_eq!(read(text("other")), other);
        let token = Reply::List(vec![text("1700000000123456"), Reply::Int(1)]);
        let taken = read(token);
        assert!(matches!(taken, (Ok(AcquireReply::Acquired(_)), None)));
        let list = |items: [&str; 3]| Reply::List(items.map(text).to_vec());
        for odd in [
            Reply::Nil,
            Reply::Int(5),
            text("done"),
            list(["done", "soon", ""]),
            list(["done", "1", "€"]),
        ] {
            assert_eq!(read(odd.clone()), (Err(Malformed(odd)), None));
        }
    }

    #[test]
    fn the_mark_is_not_forgotten_before_the_lease_is_over() {
        let ms = Duration::from_millis(1);
        assert_eq!(wire().flaw(SECOND), None);
        assert!(wire().flaw(SECOND + ms).is_some());
    }
}
