//! What runs have shown, as tables.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use super::{
    Failure,
    check::Seen,
    peers, plot,
    rules::{Breach, may_overlap},
    run::Outcome,
    subject::IN_POSTGRES,
    topology::TOPOLOGIES,
};

/// Fails if what the pages promise was broken.
pub(crate) fn broken(outcome: &Outcome) -> Result<(), Failure> {
    let line = |breach: &Breach| {
        let Breach {
            fault,
            kind,
            rule,
            times,
            seconds,
        } = breach;
        format!("\n{fault}, {kind}: {rule}: {times} times, first after {seconds:.1} s")
    };
    let broken: String = outcome.broken.iter().map(line).collect();
    match broken.is_empty() {
        true => Ok(()),
        false => Err(format!("{}, seeds {:?}:{broken}", outcome.topology, outcome.seeds).into()),
    }
}

/// All together.
pub(crate) fn sum<'a>(all: impl IntoIterator<Item = &'a Seen>) -> Seen {
    let mut sum = Seen::default();
    for seen in all {
        sum.acquired += seen.acquired;
        sum.valid_overlaps += seen.valid_overlaps;
        sum.bodies_overlap += seen.bodies_overlap;
        sum.tokens_back += seen.tokens_back;
        sum.passed_by += seen.passed_by;
        sum.lost += seen.lost;
        sum.longest_told_ms = sum.longest_told_ms.max(seen.longest_told_ms);
        sum.longest_wait_ms = sum.longest_wait_ms.max(seen.longest_wait_ms);
        sum.longest_gap_ms = sum.longest_gap_ms.max(seen.longest_gap_ms);
        for (error, times) in &seen.failed {
            *sum.failed.entry(error.clone()).or_default() += times;
        }
    }
    sum
}

/// What happened to these kinds, where the servers kept the locks, and where they may have lost them.
pub(crate) fn kept_and_lost(outcome: &Outcome, is_of: impl Fn(&str) -> bool) -> [Seen; 2] {
    [false, true].map(|may| {
        let faults = outcome.seen.iter();
        let faults = faults.filter(|(fault, _)| may_overlap(&outcome.topology, fault) == may);
        let kinds = faults.flat_map(|(_, kinds)| kinds);
        sum(kinds.filter(|(kind, _)| is_of(kind)).map(|(_, seen)| seen))
    })
}

const HEAD: &str = "| fault | times | acquired | failed | overlaps of valid guards | bodies that ran on beside another | tokens that went back | passed in the fair queue | guards lost | told after, ms | longest wait, ms | longest without, ms |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

fn table(outcome: &Outcome) -> String {
    let mut text = HEAD.to_owned();
    for (fault, kinds) in &outcome.seen {
        let seen = sum(kinds.values());
        let failed: u64 = seen.failed.values().sum();
        let times = outcome.strikes.get(fault).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {fault} | {times} | {} | {failed} | {} | {} | {} | {} | {} | {} | {} | {} |",
            seen.acquired,
            seen.valid_overlaps,
            seen.bodies_overlap,
            seen.tokens_back,
            seen.passed_by,
            seen.lost,
            seen.longest_told_ms,
            seen.longest_wait_ms,
            seen.longest_gap_ms,
        );
    }
    text
}

pub(crate) fn print(outcome: &Outcome) {
    println!("{}", table(outcome));
    println!("counters: {:?}", outcome.counters);
    if !outcome.left.is_empty() {
        println!("left: {:?}", outcome.left);
    }
}

