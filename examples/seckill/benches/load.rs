//! What the lock costs: the same four instances sell with it and without it, in turn.
//!
//! ```console
//! $ cargo bench -p seckill --bench load -- --rounds 9
//! ```
//!
//! Redis, PostgreSQL, the instances and the load generator share the machine. Each round has all
//! scenes, in an order that alternates, and a ratio is of two scenes of one round: what else the
//! machine does falls on both.
#![allow(clippy::print_stdout, reason = "a report")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::{fs, thread};

use clap::Parser;
use serde_json::Value;
use tests::{ChildProcess, Postgres, RedisServer};

const INSTANCES: usize = 4;

/// Requests in flight.
const CONNECTIONS: &str = "64";

/// The same for all instances: 64 bytes.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[derive(Debug, Parser)]
struct Args {
    /// Rounds, of which the median is told.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Requests of a rush.
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,

    /// Cargo adds this.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One kind of rush.
#[derive(Debug)]
struct Scene {
    title: &'static str,
    lock: &'static str,
    /// How many requests each user sends at once.
    each: u32,
    sold_out: bool,
}

const SCENES: [Scene; 6] = [
    Scene::new("every request orders, rlock", "rlock", 1, false),
    Scene::new("every request orders, off", "off", 1, false),
    Scene::new("three requests a user, rlock", "rlock", 3, false),
    Scene::new("three requests a user, off", "off", 3, false),
    Scene::new("sold out, rlock", "rlock", 1, true),
    Scene::new("sold out, off", "off", 1, true),
];

/// Which scene is compared with which.
const RATIOS: [(&str, usize, usize); 3] = [
    ("rlock / off, every request orders", 0, 1),
    ("rlock / off, three requests a user", 2, 3),
    ("sold out / every request orders, rlock", 4, 0),
];

/// What came of one rush.
#[derive(Clone, Copy, Debug)]
struct Figures {
    requests_a_second: f64,
    p99_ms: f64,
}

impl Scene {
    const fn new(title: &'static str, lock: &'static str, each: u32, sold_out: bool) -> Self {
        Self {
            title,
            lock,
            each,
            sold_out,
        }
    }

    fn run(&self, targets: &str, requests: u32) -> Figures {
        // An answer without an order takes so little that more of them are needed to be timed.
        let requests = if self.sold_out {
            4 * requests
        } else {
            requests
        };
        let users = (requests / self.each).to_string();
        let stock = if self.sold_out { 0 } else { requests }.to_string();
        let each = self.each.to_string();
        let flags = [
            "rush",
            "--json",
            "--http",
            targets,
            "--users",
            &users,
            "--stock",
            &stock,
            "--lock",
            self.lock,
            "--requests-per-user",
            &each,
            "--concurrency",
            CONNECTIONS,
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_seckill"))
            .args(flags)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = match (self.sold_out, self.lock) {
            (true, _) => 0,
            (false, "off") if self.each > 1 => summary["sold"].as_u64().unwrap(),
            _ => u64::from(requests / self.each),
        };
        assert_eq!(summary["sold"], expected, "{summary}");
        Figures {
            requests_a_second: summary["requests_per_second"].as_f64().unwrap(),
            p99_ms: summary["latency_p99_us"].as_f64().unwrap() / 1000.0,
        }
    }
}

fn main() {
    let args = Args::parse();
    let redis = RedisServer::start();
    let postgres = Postgres::start();
    let database = postgres.create_database();
    let instances: Vec<_> = (0..INSTANCES)
        .map(|_| serve(&redis.url(), &database))
        .collect();
    let targets: Vec<_> = instances.iter().map(|(_, url)| &**url).collect();
    let targets = targets.join(",");

    println!("{}", machine());
    for scene in &SCENES {
        scene.run(&targets, args.requests.div_ceil(4));
    }
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let mut figures = [None; SCENES.len()];
        for step in 0..SCENES.len() {
            let at = if round % 2 == 0 {
                step
            } else {
                SCENES.len() - 1 - step
            };
            figures[at] = Some(SCENES[at].run(&targets, args.requests));
        }
        rounds.push(figures.map(Option::unwrap));
        println!("round {} of {}, load {}", round + 1, args.rounds, load());
    }

    println!("\n{:<42}{:>12}{:>10}", "medians", "requests/s", "p99 ms");
    for (at, scene) in SCENES.iter().enumerate() {
        let rate = median(rounds.iter().map(|round| round[at].requests_a_second));
        let p99 = median(rounds.iter().map(|round| round[at].p99_ms));
        println!("{:<42}{rate:>12.0}{p99:>10.1}", scene.title);
    }
    println!(
        "\n{:<42}{:>12}{:>16}",
        "requests/s, ratios", "median", "lowest, highest"
    );
    for (title, of, to) in RATIOS {
        let ratios = rounds
            .iter()
            .map(|round| round[of].requests_a_second / round[to].requests_a_second);
        let lowest = ratios.clone().fold(f64::INFINITY, f64::min);
        let highest = ratios.clone().fold(0.0, f64::max);
        println!(
            "{title:<42}{:>12.2}{lowest:>9.2},{highest:>6.2}",
            median(ratios)
        );
    }
}

/// Starts an instance, and returns its URL.
fn serve(redis: &str, database: &str) -> (ChildProcess, String) {
    let arguments = [
        "serve",
        "--port",
        "0",
        "--redis",
        redis,
        "--database",
        database,
        "--namespace",
        "load",
    ];
    let mut process = ChildProcess::spawn(env!("CARGO_BIN_EXE_seckill"), arguments, |command| {
        command
            .env("SECKILL_SECRET", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
    })
    .unwrap();
    let said = BufReader::new(process.take_stdout().unwrap()).lines();
    let url = said
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()));
    (process, url.unwrap())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len() % 2 == 1 {
        figures[middle]
    } else {
        f64::midpoint(figures[middle - 1], figures[middle])
    }
}

/// What the figures were taken on.
fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let cpu = cpu.map_or("an unknown CPU", |name| {
        name.trim_start_matches([' ', '\t', ':'])
    });
    let cores = thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores of {cpu}, load {}", load())
}

/// How many processes wanted to run in the last minute.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}
