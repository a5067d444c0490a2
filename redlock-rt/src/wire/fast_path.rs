//! Plain commands that usually have the effect of a script, in a third of the server time.
//!
//! In all other cases they change nothing, and then the script is sent. So only a script decides about
//! a taken lock, or a hold that is not there.

use super::dump;
use super::reply::{Malformed, Reply};
use super::script::{Call, Publish};
use super::value::Value;

/// The plain commands of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastPath {
    /// `RESTORE` creates a hash with its TTL, unless there is a key of that name (BUSYKEY).
    Create,
    /// `HDEL` removes the owner, and with it the hash. After it, in the same write, `PUBLISH` wakes
    /// waiters.
    ///
    /// Both run even if the first changed nothing: a waiter then looks once more than needed. If the
    /// connection breaks between them, or the second is refused temporarily (BUSY), the repeat finds no
    /// owner, and publishes.
    Delete,
}

/// The effect of the plain commands of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Carried {
    /// The reply of the script, without the result of its announcement.
    pub(crate) reply: Reply,
    /// The result of the announcement, from a script ([`Announcement::of`](super::Announcement::of)).
    pub(crate) published: Option<u32>,
}

impl FastPath {
    /// The first command, made from its words.
    pub(crate) fn first<C>(self, call: &Call, command: impl FnOnce(&[&[u8]]) -> C) -> C {
        let mut words = call.words();
        let mut next = || words.next().unwrap_or_default();
        match self {
            Self::Create => {
                let (key, lease, owner) = (next(), next(), next());
                command(&[b"RESTORE", key, lease, &dump::hash(owner, b"1")])
            }
            Self::Delete => {
                let (key, owner) = (next(), next());
                command(&[b"HDEL", key, owner])
            }
        }
    }

    /// Whether there is a second command.
    pub(crate) fn has_second(self, call: &Call) -> bool {
        self == Self::Delete && call.publishes()
    }

    /// The second command.
    pub(crate) fn second<C>(
        self,
        call: &Call,
        publish: Publish,
        command: impl FnOnce(&[&[u8]]) -> C,
    ) -> C {
        let mut words = call.words_for(publish).skip(2);
        let mut next = || words.next().unwrap_or_default();
        let (channel, publish) = (next(), next());
        command(&[publish, channel, b"0"])
    }

    /// The effect of the commands in place of the script; `None`: they changed nothing. `published`:
    /// the reply to the second one; `None`: there is none, or it was refused.
    pub(crate) fn carried(
        self,
        call: &Call,
        first: Value,
        published: Option<Value>,
    ) -> Result<Option<Carried>, Malformed<Value>> {
        let (reply, published) = match (self, first) {
            (Self::Create, Value::Okay) => (Reply::Nil, None),
            (Self::Delete, Value::Int(0)) => return Ok(None),
            (Self::Delete, Value::Int(1)) if !call.publishes() => (Reply::Int(1), None),
            (Self::Delete, Value::Int(1)) => {
                let made = match published {
                    Some(Value::Int(receivers @ 0..)) => u32::try_from(receivers)
                        .unwrap_or(u32::MAX)
                        .saturating_add(1),
                    Some(other) => return Err(Malformed(other)),
                    None => 0,
                };
                (Reply::Int(1), Some(made))
            }
            (_, other) => return Err(Malformed(other)),
        };
        Ok(Some(Carried { reply, published }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::LockName;
    use crate::wire::{RLockWire, Recipe};

    fn releases() -> [Call; 2] {
        let name = || LockName::new(None, "n").unwrap();
        let owner = "u:1";
        let recipes: [&dyn Recipe; 2] = [&RLockWire::new(name()), &RLockWire::spinning(name())];
        recipes.map(|recipe| recipe.release(owner))
    }

    #[test]
    fn a_release_is_a_deletion_and_an_announcement_if_there_is_a_channel() {
        let sent = releases().map(|call| {
            let text = |words: &[&[u8]]| String::from_utf8(words.join(&b' ')).unwrap();
            let second = || FastPath::Delete.second(&call, Publish::InShard, text);
            let first = FastPath::Delete.first(&call, text);
            (first, FastPath::Delete.has_second(&call).then(second))
        });
        let deleted = || "HDEL n u:1".to_owned();
        let announced = "SPUBLISH redisson_lock__channel:{n} 0".to_owned();
        assert_eq!(sent, [(deleted(), Some(announced)), (deleted(), None)]);
    }

    #[test]
    fn a_reply_that_the_commands_cannot_give_is_none_of_the_script() {
        let [announced, silent] = releases();
        let carried = |call, first, second| FastPath::Delete.carried(call, first, second);
        let (one, none) = (Value::Int(1), Value::Int(0));
        let released = |published| {
            let reply = Reply::Int(1);
            Ok(Some(Carried { reply, published }))
        };
        let heard = carried(&announced, one.clone(), Some(Value::Int(3)));
        assert_eq!(heard, released(Some(4)));
        assert_eq!(carried(&announced, one.clone(), None), released(Some(0)));
        assert_eq!(carried(&announced, none.clone(), None), Ok(None));
        assert_eq!(carried(&silent, one.clone(), None), released(None));
        assert!(carried(&announced, one, Some(Value::Nil)).is_err());
        assert!(carried(&announced, Value::Int(2), None).is_err());
        assert!(carried(&announced, Value::Okay, None).is_err());
        let created = |first| FastPath::Create.carried(&silent, first, None);
        let (reply, published) = (Reply::Nil, None);
        let taken = Carried { reply, published };
        assert_eq!(created(Value::Okay), Ok(Some(taken)));
        assert!(created(none).is_err());
    }
}
