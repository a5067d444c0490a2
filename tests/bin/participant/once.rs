//! An instance of a service that starts a job at its times, by a clock of its own.

use std::{
    fs::OpenOptions,
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use redlock_rt::{Client, Fire};
use tests::monotonic;
use tokio::{task::JoinSet, time::sleep};

use super::{Failure, say};

/// Between two fires, by the schedule and in the time of the test.
const PERIOD: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(10);
const LEASE: Duration = Duration::from_secs(1);

/// Starts all fires that are still to come for a clock that is `offset` ms late, where the first is due
/// at `start` ms. Writes to `log` when a body begins and when it has marked its fire.
pub(super) fn run(
    url: &str,
    job: &str,
    log: &str,
    fires: u64,
    offset: i64,
    start: u64,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let log = OpenOptions::new().append(true).open(log)?;
    let log = Arc::new(Mutex::new(log));
    runtime.block_on(async move {
        let client = Client::builder().url(url).lease(LEASE).connect().await?;
        say("ready")?;
        let (mut jobs, began) = (JoinSet::new(), monotonic());
        for fire in 0..fires {
            let due = start
                .saturating_add(fire * 10)
                .saturating_add_signed(offset);
            let due = Duration::from_millis(due);
            if due < began {
                continue;
            }
            sleep(due.saturating_sub(monotonic())).await;
            let (client, job, log) = (client.clone(), job.to_owned(), Arc::clone(&log));
            jobs.spawn(async move {
                let period = u32::try_from(fire).expect("they are few");
                let once = client.once(job, UNIX_EPOCH + PERIOD * period);
                let guard = match once.start().await? {
                    Fire::Run(guard) => guard,
                    Fire::Done(_) => return Ok(()),
                    other => return Err(Failure::from(format!("{other:?}"))),
                };
                let began = monotonic().as_nanos();
                let tell = |what: &str| -> Result<(), Failure> {
                    let line = format!("{fire} {what} {began} {}\n", monotonic().as_nanos());
                    let mut log = log.lock().expect("nobody panics");
                    Ok(log.write_all(line.as_bytes())?)
                };
                tell("began")?;
                guard.run(sleep(STEP)).await?;
                let done = guard.done().await;
                tell(if done.is_ok() { "done" } else { "lost" })
            });
            while let Some(ended) = jobs.try_join_next() {
                ended??;
            }
        }
        while let Some(ended) = jobs.join_next().await {
            ended??;
        }
        say("ended")?;
        Ok(())
    })
}
