//! Tasks that take turns from the first line of stdin to its end.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redlock_rt::{Client, Shutdown};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{Failure, say};

/// Writes `ready`, starts the tasks when it reads a line, and stops them when stdin ends; every task
/// then has one last turn. The last line has the numbers of turns and errors.
///
/// `turn` gets the number of its task, and how many turns the task had before. A task ends at its first
/// error.
pub(crate) fn run<F>(
    runtime: &Runtime,
    client: &Client,
    tasks: usize,
    turn: impl Fn(usize, usize) -> F + Clone + Send + 'static,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    say("ready")?;
    // This thread does not belong to the runtime, so it may block.
    let mut lines = io::stdin().lines();
    lines.next().transpose()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let mut contenders = JoinSet::new();
    for task in 0..tasks {
        let (turn, stopped) = (turn.clone(), Arc::clone(&stopped));
        let contend = async move {
            let mut turns = 0;
            loop {
                let last = stopped.load(Ordering::Acquire);
                if let Err(failure) = turn(task, turns).await {
                    return (turns, Some(failure));
                }
                turns += 1;
                if last {
                    return (turns, None);
                }
            }
        };
        contenders.spawn_on(contend, runtime.handle());
    }
    while lines.next().transpose()?.is_some() {}
    stopped.store(true, Ordering::Release);

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
