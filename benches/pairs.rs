//! Runs a fixed number of lock + unlock pairs and nothing else, and prints what a pair took of it:
//! allocations, time, CPU time of the client, CPU time of the server. For profilers too:
//!
//! ```text
//! export CARGO_TARGET_DIR=target/profiling CARGO_PROFILE_RELEASE_DEBUG=line-tables-only
//! RUSTFLAGS='--cfg rustix_use_libc' cargo build --release -p benches --bin pairs
//! valgrind --tool=callgrind target/profiling/release/pairs ours --pairs 1000
//! ```
//!
//! Counts of instructions are the same on a busy machine as on an idle one; the difference between
//! two runs of different length excludes the start. (Valgrind shows no vDSO, without which rustix
//! reads clocks only through libc.)

use std::{
    alloc::System,
    io::{self, Write},
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures::future::join_all;
use raw::Raw;
use redlock_rt::Client;
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tests::RedisServer;
use tokio::runtime::Builder;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Does lock + unlock pairs, for profilers.
#[derive(Debug, Parser)]
struct Options {
    /// What does them.
    #[arg(value_enum, default_value = "ours")]
    side: Side,
    /// Tasks, each with a key of its own.
    #[arg(long, default_value_t = 1)]
    tasks: u64,
    /// Pairs a task.
    #[arg(long, default_value_t = 10_000)]
    pairs: u64,
    /// Threads of the runtime.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

/// What does the pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Ours,
    /// The bare crate, with two scripts.
    Raw,
    /// The commands of `ours`, and nothing else.
    Bare,
    /// As `ours`, with guards that are dropped.
    Dropping,
    /// The commands of `dropping`.
    BareDropping,
}

#[path = "compare/bare.rs"]
mod bare;
#[path = "compare/pair.rs"]
mod pair;

use self::pair::{Dropping, Pair};

/// What was used up to a moment.
#[derive(Debug, Clone, Copy)]
struct Used {
    at: Instant,
    allocations: usize,
    client: Duration,
    server: f64,
}

impl Used {
    async fn now(server: &RedisServer) -> Self {
        let at = Instant::now();
        let stats = ALLOCATOR.stats();
        let client = clock_gettime(ClockId::ProcessCPUTime);
        let client = Duration::try_from(client).expect("the time is not negative");
        let connection = tests::connection_to(&server.url()).await;
        let mut connection = connection.expect("the server answers");
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("cpu")
            .query_async(&mut connection)
            .await
            .expect("the server answers");
        let seconds = |field| info.get::<f64>(field).expect("the server says it");
        Self {
            at,
            allocations: stats.allocations + stats.reallocations,
            client,
            server: seconds("used_cpu_sys_main_thread") + seconds("used_cpu_user_main_thread"),
        }
    }
}

fn main() {
    let options = Options::parse();
    let mut runtime = match options.threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(options.threads).enable_all().build();
    runtime.expect("a runtime").block_on(measure(&options));
}

async fn measure(options: &Options) {
    let server = RedisServer::start();
    let dropping = matches!(options.side, Side::Dropping | Side::BareDropping);
    match options.side {
        Side::Ours | Side::Dropping => {
            let client = Client::connect(&server.url()).await;
            let client = client.expect("the server answers");
            let locks = (0..options.tasks).map(|task| client.rlock(format!("pairs:{task:02}")));
            match dropping {
                true => run(&server, options, locks.map(Dropping)).await,
                false => run(&server, options, locks).await,
            }
        }
        Side::Raw => {
            let raw = Raw::connect(server.address()).await;
            let raw = raw.expect("the server answers");
            let locks = (0..options.tasks).map(|task| raw.lock(&format!("pairs:{task:02}"), task));
            run(&server, options, locks).await;
        }
        Side::Bare | Side::BareDropping => {
            let pairs = bare::pairs(&server, options.tasks, !dropping).await;
            run(&server, options, pairs.into_iter()).await;
        }
    }
}

async fn run<P: Pair>(server: &RedisServer, options: &Options, pairs: impl Iterator<Item = P>) {
    let tasks = pairs.map(|pair| works(pair, options.pairs / 10));
    // Connected, with all scripts loaded, and with buffers of their usual size.
    let pairs = join_all(tasks.map(tokio::spawn)).await;
    let before = Used::now(server).await;
    let tasks = pairs
        .into_iter()
        .map(|pair| works(pair.expect("no task panics"), options.pairs));
    join_all(tasks.map(tokio::spawn)).await;
    let after = Used::now(server).await;
    let pairs = (options.tasks * options.pairs) as f64;
    let allocations = (after.allocations - before.allocations) as f64 / pairs;
    let micros = |seconds: f64| seconds * 1e6 / pairs;
    let _ = writeln!(
        io::stdout(),
        "a pair took {allocations:.1} allocations, {:.2} us, {:.2} us of CPU here, {:.2} us there",
        micros((after.at - before.at).as_secs_f64()),
        micros((after.client - before.client).as_secs_f64()),
        micros(after.server - before.server),
    );
}

async fn works<P: Pair>(mut pair: P, times: u64) -> P {
    for _ in 0..times {
        pair.pair().await;
    }
    pair
}
