//! Plain commands that do in the usual case what a script does, for a third of the server's time.
//!
//! They change nothing in any other case, and then the script is sent. So a script alone decides what
//! happens to a lock that is taken, and what became of a hold that is not there.

use super::dump;
use super::reply::{Malformed, Reply};
use super::script::{Call, Publish};

/// The plain commands of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastPath {
    /// `RESTORE` creates a hash with its TTL, unless there is a key of that name (BUSYKEY).
    Create,
    /// `HDEL` removes the owner, and with it the hash. Behind it, in the same write, `PUBLISH` wakes
    /// waiters.
    ///
    /// Both run even if the first changed nothing: a waiter looks once more than needed. If the
    /// connection breaks between them, the repeat finds no owner, and publishes.
    Delete,
}

impl FastPath {
    /// The first command, made of its words.
    pub(crate) fn first<C>(self, call: &Call, command: impl FnOnce(&[&[u8]]) -> C) -> C {
        let mut words = call.words().map(str::as_bytes);
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
        let mut words = call.words_for(publish).map(str::as_bytes).skip(2);
        let mut next = || words.next().unwrap_or_default();
        let (channel, publish) = (next(), next());
        command(&[publish, channel, b"0"])
    }

    /// The reply of the script; `None`: the commands changed nothing. `published`: the reply to the
    /// second one; `None`: there is none, or it was refused.
    pub(crate) fn reply(
        self,
        call: &Call,
        first: Reply,
        published: Option<Reply>,
    ) -> Result<Option<Reply>, Malformed> {
        Ok(match (self, &first) {
            (Self::Create, Reply::Text(text)) if text == "OK" => Some(Reply::Nil),
            (Self::Delete, Reply::Int(0)) => None,
            (Self::Delete, Reply::Int(1)) if !call.publishes() => Some(first),
            (Self::Delete, Reply::Int(1)) => {
                let receivers = match published {
                    Some(Reply::Int(receivers @ 0..)) => receivers.saturating_add(1),
                    Some(other) => return Err(Malformed(other)),
                    None => 0,
                };
                Some(Reply::List(vec![first, Reply::Int(receivers)]))
            }
            _ => return Err(Malformed(first)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{HoldId, LockName};
    use crate::wire::{RLockWire, Recipe, SpinWire};

    fn releases() -> [Call; 2] {
        let name = || LockName::new(None, "n").unwrap();
        let owner = HoldId::from_wire("u:1");
        let recipes: [&dyn Recipe; 2] = [&RLockWire::new(name()), &SpinWire::new(name())];
        recipes.map(|recipe| recipe.release(&owner))
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
        let reply = |call, first, second| FastPath::Delete.reply(call, first, second);
        let (one, none) = (Reply::Int(1), Reply::Int(0));
        let list = |made| Some(Reply::List(vec![Reply::Int(1), Reply::Int(made)]));
        assert_eq!(
            reply(&announced, one.clone(), Some(Reply::Int(3))),
            Ok(list(4))
        );
        assert_eq!(reply(&announced, one.clone(), None), Ok(list(0)));
        assert_eq!(reply(&announced, none.clone(), None), Ok(None));
        assert_eq!(reply(&silent, one.clone(), None), Ok(Some(Reply::Int(1))));
        assert!(reply(&announced, one, Some(Reply::Nil)).is_err());
        assert!(reply(&announced, Reply::Int(2), None).is_err());
        let created = |first| FastPath::Create.reply(&silent, first, None);
        assert_eq!(created(Reply::Text("OK".into())), Ok(Some(Reply::Nil)));
        assert!(created(none).is_err());
    }
}
