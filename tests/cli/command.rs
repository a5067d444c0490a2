//! The program as a process, with what it prints.

use std::{fs::File, future::ready, os::unix::fs::FileExt, process::Command as Settings};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::{ChildProcess, DEADLINE, eventually, shared_server};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_command");

/// A running `redlock`; killed when dropped. Its standard input stays open meanwhile.
pub(crate) struct Command {
    process: ChildProcess,
    out: File,
    err: File,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The one object that was printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs it to its end, at the shared server.
pub(crate) async fn redlock<const N: usize>(arguments: [&str; N]) -> Ended {
    start(arguments).ended().await
}

/// Starts it, at the shared server.
pub(crate) fn start<const N: usize>(arguments: [&str; N]) -> Command {
    Command::start(&shared_server().url(), &arguments)
}

/// Starts one that has this lock until its input ends, at the shared server.
pub(crate) async fn holds(key: &str, options: &[&str]) -> Command {
    Command::holds(&shared_server().url(), key, options).await
}

impl Command {
    /// Starts one that has this lock until its input ends.
    pub(crate) async fn holds(url: &str, key: &str, options: &[&str]) -> Self {
        // Not by a shell, which catches SIGINT, and may lose it as it starts another program.
        let all = [&["run", key], options, &["--", "cat"]].concat();
        let mut holder = Self::start(url, &all);
        holder.process.write("ran\n");
        holder.says("ran").await;
        holder
    }

    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        Self::start_with(arguments, |command| {
            command.env("REDIS_URL", url);
        })
    }

    pub(crate) fn start_with(arguments: &[&str], configure: impl FnOnce(&mut Settings)) -> Self {
        // What these tests ignore, under nohup for example, would be ignored there, too.
        let all = [&["--default-signal", PROGRAM], arguments].concat();
        Self::spawn("env", &all, configure)
    }

    /// Starts a program that becomes `redlock`.
    pub(crate) fn spawn(
        program: &str,
        arguments: &[&str],
        configure: impl FnOnce(&mut Settings),
    ) -> Self {
        let files = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let [out, err] = files;
        let process = ChildProcess::spawn(program, arguments, |command| {
            command
                .stdout(out.try_clone().unwrap())
                .stderr(err.try_clone().unwrap());
            configure(command);
        });
        let process = process.unwrap();
        Self { process, out, err }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends its standard input, and so that of its child.
    pub(crate) fn end_input(&mut self) {
        drop(self.process.take_stdin());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(self.pid()), signal).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().is_none()
    }

    /// Waits until it, or its child, has printed this.
    pub(crate) async fn says(&self, text: &str) {
        eventually(DEADLINE, || {
            let said = content(&self.out);
            ready(match said.contains(text) {
                true => Ok(()),
                false => Err(format!("{said:?} {:?}", content(&self.err))),
            })
        })
        .await;
    }

    /// What it, or its child, has printed.
    pub(crate) fn out(&self) -> String {
        content(&self.out)
    }

    /// The number that it has printed behind this word.
    pub(crate) async fn number(&self, word: &str) -> u32 {
        eventually(DEADLINE, || {
            let said = content(&self.out);
            let line = said.lines().find_map(|line| line.strip_prefix(word));
            ready(line.and_then(|number| number.trim().parse().ok()))
        })
        .await
    }

    pub(crate) async fn ended(&mut self) -> Ended {
        let status = eventually(DEADLINE, || ready(self.process.try_wait())).await;
        Ended {
            code: status.code().unwrap_or_else(|| panic!("{status}")),
            out: content(&self.out),
            err: content(&self.err),
        }
    }
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(number.try_into().unwrap()).unwrap()
}

/// The place in the file is shared with the process, so it is not moved.
fn content(file: &File) -> String {
    let length = file.metadata().unwrap().len();
    let mut bytes = vec![0; length.try_into().unwrap()];
    let _ = file.read_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}
