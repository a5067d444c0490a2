//! A count-down latch on the wire: a string `NAME` with the count, gone when it is zero.

use std::num::IntErrorKind;
use std::sync::Arc;
use std::time::Duration;

use super::keys::{self, Channel};
use super::operation::Operation;
use super::reply::{Malformed, Reply, ttl_of};
use super::script::{Call, millis, script};
use crate::error::ErrorKind;
use crate::name::LockName;

script!(SET = "latch_set");
script!(COUNT_DOWN = "latch_count_down");
script!(DELETE = "latch_delete");
script!(CHECK = "latch_check");

/// How long the end of a latch (counted down, deleted, expired) is recorded.
const MARK_LIFE: Duration = Duration::from_secs(10 * 60);

/// The largest count that both Redis and Lua store exactly.
pub(crate) const GREATEST_COUNT: u64 = 1 << 53;

/// The calls of a count-down latch.
#[derive(Debug, Clone)]
pub(crate) struct LatchWire {
    pub(crate) name: LockName,
    mark: String,
}

/// A state for which tasks wait, until a look finds that it has ended.
pub(crate) trait Gate: Send + Sync {
    fn name(&self) -> &LockName;

    /// The kind and the name of the waiters' queue.
    fn queue(&self) -> (&'static str, LockName);

    /// The channel on which the end is announced.
    fn channel(&self) -> Channel<'_>;

    /// The call of a look.
    fn check(&self) -> Call;

    /// Reads the reply to a look.
    fn read(&self, reply: Reply) -> Result<GateState, Malformed>;
}

/// The result of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GateState {
    /// The missing or present number, and until when nothing changes by itself; `None`: for ever.
    Closed(u64, Option<Duration>),
    /// How it ended, or why it failed. A latch was counted down, or never set.
    Ended(Result<Arc<str>, ErrorKind>),
}

impl LatchWire {
    pub(crate) fn new(name: LockName) -> Self {
        let mark = keys::latch_mark(&name);
        Self { name, mark }
    }

    /// [`was_done`] reads the reply.
    pub(crate) fn set(&self, count: u64, ttl: Option<Duration>, call: &Operation) -> Call {
        Call::new(&SET)
            .key(self.name.as_str())
            .key(&self.mark)
            .key(&call.key(&self.name))
            .number(count)
            .number(ttl.map_or(0, millis))
            .number(millis(MARK_LIFE))
            .number(millis(call.noted))
            .channel_arg(self.channel())
            .publishing()
    }

    /// [`count_left`] reads the reply.
    pub(crate) fn count_down(&self, call: &Operation) -> Call {
        Call::new(&COUNT_DOWN)
            .key(self.name.as_str())
            .key(&self.mark)
            .key(&call.key(&self.name))
            .number(millis(call.noted))
            .announcing(self.channel())
    }

    /// [`was_done`] reads the reply.
    pub(crate) fn delete(&self, call: &Operation) -> Call {
        Call::new(&DELETE)
            .key(self.name.as_str())
            .key(&self.mark)
            .key(&call.key(&self.name))
            .arg(call.id.as_str())
            .number(millis(MARK_LIFE))
            .announcing(self.channel())
            .number(millis(call.noted))
    }
}

impl Gate for LatchWire {
    fn name(&self) -> &LockName {
        &self.name
    }

    fn queue(&self) -> (&'static str, LockName) {
        ("latch", self.name.clone())
    }

