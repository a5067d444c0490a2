//! The commands: how one is found, and what it is given.

pub(super) mod connection;
mod expiry;
mod hashes;
mod keys;
mod lists;
pub(super) mod monitor;
mod pubsub;
mod scan;
mod scripting;
mod server;
mod sets;
mod strings;
mod table;
pub(super) mod transactions;
mod zranges;
mod zsets;

use super::hash::FastMap;
use super::num;
use super::resp::{Fail, Reply};
use super::scripts::Scripts;
use super::state::{Client, State};
use super::store::Db;
use std::sync::LazyLock;

pub(super) use self::table::{AT_ONCE, NO_AUTH, NO_SCRIPT, NOT_IN_EXEC, WHILE_SUBSCRIBED, WRITE};

/// The release of Redis whose behaviour this is.
pub(super) const VERSION: &str = "7.0.15";

const SYNTAX: &str = "ERR syntax error";
const NOT_INT: &str = "ERR value is not an integer or out of range";
const NOT_FLOAT: &str = "ERR value is not a valid float";
const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";

/// Arguments of a command; the first is its name.
type Args<'a> = &'a [&'a [u8]];

pub(super) type Handler = fn(&mut Ctx<'_>, Args<'_>) -> Result<Reply, Fail>;

/// What a command works on, and for whom.
pub(super) struct Ctx<'a> {
    pub(super) state: &'a mut State,
    pub(super) client: u64,
    pub(super) db: usize,
    pub(super) resp3: bool,
    pub(super) in_script: bool,
}

impl Ctx<'_> {
    pub(super) fn db(&mut self) -> &mut Db {
        self.state.db(self.db)
    }

    fn client(&mut self) -> Result<&mut Client, Fail> {
        // Only a client that was killed while its command ran is missing.
        self.state
            .clients
            .get_mut(&self.client)
            .ok_or_else(|| "ERR client is gone".into())
    }
}

#[derive(Clone, Copy)]
pub(super) enum Run {
    Plain(Handler),
    /// Runs without the state being locked: given the client and its database.
    Script(fn(&mut Scripts, u64, usize, Args<'_>) -> Result<Reply, Fail>),
    Exec,
}

pub(super) struct Command {
    pub(super) name: &'static str,
    /// The number of arguments with the name; negative: at least so many.
    arity: i64,
    flags: u8,
    pub(super) run: Run,
    index: usize,
}

impl Command {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    fn takes(&self, args: usize) -> bool {
        let args = i64::try_from(args).unwrap_or(i64::MAX);
        if self.arity < 0 {
            args >= -self.arity
        } else {
            args == self.arity
        }
    }
}

static BY_NAME: LazyLock<FastMap<&'static [u8], Command>> = LazyLock::new(|| {
    let commands = table::COMMANDS.iter().enumerate();
    commands
        .map(|(index, &(name, arity, flags, run))| {
            (
                name.as_bytes(),
                Command {
                    name,
                    arity,
                    flags,
                    run,
                    index,
                },
            )
        })
        .collect()
});

/// How many commands there are.
pub(super) fn count() -> usize {
    table::COMMANDS.len()
}

/// The longest name, with its subcommand.
const MAX_NAME: usize = 32;

/// Looks up `name` or `container|name`, whatever the case.
fn lookup(container: Option<&str>, name: &[u8]) -> Option<&'static Command> {
    let mut key = [0; MAX_NAME];
    let mut len = 0;
    if let Some(container) = container {
        len = container.len() + 1;
        key[..len - 1].copy_from_slice(container.as_bytes());
        key[len - 1] = b'|';
    }
    let spelled = key.get_mut(len..len + name.len())?;
    spelled.copy_from_slice(name);
    spelled.make_ascii_lowercase();
    BY_NAME.get(&key[..len + name.len()])
}

