//! The command as a process group. It is started, stopped, continued and waited for like a job of a shell.
//!
//! Invariants:
//!
//! 1. The group has the terminal only while it runs and this process was in the foreground.
//! 2. This process stops only after its child has, and only if a shell can continue it.
//! 3. A signal is sent to the group only until the child has been waited for, or while others of the group
//!    live. Until then no other group has its number.

use std::io::{self, IsTerminal, stdin};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp};
use tokio::time::{Instant, sleep, sleep_until};

use super::signals::{Heard, Signals};
use super::terminal;
use crate::exit::{Code, Failure};

const NOT_FOUND: Code = Code(127);
const NOT_EXECUTABLE: Code = Code(126);

/// How often to check whether the rest of a group has ended, since there is no signal for that.
const LOOK: Duration = Duration::from_millis(20);
/// How often to check which group has the terminal: a shell does not tell when it brings a running job to
/// the front.
const LOOK_AT_TERMINAL: Duration = Duration::from_millis(200);

pub(super) struct Child {
    group: Pid,
    /// Standard input is a terminal.
    has_terminal: bool,
    /// The child has stopped, and this process must stop too.
    has_stopped: bool,
}

impl Child {
    pub(super) fn start(mut command: Command) -> Result<Self, Failure> {
        let child = command.process_group(0).spawn().map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            let program = command.get_program().display();
            Failure::new(code, format!("{program}: {error}"))
        })?;
        let id =
            i32::try_from(child.id()).map_err(|_| Failure::new(NOT_EXECUTABLE, "no such id"))?;
        let this = Self {
            group: Pid::from_raw(id),
            has_terminal: stdin().is_terminal(),
            has_stopped: false,
        };
        terminal::lend(this.group);
        Ok(this)
    }

    /// Waits for the end of the child, and handles signals meanwhile. May be dropped and called again.
    pub(super) async fn ended(&mut self, signals: &mut Signals) -> Code {
        loop {
            if let Some(code) = self.look() {
                return code;
            }
            tokio::select! {
                biased;
                heard = signals.next() => match heard {
                    Heard::Child => {}
                    Heard::Continue => self.go_on(),
                    Heard::Pass(signal) => self.send(signal),
                },
                () = sleep(LOOK_AT_TERMINAL), if self.has_terminal => match self.has_stopped {
                    // No shell has stopped this process, so none would continue the child.
                    true => self.go_on(),
                    false => terminal::lend(self.group),
                },
            }
        }
    }

    /// Ends the whole group: SIGTERM, then SIGKILL.
    pub(super) async fn stop(&mut self, kill_after: Duration, signals: &mut Signals) {
        let deadline = Instant::now() + kill_after;
        self.send(Signal::SIGTERM);
        // A stopped process gets SIGTERM only then.
        self.send(Signal::SIGCONT);
        let mut child_ended = false;
        while Instant::now() < deadline {
            tokio::select! {
                _ = self.ended(signals), if !child_ended => child_ended = true,
                () = sleep(LOOK), if child_ended => {
                    if killpg(self.group, None).is_err() {
                        return;
                    }
                }
                () = sleep_until(deadline) => {}
            }
        }
        self.send(Signal::SIGKILL);
        if !child_ended {
            self.ended(signals).await;
        }
    }

    /// The exit code, if the child has ended; a child that has stopped stops this process, too.
    fn look(&mut self) -> Option<Code> {
        let what = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            match waitpid(self.group, Some(what)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    terminal::take_back(self.group);
                    return Some(Code(u8::try_from(code).unwrap_or(u8::MAX)));
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    terminal::take_back(self.group);
                    return Some(Code::of_signal(signal as i32));
                }
                Ok(WaitStatus::Stopped(_, signal)) => self.stopped(signal),
                Ok(_) => return None,
                // No other code waits for it, so it exists.
                Err(_) => return Some(Code::SOFTWARE),
            }
        }
    }

    fn stopped(&mut self, signal: Signal) {
        if !self.has_terminal {
            return;
        }
        let by_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if by_terminal && terminal::is_in_front(self.group) {
            // The child ran before it had the terminal, or a shell has brought us to the front.
            return self.go_on();
        }
        terminal::take_back(self.group);
        // The shell waits for our group. If no shell can continue us, the kernel drops this signal.
        self.has_stopped = true;
        let signal = match by_terminal {
            true => signal,
            false => Signal::SIGTSTP,
        };
        let _ = killpg(getpgrp(), signal);
    }

    fn go_on(&mut self) {
        self.has_stopped = false;
        terminal::lend(self.group);
        self.send(Signal::SIGCONT);
    }

    fn send(&self, signal: Signal) {
        // It fails only if the group is empty.
        let _ = killpg(self.group, signal);
    }
}
