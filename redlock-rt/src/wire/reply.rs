//! Replies of scripts, decoded once: this layer returns no plain numbers.

use std::fmt::{self, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::fair_queue::FairPlace;
use crate::error::{LostReason, Theft};
use crate::name::HoldId;

/// The result of a Lua script.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// `nil` or `false`.
    Nil,
    /// A number, or `true` as 1. Fractions of Lua numbers are cut off.
    Int(i64),
    /// A string, or a status.
    Text(String),
    /// A table, up to its first `nil`.
    List(Vec<Self>),
}

/// The announcement of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// Redis did not refuse the PUBLISH (an ACL).
    pub(crate) is_made: bool,
    /// How many connections received it, as far as the script reports it.
    pub(crate) receivers: u64,
    /// The waiter, for a kind where every waiter has its own channel.
    pub(crate) waiter: Option<HoldId>,
    /// The waiter has the lock now, and nothing was published.
    pub(crate) is_granted: bool,
}

impl Announcement {
    /// `made`: one more than the number of receivers; 0: it was refused.
    pub(crate) fn of(made: i64) -> Self {
        Self {
            is_made: made > 0,
            receivers: u64::try_from(made - 1).unwrap_or(0),
            waiter: None,
            is_granted: false,
        }
    }
}

/// Replaces the result of a PUBLISH: the waiter has the lock now.
const GRANTED: i64 = 2;

impl Reply {
    /// The reply of a script that may have published, with the result of the PUBLISH.
    pub(crate) fn split(self) -> (Self, Option<Announcement>) {
        let Self::List(mut items) = self else {
            return (self, None);
        };
        let announcement = match &items[..] {
            [_, Self::Int(made @ 0..)] => Announcement::of(*made),
            [_, Self::Int(made @ 0..=GRANTED), Self::Text(waiter)] => Announcement {
                waiter: Some(HoldId::from_wire(waiter)),
                is_granted: *made == GRANTED,
                ..Announcement::of((*made).min(1))
            },
            _ => return (Self::List(items), None),
        };
        (items.swap_remove(0), Some(announcement))
    }

    /// What `read` makes of the items of a list. It returns `None` for items that it does not know.
    pub(crate) fn read<T>(self, read: impl FnOnce(&[Self]) -> Option<T>) -> Result<T, Malformed> {
        let known = match &self {
            Self::List(items) => read(items),
            _ => None,
        };
        known.ok_or(Malformed(self))
    }
}

/// A reply that the script, or a command in its place, cannot give.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the script answered {}", beginning(.0))]
pub(crate) struct Malformed<R: fmt::Debug = Reply>(pub(crate) R);

/// The shown part of a reply, which a broken server may make megabytes long.
fn beginning(reply: &impl fmt::Debug) -> String {
    const SHOWN: usize = 200;
    struct Short(String);
    impl Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for char in text.chars() {
                if self.0.len() + char.len_utf8() > SHOWN {
                    self.0.push('…');
                    return Err(fmt::Error);
                }
                self.0.push(char);
            }
            Ok(())
        }
    }
    let mut short = Short(String::new());
    // An error: the rest is not shown.
    let _ = write!(short, "{reply:?}");
    short.0
}

/// The reply to an attempt to acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquireReply {
    Acquired(Acquired),
    /// Another owner has it, at most for this long; `None` if the key has no TTL.
    Held(Option<Duration>),
    /// There is nothing to acquire yet, such as a semaphore whose permits were never set.
    Unset,
    /// Another owner has it or is next; a queued waiter is notified of its turn.
    Queued(FairPlace),
    /// There is nothing to acquire any more; the [`Mark`](super::Mark) says why.
    Over,
    /// The hold under which it was asked for ([`Ask::under`](super::Ask)) no longer exists.
    Orphaned,
}

impl TryFrom<Reply> for AcquireReply {
    type Error = Malformed;

    fn try_from(reply: Reply) -> Result<Self, Malformed> {
        match reply {
            Reply::Nil => Ok(Self::Acquired(Acquired::default())),
            Reply::Int(ttl @ -1..) => Ok(Self::Held(ttl_of(ttl))),
            other => Err(Malformed(other)),
        }
    }
}

/// The fencing token of a hold, and the consecutive later ones, which belong to the next holders of
/// this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Tokens begin at the microseconds since 1970.
    first: NonZeroU64,
    behind: u32,
}

impl Tokens {
    /// `items`: the greatest token, and how many there are.
    pub(super) fn read(items: &[Reply]) -> Option<Self> {
        let [Reply::Text(last), Reply::Int(count)] = items else {
            return None;
        };
        let behind = u32::try_from(count.checked_sub(1)?).ok()?;
        let first = last.parse::<u64>().ok()?.checked_sub(behind.into())?;
        let first = NonZeroU64::new(first)?;
        Some(Self { first, behind })
    }

    pub(crate) fn first(self) -> u64 {
        self.first.get()
    }

    /// The tokens of the next hold; `None`: this was the last.
    pub(crate) fn next(self) -> Option<Self> {
        Some(Self {
            first: self.first.checked_add(1)?,
            behind: self.behind.checked_sub(1)?,
        })
    }
}

/// The details of an acquired hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Acquired {
    /// The fencing tokens, for a kind that has them.
    pub(crate) tokens: Option<Tokens>,
    /// The number of permits left, for a kind that counts them.
    pub(crate) permits_left: Option<u64>,
    /// The time until the first lease ends, if no permit is free.
    pub(crate) next_expiry: Option<Duration>,
}

