//! Other libraries under the same faults: how their workers start, and their table.

use std::{env, fmt::Write as _, fs, path::Path};

use super::{Failure, report::kept_and_lost, run::Outcome};

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

/// The words that start a worker of a library on these servers.
pub(crate) fn command(name: &str, topology: &str) -> Result<Vec<String>, Failure> {
    let peer = PEERS.iter().find(|peer| peer.name == name);
    let peer = peer.ok_or_else(|| format!("no library is called {name}"))?;
    let words = peer.command.iter().copied().chain([name]);
    Ok(match peer.command.is_empty() {
        true if topology == "redlock" => worker("redlock"),
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

/// The section of the page, with the rows that [`collect`] has written; nothing without any.
pub(crate) fn section(folder: &Path) -> Result<String, Failure> {
    let rows = folder.join("peers.md");
    if !rows.exists() {
        return Ok(String::new());
    }
    let table = HEAD.to_owned() + &fs::read_to_string(rows)?;
    Ok(include_str!("peers.md").replace("<!-- PEERS -->\n", &table))
}

/// Writes the rows, from `LIBRARY-TOPOLOGY-SEED/result.json` in the folder of the results.
pub(crate) fn collect(results: &Path, rows: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    for peer in PEERS {
        for topology in ["single", "redlock"] {
            let mut outcomes = Vec::new();
            for entry in fs::read_dir(results)? {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                let seed = name.and_then(|name| name.strip_prefix(peer.name));
                let seed = seed.and_then(|seed| seed.strip_prefix(&format!("-{topology}-")));
                if seed.is_some_and(|seed| seed.parse::<u64>().is_ok()) {
                    let read = fs::read_to_string(path.join("result.json"))?;
                    outcomes.push(serde_json::from_str::<Outcome>(&read)?);
                }
            }
            outcomes.sort_by(|one, other| one.seeds.cmp(&other.seeds));
            if !outcomes.is_empty() {
                row(&mut text, peer, topology, &outcomes);
            }
        }
    }
    Ok(fs::write(rows, text)?)
}

/// The figures of a run, as the table has them.
fn figures(outcome: &Outcome) -> [u64; 10] {
    // Without the locks of the counters.
    let [kept, lost] = kept_and_lost(outcome, |kind| !kind.starts_with("count:"));
    let counters = ["rlock", "redlock"].map(|name| outcome.counters.get(name).cloned());
    let counted = counters.into_iter().flatten().next().unwrap_or_default();
    [
        kept.acquired + lost.acquired,
        kept.valid_overlaps,
        lost.valid_overlaps,
        kept.bodies_overlap,
        lost.bodies_overlap,
        kept.longest_told_ms.max(lost.longest_told_ms),
        counted.written,
        counted.lost,
        outcome.left.len() as u64,
        outcome.stuck as u64,
    ]
}

/// What a library says itself of its locks.
const SAID: [usize; 3] = [1, 2, 5];

/// Each figure once for each run.
fn row(text: &mut String, peer: &Peer, topology: &str, outcomes: &[Outcome]) {
    let renews = if peer.renews { "yes" } else { "not offered" };
    let mut cells = vec![
        format!("{} {}", peer.name, peer.version),
        renews.to_owned(),
        peer.says.to_owned(),
        topology.to_owned(),
    ];
    let runs: Vec<_> = outcomes.iter().map(figures).collect();
    cells.extend((0..10).map(|at| match peer.says {
        "not offered" if SAID.contains(&at) => peer.says.to_owned(),
        _ => {
            let figures: Vec<_> = runs.iter().map(|run| run[at].to_string()).collect();
            figures.join(", ")
        }
    }));
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