/// Finds the command of a request and checks the number of its arguments.
pub(super) fn find(args: Args<'_>) -> Result<&'static Command, Fail> {
    let name = args.first().copied().unwrap_or_default();
    // A name with a bar is that of a subcommand, which is not called so.
    let plain = if name.contains(&b'|') {
        None
    } else {
        lookup(None, name)
    };
    let command = plain.ok_or_else(|| unknown_command(args))?;
    let command = match args.get(1) {
        Some(sub) if command.has(table::CONTAINER) => {
            lookup(Some(command.name), sub).ok_or_else(|| unknown_subcommand(command.name, sub))?
        }
        _ => command,
    };
    if command.takes(args.len()) {
        Ok(command)
    } else {
        Err(wrong_arity(command.name))
    }
}

/// The same for a script, which has error texts of its own.
pub(super) fn find_in_script(args: Args<'_>) -> Result<&'static Command, Fail> {
    let name = args.first().copied().unwrap_or_default();
    let plain = if name.contains(&b'|') {
        None
    } else {
        lookup(None, name)
    };
    let command = match (plain, args.get(1)) {
        (Some(container), Some(sub)) if container.has(table::CONTAINER) => {
            lookup(Some(container.name), sub)
        }
        _ => plain,
    };
    let command = command.ok_or("ERR Unknown Redis command called from script")?;
    if command.takes(args.len()) {
        Ok(command)
    } else {
        Err("ERR Wrong number of args calling Redis command from script".into())
    }
}

/// For containers: their arity keeps them from being called alone.
fn no_subcommand(_: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Err(unknown_command(args))
}

fn wrong_arity(name: &str) -> Fail {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// The part of an argument that C's `%.{max}s` prints.
fn c_string(bytes: &[u8], max: usize) -> &[u8] {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    &bytes[..end.min(max)]
}

fn unknown_command(args: Args<'_>) -> Fail {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(c_string(args.first().copied().unwrap_or_default(), 128));
    text.extend_from_slice(b"', with args beginning with: ");
    let mut shown = 0;
    for arg in args.iter().skip(1) {
        if shown >= 128 {
            break;
        }
        let arg = c_string(arg, 128 - shown);
        text.push(b'\'');
        text.extend_from_slice(arg);
        text.extend_from_slice(b"' ");
        shown += arg.len() + 3;
    }
    text.into()
}

fn unknown_subcommand(container: &str, sub: &[u8]) -> Fail {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(c_string(sub, 128));
    text.extend_from_slice(format!("'. Try {} HELP.", container.to_uppercase()).as_bytes());
    text.into()
}

// Reading arguments

fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

fn int(arg: &[u8]) -> Result<i64, Fail> {
    num::parse_int(arg).ok_or_else(|| NOT_INT.into())
}

fn float(arg: &[u8]) -> Result<f64, Fail> {
    num::parse_float(arg).ok_or_else(|| NOT_FLOAT.into())
}

/// A count that must not be negative.
fn positive(arg: &[u8]) -> Result<usize, Fail> {
    num::parse_int(arg)
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| NOT_POSITIVE.into())
}

/// Turns a range with indices that may count from the end into one of positions.
fn positions(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
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
fn position(index: i64, len: usize) -> Option<usize> {
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
    fn names_are_found_in_any_case() {
        assert_eq!(find(&[b"GeT", b"k"]).map(|c| c.name).ok(), Some("get"));
        assert_eq!(
            find(&[b"client", b"KILL", b"x"]).map(|c| c.name).ok(),
            Some("client|kill")
        );
        assert!(find(&[b"client|kill", b"x"]).is_err());
        assert!(find(&[&[b'x'; 100]]).is_err());
        assert!(find(&[]).is_err());
    }

    #[test]
    fn the_table_has_no_name_twice_and_lower_case_only() {
        assert_eq!(BY_NAME.len(), count());
        for (name, ..) in table::COMMANDS {
            assert_eq!(*name, name.to_lowercase());
            assert!(name.len() <= MAX_NAME);
            if let Some((container, _)) = name.split_once('|') {
                let container = lookup(None, container.as_bytes());
                assert!(container.is_some_and(|c| c.has(table::CONTAINER)), "{name}");
            }
        }
    }

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
