//! One run of a topology: faults drawn from a seed, one behind the other, and what they have shown.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use tests::{Postgres, RedisServer, connection_to, shared_postgres};
use tokio::time::sleep;

use super::{
    Failure,
    check::{self, Counted, Table, Window},
    crew::{Crew, START},
    event::{self, now},
    faults::{self, CLOCKS_DIFFER, Fault, SERVER_AHEAD, SERVER_BEHIND, strike},
    masters,
    meet::LATCH,
    peers,
    row::Row,
    rules::{self, Breach},
    subject::{COUNTERS, IN_POSTGRES},
    topology::Topology,
    worker::{POSTGRES, lease},
};

/// Between two faults: what the first one has done is over.
const QUIET: Duration = Duration::from_millis(1500);

pub(crate) struct Plan {
    /// The words that start a process that contends.
    pub(crate) worker: Vec<String>,
    pub(crate) topology: String,
    pub(crate) seconds: Duration,
    pub(crate) seed: u64,
    pub(crate) faults: Vec<Fault>,
    /// For the result and the history; `None`: the history goes with the run.
    pub(crate) out: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn of(topology: &str, options: &[&str]) -> Result<Self, Failure> {
        let mut plan = Self {
            worker: peers::worker("all"),
            topology: topology.to_owned(),
            seconds: Duration::from_secs(60),
            seed: fastrand::u64(..1 << 32),
            faults: Vec::new(),
            out: None,
        };
        for option in options.chunks(2) {
            match *option {
                ["--seconds", seconds] => plan.seconds = Duration::from_secs(seconds.parse()?),
                ["--seed", seed] => plan.seed = seed.parse()?,
                ["--out", directory] => plan.out = Some(directory.into()),
                ["--faults", faults] => {
                    let known = |name| {
                        Fault::named(name).ok_or_else(|| format!("no fault is called {name}"))
                    };
                    plan.faults = faults.split(';').map(known).collect::<Result<_, _>>()?;
                }
                _ => return Err(format!("no option {option:?}").into()),
            }
        }
        Ok(plan)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) topology: String,
    pub(crate) seconds: u64,
    /// Of each run that is added up here.
    pub(crate) seeds: Vec<u64>,
    pub(crate) server: String,
    /// How often each fault was done.
    pub(crate) strikes: BTreeMap<String, u64>,
    pub(crate) seen: Table,
    pub(crate) counters: BTreeMap<String, Counted>,
    /// Keys and channels that are there when all clients have ended and every lease is over.
    pub(crate) left: Vec<String>,
    /// Processes that did not end well.
    pub(crate) stuck: usize,
    /// Acquisitions in each 100 ms around the failovers, from 2 s before to 8 s behind them.
    pub(crate) around: Vec<u64>,
    /// In the order in which it was seen.
    #[serde(default)]
    pub(crate) broken: Vec<Breach>,
}

impl Outcome {
    /// What is known in the end only.
    fn end(&mut self) {
        let compare = ["fenced", IN_POSTGRES].map(|kind| self.counters.get(kind));
        let lost = compare.iter().flatten().map(|counted| counted.lost);
        let left = format!("left behind: {:?}", self.left);
        for (times, rule) in [
            (
                lost.sum(),
                "updates were lost behind a store that compares tokens",
            ),
            (self.left.len() as u64, &left),
            (self.stuck as u64, "processes did not end"),
        ] {
            if times > 0 {
                let end = Breach::new("the end", "all", rule, times, self.seconds as f64);
                self.broken.push(end);
            }
        }
    }
}

pub(crate) fn run(plan: &Plan) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(running(plan))
}

async fn running(plan: &Plan) -> Result<Outcome, Failure> {
    println!("{}: seed {}", plan.topology, plan.seed);
    fastrand::seed(plan.seed);
    let store = RedisServer::start();
    let topology = Topology::start(&plan.topology).await;
    let mut topology =
        topology.ok_or_else(|| format!("no topology is called {}", plan.topology))?;
    let directory = tempfile::tempdir()?;
    let logs = plan
        .out
        .clone()
        .unwrap_or_else(|| directory.path().to_owned());
    fs::create_dir_all(&logs)?;
    let database = Postgres::is_there().then(|| shared_postgres().create_database());
    let mut worker = plan.worker.clone();
    if let Some(url) = &database {
        Row::open(url).await?.create().await?;
        worker.splice(..0, ["env".to_owned(), format!("{POSTGRES}={url}")]);
    }
    let mut crew = Crew::start(&worker, &topology.spec, &store.url(), &logs);

    let windows = strikes(plan, &mut topology, &mut crew).await;
    let paths = crew.logs();
    let stuck = tokio::task::block_in_place(|| crew.end());
    let events = event::read(&paths)?;
    let mut holds = check::holds(&events);
    let renews = |fault: &str| rules::loses_permits(&plan.topology, fault);
    check::renew_permits(&mut holds, &windows, renews);
    if plan.out.is_some() {
        event::edn(&events, &mut fs::File::create(logs.join("history.edn"))?)?;
    }
    let mut outcome = Outcome {
        topology: plan.topology.clone(),
        seconds: plan.seconds.as_secs(),
        seeds: vec![plan.seed],
        server: version(&store).await,
        strikes: BTreeMap::new(),
        seen: check::check(&holds, &windows),
        counters: counters(&events, &store, database).await?,
        left: left(&topology).await,
        stuck,
        around: around(&holds, &windows),
        broken: rules::breaches(&plan.topology, &holds, &windows),
    };
    outcome.end();
    for window in windows {
        *outcome.strikes.entry(window.fault).or_default() += 1;
    }
    if plan.out.is_some() {
        fs::write(
            logs.join("result.json"),
            serde_json::to_string_pretty(&outcome)?,
        )?;
    }
    Ok(outcome)
}

