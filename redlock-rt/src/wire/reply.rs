//! Replies of scripts, decoded once: no bare number leaves this layer.

use std::time::Duration;

/// A reply as it came, whatever client library read it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Self>),
}

/// A reply that the script cannot have given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the script answered {0:?}")]
pub(crate) struct Malformed(pub(crate) Reply);

/// The answer to an attempt to acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    Acquired,
    /// Somebody else has it, for so long at most; `None` where the key has no TTL.
    Held(Option<Duration>),
}

impl TryFrom<Reply> for AcquireReply {
    type Error = Malformed;

    fn try_from(reply: Reply) -> Result<Self, Malformed> {
        match reply {
            Reply::Nil => Ok(Self::Acquired),
            Reply::Int(ttl @ -1..) => Ok(Self::Held(ttl_of(ttl))),
            other => Err(Malformed(other)),
        }
    }
}

/// The answer to an operation on a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldReply {
    Done,
    /// The lock does not exist any more.
    Gone,
    /// Somebody else has it.
    Taken,
}

impl TryFrom<Reply> for HoldReply {
    type Error = Malformed;

    fn try_from(reply: Reply) -> Result<Self, Malformed> {
        match reply {
            Reply::Int(1) => Ok(Self::Done),
            Reply::Int(0) => Ok(Self::Gone),
            Reply::Int(-1) => Ok(Self::Taken),
            other => Err(Malformed(other)),
        }
    }
}

/// PTTL's answer for a key that exists.
pub(super) fn ttl_of(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquire_replies() {
        assert_eq!(
            AcquireReply::try_from(Reply::Nil),
            Ok(AcquireReply::Acquired)
        );
        let held = AcquireReply::Held(Some(Duration::from_millis(5)));
        assert_eq!(AcquireReply::try_from(Reply::Int(5)), Ok(held));
        assert_eq!(
            AcquireReply::try_from(Reply::Int(-1)),
            Ok(AcquireReply::Held(None))
        );
        for odd in [
            Reply::Int(-2),
            Reply::Text("OK".into()),
            Reply::List(vec![]),
        ] {
            assert_eq!(AcquireReply::try_from(odd.clone()), Err(Malformed(odd)));
        }
    }

    #[test]
    fn hold_replies() {
        assert_eq!(HoldReply::try_from(Reply::Int(1)), Ok(HoldReply::Done));
        assert_eq!(HoldReply::try_from(Reply::Int(0)), Ok(HoldReply::Gone));
        assert_eq!(HoldReply::try_from(Reply::Int(-1)), Ok(HoldReply::Taken));
        assert!(HoldReply::try_from(Reply::Nil).is_err());
    }
}
