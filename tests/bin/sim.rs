//! Runs simulations by their seeds; see `docs/testing.md`.

// The results are what this program is for.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use tests::history::EXCUSES;
use tests::sim::{Plan, run, shrink};
use tests::{each_seed, lock};

/// The real library on a simulated network: one seed, one history.
#[derive(Parser)]
struct Options {
    /// Runs this one seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the time line.
    #[arg(long)]
    trace: bool,
    /// Prints the plan.
    #[arg(long)]
    plan: bool,
    /// Runs these seeds on all cores: A..B, B not included.
    #[arg(long, value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// Runs so many seeds that nobody chose.
    #[arg(long)]
    fresh: Option<u64>,
    /// Does not look for a smaller plan that fails.
    #[arg(long)]
    no_shrink: bool,
    /// Goes on after a seed that fails.
    #[arg(long)]
    all: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parsed = text
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not A..B"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let failed = match (options.seed, options.seeds, options.fresh) {
        (Some(seed), ..) => one(seed, &options),
        (None, Some((from, to)), _) => many(from, to, &options),
        (None, None, Some(count)) => {
            let from = fresh();
            many(from, from + count, &options)
        }
        (None, None, None) => many(0, 200, &options),
    };
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// A seed that nobody chose.
fn fresh() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs()) * 1_000_000
}

fn one(seed: u64, options: &Options) -> bool {
    let plan = Plan::of_seed(seed);
    if options.plan {
        println!("{plan:#?}");
    }
    let start = Instant::now();
    let report = run(&plan);
    if options.trace {
        for line in &report.lines {
            println!("{line}");
        }
    }
    let granted = report
        .history
        .acquisitions
        .iter()
        .filter(|one| one.grant.is_some())
        .count();
    println!(
        "seed {seed}: {} acquisitions, {granted} granted, {} faults, {} ms simulated, {} lines, {:?}",
        report.history.acquisitions.len(),
        plan.faults.len(),
        report.history.end,
        report.lines.len(),
        start.elapsed(),
    );
    for violation in &report.violations {
        println!("VIOLATION of {violation}");
    }
    print_excused(&report.excused);
    let failed = !report.violations.is_empty();
    if failed && !options.no_shrink {
        print_smaller(&plan);
    }
    failed
}

/// What kept something from breaking a rule, and how often.
fn print_excused(excused: &BTreeMap<&'static str, usize>) {
    let all = EXCUSES.iter().map(|excuse| {
        let count = excused.get(excuse).copied().unwrap_or(0);
        format!("{excuse} {count}")
    });
    println!("excused: {}", all.collect::<Vec<_>>().join(", "));
}

/// Where a second run of a seed went another way.
fn other_line(seed: u64, lines: &[String]) -> Option<String> {
    let again = run(&Plan::of_seed(seed)).lines;
    let both = lines.iter().zip(&again).enumerate();
    let (place, (one, other)) = both.into_iter().find(|(_, (one, other))| one != other)?;
    Some(format!("line {place} was {one:?}, and then {other:?}"))
}

fn print_smaller(plan: &Plan) {
    let smaller = shrink(plan);
    let text = serde_json::to_string(&smaller).unwrap_or_default();
    println!("to paste into tests/sim/regressions.rs:\n");
    println!(
        "#[test]\nfn seed_{}() {{\n    replay(r#\"{text}\"#);\n}}\n",
        plan.seed
    );
    for violation in run(&smaller).violations {
        println!("there: VIOLATION of {violation}");
    }
}

fn many(from: u64, to: u64, options: &Options) -> bool {
    let done = AtomicU64::new(0);
    let failed = Mutex::new(Vec::new());
    let excused = Mutex::new(BTreeMap::new());
    let start = Instant::now();
    println!("seeds {from}..{to}");
    each_seed(from..to, |seed| {
        let report = run(&Plan::of_seed(seed));
        let mut all = lock(&excused);
        for (excuse, count) in &report.excused {
            *all.entry(*excuse).or_insert(0) += count;
        }
        drop(all);
        if let Some(first) = report.violations.first() {
            let count = report.violations.len();
            println!("seed {seed}: {count} violations: {first}");
            if let Some(other) = other_line(seed, &report.lines) {
                println!("seed {seed} does not repeat itself: {other}");
            }
            lock(&failed).push(seed);
            if !options.all && options.no_shrink {
                // A deliberate bug may have another seed hang.
                std::process::exit(1);
            }
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(100) {
            println!("{done} of {} seeds, {:?}", to - from, start.elapsed());
        }
        if report.violations.is_empty() || options.all {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    let done = done.into_inner();
    println!(
        "{done} seeds in {:?}, {} failed: {failed:?}",
        start.elapsed(),
        failed.len()
    );
    print_excused(&excused.into_inner().unwrap_or_else(PoisonError::into_inner));
    if let Some(seed) = failed.first().filter(|_| !options.no_shrink) {
        print_smaller(&Plan::of_seed(*seed));
    }
    !failed.is_empty()
}