/// Does fault after fault, all of them in turn, each time in another order.
async fn strikes(plan: &Plan, topology: &mut Topology, crew: &mut Crew) -> Vec<Window> {
    let all = match plan.faults.is_empty() {
        true => Fault::of(topology),
        false => plan.faults.clone(),
    };
    let (mut left, mut windows) = (Vec::new(), Vec::<Window>::new());
    let until = Instant::now() + plan.seconds;
    sleep(QUIET).await;
    let mut before = masters::present(topology).await;
    let (mut follows, mut clocks_differ) = (false, false);
    while Instant::now() < until {
        if left.is_empty() {
            left = all.clone();
            fastrand::shuffle(&mut left);
        }
        let Some(fault) = left.pop() else { break };
        println!(
            "{:>6} s: {}",
            plan.seconds.as_secs() - until.saturating_duration_since(Instant::now()).as_secs(),
            fault.name()
        );
        crew.revive();
        let from = now();
        let healed = strike(fault, topology, crew).await;
        sleep(QUIET).await;
        topology.proxies.iter().for_each(|proxy| proxy.mark());
        let now_masters = masters::present(topology).await;
        let moved = now_masters != before;
        before = now_masters;
        // On a busy machine a server may be replaced unasked; holders are at the last one for a while.
        clocks_differ &= follows;
        clocks_differ |= matches!(fault.name(), SERVER_AHEAD | SERVER_BEHIND);
        let is_planned = fault.name().starts_with("failover");
        let fault = match fault.name() {
            name if is_planned || !(moved || follows) => name,
            _ if clocks_differ => CLOCKS_DIFFER,
            _ => "failover, unplanned",
        };
        follows = moved && !is_planned && !follows;
        if rules::loses_permits(&plan.topology, fault) {
            faults::renew_permits(&topology.all()).await;
        }
        let until = now();
        windows.push(Window {
            fault: fault.to_owned(),
            from,
            // What was struck is well again, and not what came of that.
            healed: if fault.starts_with("failover, unplanned") {
                until
            } else {
                healed
            },
            until,
        });
    }
    windows
}

async fn version(server: &RedisServer) -> String {
    let info: String = server.ask(&["INFO", "server"]).await;
    let version = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    version.unwrap_or_default().to_owned()
}

async fn counters(
    events: &[event::Event],
    store: &RedisServer,
    database: Option<String>,
) -> Result<BTreeMap<String, Counted>, Failure> {
    let mut counters = BTreeMap::new();
    let mut connection = connection_to(&store.url()).await?;
    for kind in COUNTERS.iter().copied().chain(["redlock"]) {
        let last: Option<u64> = match &database {
            Some(url) if kind == IN_POSTGRES => Row::open(url).await?.read(u64::MAX >> 1).await?,
            _ => connection.get(format!("{START}:counter:{kind}")).await?,
        };
        if let Some(last) = last {
            let counted = check::counted(events, &format!("count:{kind}"), last);
            counters.extend((counted.written > 0).then(|| (kind.to_owned(), counted)));
        }
    }
    Ok(counters)
}

/// What is there behind a lease, besides what stays by its nature.
async fn left(topology: &Topology) -> Vec<String> {
    sleep(lease(&topology.spec) * 3).await;
    let mut left = Vec::new();
    for server in topology.all() {
        let Ok(mut connection) = server.connect().await else {
            continue;
        };
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query_async(&mut connection)
            .await
            .unwrap_or_default();
        let channels = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg("*red*")
            .query_async(&mut connection)
            .await;
        let channels: Vec<String> = channels.unwrap_or_default();
        // The last tokens, the numbers of the semaphores' permits, what a barrier knows, and what ends by itself: notes
        // on calls, and latches.
        let permits = ["permits", "semaphore"].map(super::crew::name);
        let latches = super::crew::name(&format!("{LATCH}:"));
        let starts = [
            "redisson_lock_token:",
            "redlock_op:",
            "redlock_barrier",
            "redlock_latch_end:",
            &latches,
        ];
        let stays = |key: &String| {
            starts.iter().any(|start| key.starts_with(start)) || permits.contains(key)
        };
        left.extend(keys.into_iter().filter(|key| !stays(key)).chain(channels));
    }
    left.sort();
    left.dedup();
    left
}

fn around(holds: &check::Holds, windows: &[Window]) -> Vec<u64> {
    const STEP: u64 = 100_000_000;
    let mut around = vec![0; 100];
    for window in windows
        .iter()
        .filter(|window| window.fault.starts_with("failover"))
    {
        let from = window.from.saturating_sub(20 * STEP);
        let first = holds.held.partition_point(|hold| hold.got < from);
        for hold in &holds.held[first..] {
            let step = usize::try_from((hold.got - from) / STEP).unwrap_or(usize::MAX);
            match around.get_mut(step) {
                Some(count) => *count += 1,
                None => break,
            }
        }
    }
    around
}
