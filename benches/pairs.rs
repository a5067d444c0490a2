//! Runs a fixed number of lock + unlock pairs and nothing else, and prints what a pair took of it:
//! allocations, time, CPU time of the client, CPU time of the server. Several sides take turns:
//!
//! ```text
//! cargo run --release -p benches --bin pairs -- ours bare raw --tasks 64 --rounds 9
//! ```
//!
//! For profilers too:
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
    fs,
    io::{self, Write},
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures::future::{BoxFuture, FutureExt, join_all};
use raw::Raw;
use redis::aio::MultiplexedConnection;
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
    /// What does them; each is compared with the last.
    #[arg(value_enum, default_value = "ours")]
    sides: Vec<Side>,
    /// Tasks, each with a key of its own.
    #[arg(long, default_value_t = 1)]
    tasks: u64,
    /// Pairs a task, in a round.
    #[arg(long, default_value_t = 10_000)]
    pairs: u64,
    /// Rounds, in each of which all sides have a turn.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
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
    /// These commands, and the least that a lock with a lease takes besides.
    Floor,
    /// As `ours`, with guards that are dropped.
    Dropping,
    /// The commands of `dropping`.
    BareDropping,
    /// As `ours`, with the client's tasks on a thread of their own.
    Dedicated,
    /// The commands of `dedicated`, written by the caller, whose replies another thread reads.
    BareDedicated,
}

#[path = "compare/bare.rs"]
mod bare;
#[path = "compare/floor.rs"]
mod floor;
#[path = "compare/pair.rs"]
mod pair;

use self::bare::How;
use self::pair::{Dropping, Pair};

/// What was used up to a moment.
#[derive(Debug, Clone, Copy)]
struct Used {
    at: Instant,
    allocations: usize,
    client: Duration,
    /// The client's, in ticks of the kernel: they only say how its time is divided.
    user: f64,
    kernel: f64,
    server: f64,
}

impl Used {
    async fn now(server: &mut MultiplexedConnection) -> Self {
        let at = Instant::now();
        let stats = ALLOCATOR.stats();
        let client = clock_gettime(ClockId::ProcessCPUTime);
        let client = Duration::try_from(client).expect("the time is not negative");
        let stat = fs::read_to_string("/proc/self/stat").expect("this is Linux");
        // The name of the program stands before them, in brackets.
        let (_, fields) = stat.rsplit_once(')').expect("it has a name");
        let mut ticks = fields.split_whitespace().skip(11).map(str::parse);
        let mut ticks = || ticks.next().expect("it is there").expect("it is a number");
        let info: redis::InfoDict = redis::cmd("INFO")
            .arg("cpu")
            .query_async(server)
            .await
            .expect("the server answers");
        let seconds = |field| info.get::<f64>(field).expect("the server says it");
        Self {
            at,
            allocations: stats.allocations + stats.reallocations,
            client,
            user: ticks(),
            kernel: ticks(),
            server: seconds("used_cpu_sys_main_thread") + seconds("used_cpu_user_main_thread"),
        }
    }
}

/// What [`Taken`] has.
const WHAT: [&str; 6] = [
    "allocations",
    "us",
    "CPU here",
    "user",
    "kernel",
    "CPU there",
];

/// What a pair took in a round; times in microseconds.
type Taken = [f64; WHAT.len()];

fn taken(before: Used, after: Used, pairs: f64) -> Taken {
    let micros = |seconds: f64| seconds * 1e6 / pairs;
    let client = micros((after.client - before.client).as_secs_f64());
    let (user, kernel) = (after.user - before.user, after.kernel - before.kernel);
    [
        (after.allocations - before.allocations) as f64 / pairs,
        micros((after.at - before.at).as_secs_f64()),
        client,
        client * user / (user + kernel),
        client * kernel / (user + kernel),
        micros(after.server - before.server),
    ]
}

/// The tasks of a side.
trait Works {
    /// Lets each do so many pairs.
    fn work(&mut self, times: u64) -> BoxFuture<'_, ()>;
}

struct Tasks<P>(Vec<P>);

