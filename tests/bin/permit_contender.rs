//! A process whose tasks contend for permits of one semaphore, and record when they have some.
//!
//!     permit_contender URL NAME TASKS LOG LEASE_MS
//!
//! Writes `ready` when it is connected, starts when it reads a line, and stops when its stdin ends.
//! The last line has the numbers of turns and errors, unless the process is killed.
//!
//! A lease of 0 means a semaphore without leases.
//!
//! A line of the log is `PROCESS TASK TIME PERMITS`, in nanoseconds of the machine's monotonic clock;
//! the number is negative if permits are about to be released.

use std::{
    env,
    error::Error,
    fs::{File, OpenOptions},
    io::{self, Write},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redlock_rt::{Client, PermitExpirableSemaphore, PermitOptions, Semaphore, Shutdown, Unlocked};
use tests::monotonic;
use tokio::{task::JoinSet, time::sleep};

type Failure = Box<dyn Error + Send + Sync>;

struct Contest {
    semaphore: Contested,
    log: File,
    stopped: AtomicBool,
}

enum Contested {
    Plain(Semaphore),
    /// With leases of this length.
    Leased(PermitExpirableSemaphore, Duration),
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [url, name, tasks, log, lease] = &arguments[..] else {
        return Err("usage: permit_contender URL NAME TASKS LOG LEASE_MS".into());
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    let contest = Arc::new(Contest {
        semaphore: match lease.parse()? {
            0 => Contested::Plain(client.semaphore(name)),
            lease => Contested::Leased(
                client.permit_expirable_semaphore(name),
                Duration::from_millis(lease),
            ),
        },
        log: OpenOptions::new().create(true).append(true).open(log)?,
        stopped: AtomicBool::new(false),
    });
    writeln!(io::stdout(), "ready")?;

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
    writeln!(io::stdout(), "{turns} turns, {errors} errors")?;
    Ok(())
}

/// Takes turns until the end or the first error.
async fn contend(contest: Arc<Contest>, task: usize) -> (usize, Option<Failure>) {
    let mut turns = 0;
    while !contest.stopped.load(Ordering::Acquire) {
        if let Err(failure) = turn(&contest, task, turns).await {
            return (turns, Some(failure));
        }
        turns += 1;
    }
    (turns, None)
}

async fn turn(contest: &Contest, task: usize, turn: usize) -> Result<(), Failure> {
    let wanted = 1 + u32::try_from((task + turn) % 2)?;
    let (valid, released) = match &contest.semaphore {
        Contested::Plain(semaphore) => {
            let permits = semaphore.acquire_many(wanted).await?;
            hold(contest, task, turn, wanted, Duration::ZERO).await?;
            (true, permits.release().await?)
        }
        Contested::Leased(semaphore, lease) => {
            let options = PermitOptions::new().lease(*lease);
            let permits = semaphore.acquire_with(options.permits(wanted)).await?;
            hold(contest, task, turn, wanted, *lease).await?;
            (permits.is_valid(), permits.release().await?)
        }
    };
    match (valid, released) {
        (true, Unlocked::Released) => Ok(()),
        other => Err(format!("task {task}: {other:?}").into()),
    }
}

/// Holds the permits for a while.
async fn hold(
    contest: &Contest,
    task: usize,
    turn: usize,
    permits: u32,
    lease: Duration,
) -> Result<(), Failure> {
    note(&contest.log, task, permits.into())?;
    // Sometimes for longer than the lease.
    sleep(match (task + 7 * turn) % 97 {
        0 => lease + lease / 2,
        short => Duration::from_micros(100 * u64::try_from(short)?),
    })
    .await;
    note(&contest.log, task, -i64::from(permits))?;
    Ok(())
}

fn note(mut log: &File, task: usize, permits: i64) -> io::Result<()> {
    let (process, now) = (process::id(), monotonic().as_nanos());
    let line = format!("{process} {task} {now} {permits}\n");
    // A single write with O_APPEND, so that lines of several processes never mix.
    match log.write(line.as_bytes())? {
        written if written == line.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