impl Acquired {
    /// Whether the next waiter may be served too, for a kind that is not exclusive.
    pub(crate) fn leaves_more(self) -> bool {
        self.permits_left != Some(0)
    }
}

/// The reply to an operation on a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HoldReply {
    Done,
    /// The hold has ended, and the lock stays locked for the rest of its `min_hold`.
    Kept,
    /// Done, but Redis keeps the hold for longer than any command has asked for.
    TooLong,
    /// The lock no longer exists.
    Gone,
    /// Another owner has it.
    Taken,
    /// Another client took or freed it by force, with a reason.
    Stolen(Arc<Theft>),
}

impl HoldReply {
    /// Why the hold is lost, if it is.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        match self {
            Self::Done | Self::Kept | Self::TooLong => None,
            Self::Gone => Some(LostReason::Deleted),
            Self::Taken => Some(LostReason::Taken),
            Self::Stolen(theft) => Some(LostReason::Stolen(Arc::clone(theft))),
        }
    }
}

impl TryFrom<Reply> for HoldReply {
    type Error = Malformed;

    fn try_from(reply: Reply) -> Result<Self, Malformed> {
        match reply {
            Reply::Int(1) => Ok(Self::Done),
            Reply::Int(2) => Ok(Self::Kept),
            Reply::Int(3) => Ok(Self::TooLong),
            Reply::Int(0) => Ok(Self::Gone),
            Reply::Int(-1) => Ok(Self::Taken),
            Reply::Text(ref note) => match Theft::read(note) {
                Some(theft) => Ok(Self::Stolen(Arc::new(theft))),
                None => Err(Malformed(reply)),
            },
            other => Err(Malformed(other)),
        }
    }
}

/// A holder of a lock, with its hold count and remaining lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Holder {
    pub(crate) owner: HoldId,
    pub(crate) count: u64,
    /// `None` if the key has no TTL.
    pub(crate) ttl: Option<Duration>,
}

impl Holder {
    /// Reads a flat list of owner, hold count and remaining milliseconds; empty if there is no
    /// holder.
    pub(crate) fn decode(reply: Reply) -> Result<Vec<Self>, Malformed> {
        reply.read(|items| {
            let holders = items.chunks(3).map(|chunk| match chunk {
                [Reply::Text(owner), Reply::Int(count), Reply::Int(ttl)] => Some(Self {
                    owner: HoldId::from_wire(owner),
                    count: u64::try_from(*count).unwrap_or(0),
                    ttl: ttl_of(*ttl),
                }),
                _ => None,
            });
            holders.collect()
        })
    }
}

/// The reply of PTTL for an existing key.
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
            Ok(AcquireReply::Acquired(Acquired::default()))
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
        assert_eq!(HoldReply::try_from(Reply::Int(2)), Ok(HoldReply::Kept));
        assert_eq!(HoldReply::try_from(Reply::Int(0)), Ok(HoldReply::Gone));
        assert_eq!(HoldReply::try_from(Reply::Int(-1)), Ok(HoldReply::Taken));
        assert_eq!(HoldReply::try_from(Reply::Int(3)), Ok(HoldReply::TooLong));
        assert!(HoldReply::try_from(Reply::Int(4)).is_err());
        assert!(HoldReply::try_from(Reply::Nil).is_err());
    }

    #[test]
    fn an_answer_is_split_from_what_was_announced() {
        let list = |items: &[Reply]| Reply::List(items.to_vec()).split();
        let made = |made: u64, waiter: Option<&str>| {
            Some(Announcement {
                is_made: made > 0,
                receivers: made.saturating_sub(1),
                waiter: waiter.map(HoldId::from_wire),
                is_granted: false,
            })
        };
        let int = Reply::Int;
        assert_eq!(int(7).split(), (int(7), None));
        assert_eq!(list(&[int(7), int(1)]), (int(7), made(1, None)));
        assert_eq!(list(&[int(-1), int(0)]), (int(-1), made(0, None)));
        assert_eq!(list(&[int(1), int(4)]), (int(1), made(4, None)));
        let waiter = Reply::Text("u:7".into());
        let told = list(&[int(2), int(1), waiter.clone()]);
        assert_eq!(told, (int(2), made(1, Some("u:7"))));
        let granted = made(1, Some("u:7")).map(|made| Announcement {
            is_granted: true,
            ..made
        });
        assert_eq!(list(&[int(1), int(2), waiter.clone()]), (int(1), granted));
        assert_eq!(list(&[int(1), int(3), waiter]).1, None);
        for odd in [vec![], vec![int(1)], vec![int(1), int(-1)]] {
            assert_eq!(Reply::List(odd.clone()).split(), (Reply::List(odd), None));
        }
    }

    #[test]
    fn holders_are_decoded() {
        let reply = |items| Holder::decode(Reply::List(items));
        assert_eq!(reply(vec![]), Ok(vec![]));
        let one = || [Reply::Text("u:7".into()), Reply::Int(2), Reply::Int(-1)];
        let holder = Holder {
            owner: HoldId::from_wire("u:7"),
            count: 2,
            ttl: None,
        };
        assert_eq!(reply(one().into()), Ok(vec![holder.clone()]));
        let two = one().into_iter().chain(one()).collect();
        assert_eq!(reply(two), Ok(vec![holder.clone(), holder]));
        assert!(reply(vec![Reply::Nil]).is_err());
        assert!(reply(one()[..2].to_vec()).is_err());
        assert!(Holder::decode(Reply::Nil).is_err());
    }
}
