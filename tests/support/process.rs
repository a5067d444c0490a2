//! Child processes that a test can pause and kill by pid, and that never outlive the test.

use std::{
    ffi::OsStr,
    io::{self, Write},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::oneshot;

use crate::reaper;

/// Starts the program only after a line on stdin. By then the reaper knows the pid, so the child never
/// runs unknown to it. `exec` keeps the pid. A file at its limit is an error to the program, as a full disk is, and
/// not its end.
const LAUNCHER: &str = r#"read -r go || exit 1; trap '' XFSZ; exec "$@""#;

const POLL: Duration = Duration::from_millis(1);
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// In a child process: until the one that started it closes the child's stdin, or ends.
pub async fn stdin_is_closed() {
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// A child process, killed (also while paused) and waited for when dropped.
///
/// It is killed as well when the test process itself is killed.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    paused: bool,
    exited: Option<ExitStatus>,
}

impl ChildProcess {
    /// Starts `program` with `arguments`; `configure` may set its output, environment and so on.
    ///
    /// # Errors
    /// If no process can be started. A missing program is exit code 127.
    pub fn spawn<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", LAUNCHER, "launcher"])
            .arg(program)
            .args(arguments);
        configure(&mut command);
        let child = command.stdin(Stdio::piped()).spawn()?;
        reaper::adopt(child.id());
        let mut process = Self {
            child,
            paused: false,
            exited: None,
        };
        let stdin = process.child.stdin.as_mut().expect("stdin is piped");
        stdin.write_all(b"go\n")?;
        Ok(process)
    }

    /// The process id, also of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process with SIGSTOP; it has stopped when this returns.
    pub fn pause(&mut self) {
        assert!(
            self.try_wait().is_none(),
            "process {} has ended, nothing to pause",
            self.pid()
        );
        signal(self.pid(), Signal::STOP);
        let deadline = Instant::now() + STOP_DEADLINE;
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while !matches!(
            waitid(WaitId::Pid(to_pid(self.pid())), options),
            Ok(Some(_))
        ) {
            assert!(
                Instant::now() < deadline,
                "process {} does not stop",
                self.pid()
            );
            thread::sleep(POLL);
        }
        self.paused = true;
    }

    /// Lets a paused process continue with SIGCONT.
    pub fn resume(&mut self) {
        if self.paused && self.try_wait().is_none() {
            signal(self.pid(), Signal::CONT);
        }
        self.paused = false;
    }

    /// Whether the process was paused and not resumed since.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Ends the process with SIGKILL and waits for its end. Does nothing when it has ended.
    pub fn kill(&mut self) {
        if self.try_wait().is_some() {
            return;
        }
        signal(self.pid(), Signal::KILL);
        let status = self.child.wait().expect("a killed child can be waited for");
        self.ended(status);
    }

    /// The exit status, if the process has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.exited.is_none()
            && let Some(status) = self.child.try_wait().expect("a child can be waited for")
        {
            self.ended(status);
        }
        self.exited
    }

    /// Waits for the process to end by itself; `None` if it runs at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + deadline;
        loop {
            let status = self.try_wait();
            if status.is_some() || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(POLL);
        }
    }

    /// Writes to its standard input.
    pub fn write(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is there");
        stdin.write_all(text.as_bytes()).expect("it reads");
    }

    /// The pipe to the process, once.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The pipe from the process, once, if `configure` asked for one.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The error pipe from the process, once, if `configure` asked for one.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    fn ended(&mut self, status: ExitStatus) {
        self.exited = Some(status);
        reaper::forget(self.pid());
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.resume();
        self.kill();
    }
}

/// Whether a process of this id exists.
pub fn is_alive(pid: u32) -> bool {
    rustix::process::test_kill_process(to_pid(pid)).is_ok()
}

fn signal(pid: u32, signal: Signal) {
    // The one legitimate failure is a process that has ended, which the callers check next.
    let _ = kill_process(to_pid(pid), signal);
}

fn to_pid(pid: u32) -> Pid {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process id is positive")
}
