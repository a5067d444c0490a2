//! `redlock`, the command line of redlock-rt: commands under distributed locks, and the questions of an
//! operator about locks. docs/cli.md is its manual.
//!
//! One file for each command. `exit` has the exit codes, `server` makes the client, `output` prints for
//! people and for programs.

mod args;
mod doctor;
mod exit;
mod found;
mod latch;
mod ls;
mod manual;
mod nodes;
mod output;
mod permits;
mod run;
mod server;
mod show;
mod span;
mod top;
mod unlock;
mod wait;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Action, Cli};
use self::exit::{Code, Failure};
use self::output::Output;

/// Runs the command that the arguments of this process name, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // If standard output or error is closed, no one can be told.
            let _ = error.print();
            return match error.use_stderr() {
                true => Code::USAGE.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let output = Output::new(cli.json);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(perform(cli, output)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => code.into(),
        Err(failure) => {
            output.failure(&failure);
            failure.code.into()
        }
    }
}

async fn perform(cli: Cli, output: Output) -> Result<Code, Failure> {
    let server = cli.server;
    match cli.action {
        Action::Run(run) => run::perform(run, &server).await,
        Action::Ls(ls) => ls::perform(ls, &server, output).await,
        Action::Show(show) => show::perform(show, &server, output).await,
        Action::Watch(watch) => watch::perform(watch, &server, output).await,
        Action::Top(top) => top::perform(top, &server).await,
        Action::Wait(wait) => wait::perform(wait, &server, output).await,
        Action::Unlock(unlock) => unlock::perform(unlock, &server, output).await,
        Action::Latch(latch) => latch::perform(latch, &server, output).await,
        Action::Permits(permits) => permits::perform(permits, &server, output).await,
        Action::Doctor(doctor) => doctor::perform(doctor, &server, output).await,
        Action::Completions { shell } => manual::completions(shell),
        Action::Man { page } => manual::man(page.as_deref()),
    }
}
