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
            outcomes.sort_by_key(|outcome| outcome.seed);
            if !outcomes.is_empty() {
                row(&mut text, peer, topology, &outcomes);
            }
        }
    }
    Ok(fs::write(rows, text)?)
}

/// What happened to all locks but those of the counters, where Redis kept them, and where it may have lost them.
fn seen(outcome: &Outcome) -> [Seen; 2] {
    [false, true].map(|may| {
        let faults = outcome.seen.iter();
        let faults = faults.filter(|(fault, _)| may_overlap(&outcome.topology, fault) == may);
        sum(faults.flat_map(|(_, kinds)| {
            let locks = kinds.iter().filter(|(kind, _)| !kind.starts_with("count:"));
            locks.map(|(_, seen)| seen)
        }))
    })
}

/// Each figure once for each run.
fn row(text: &mut String, peer: &Peer, topology: &str, outcomes: &[Outcome]) {
    let each = |figure: &dyn Fn(&Outcome) -> u64| {
        let figures: Vec<_> = outcomes.iter().map(|one| figure(one).to_string()).collect();
        figures.join(", ")
    };
    let offered = |figures: String| match peer.says {
        "not offered" => peer.says.to_owned(),
        _ => figures,
    };
    let counted = |outcome: &Outcome| {
        let counters = ["rlock", "redlock"].map(|name| outcome.counters.get(name).cloned());
        counters.into_iter().flatten().next().unwrap_or_default()
    };
    let cells = [
        format!("{} {}", peer.name, peer.version),
        if peer.renews { "yes" } else { "not offered" }.to_owned(),
        peer.says.to_owned(),
        topology.to_owned(),
        each(&|one| seen(one).iter().map(|seen| seen.acquired).sum()),
        offered(each(&|one| seen(one)[0].valid_overlaps)),
        offered(each(&|one| seen(one)[1].valid_overlaps)),
        each(&|one| seen(one)[0].bodies_overlap),
        each(&|one| seen(one)[1].bodies_overlap),
        offered(each(&|one| {
            let told = seen(one).map(|seen| seen.longest_told_ms);
            told[0].max(told[1])
        })),
        each(&|one| counted(one).written),
        each(&|one| counted(one).lost),
        each(&|one| one.left.len() as u64),
        each(&|one| one.stuck as u64),
    ];
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
