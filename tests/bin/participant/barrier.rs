//! A process that passes generations of a barrier until that is broken.

use std::{fs::OpenOptions, io::Write, time::Duration};

use redlock_rt::Client;
use tests::monotonic;

use super::{Failure, say};

/// Writes lines `GENERATION INDEX ARRIVED PASSED` to the log, with times in nanoseconds.
pub(crate) fn run(
    url: &str,
    name: &str,
    parties: u32,
    log: &str,
    lease: u64,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut log = OpenOptions::new().append(true).open(log)?;
    runtime.block_on(async {
        let client = Client::connect(url).await?;
        let barrier = client.cyclic_barrier(name, parties);
        let barrier = barrier.lease(Duration::from_millis(lease));
        say("ready")?;
        loop {
            let arrived = monotonic().as_nanos();
            match barrier.wait().await {
                Ok(arrival) => {
                    let (passed, of) = (monotonic().as_nanos(), arrival.generation);
                    let line = format!("{of} {} {arrived} {passed}\n", arrival.index);
                    log.write_all(line.as_bytes())?;
                }
                Err(error) if error.is_barrier_broken() => break,
                Err(error) => return Err(error.into()),
            }
        }
        say("ended")?;
        Ok(())
    })
}

/// Enters a double barrier, and stays inside until that is broken.
pub(crate) fn stay(url: &str, name: &str, parties: u32, lease: u64) -> Result<(), Failure> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let client = Client::connect(url).await?;
        let barrier = client.double_barrier(name, parties);
        say("ready")?;
        let inside = barrier.lease(Duration::from_millis(lease)).enter().await?;
        let error = inside.broken().await;
        if !error.is_barrier_broken() {
            return Err(error.into());
        }
        say("ended")?;
        Ok(())
    })
}
