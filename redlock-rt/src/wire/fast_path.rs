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
    /// Passes the words of each command to `command`.
    pub(crate) fn commands(self, call: &Call, publish: Publish, mut command: impl FnMut(&[&[u8]])) {
        let mut words = [&b""[..]; 4];
        for (place, word) in words.iter_mut().zip(call.words_for(publish)) {
            *place = word.as_bytes();
        }
        match (self, words) {
            (Self::Create, [key, lease, owner, _]) => {
                command(&[b"RESTORE", key, lease, &dump::hash(owner, b"1")]);
            }
            (Self::Delete, [key, owner, channel, publish]) => {
                command(&[b"HDEL", key, owner]);
                if self.count(call) == 2 {
                    command(&[publish, channel, b"0"]);
                }
            }
        }
    }

    /// The number of commands.
    pub(crate) fn count(self, call: &Call) -> usize {
        match self {
            Self::Delete if call.word_count() > 2 => 2,
            Self::Create | Self::Delete => 1,
        }
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
            (Self::Delete, Reply::Int(1)) if self.count(call) == 1 => Some(first),
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
            let mut sent = Vec::new();
            FastPath::Delete.commands(&call, Publish::InShard, |words| {
                let words = words.iter().map(|word| String::from_utf8_lossy(word));
                sent.push(words.collect::<Vec<_>>().join(" "));
            });
            assert_eq!(sent.len(), FastPath::Delete.count(&call));
            sent
        });
        let announced = "SPUBLISH redisson_lock__channel:{n} 0";
        assert_eq!(sent[0], ["HDEL n u:1", announced]);
        assert_eq!(sent[1], ["HDEL n u:1"]);
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
