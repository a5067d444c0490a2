//! A process whose tasks contend for one lock, and record every turn.
//!
//! The counter `NAME:inside` shows two simultaneous holders, independently of their clocks.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redlock_rt::{Client, RLock, Unlocked};
use tests::{History, connection_to, monotonic};

use super::{Failure, contest};

struct Contest {
    lock: RLock,
    redis: MultiplexedConnection,
    counter: String,
    log: History,
}

pub(crate) fn run(url: &str, name: &str, tasks: usize, log: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    let contest = Arc::new(Contest {
        lock: client.rlock(name),
        redis: runtime.block_on(connection_to(url))?,
        counter: format!("{name}:inside"),
        log: History::open(log)?,
    });
    contest::run(&runtime, &client, tasks, move |task, _| {
        turn(Arc::clone(&contest), format!("task-{task}"))
    })
}

async fn turn(contest: Arc<Contest>, owner: String) -> Result<(), Failure> {
    let mut redis = contest.redis.clone();
    let guard = contest.lock.lock().await?;
    let count = |step: &str| redis::cmd(step).arg(&contest.counter).to_owned();
    let inside: i64 = count("INCR").query_async(&mut redis).await?;
    let enter = monotonic();
    if inside != 1 {
        return Err(format!("{owner}: {inside} holders at once").into());
    }
    let leave = monotonic();
    let outside: i64 = count("DECR").query_async(&mut redis).await?;
    if outside != 0 || !guard.is_valid() {
        return Err(format!("{owner}: {outside} others were there, {guard:?}").into());
    }
    let unlocked = guard.unlock().await?;
    if unlocked != Unlocked::Released {
        return Err(format!("{owner}: {unlocked:?}").into());
    }
    contest.log.turn(&owner, enter, leave)?;
    Ok(())
}
