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
