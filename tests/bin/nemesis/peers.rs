//! Other libraries under the same faults: how their workers start, and their table.

use std::{env, fmt::Write as _, fs, path::Path};

use super::{Failure, check::Seen, report::sum, rules::may_overlap, run::Outcome};

/// A library, used as in its documentation.
struct Peer {
    name: &'static str,
    version: &'static str,
    renews: bool,
    /// What tells a holder that its lock is lost.
    says: &'static str,
    /// Before the name of the library; its arguments are those of a worker.
    command: &'static [&'static str],
}

const PYTHON: &[&str] = &["python3", "tests/bin/nemesis/peers/worker.py"];
const NODE: &[&str] = &["node", "tests/bin/nemesis/peers/worker.mjs"];
const RUST: &[&str] = &["target/release/nemesis_peers"];

const fn peer(
    name: &'static str,
    version: &'static str,
    renews: bool,
    says: &'static str,
    command: &'static [&'static str],
) -> Peer {
    Peer {
        name,
        version,
        renews,
        says,
        command,
    }
}

const PEERS: &[Peer] = &[
    peer(
        "redlock-rt",
        "0.1.0",
        true,
        "a future, a local deadline",
        &[],
    ),
    peer("rslock", "0.10.0", true, "the body is dropped", RUST),
    peer("redisson", "0.1.0", false, "not offered", RUST),
    peer(
        "distributed-lock-redis",
        "0.2.0",
        true,
        "a watch channel",
        RUST,
    ),
    peer("async-redis-lock", "0.4.0", true, "a local deadline", RUST),
    peer("redis-py", "8.1.0", false, "a question to Redis", PYTHON),
    peer(
        "python-redis-lock",
        "4.0.1",
        true,
        "a question to Redis",
        PYTHON,
    ),
    peer("redlock", "5.0.0-beta.2", true, "an AbortSignal", NODE),
    peer("redis-semaphore", "5.8.0", true, "a callback, a flag", NODE),
];

/// The words that start a worker of a library.
pub(crate) fn command(name: &str) -> Result<Vec<String>, Failure> {
    let peer = PEERS.iter().find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| format!("no library is called {name}"))?;
    let words = peer.command.iter().copied().chain([name]);
    Ok(match peer.command.is_empty() {
        true => worker("rlock"),
        false => words.map(str::to_owned).collect(),
    })
}

/// The words that start a worker of ours, for a kind of lock or `all`.
pub(crate) fn worker(kinds: &str) -> Vec<String> {
    let program = env::current_exe().expect("it runs");
    let program = program.to_str().expect("a path is text");
    [program, "worker", kinds].map(str::to_owned).to_vec()
}

const HEAD: &str = "| library | renews | what tells a holder of a loss | servers | acquired | valid at once: Redis kept the lock | Redis lost it | bodies beside another: Redis kept the lock | Redis lost it | told after, ms | counted | updates lost | keys left | processes that ended or hung |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// The section of the page, from `peers/LIBRARY-TOPOLOGY.json` in this folder; nothing without any.
pub(crate) fn section(folder: &Path) -> Result<String, Failure> {
    let mut text = HEAD.to_owned();
    for peer in PEERS {
        for topology in ["single", "redlock"] {
            let path = folder.join(format!("peers/{}-{topology}.json", peer.name));
            if path.exists() {
                let outcome = serde_json::from_str(&fs::read_to_string(path)?)?;
                row(&mut text, peer, &outcome);
            }
        }
    }
    Ok(match text == HEAD {
        true => String::new(),
        false => include_str!("peers.md").replace("<!-- PEERS -->\n", &text),
    })
}

fn row(text: &mut String, peer: &Peer, outcome: &Outcome) {
    // Without the counters.
    let of = |may| -> Seen {
        let faults = outcome.seen.iter();
        let faults = faults.filter(|(fault, _)| may_overlap(&outcome.topology, fault) == may);
        sum(faults.flat_map(|(_, kinds)| {
            let locks = kinds.iter().filter(|(kind, _)| !kind.starts_with("count:"));
            locks.map(|(_, seen)| seen)
        }))
    };
    let (kept, lost) = (of(false), of(true));
    let offered = |figure: u64| match peer.says {
        "not offered" => peer.says.to_owned(),
        _ => figure.to_string(),
    };
    let counted = outcome
        .counters
        .get("rlock")
        .or_else(|| outcome.counters.get("redlock"));
    let counted = counted.cloned().unwrap_or_default();
    let _ = writeln!(
        text,
        "| {} {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        peer.name,
        peer.version,
        if peer.renews { "yes" } else { "not offered" },
        peer.says,
        outcome.topology,
        kept.acquired + lost.acquired,
        offered(kept.valid_overlaps),
        offered(lost.valid_overlaps),
        kept.bodies_overlap,
        lost.bodies_overlap,
        offered(kept.longest_told_ms.max(lost.longest_told_ms)),
        counted.written,
        counted.lost,
        outcome.left.len(),
        outcome.stuck,
    );
}
