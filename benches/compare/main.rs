//! The speed of redlock-rt beside the bare `redis` crate, measured in one run on one server.
//!
//! ```text
//! cargo run --release -p benches --bin compare
//! ```
//!
//! With `--features peers` it measures other lock crates too: `compare/peers.rs`.
//!
//! Both sides do the same work in interleaved rounds, so that other work of the machine affects both
//! alike; see `rounds`. The raw side is `raw.rs`.

mod contention;
mod machine;
#[cfg(feature = "peers")]
mod peers;
mod report;
mod rounds;
mod scenes;
mod sides;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use tests::RedisServer;

use self::{machine::Machine, report::Report, rounds::Effort};

/// Measures redlock-rt against the redis crate alone.
#[derive(Debug, Parser)]
struct Options {
    /// Rounds per comparison; seven or more make a useful median.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Turns of each side in a round.
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 25)]
    slice: u64,
    /// Hand-overs that are timed.
    #[arg(long, default_value_t = 1000)]
    handovers: usize,
    /// Only this; may be given several times.
    #[arg(long)]
    only: Vec<Part>,
    /// Use a runtime of one thread instead of one thread per core.
    #[arg(long)]
    current_thread: bool,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail if a goal is missed.
    #[arg(long)]
    check: bool,
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Uncontended,
    Distinct,
    Contended,
    Shared,
    Handover,
    Embedded,
    /// Other lock crates.
    #[cfg(feature = "peers")]
    Peers,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut builder = match options.current_thread {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().expect("a runtime starts");
    let report = runtime.block_on(measure(&options));
    report.print(options.json);
    if options.check && !report.goals_are_met() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn measure(options: &Options) -> Report {
    let effort = Effort {
        rounds: options.rounds,
        turns: options.turns,
        slice: Duration::from_millis(options.slice),
    };
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let server = RedisServer::start();
    let mut connection = server.connect().await.expect("the server answers");
    let mut report = Report::new(
        Machine::ask(&mut connection).await,
        effort,
        options.current_thread,
    );
    if wanted(Part::Uncontended) {
        report
            .scenes
            .push(scenes::uncontended(&server, effort).await);
    }
    if wanted(Part::Distinct) {
        report.scenes.push(scenes::distinct(&server, effort).await);
    }
    if wanted(Part::Contended) {
        report.contended = contention::contended(&server, effort).await;
    }
    if wanted(Part::Shared) {
        report.shared = contention::shared(&server, effort).await;
    }
    if wanted(Part::Handover) {
        report.handover = Some(contention::handover(&server, options.handovers).await);
    }
    if wanted(Part::Embedded) {
        report
            .scenes
            .push(scenes::embedded_uncontended(effort).await);
        report.scenes.push(scenes::embedded_distinct(effort).await);
    }
    #[cfg(feature = "peers")]
    if wanted(Part::Peers) {
        report
            .scenes
            .push(peers::uncontended(&server, effort).await);
        report.scenes.push(peers::contended(&server).await);
    }
    report.load_after = machine::load();
    report
}
