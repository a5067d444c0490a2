//! A process of this program that serves until this one has it end, or ends itself.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::cli::{DATABASE_VARIABLE, REDIS_VARIABLE};
use crate::logging::VARIABLE as LOG;
use crate::serve::SECRET_VARIABLE;

/// How long a process may take to end, before it is killed.
const LAST_ANSWERS: Duration = Duration::from_secs(15);

/// Where a process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
}

/// What the processes of one shop have in common.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    /// What signs sessions.
    pub(super) secret: String,
    /// Where Redis and the database are, with passwords.
    pub(super) redis: String,
    pub(super) database: String,
    /// Whether they log errors alone, unless `RUST_LOG` says more.
    pub(super) quiet: bool,
}

/// A process that serves.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// The process ends when this is closed, also by a crash of this process. It is kept apart
    /// because waiting for a child closes the child's own field.
    _stdin: Option<ChildStdin>,
}

impl Running {
    /// Starts this program with these arguments, and waits until it says where it serves.
    pub(super) async fn launch(
        arguments: &[String],
        environment: &Environment,
    ) -> Result<(Self, Place), String> {
        let io = |error: io::Error| format!("cannot start a process: {error}");
        let mut command = Command::new(std::env::current_exe().map_err(io)?);
        if environment.quiet && std::env::var_os(LOG).is_none() {
            command.env(LOG, "error");
        }
        let mut child = command
            .args(arguments)
            .env(SECRET_VARIABLE, &environment.secret)
            .env(REDIS_VARIABLE, &environment.redis)
            .env(DATABASE_VARIABLE, &environment.database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(io)?;
        let pid = child.id().unwrap_or_default();
        let said = child.stdout.take().map(BufReader::new);
        let mut lines = said.ok_or("a process without an output")?.lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let address = line.strip_prefix("listening on http://");
            if let Some(address) = address.and_then(|address| address.parse().ok()) {
                let _stdin = child.stdin.take();
                return Ok((Self { child, _stdin }, Place { address, pid }));
            }
        }
        Err(format!("`seckill {}` did not start", arguments[0]))
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(&mut self) {
        // Without a status it is no child of this process any more.
        let _ = self.child.wait().await;
    }

    /// Has it end, and waits for that.
    pub(super) async fn end(mut self) {
        if let Some(pid) = self.child.id() {
            signal(pid, Signal::TERM);
        }
        if tokio::time::timeout(LAST_ANSWERS, self.child.wait())
            .await
            .is_err()
        {
            // It is killed when it is dropped.
            tracing::warn!("a process does not end and is killed");
        }
    }
}

impl Place {
    /// Kills it in the middle of whatever it does.
    pub(super) fn kill(self) {
        signal(self.pid, Signal::KILL);
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile, which is what was wanted.
    let _ = pid.map(|pid| kill_process(pid, signal));
}
