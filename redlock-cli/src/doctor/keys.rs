//! Keys in the place of locks that are no locks, and locks of other programs under another prefix.

use std::collections::HashSet;

use redis::RedisError;

use super::{Said, note, ok, warning};
use crate::nodes::Node;
use crate::server::Server;

/// Keys a SCAN.
const AT_ONCE: &str = "500";
/// The bytes of the longest number.
const LONGEST_NUMBER: u64 = 20;
/// The bytes of the longest key in which the name of a lock is looked for behind each colon.
const LONGEST_KEY: usize = 1024;
/// How many of a finding are named.
const NAMED: usize = 5;

/// The keys of a master that were looked at.
pub(super) struct Keys {
    names: Vec<Vec<u8>>,
    /// Why not all keys are there.
    why_not_all: Option<String>,
}

impl Keys {
    /// The readable ones that begin so.
    pub(super) fn starting<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.names().filter(move |name| name.starts_with(start))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names
            .iter()
            .filter_map(|name| std::str::from_utf8(name).ok())
    }
}

pub(super) async fn scan(node: &Node, most: usize) -> Keys {
    let (mut names, mut cursor, mut pages) = (Vec::new(), "0".to_owned(), 0);
    loop {
        pages += 1;
        let page: Result<(String, Vec<Vec<u8>>), RedisError> =
            node.ask(&["SCAN", &cursor, "COUNT", AT_ONCE]).await;
        let why = match page {
            Err(error) => Some(error.to_string()),
            Ok((next, page)) => {
                names.extend(page);
                cursor = next;
                // Pages may be empty, and have no end.
                (names.len().max(pages) > most && cursor != "0")
                    .then(|| format!("there are more than {most} keys or pages of SCAN (--scan)"))
            }
        };
        if cursor == "0" || why.is_some() {
            return Keys {
                names,
                why_not_all: why,
            };
        }
    }
}

pub(super) async fn check(
    node: &Node,
    server: &Server,
    keys: &Keys,
) -> Result<Vec<Said>, RedisError> {
    let mut said = Vec::new();
    if let Some(why) = &keys.why_not_all {
        said.push(note(format!(
            "{} keys were looked at: {why}",
            keys.names.len()
        )));
    }
    let Some(namespace) = &server.namespace else {
        said.push(note(
            "say --namespace to find keys that are no locks, and locks without it",
        ));
        return Ok(said);
    };
    let start = format!("{namespace}:");
    let ours: Vec<_> = keys.starting(&start).collect();
    let mut foreign = Vec::new();
    for key in &ours {
        if is_foreign(node, key, &start).await? {
            foreign.push(*key);
        }
    }
    if !foreign.is_empty() {
        said.push(warning(
            format!(
                "{} under {start} are no locks: {}",
                counted(foreign.len()),
                named(&foreign)
            ),
            "a lock of such a name is refused (WrongType): keep data out of the namespace of locks",
        ));
    }
    let elsewhere = elsewhere(node, keys, &start, &ours).await?;
    if !elsewhere.is_empty() {
        said.push(warning(
            format!("locks have the same name, but not {start}: {}", named(&elsewhere)),
            "services that are to exclude each other need one prefix: in Redisson setNameMapper, here the namespace",
        ));
    }
    if said.is_empty() {
        said.push(ok(format!("{} keys under {start}", ours.len())));
    }
    Ok(said)
}

fn counted(number: usize) -> String {
    format!("{number} key{}", if number == 1 { "" } else { "s" })
}

fn named(keys: &[&str]) -> String {
    let more = if keys.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", keys[..keys.len().min(NAMED)].join(", "))
}

/// Whether the key cannot be a lock, semaphore or latch, nor another key of the library.
async fn is_foreign(node: &Node, key: &str, start: &str) -> Result<bool, RedisError> {
    let kind: String = node.ask(&["TYPE", key]).await?;
    Ok(match kind.as_str() {
        // It has expired since.
        "none" => false,
        "hash" => !is_identity(&key[start.len()..]) && !is_lock(node, key).await?,
        "string" if node.ask::<u64>(&["STRLEN", key]).await? > LONGEST_NUMBER => true,
        "string" => {
            let text: Option<Vec<u8>> = node.ask(&["GET", key]).await?;
            let text = text.map(String::from_utf8);
            text.is_some_and(|text| text.map_or(true, |text| text.parse::<i64>().is_err()))
        }
        "zset" => semaphore_of(key).is_none(),
        _ => true,
    })
}

/// Whether this is the key of a client's identity.
fn is_identity(name: &str) -> bool {
    name.starts_with("redlock_client:{") && name.ends_with('}')
}

/// The semaphore whose permits have their leases under this name: its own in braces, unless it contains `{`.
pub(super) fn semaphore_of(leases: &str) -> Option<&str> {
    let name = leases.strip_suffix(":timeout")?;
    let inner = name
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    match inner {
        Some(inner) if !inner.contains('{') => Some(inner),
        _ => name.contains('{').then_some(name),
    }
}

/// Whether a hash has the fields of a lock.
async fn is_lock(node: &Node, key: &str) -> Result<bool, RedisError> {
    let (_, fields): (String, Vec<Vec<u8>>) = node.ask(&["HSCAN", key, "0", "COUNT", "10"]).await?;
    let texts: Result<Vec<_>, _> = fields.iter().map(|field| str::from_utf8(field)).collect();
    Ok(texts.is_ok_and(|texts| {
        texts.chunks(2).all(|pair| {
            let (field, value) = (pair[0], pair.get(1));
            let owner = field.strip_suffix(":write").unwrap_or(field);
            let number = owner
                .rsplit_once(':')
                .map(|(_, number)| number.parse::<i64>().is_ok());
            field == "mode"
                || number == Some(true) && value.is_some_and(|value| value.parse::<i64>().is_ok())
        })
    }))
}

/// Locks without the namespace whose names end like one of ours.
async fn elsewhere<'a>(
    node: &Node,
    keys: &'a Keys,
    start: &str,
    ours: &[&str],
) -> Result<Vec<&'a str>, RedisError> {
    let names: HashSet<_> = ours
        .iter()
        .filter_map(|key| key.strip_prefix(start))
        .collect();
    // The holds of a semaphore whose name contains `{` look like a lock.
    let holds = format!("redlock_sem:{start}");
    let is_ours = |key: &str| key.starts_with(start) || key.starts_with(&holds);
    let others = keys
        .names()
        .filter(|key| key.len() <= LONGEST_KEY && !is_ours(key));
    let mut found = Vec::new();
    for key in others {
        // A name may begin after any colon.
        let ends = key.match_indices(':').map(|(at, _)| &key[at + 1..]);
        if ends.chain([key]).any(|name| names.contains(name))
            && node.ask::<String>(&["TYPE", key]).await? == "hash"
            && is_lock(node, key).await?
        {
            found.push(key);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_keys_than_are_named_end_in_dots() {
        assert_eq!(named(&["k"; 5]), "k, k, k, k, k");
        assert_eq!(named(&["k"; 6]), "k, k, k, k, k, …");
    }
}
