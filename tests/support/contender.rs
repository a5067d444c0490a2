//! A process whose tasks take turns until they are told to stop.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout, Stdio},
    time::Duration,
};

use crate::ChildProcess;

/// The limit for a process to end.
const ENDS: Duration = Duration::from_secs(60);

/// A `participant` process that contends, see `tests/bin/participant/contest.rs`.
#[derive(Debug)]
pub struct Contender {
    process: ChildProcess,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Contender {
    /// Starts `program`, and waits until it is connected.
    pub fn start<const N: usize>(program: &str, arguments: [&str; N]) -> Self {
        let piped = |command: &mut std::process::Command| {
            command.stdout(Stdio::piped());
        };
        let mut process = ChildProcess::spawn(program, arguments, piped).unwrap();
        let output = BufReader::new(process.take_stdout().unwrap());
        let input = process.take_stdin().unwrap();
        let mut this = Self {
            process,
            input,
            output,
        };
        assert_eq!(this.line(), "ready");
        this
    }

    /// Lets its tasks begin.
    pub fn go(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the process has ended as it should.
    pub fn ends_by_itself(mut self) {
        assert_eq!(self.line(), "ended");
        assert!(self.process.wait(ENDS).unwrap().success());
    }

    /// Stops the processes, and returns the number of turns that they had, all without an error.
    pub fn turns_of(contenders: impl IntoIterator<Item = Self>) -> usize {
        // The end of their input tells them to stop. All are told before the first is waited for.
        let told = contenders.into_iter().map(|contender| {
            let Self {
                process, output, ..
            } = contender;
            (process, output)
        });
        let turns = told
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(mut process, mut output)| {
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                let (had, errors) = line.trim_end().split_once(" turns, ").unwrap();
                assert_eq!(errors, "0 errors");
                assert!(process.wait(ENDS).unwrap().success());
                had.parse::<usize>().unwrap()
            });
        turns.sum()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
