//! `redlock run`: a command under a lock.

mod child;
mod hold;
mod signals;
mod terminal;

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use redlock_rt::{Client, Fsync, ReplicaAck, Shutdown, Unlocked};

use self::child::Child;
use self::hold::Held;
use self::signals::Signals;
use crate::exit::{Code, Failure, in_full};
use crate::output::warn;
use crate::server::Server;
use crate::span::span;

/// The default of the library.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Runs a command under a lock, and stops it when the lock is lost
///
/// The command has its own process group, and the terminal if standard input is one. SIGTERM, SIGINT,
/// SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group. The lock is released when the command
/// has ended, however it ended. If the lock is lost, the group gets SIGTERM, and SIGKILL after --kill-after.
///
/// If redlock itself is killed by SIGKILL, the command goes on WITHOUT the lock, which is free after its
/// lease. A command that must not do so compares fencing tokens (--kind fenced).
///
/// The command has REDLOCK_NAME (the key) and, for --kind fenced, REDLOCK_TOKEN in its environment.
///
/// -n, -w, -E, -s, -x and -c mean what they mean in flock(1): `flock -n FILE COMMAND` becomes `redlock run
/// -n KEY -- COMMAND`, which excludes all machines.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Run {
    /// The lock
    key: String,
    /// What to run, with its arguments
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "command_line",
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
    /// Waits at most this long for the lock [default: without a limit]
    #[arg(long, value_parser = span, value_name = "TIME", group = "waiting")]
    wait: Option<Duration>,
    /// Fails rather than waits
    #[arg(short = 'n', long, visible_aliases = ["nb"], group = "waiting")]
    nonblock: bool,
    /// Waits at most this many seconds
    #[arg(short = 'w', value_parser = span, value_name = "SECONDS", group = "waiting")]
    seconds: Option<Duration>,
    /// The exit code where the lock was not to be had
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::NOT_HAD.0)]
    conflict_exit_code: u8,
    /// Takes a shared lock: the same as --kind read
    #[arg(short = 's', long, group = "mode")]
    shared: bool,
    /// Takes the lock alone among shared ones: the same as --kind write
    #[arg(short = 'x', short_alias = 'e', long, group = "mode")]
    exclusive: bool,
    /// What kind of lock [default: rlock]
    #[arg(long, value_enum, group = "mode")]
    kind: Option<Kind>,
    /// Runs this line by sh -c
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command"
    )]
    command_line: Option<OsString>,
    /// For --kind semaphore: how many may run at once. Without it, what the semaphore has
    #[arg(long, value_name = "N")]
    permits: Option<u32>,
    /// The time after which the lock of a crashed process is free [default: 30s, or --max-hold]
    #[arg(long, value_parser = span, value_name = "TIME")]
    lease: Option<Duration>,
    /// Ends the lock, and so the command, after this time
    #[arg(long, value_parser = span, value_name = "TIME")]
    max_hold: Option<Duration>,
    /// Keeps the lock for at least this long, also if the command ends sooner: for jobs that start on several
    /// machines whose clocks differ
    #[arg(long, value_parser = span, value_name = "TIME")]
    min_hold: Option<Duration>,
    /// How many replicas must have the lock first: a number, majority, all or best-effort:N
    #[arg(long, value_name = "REPLICAS")]
    ack: Option<ReplicaAck>,
    /// Which servers must have the lock on disk first: replicas (those of --ack), or all, with the master
    #[arg(long, value_name = "SERVERS")]
    fsync: Option<Fsync>,
    /// After a loss, the time between SIGTERM and SIGKILL
    #[arg(long, value_parser = span, value_name = "TIME", default_value = "5s")]
    kill_after: Duration,
}

/// A kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// One holder at a time
    Rlock,
    /// The same, first come, first served
    Fair,
    /// The same, with a token in REDLOCK_TOKEN
    Fenced,
    /// Many readers, no writer
    Read,
    /// One writer, no reader
    Write,
    /// At most --permits holders
    Semaphore,
    /// One holder; waiters poll, for holds of milliseconds
    Spin,
}