impl<P: Pair> Works for Tasks<P> {
    fn work(&mut self, times: u64) -> BoxFuture<'_, ()> {
        let tasks = std::mem::take(&mut self.0).into_iter();
        let tasks = tasks.map(move |mut pair| {
            tokio::spawn(async move {
                for _ in 0..times {
                    pair.pair().await;
                }
                pair
            })
        });
        async move {
            let ended = join_all(tasks).await.into_iter();
            self.0 = ended.map(|pair| pair.expect("no task panics")).collect();
        }
        .boxed()
    }
}

impl Side {
    fn name(self) -> String {
        let name = self.to_possible_value().expect("none is left out");
        name.get_name().to_owned()
    }

    async fn works(self, server: &RedisServer, tasks: u64) -> Box<dyn Works> {
        let name = |task| format!("pairs:{}:{task:03}", self.name());
        match self {
            Self::Ours | Self::Dropping | Self::Dedicated => {
                let client = Client::builder().url(&server.url());
                let client = client.dedicated_thread(self == Self::Dedicated);
                let client = client.connect().await;
                let client = client.expect("the server answers");
                let locks = (0..tasks).map(|task| client.rlock(name(task)));
                match self {
                    Self::Dropping => Box::new(Tasks(locks.map(Dropping).collect())),
                    _ => Box::new(Tasks(locks.collect())),
                }
            }
            Self::Raw => {
                let raw = Raw::connect(server.address()).await;
                let raw = raw.expect("the server answers");
                let locks = (0..tasks).map(|task| raw.lock(&name(task), task));
                Box::new(Tasks(locks.collect()))
            }
            Self::Bare => bare_pairs(server, tasks, How::Waiting).await,
            Self::Floor => Box::new(Tasks(floor::pairs(server, tasks).await)),
            Self::BareDropping => bare_pairs(server, tasks, How::Dropping).await,
            Self::BareDedicated => bare_pairs(server, tasks, How::OnThread).await,
        }
    }
}

async fn bare_pairs(server: &RedisServer, tasks: u64, how: How) -> Box<dyn Works> {
    Box::new(Tasks(bare::pairs(server, tasks, how).await))
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
    let mut connection = server.connect().await.expect("the server answers");
    let mut sides = Vec::new();
    for side in &options.sides {
        let mut works = side.works(&server, options.tasks).await;
        // Connected, with all scripts loaded, and with buffers of their usual size.
        works.work(options.pairs / 10).await;
        sides.push((side.name(), works, Vec::new()));
    }
    let pairs = (options.tasks * options.pairs) as f64;
    for round in 0..options.rounds {
        for place in 0..sides.len() {
            let at = (round + place) % sides.len();
            let (_, works, rounds) = &mut sides[at];
            let before = Used::now(&mut connection).await;
            works.work(options.pairs).await;
            rounds.push(taken(before, Used::now(&mut connection).await, pairs));
        }
    }
    let sides = sides.into_iter().map(|(name, _, rounds)| (name, rounds));
    // The reader may have closed the pipe.
    let _ = io::stdout().write_all(table(&sides.collect::<Vec<_>>()).as_bytes());
}

/// What a pair of each side took: medians of the rounds, and in brackets of the ratios to the last side.
fn table(sides: &[(String, Vec<Taken>)]) -> String {
    let line = |name: &str, cells: [String; WHAT.len()]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>16}")).collect();
        format!("{name:<14}{cells}\n")
    };
    let mut text = line("", WHAT.map(str::to_owned));
    let Some(((_, baseline), others)) = sides.split_last() else {
        return text;
    };
    for (name, rounds) in sides {
        let of = |what: usize| median(rounds.iter().map(|round| round[what]));
        let ratio = |what: usize| {
            let both = rounds.iter().zip(baseline);
            median(both.map(|(one, last)| one[what] / last[what]))
        };
        let cell = |what| match others.is_empty() {
            true => format!("{:.2}", of(what)),
            false => format!("{:.2} ({:.2})", of(what), ratio(what)),
        };
        text += &line(name, std::array::from_fn(cell));
    }
    text
}

fn median(sample: impl Iterator<Item = f64>) -> f64 {
    let mut sample: Vec<f64> = sample.collect();
    sample.sort_by(f64::total_cmp);
    let (half, odd) = (sample.len() / 2, sample.len() % 2 == 1);
    match sample.get(half) {
        None => f64::NAN,
        Some(middle) if odd => *middle,
        Some(middle) => f64::midpoint(sample[half - 1], *middle),
    }
}
