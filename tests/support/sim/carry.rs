//! Keys that go from one node to another: as the commands that make them there.

use bytes::Bytes;

use super::server::Server;
use crate::history::Ms;
use crate::proxy::words;

/// A key as it was.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Copied {
    key: String,
    make: Vec<Bytes>,
    /// When it ends, on the clock that all nodes share.
    ends: Option<Ms>,
}

impl Copied {
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn is_of(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

/// The keys of a node for which this holds, in their order.
pub(super) fn keys_where(server: &Server, holds: impl Fn(&str) -> bool) -> Vec<String> {
    let mut keys = server.list(&["KEYS", "*"]);
    keys.retain(|key| holds(key));
    keys.sort_unstable();
    keys
}

/// These keys of a node; what has ended meanwhile is left out.
pub(super) fn copy(server: &Server, keys: &[String]) -> Vec<Copied> {
    keys.iter().filter_map(|key| one(server, key)).collect()
}

fn one(server: &Server, key: &str) -> Option<Copied> {
    let list = |question: &[&str]| words(&server.ask(question));
    // The score comes before the member.
    let scored = |list: Vec<Bytes>| {
        let pairs = list.chunks_exact(2);
        pairs
            .flat_map(|pair| [pair[1].clone(), pair[0].clone()])
            .collect()
    };
    let (command, content) = match &*server.ask(&["TYPE", key]) {
        b"+hash\r\n" => ("HSET", list(&["HGETALL", key])),
        b"+list\r\n" => ("RPUSH", list(&["LRANGE", key, "0", "-1"])),
        b"+set\r\n" => ("SADD", list(&["SMEMBERS", key])),
        b"+zset\r\n" => {
            let list = list(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
            ("ZADD", scored(list))
        }
        b"+string\r\n" => ("SET", vec![text(&server.ask(&["GET", key]))?]),
        _ => return None,
    };
    let begin = [Bytes::from(command), Bytes::from(key.to_owned())];
    Some(Copied {
        key: key.to_owned(),
        make: begin.into_iter().chain(content).collect(),
        ends: server
            .number(&["PTTL", key])
            .map(|lives| server.time() + lives),
    })
}

/// The content of a bulk string.
fn text(reply: &Bytes) -> Option<Bytes> {
    let header = reply.iter().position(|byte| *byte == b'\n')?;
    Some(reply.slice(header + 1..reply.len() - 2))
}

/// Makes keys on a node, in place of what is there under their names.
pub(super) fn paste(server: &mut Server, keys: &[Copied]) {
    for Copied { key, make, ends } in keys {
        if ends.is_some_and(|ends| ends <= server.time()) {
            continue;
        }
        server.ask(&["DEL", key]);
        let words: Vec<&[u8]> = make.iter().map(|word| &**word).collect();
        server.ask_bytes(&words);
        if let Some(ends) = ends {
            server.ask(&["PEXPIREAT", key, &ends.to_string()]);
        }
    }
    server.changed = true;
}
