//! The arguments.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::doctor::Doctor;
use crate::latch::Latch;
use crate::ls::Ls;
use crate::permits::Permits;
use crate::run::Run;
use crate::server::Server;
use crate::show::Show;
use crate::top::Top;
use crate::unlock::Unlock;
use crate::wait::Wait;
use crate::watch::Watch;

const EXIT_CODES: &str = "\
Exit codes (run: that of the command, or 128 + the number of the signal that ended it):
  0   done
  1   the answer is no, or doctor has found an error
  64  wrong usage
  65  the key holds something else than what was asked for
  69  Redis cannot be reached, or is no server to lock on
  70  an error that has no code of its own
  75  the lock was not to be had in time
  76  the lock was lost
  77  Redis refuses the credentials or a right
  126, 127  run: the command cannot be started, or is not there";

/// Distributed locks on Redis, from a shell: shared with Rust and Java (Redisson) services.
#[derive(Debug, Parser)]
#[command(name = "redlock", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Prints one JSON object a line, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Run(Run),
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Top(Top),
    Wait(Wait),
    Unlock(Unlock),
    Latch(Latch),
    Permits(Permits),
    Doctor(Doctor),
    /// Prints completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Prints the man page
    #[command(hide = true)]
    Man {
        /// Of this command, as `run`; else of all
        page: Option<String>,
    },
}
