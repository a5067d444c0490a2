//! The context of a command, and how it reads its arguments.

use super::super::num;
use super::super::resp::{Fail, RespReply};
use super::super::scripts::Scripts;
use super::super::state::{ConnectedClient, ScriptRun, ServerState};
use super::super::store::Db;

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NOT_INT: &str = "ERR value is not an integer or out of range";

/// Arguments of a command; the first is its name.
pub(super) type CommandArgs<'a> = &'a [&'a [u8]];

pub(in super::super) type Handler = fn(&mut Ctx<'_>, CommandArgs<'_>) -> Result<RespReply, Fail>;

/// The state that a command works on, and its client.
pub(in super::super) struct Ctx<'a> {
    pub(in super::super) state: &'a mut ServerState,
    pub(in super::super) client: u64,
    pub(in super::super) db: usize,
}

impl Ctx<'_> {
    pub(in super::super) fn db(&mut self) -> &mut Db {
        self.state.db(self.db)
    }

    pub(super) fn client(&mut self) -> Result<&mut ConnectedClient, Fail> {
        // Only a client that was killed while its command ran is missing.
        self.state
            .clients
            .get_mut(&self.client)
            .ok_or_else(|| "ERR client is gone".into())
    }
}

#[derive(Clone, Copy)]
pub(in super::super) enum CommandRun {
    Plain(Handler),
    /// Runs while the state is not locked; gets the client and its database.
    Script(fn(&mut Scripts, ScriptRun, CommandArgs<'_>) -> Result<RespReply, Fail>),
}

/// For containers: their arity refuses a call without a subcommand.
pub(super) fn no_subcommand(_: &mut Ctx<'_>, _: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Err(SYNTAX.into())
}

pub(super) fn wrong_arity(name: &str) -> Fail {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The part of an argument that C's `%.{max}s` prints.
pub(super) fn c_string(bytes: &[u8], max: usize) -> &[u8] {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    &bytes[..end.min(max)]
}

pub(super) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// Which of these words the arguments begin with, in any order, and the arguments after them.
pub(super) fn flags<'a, const N: usize>(
    mut args: CommandArgs<'a>,
    words: [&str; N],
) -> ([bool; N], CommandArgs<'a>) {
    let mut found = [false; N];
    while let [arg, rest @ ..] = args
        && let Some(at) = words.iter().position(|word| is(arg, word))
    {
        found[at] = true;
        args = rest;
    }
    (found, args)
}

pub(super) fn int(arg: &[u8]) -> Result<i64, Fail> {
    num::parse_int(arg).ok_or_else(|| NOT_INT.into())
}

pub(super) fn float(arg: &[u8]) -> Result<f64, Fail> {
    num::parse_float(arg).ok_or_else(|| "ERR value is not a valid float".into())
}

/// A count that must not be negative.
pub(super) fn positive(arg: &[u8]) -> Result<usize, Fail> {
    num::parse_int(arg)
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| "ERR value is out of range, must be positive".into())
}

/// Turns a range with indices that may count from the end into one of positions.
pub(super) fn positions(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let size = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |index: i64| {
        if index < 0 {
            index.saturating_add(size).max(0)
        } else {
            index
        }
    };
    let start = from_end(start);
    let stop = if stop < 0 {
        stop.saturating_add(size)
    } else {
        stop.min(size - 1)
    };
    if start > stop || start >= size {
        return 0..0;
    }
    // Both lie within the length now.
    usize::try_from(start).unwrap_or(0)..usize::try_from(stop).map_or(0, |stop| stop + 1)
}

/// The position that an index names, if there is one.
pub(super) fn position(index: i64, len: usize) -> Option<usize> {
    let size = i64::try_from(len).ok()?;
    let index = if index < 0 {
        index.checked_add(size)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|index| *index < len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_from_either_end() {
        for (start, stop, len, expected) in [
            (0, -1, 3, 0..3),
            (-2, -1, 3, 1..3),
            (1, 100, 3, 1..3),
            (2, 1, 3, 0..0),
            (-100, -100, 3, 0..0),
            (i64::MIN, i64::MAX, 3, 0..3),
            (0, 0, 0, 0..0),
        ] {
            assert_eq!(
                positions(start, stop, len),
                expected,
                "{start} {stop} {len}"
            );
        }
        assert_eq!(position(-1, 3), Some(2));
        assert_eq!(position(i64::MIN, 3), None);
        assert_eq!(position(3, 3), None);
    }
}
