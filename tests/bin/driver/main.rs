//! A process that other programs use to drive redlock-rt: one command per line on stdin, one answer
//! per line on stdout. `docs/driver.md` has the protocol.

mod answer;
mod barrier;
mod clients;
mod command;
mod fenced;
mod kinds;
mod latch;
mod locks;
mod owners;
mod running;
mod semaphores;
mod servers;
mod service;
mod session;
mod turns;

use std::{io, panic, process, thread};

use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

use self::{
    answer::Answers,
    running::Running,
    session::{Next, Session},
};

fn main() -> io::Result<()> {
    die_of_panics();
    log_to_stderr();
    let (answers, writer) = Answers::start(io::stdout());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(answers));
    // Ends the remaining tasks, and with them the last handles on stdout.
    drop(runtime);
    match writer.join() {
        // No reader is left.
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(written) => written,
        Err(panic) => panic::resume_unwind(panic),
    }
}

async fn serve(answers: Answers) {
    let session = Session::new(Running::new(answers));
    let mut lines = read_lines();
    while let Some(line) = lines.recv().await {
        if session.line(&line).await == Next::Exit {
            return session.exit().await;
        }
    }
    session.end_of_input().await;
}

/// Reads stdin on a separate thread, which a blocked read keeps until the process ends.
fn read_lines() -> mpsc::Receiver<String> {
    let (lines, queue) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    queue
}

/// Otherwise a panic in a task would show only as a missing answer.
fn die_of_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::exit(101);
    }));
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "redlock_rt=info".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(io::stderr)
        .init();
}
