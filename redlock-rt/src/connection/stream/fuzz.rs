//! How bytes from a server are read, for `crate::fuzz`.

use super::resp::{Reader, reply};
use crate::wire::{Reply, Value};

/// The replies in `bytes`, which come in parts of these lengths, repeatedly. Also why there are no more, or
/// whether the last one is whole.
pub(crate) fn replies(bytes: &[u8], parts: &[usize]) -> (Vec<Value>, Result<bool, String>) {
    let (mut reader, mut replies, mut rest) = (Reader::default(), Vec::new(), bytes);
    for part in parts.iter().cycle() {
        let (mut part, behind) = rest.split_at(rest.len().min(*part));
        while !part.is_empty() {
            match reader.read(&mut part) {
                Ok(reply) => replies.extend(reply),
                Err(why) => return (replies, Err(why.to_string())),
            }
        }
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    (replies, Ok(reader.is_between()))
}

/// The reply of a script.
pub(crate) fn of_script(value: Value) -> Option<Reply> {
    reply(value).ok()
}