/// Writes under-faults.md and its charts into the folder of the pages, from `under-faults/*.json` there.
pub(crate) fn write(docs: &Path) -> Result<(), Failure> {
    let mut outcomes = Vec::<Outcome>::new();
    for name in TOPOLOGIES {
        let path = docs.join("under-faults").join(format!("{name}.json"));
        if path.exists() {
            outcomes.push(serde_json::from_str(&fs::read_to_string(path)?)?);
        }
    }
    let mut page = include_str!("page.md").to_owned();
    for (mark, text) in [
        ("SUMMARY", summary(&outcomes)),
        ("COUNTERS", counters(&outcomes)),
        ("PEERS", peers::section(&docs.join("under-faults"))?),
        ("PLANTED", planted(docs)?),
        ("TABLES", outcomes.iter().map(section).collect()),
    ] {
        page = page.replace(&format!("<!-- {mark} -->\n"), &text);
    }
    fs::write(docs.join("under-faults.md"), page)?;
    let lines = outcomes
        .iter()
        .filter(|outcome| outcome.around.iter().any(|count| *count > 0));
    let lines = lines.map(|outcome| {
        let failovers = outcome
            .strikes
            .iter()
            .filter(|(fault, _)| fault.starts_with("failover"));
        let failovers: u64 = failovers.map(|(_, times)| times).sum();
        let each = outcome
            .around
            .iter()
            .map(|count| *count as f64 / failovers.max(1) as f64);
        (outcome.topology.clone(), each.collect())
    });
    fs::write(
        docs.join("under-faults/failover.svg"),
        plot::lines(&lines.collect::<Vec<_>>()),
    )?;
    let shares = outcomes.iter().flat_map(|outcome| {
        outcome.counters.iter().map(|(kind, counted)| {
            let share = counted.lost as f64 / counted.written.max(1) as f64;
            (format!("{}, {}", outcome.topology, around(kind)), share)
        })
    });
    fs::write(
        docs.join("under-faults/counters.svg"),
        plot::bars(&shares.collect::<Vec<_>>()),
    )?;
    Ok(())
}

/// What `ci/mutants --faults` has seen.
fn planted(docs: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(docs.join("under-faults/planted.json"))?;
    let mut table = "| bug | what it does | servers | fault | what the checker said | seconds |
| --- | --- | --- | --- | --- | --- |
"
    .to_owned();
    for bug in serde_json::from_str::<Vec<BTreeMap<String, String>>>(&text)? {
        let cells = ["name", "does", "servers", "fault", "rule", "seconds"].map(|key| &*bug[key]);
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    Ok(table)
}

/// What a counter is guarded by.
fn around(kind: &str) -> &'static str {
    match kind {
        "off" => "no lock",
        "rlock" => "RLock",
        "fenced" => "FencedLock, a store that compares",
        IN_POSTGRES => "FencedLock, PostgreSQL compares",
        _ => "RedLock",
    }
}

fn summary(outcomes: &[Outcome]) -> String {
    let mut text = "| servers | seconds | faults | acquired | overlaps of valid guards: where the lock is promised | where its server lost it | tokens that went back: promised | where lost | keys and channels left |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
".to_owned();
    for outcome in outcomes {
        let [kept, lost] = kept_and_lost(outcome, |_| true);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            outcome.topology,
            outcome.seconds,
            outcome.strikes.values().sum::<u64>(),
            kept.acquired + lost.acquired,
            kept.valid_overlaps,
            lost.valid_overlaps,
            kept.tokens_back,
            lost.tokens_back,
            outcome.left.len(),
        );
    }
    text
}

fn counters(outcomes: &[Outcome]) -> String {
    let mut text =
        "| servers | guarded by | counted | refused by the store | outcome unknown | lost |
| --- | --- | --- | --- | --- | --- |
"
        .to_owned();
    for outcome in outcomes {
        for (kind, counted) in &outcome.counters {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                outcome.topology,
                around(kind),
                counted.written,
                counted.refused,
                counted.unknown,
                counted.lost,
            );
        }
    }
    text
}

fn section(outcome: &Outcome) -> String {
    format!(
        "### {}\n\nRedis {}, {} s, seeds {}.\n\n{}\n",
        outcome.topology,
        outcome.server,
        outcome.seconds,
        outcome
            .seeds
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        table(outcome),
    )
}
