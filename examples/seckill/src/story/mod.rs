//! The story: from `SETNX` without a time-out to a lock that holds whatever happens, a run a step.

use std::error::Error;
use std::time::Duration;

use self::steps::{Step, steps};
use crate::cli::{RushArgs, StoryArgs, UpArgs};
use crate::rush::remote::{self, RemoteSummary};
use crate::serve::say;
use crate::up::Up;

mod steps;

const INSTANCES: u32 = 3;
const USERS: u32 = 300;
const REQUESTS: u32 = 3;
const IN_FLIGHT: u32 = 48;

/// Longer than the lease of any lock that has one, so that what is locked then is locked for good.
const LEASES_ARE_OVER: Duration = Duration::from_secs(7);

/// Tells the steps one after the other, or the one that was asked for.
///
/// # Errors
///
/// A step could not be run, or one that is to hold did not.
pub(crate) async fn run(args: &StoryArgs) -> Result<(), Box<dyn Error>> {
    let mut wrong = Vec::new();
    let steps = steps()
        .into_iter()
        .filter(|step| args.lock.is_none_or(|lock| step.lock == lock));
    for step in steps {
        say(&format!(
            "\n--lock {}: {}\n\n{}\n",
            step.lock,
            step.title,
            step.picture().trim_end()
        ));
        let told = tell(&step).await?;
        for line in told.lines(&step) {
            say(&line);
        }
        wrong.extend(told.rush.problems(step.lock));
        if step.lock.is_sound() && told.locked_out > 0 {
            wrong.push(format!("{} users are locked out for good", told.locked_out));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; ").into())
    }
}

/// What came of a step.
struct Told {
    rush: RemoteSummary,
    /// Users who cannot order although nobody else is at it.
    locked_out: u64,
}

async fn tell(step: &Step) -> Result<Told, Box<dyn Error>> {
    let directory = tempfile::Builder::new().prefix("seckill-").tempdir()?;
    let up = Up::start(&UpArgs {
        instances: INSTANCES,
        port: 0,
        database: directory.path().join("shop.db").display().to_string(),
        think: Duration::from_millis(20),
        // One that can be restarted, whatever the environment names.
        redis: None,
        chaos: true,
        quiet: true,
        ..UpArgs::default()
    })
    .await?;
    let rush = RushArgs {
        users: USERS,
        stock: USERS * REQUESTS,
        requests_per_user: REQUESTS,
        concurrency: IN_FLIGHT,
        lock: step.lock,
        stall_one_in: Some(step.stall_one_in),
        http: vec![up.url().to_owned()],
        fault: step.fault()?,
        ..RushArgs::default()
    };
    let told = async {
        let done = remote::run(&rush).await?;
        // Where nothing was broken nobody can be locked out.
        let locked_out = if rush.fault.is_some() {
            tokio::time::sleep(LEASES_ARE_OVER).await;
            remote::again(&rush, &done.voucher_id).await?
        } else {
            0
        };
        Ok(Told {
            rush: done,
            locked_out,
        })
    };
    let told = told.await;
    up.close().await;
    told
}

impl Told {
    fn lines(&self, step: &Step) -> Vec<String> {
        let mut lines = vec![format!(
            "  second orders of a user   {:>5}",
            self.rush.duplicates
        )];
        if self.rush.fault.is_some() {
            lines.push(format!(
                "  users locked out for good {:>5}",
                self.locked_out
            ));
            let failed = self.rush.ends.iter().filter(|(end, _)| {
                !["ordered", "already-ordered", "sold-out"].contains(&end.as_str())
            });
            lines.extend(
                failed.map(|(end, count)| format!("  requests that ended as {end}: {count}")),
            );
        }
        lines.push(format!("  {}", step.moral));
        lines
    }
}