    fn channel(&self) -> Channel<'_> {
        keys::latch_channel(&self.name)
    }

    fn check(&self) -> Call {
        Call::new(&CHECK).key(self.name.as_str()).key(&self.mark)
    }

    fn read(&self, reply: Reply) -> Result<GateState, Malformed> {
        let open = || Ok(GateState::Ended(Ok("".into())));
        match &reply {
            Reply::Int(0) => open(),
            Reply::Int(1) => Ok(GateState::Ended(Err(ErrorKind::LatchDeleted))),
            Reply::Int(2) => Ok(GateState::Ended(Err(ErrorKind::LatchExpired))),
            Reply::List(items) => match &items[..] {
                [Reply::Text(count), Reply::Int(ttl)] => match count.parse::<i64>() {
                    // Redisson can set a latch to zero, which is open.
                    Ok(..=0) => open(),
                    Ok(count) => Ok(GateState::Closed(count.unsigned_abs(), ttl_of(*ttl))),
                    // More than Redis can count.
                    Err(error) => match error.kind() {
                        IntErrorKind::PosOverflow => Ok(GateState::Closed(u64::MAX, ttl_of(*ttl))),
                        IntErrorKind::NegOverflow => open(),
                        _ => Err(Malformed(reply)),
                    },
                },
                _ => Err(Malformed(reply)),
            },
            _ => Err(Malformed(reply)),
        }
    }
}

/// Reads the reply to setting or deleting, or to freeing by force.
pub(crate) fn was_done(reply: Reply) -> Result<bool, Malformed> {
    match reply {
        Reply::Int(done @ 0..=1) => Ok(done == 1),
        other => Err(Malformed(other)),
    }
}

/// Reads the reply to counting down.
pub(crate) fn count_left(reply: Reply) -> Result<u64, Malformed> {
    match reply {
        Reply::Int(left) => u64::try_from(left).map_err(|_| Malformed(reply)),
        Reply::Text(ref left) => left.parse().map_err(|_| Malformed(reply)),
        other => Err(Malformed(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::HoldId;
    use crate::wire::script::headers::assert_agrees;

    #[test]
    fn calls_agree_with_the_headers() {
        let wire = LatchWire::new(LockName::new(None, "n").unwrap());
        let id = Operation {
            id: HoldId::from_wire("u:7"),
            noted: Duration::from_secs(120),
        };
        let set = wire.set(3, Some(Duration::from_secs(5)), &id);
        let channel = "redisson_countdownlatch__channel__{n}";
        assert_eq!(
            set.texts(),
            [
                "n",
                "redlock_latch_end:{n}",
                "redlock_op:{n}:u:7",
                "3",
                "5000",
                "600000",
                "120000",
                channel,
                "PUBLISH"
            ]
        );
        let calls = [set, wire.count_down(&id), wire.delete(&id), wire.check()];
        calls.iter().for_each(assert_agrees);
    }

    #[test]
    fn looks_are_told_apart() {
        let wire = LatchWire::new(LockName::new(None, "n").unwrap());
        let there = |count: &str, ttl| {
            wire.read(Reply::List(vec![
                Reply::Text(count.into()),
                Reply::Int(ttl),
            ]))
        };
        assert_eq!(there("3", -1), Ok(GateState::Closed(3, None)));
        let second = Some(Duration::from_secs(1));
        assert_eq!(there("1", 1000), Ok(GateState::Closed(1, second)));
        let open = Ok("".into());
        for none in ["0", "-2", "-9999999999999999999"] {
            assert_eq!(there(none, -1), Ok(GateState::Ended(open.clone())));
        }
        let most = Ok(GateState::Closed(u64::MAX, None));
        assert_eq!(there("9999999999999999999", -1), most);
        assert!(there("x", -1).is_err());
        for (number, ended) in [
            (0, open),
            (1, Err(ErrorKind::LatchDeleted)),
            (2, Err(ErrorKind::LatchExpired)),
        ] {
            assert_eq!(wire.read(Reply::Int(number)), Ok(GateState::Ended(ended)));
        }
        assert!(wire.read(Reply::Int(3)).is_err());
        assert!(wire.read(Reply::List(vec![])).is_err());
    }

    #[test]
    fn answers_that_make_no_sense_are_refused() {
        assert_eq!(count_left(Reply::Int(0)), Ok(0));
        assert_eq!(count_left(Reply::Text("7".into())), Ok(7));
        assert!(count_left(Reply::Text("-7".into())).is_err());
        assert!(count_left(Reply::Int(-1)).is_err() && count_left(Reply::Nil).is_err());
        assert_eq!(was_done(Reply::Int(1)), Ok(true));
        assert!(was_done(Reply::Int(2)).is_err());
    }
}
