//! A process whose tasks contend for one lock, and record every turn.
//!
//!     contender URL NAME TASKS LOG
//!
//! Writes `ready` when it is connected, starts when it reads a line, and stops when its stdin ends;
//! every task then has one last turn. The last line has the numbers of turns and errors.
//!
//! The counter `NAME:inside` shows two simultaneous holders, independently of their clocks.

use std::{
    env,
    error::Error,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, RLock, Shutdown, Unlocked};
use tests::{History, connection_to, monotonic};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

struct Contest {
    lock: RLock,
    redis: MultiplexedConnection,
    counter: String,
    log: History,
    stopped: AtomicBool,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, name, tasks, log] = &arguments[..] else {
        return Err("usage: contender URL NAME TASKS LOG".into());
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    let contest = Arc::new(Contest {
        lock: client.rlock(name),
        redis: runtime.block_on(connection_to(url))?,
        counter: format!("{name}:inside"),
        log: History::open(log)?,
        stopped: AtomicBool::new(false),
    });
    say("ready")?;

    // This thread does not belong to the runtime, so it may block.
    let mut lines = io::stdin().lines();
    lines.next().transpose()?;
    let mut contenders = JoinSet::new();
    for task in 0..tasks.parse::<usize>()? {
        contenders.spawn_on(contend(Arc::clone(&contest), task), runtime.handle());
    }
    while lines.next().transpose()?.is_some() {}
    contest.stopped.store(true, Ordering::Release);

    let (mut turns, mut errors) = (0, 0);
    for (had, failure) in runtime.block_on(contenders.join_all()) {
        turns += had;
        if let Some(failure) = failure {
            errors += 1;
            writeln!(io::stderr(), "{failure}")?;
        }
    }
    runtime.block_on(client.shutdown(Shutdown::ReleaseAll))?;
    say(&format!("{turns} turns, {errors} errors"))?;
    Ok(())
}

/// Takes turns until the end or the first error.
async fn contend(contest: Arc<Contest>, task: usize) -> (usize, Option<Failure>) {
    let mut redis = contest.redis.clone();
    let mut turns = 0;
    loop {
        let last = contest.stopped.load(Ordering::Acquire);
        if let Err(failure) = turn(&contest, &mut redis, &format!("task-{task}")).await {
            return (turns, Some(failure));
        }
        turns += 1;
        if last {
            return (turns, None);
        }
    }
}

async fn turn(
    contest: &Contest,
    redis: &mut MultiplexedConnection,
    owner: &str,
) -> Result<(), Failure> {
    let guard = contest.lock.lock().await?;
    let count = |step: &str| redis::cmd(step).arg(&contest.counter).to_owned();
    let inside: i64 = count("INCR").query_async(redis).await?;
    let enter = monotonic();
    if inside != 1 {
        return Err(format!("{owner}: {inside} holders at once").into());
    }
    let leave = monotonic();
    let outside: i64 = count("DECR").query_async(redis).await?;
    if outside != 0 || !guard.is_valid() {
        return Err(format!("{owner}: {outside} others were there, {guard:?}").into());
    }
    let unlocked = guard.unlock().await?;
    if unlocked != Unlocked::Released {
        return Err(format!("{owner}: {unlocked:?}").into());
    }
    contest.log.turn(owner, enter, leave)?;
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
