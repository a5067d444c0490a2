//! How a command is found and checked.

mod call;
mod connection;
mod expiry;
mod hashes;
mod keys;
mod lists;
mod pubsub;
mod restore;
mod scripting;
mod server;
mod sets;
mod strings;
mod table;
mod zranges;
mod zsets;

use super::hash::FastMap;
use super::resp::Fail;
use std::sync::LazyLock;

pub(super) use self::call::{CommandRun, Ctx, Handler};
pub(super) use self::table::{NO_AUTH, NO_SCRIPT, QUICK, WHILE_SUBSCRIBED};

use self::call::{CommandArgs, c_string, wrong_arity};

pub(super) struct Command {
    pub(super) name: &'static str,
    /// The number of arguments with the name; negative: at least this many.
    arity: i64,
    flags: u8,
    pub(super) run: CommandRun,
}

impl Command {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
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
    let commands = table::COMMANDS.iter();
    commands
        .map(|&(name, arity, flags, run)| {
            let command = Command {
                name,
                arity,
                flags,
                run,
            };
            (name.as_bytes(), command)
        })
        .collect()
});

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

/// The command of a request; `Err` with the container whose subcommand is not known, if any.
fn named(args: CommandArgs<'_>) -> Result<&'static Command, Option<&'static str>> {
    let name = args.first().copied().unwrap_or_default();
    // A name with a bar is ours for a subcommand; clients do not send it.
    let plain = if name.contains(&b'|') {
        None
    } else {
        lookup(None, name)
    };
    match (plain, args.get(1)) {
        (Some(container), Some(sub)) if container.has(table::CONTAINER) => {
            lookup(Some(container.name), sub).ok_or(Some(container.name))
        }
        _ => plain.ok_or(None),
    }
}

/// Finds the command of a request and checks the number of its arguments.
pub(super) fn find(args: CommandArgs<'_>) -> Result<&'static Command, Fail> {
    let command = named(args).map_err(|container| match container {
        Some(container) => unknown_subcommand(container, args[1]),
        None => unknown_command(args),
    })?;
    if command.takes(args.len()) {
        Ok(command)
    } else {
        Err(wrong_arity(command.name))
    }
}

/// The same for a script, which has error texts of its own.
pub(super) fn find_in_script(args: CommandArgs<'_>) -> Result<&'static Command, Fail> {
    let command = named(args).map_err(|container| {
        let text = b"ERR Unknown Redis command called from script".to_vec();
        let sub = container.and_then(|_| args.get(1)).copied();
        not_here(text, args.first().copied().unwrap_or_default(), sub)
    })?;
    if command.takes(args.len()) {
        Ok(command)
    } else {
        Err("ERR Wrong number of args calling Redis command from script".into())
    }
}

/// Adds to Redis' text that another server may have the command.
fn not_here(mut text: Vec<u8>, name: &[u8], sub: Option<&[u8]>) -> Fail {
    if text.last() != Some(&b' ') {
        text.push(b' ');
    }
    text.extend_from_slice(b"(the embedded engine has no '");
    text.extend_from_slice(c_string(name, 128));
    if let Some(sub) = sub {
        text.push(b' ');
        text.extend_from_slice(c_string(sub, 128));
    }
    text.extend_from_slice(b"')");
    text.into()
}

fn unknown_command(args: CommandArgs<'_>) -> Fail {
    let name = args.first().copied().unwrap_or_default();
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(c_string(name, 128));
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
    not_here(text, name, None)
}

fn unknown_subcommand(container: &str, sub: &[u8]) -> Fail {
    let container = container.to_uppercase();
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(c_string(sub, 128));
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    not_here(text, container.as_bytes(), Some(sub))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
        assert_eq!(BY_NAME.len(), table::COMMANDS.len());
        for (name, ..) in table::COMMANDS {
            assert_eq!(*name, name.to_lowercase());
            assert!(name.len() <= MAX_NAME);
            if let Some((container, _)) = name.split_once('|') {
                let container = lookup(None, container.as_bytes()).map(|c| c.flags);
                assert!(container.is_some_and(|flags| flags & table::CONTAINER != 0));
            }
        }
    }

    #[test]
    fn the_documentation_lists_the_commands_of_the_table() {
        let documented: Vec<&str> = include_str!("../../README.md")
            .lines()
            .filter_map(|line| line.strip_prefix("| "))
            .filter_map(|line| line.split_once('|'))
            .flat_map(|(_, names)| names.split('`').skip(1).step_by(2))
            .collect();
        let known: BTreeSet<String> = table::COMMANDS
            .iter()
            .filter(|(_, _, flags, _)| flags & table::CONTAINER == 0)
            .map(|(name, ..)| name.replace('|', " ").to_uppercase())
            .collect();
        let names: BTreeSet<String> = documented.iter().copied().map(String::from).collect();
        assert_eq!(names, known);
        assert_eq!(documented.len(), known.len(), "one is listed twice");
    }
}
