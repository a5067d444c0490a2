//! What locks cost while they are held, and tasks while they wait: calls to the server, and memory.
//!
//! The memory is what the process has more with all than with a few (its resident pages). Each figure
//! is of a process of its own, which is this program with `--keep`: memory that was used before would
//! be used again.

use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    io::{self, Write},
    process::Command,
    time::Duration,
};

use clap::ValueEnum;
use futures::future::{BoxFuture, FutureExt};
use redlock_rt::Client;
use serde::{Deserialize, Serialize};
use tests::{Proxy, RedisServer};

use crate::{peers::Peers, sides::OURS};

/// The locks whose calls are counted, and for how long: twice the time between two renewals of most.
const COUNTED: usize = 1000;
const WINDOW: Duration = Duration::from_secs(20);
/// The locks or tasks whose memory is measured, besides the first few.
const KEPT: usize = 5000;
const FIRST: usize = 100;
/// For what the last of them does before it waits, unless the process still grows.
const SETTLED: Duration = Duration::from_millis(500);
/// The name of this library's fair lock among the ways to wait.
const FAIR: &str = "FairLock";

/// What is kept of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    Held,
    Waiting,
}

/// The figures of one crate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// Calls a second for all counted locks.
    pub(crate) calls: f64,
    /// Of a held lock, in bytes.
    pub(crate) lock: Option<f64>,
    /// Of a waiting task, in bytes.
    pub(crate) task: Option<f64>,
    /// Of a task that waits for a fair lock, in bytes.
    #[serde(default)]
    pub(crate) fair: Option<f64>,
}

/// A lock that is held as long as this is kept.
pub(crate) type Guard = Box<dyn Any + Send>;

/// A way to lock a name.
pub(crate) struct Keeper {
    lock: Box<dyn Fn(String) -> BoxFuture<'static, Guard> + Send>,
    /// Whether it waits until the lock comes free.
    waits: bool,
}

/// The ways of the crates.
pub(crate) type Keepers = BTreeMap<&'static str, Keeper>;

impl Keeper {
    pub(crate) fn new<G, F>(waits: bool, lock: impl Fn(String) -> F + Send + 'static) -> Self
    where
        G: Send + 'static,
        F: Future<Output = G> + Send + 'static,
    {
        let lock = move |name| {
            let guard = lock(name);
            async move { Box::new(guard.await) as Guard }.boxed()
        };
        Self {
            lock: Box::new(lock),
            waits,
        }
    }

    async fn lock(&self, name: String) -> Guard {
        (self.lock)(name).await
    }
}

/// All crates, each with its defaults.
async fn keepers(url: &str) -> Keepers {
    let client = Client::connect(url).await.expect("the server answers");
    let mut keepers = Peers::keepers(url).await;
    let ours = Keeper::new(true, move |name| {
        let lock = client.rlock(name);
        async move { lock.lock().await.expect("it comes free") }
    });
    keepers.insert(OURS, ours);
    keepers
}

/// The ways of which only the memory is measured.
async fn all(url: &str) -> Keepers {
    let client = Client::connect(url).await.expect("the server answers");
    let mut keepers = keepers(url).await;
    let fair = Keeper::new(true, move |name| {
        let lock = client.fair_lock(name);
        async move { lock.lock().await.expect("it comes free") }
    });
    keepers.insert(FAIR, fair);
    keepers
}

pub(crate) async fn held(server: &RedisServer) -> Vec<Held> {
    let names: Vec<_> = keepers(&server.url()).await.into_keys().collect();
    let calls = calls(server, &names).await;
    let mut held = Vec::new();
    for (name, calls) in names.into_iter().zip(calls) {
        let memory = |name, kept| memory(&server.url(), name, kept);
        let fair = (name == OURS).then(|| memory(FAIR, Kept::Waiting));
        held.push(Held {
            calls,
            lock: memory(name, Kept::Held),
            task: memory(name, Kept::Waiting),
            fair: fair.flatten(),
            name: name.into(),
        });
    }
    // This library first.
    held.sort_by_key(|held| held.name != OURS);
    held
}

/// The calls of each crate in a second, all in the same time.
async fn calls(server: &RedisServer, names: &[&'static str]) -> Vec<f64> {
    let mut kept = Vec::new();
    for name in names {
        let proxy = Proxy::to(server);
        let mut keepers = keepers(&proxy.url()).await;
        let keeper = keepers.remove(name).expect("it is the same list");
        let mut guards = Vec::new();
        for number in 0..COUNTED {
            guards.push(keeper.lock(format!("bench:held:{name}:{number}")).await);
        }
        kept.push((proxy, keeper, guards));
    }
    kept.iter().for_each(|(proxy, ..)| proxy.mark());
    tokio::time::sleep(WINDOW).await;
    let calls = kept.iter();
    calls
        .map(|(proxy, ..)| proxy.frames().len() as f64 / WINDOW.as_secs_f64())
        .collect()
}

/// The bytes of one; `None` if this crate has no such thing.
fn memory(url: &str, name: &str, kept: Kept) -> Option<f64> {
    let kept = kept.to_possible_value()?;
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(["--keep", kept.get_name(), "--of", name, "--at", url])
        .output()
        .expect("this program starts");
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

/// Prints the bytes of one, in a process that does nothing else.
pub(crate) async fn keep(kept: Kept, name: &str, url: &str) {
    let mut keepers = all(url).await;
    let Some(keeper) = keepers.remove(name) else {
        return;
    };
    let mut guards = Vec::with_capacity(KEPT + FIRST);
    let one = format!("bench:kept:{name}");
    if kept == Kept::Waiting {
        if !keeper.waits {
            return;
        }
        guards.push(keeper.lock(one.clone()).await);
    }
    let mut more = async |from: usize, to: usize| match kept {
        Kept::Held => {
            for number in from..to {
                guards.push(keeper.lock(format!("{one}:{number:05}")).await);
            }
        }
        Kept::Waiting => {
            let tasks = (from..to).map(|_| tokio::spawn((keeper.lock)(one.clone())));
            let tasks: Vec<_> = tasks.collect();
            let mut size = 0.0;
            while std::mem::replace(&mut size, resident()) != size {
                tokio::time::sleep(SETTLED).await;
            }
            assert!(tasks.iter().all(|task| !task.is_finished()), "they wait");
        }
    };
    more(0, FIRST).await;
    let before = resident();
    more(FIRST, FIRST + KEPT).await;
    let after = resident();
    let _ = writeln!(io::stdout(), "{:.0}", (after - before) / KEPT as f64);
    // Without a release of each.
    std::process::exit(0)
}

/// The bytes of this process that are in memory.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    1024.0 * kilobytes.unwrap_or(0.0)
}
