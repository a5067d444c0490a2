//! A process whose tasks contend for permits of one semaphore, and record when they have some.
//!
//! A lease of 0 means a semaphore without leases.
//!
//! A line of the log is `PROCESS TASK TIME PERMITS`, in nanoseconds of the machine's monotonic clock;
//! the number is negative if permits are about to be released.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    process,
    sync::Arc,
    time::Duration,
};

use redlock_rt::{Client, PermitExpirableSemaphore, PermitOptions, Semaphore, Unlocked};
use tests::monotonic;
use tokio::time::sleep;

use super::{Failure, contest};

struct Contest {
    semaphore: Contested,
    log: File,
}

enum Contested {
    Plain(Semaphore),
    /// With leases of this length.
    Leased(PermitExpirableSemaphore, Duration),
}

pub(crate) fn run(
    url: &str,
    name: &str,
    tasks: usize,
    log: &str,
    lease_ms: u64,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    let contest = Arc::new(Contest {
        semaphore: match lease_ms {
            0 => Contested::Plain(client.semaphore(name)),
            lease => Contested::Leased(
                client.permit_expirable_semaphore(name),
                Duration::from_millis(lease),
            ),
        },
        log: OpenOptions::new().create(true).append(true).open(log)?,
    });
    contest::run(&runtime, &client, tasks, move |task, turns| {
        turn(Arc::clone(&contest), task, turns)
    })
}

async fn turn(contest: Arc<Contest>, task: usize, turn: usize) -> Result<(), Failure> {
    let wanted = 1 + u32::try_from((task + turn) % 2)?;
    let (valid, released) = match &contest.semaphore {
        Contested::Plain(semaphore) => {
            let permits = semaphore.acquire_many(wanted).await?;
            hold(&contest, task, turn, wanted, Duration::ZERO).await?;
            (true, permits.release().await?)
        }
        Contested::Leased(semaphore, lease) => {
            let options = PermitOptions::new().lease(*lease);
            let permits = semaphore.acquire_with(options.permits(wanted)).await?;
            hold(&contest, task, turn, wanted, *lease).await?;
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