impl Run {
    fn kind(&self) -> Kind {
        match self.kind {
            Some(kind) => kind,
            None if self.shared => Kind::Read,
            None if self.exclusive => Kind::Write,
            None => Kind::Rlock,
        }
    }

    /// `None`: without a limit.
    fn longest_wait(&self) -> Option<Duration> {
        match self.nonblock {
            true => Some(Duration::ZERO),
            false => self.wait.or(self.seconds),
        }
    }

    /// The lease, if one is set: a `max_hold` below the default lease shortens it.
    fn lease(&self) -> Option<Duration> {
        let short = self.max_hold.filter(|hold| *hold < DEFAULT_LEASE);
        self.lease.or(short)
    }

    fn check(&self) -> Result<(), Failure> {
        let kind = self.kind();
        if self.permits.is_some() && kind != Kind::Semaphore {
            return Err(Failure::usage("--permits is for --kind semaphore"));
        }
        if self.min_hold.is_some() && matches!(kind, Kind::Semaphore | Kind::Read) {
            return Err(Failure::usage("--min-hold is for locks with one holder"));
        }
        Ok(())
    }

    fn command(&self) -> Command {
        match &self.command_line {
            Some(line) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(line);
                command
            }
            None => {
                let mut command = Command::new(&self.command[0]);
                command.args(&self.command[1..]);
                command
            }
        }
    }
}

pub(crate) async fn perform(run: Run, server: &Server) -> Result<Code, Failure> {
    run.check()?;
    // Before the lock: from now on no signal ends this process while it has a lock.
    let mut signals = Signals::catch()?;
    // With tracking, a loss is reported at once, if the server supports it.
    let builder = server.builder()?.tracking(true);
    let client = tokio::select! {
        client = builder.connect() => client?,
        signal = signals.passed_on() => return Ok(Code::of_signal(signal as i32)),
    };
    let held = tokio::select! {
        held = hold::acquire(&client, &run) => held,
        signal = signals.passed_on() => {
            end(&client).await;
            return Ok(Code::of_signal(signal as i32));
        }
    };
    let held = match held {
        Ok(held) => held,
        Err(error) => {
            let mut failure = Failure::from(error);
            if failure.code == Code::NOT_HAD {
                failure.code = Code(run.conflict_exit_code);
            }
            end(&client).await;
            return Err(failure);
        }
    };
    let ended = under(&run, &held, &mut signals).await;
    let name = held.guard.name().to_owned();
    // The end of the client reports an undelivered release.
    let released = held.guard.release().await;
    if !matches!(ended, Ok(None)) && matches!(released, Ok(Unlocked::AlreadyExpired)) {
        warn(&format!(
            "the lock {name:?} was gone before it was released"
        ));
    }
    end(&client).await;
    Ok(ended?.unwrap_or(Code::LOST))
}

/// Runs the command while the lock is held; `None`: the lock was lost.
async fn under(run: &Run, held: &Held, signals: &mut Signals) -> Result<Option<Code>, Failure> {
    let mut command = run.command();
    command.env("REDLOCK_NAME", held.guard.name());
    match held.token {
        Some(token) => command.env("REDLOCK_TOKEN", token.to_string()),
        // The token of an outer lock is not one of this lock.
        None => command.env_remove("REDLOCK_TOKEN"),
    };
    let mut child = Child::start(command)?;
    tokio::select! {
        code = child.ended(signals) => return Ok(Some(code)),
        reason = held.guard.lost() => {
            let lost = format!("the lock {:?} was lost: {reason}", held.guard.name());
            // With `stty tostop` this process would stop before the command.
            terminal::from_behind(|| warn(&lost));
        }
    }
    child.stop(run.kill_after, signals).await;
    Ok(None)
}

/// Waits until Redis has answered all releases.
async fn end(client: &Client) {
    if let Err(error) = client.shutdown(Shutdown::Drain(Duration::ZERO)).await {
        let error = in_full(&error);
        warn(&format!("{error}; the lock is free after its lease"));
    }
}
