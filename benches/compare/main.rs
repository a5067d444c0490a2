//! The speed of redlock-rt beside the bare `redis` crate, measured in one run on one server, with a
//! runtime of one thread and with one of a thread per core.
//!
//! ```text
//! cargo run --release -p benches --bin compare
//! cargo run --release -p benches --features peers --bin compare -- --write
//! ```
//!
//! The second measures other lock crates too (`compare/peers.rs`), and writes the tables of
//! docs/performance.md and README.md, and the files of docs/plots (`compare/files.rs`).
//!
//! All sides do the same work in interleaved rounds, so that other work of the machine affects all
//! alike; see `rounds`. The raw side is `raw.rs`.

mod bare;
mod contention;
mod figures;
mod files;
mod goals;
mod handover;
mod held;
mod machine;
mod pair;
#[cfg_attr(not(feature = "peers"), path = "no_peers.rs")]
mod peers;
mod plot;
mod report;
mod rounds;
mod rows;
#[cfg(test)]
mod sample;
mod scenes;
mod shared;
mod sides;
mod table;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use tests::RedisServer;
use tokio::runtime::{Builder, Runtime};

use self::{
    figures::Scene,
    held::Kept,
    peers::Peers,
    report::{Report, Run},
    rounds::Effort,
};

/// Measures redlock-rt against the redis crate alone.
#[derive(Debug, Parser)]
struct Options {
    /// Rounds per comparison; seven or more make a useful median.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Turns of each side in a round.
    #[arg(long, default_value_t = 20)]
    turns: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 25)]
    slice: u64,
    /// Only this; may be given several times.
    #[arg(long)]
    only: Vec<Part>,
    /// Only this runtime.
    #[arg(long)]
    runtime: Option<Flavor>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail if a goal is missed.
    #[arg(long)]
    check: bool,
    /// Write the tables of docs/performance.md and README.md, and docs/plots.
    #[arg(long, conflicts_with_all = ["only", "runtime"])]
    write: bool,
    /// Write them of the figures in docs/plots, without measuring.
    #[arg(long, conflicts_with_all = ["only", "runtime", "write"])]
    rewrite: bool,
    /// Print the bytes of what is kept, and nothing else; `compare` starts itself with this.
    #[arg(long, hide = true, requires_all = ["of", "at"])]
    keep: Option<Kept>,
    /// The crate.
    #[arg(long, hide = true, default_value = "")]
    of: String,
    /// The URL of the server.
    #[arg(long, hide = true, default_value = "")]
    at: String,
}

impl Options {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// A part of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Uncontended,
    Distinct,
    Contended,
    Clients,
    Shared,
    Handover,
    Embedded,
    Held,
}

/// A runtime of tokio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    fn build(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::MultiThread => Builder::new_multi_thread(),
        };
        builder.enable_all().build().expect("a runtime starts")
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(kept) = options.keep {
        let runtime = Flavor::CurrentThread.build();
        runtime.block_on(held::keep(kept, &options.of, &options.at));
        return ExitCode::SUCCESS;
    }
    let report = match options.rewrite {
        true => files::read(),
        false => measure(&options),
    };
    let text = match options.json {
        true => report.json(),
        false => report.to_string(),
    };
    // The reader may have closed the pipe.
    let _ = io::stdout().write_all(text.as_bytes());
    if options.write || options.rewrite {
        files::write(&report);
    }
    if options.check && !report.goals_are_met() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measure(options: &Options) -> Report {
    let server = RedisServer::start();
    let flavors = match options.runtime {
        Some(flavor) => vec![flavor],
        None => vec![Flavor::CurrentThread, Flavor::MultiThread],
    };
    let run = |flavor: Flavor| {
        let runtime = flavor.build();
        let load_before = machine::load();
        let scenes = runtime.block_on(scenes(&server, options));
        Run {
            threads: runtime.metrics().num_workers(),
            load_before,
            load_after: machine::load(),
            scenes,
        }
    };
    let runs = flavors.into_iter().map(run).collect();
    let runtime = Flavor::CurrentThread.build();
    let held = match options.wants(Part::Held) {
        true => runtime.block_on(held::held(&server)),
        false => Vec::new(),
    };
    Report {
        machine: runtime.block_on(machine::ask(&server)),
        held,
        rounds: options.rounds,
        turns: options.turns,
        slice: options.slice,
        runs,
    }
}

async fn scenes(server: &RedisServer, options: &Options) -> Vec<Scene> {
    let effort = Effort {
        rounds: options.rounds,
        turns: options.turns,
        slice: Duration::from_millis(options.slice),
    };
    let wanted = |part| options.wants(part);
    let peers = Peers::connect(&server.url()).await;
    let mut scenes = Vec::new();
    if wanted(Part::Uncontended) {
        scenes.push(scenes::uncontended(server, &peers, effort).await);
    }
    if wanted(Part::Distinct) {
        scenes.push(scenes::distinct(server, &peers, 64, effort).await);
        scenes.push(scenes::distinct(server, &peers, 256, effort).await);
    }
    if wanted(Part::Contended) {
        scenes.push(contention::contended(server, effort).await);
        scenes.extend(contention::against_peers(server, &peers).await);
    }
    if wanted(Part::Clients) {
        scenes.push(contention::clients(server, effort).await);
    }
    if wanted(Part::Shared) {
        scenes.extend(shared::shared(server, effort).await);
    }
    if wanted(Part::Handover) {
        scenes.push(handover::between_clients(server, effort).await);
    }
    if wanted(Part::Embedded) {
        scenes.push(scenes::embedded(1, effort).await);
        scenes.push(scenes::embedded(64, effort).await);
    }
    scenes
}
