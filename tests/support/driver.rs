//! A line driver in a separate process, which tests start, command, pause and kill.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Read, Seek, Write},
    path::Path,
    process::{ChildStdin, ChildStdout, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{eventually::within, lock, process::ChildProcess};

const DEADLINE: Duration = Duration::from_secs(30);

/// The driver's answer to a command: the result, and the duration of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The RESULT of an `ok`, or the text after `err`.
    pub result: Result<String, DriverError>,
    /// The duration at the end of an `ok`.
    pub took: Option<Duration>,
}

impl Answer {
    /// The result of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        self.result
            .unwrap_or_else(|error| panic!("the driver answered {error:?}"))
    }

    /// The kind of error of a command that must have failed.
    #[track_caller]
    pub fn err_kind(self) -> String {
        self.result.expect_err("the command succeeded").kind
    }

    /// The ID and the answer of a line `ID ok RESULT <n>ms` or `ID err KIND: message`.
    pub fn parse(line: &str) -> Option<(&str, Self)> {
        let (id, rest) = line.split_once(' ')?;
        if let Some(error) = rest.strip_prefix("err ") {
            let (kind, message) = error.split_once(": ")?;
            let error = DriverError {
                kind: kind.to_owned(),
                message: message.to_owned(),
            };
            return Some((
                id,
                Self {
                    result: Err(error),
                    took: None,
                },
            ));
        }
        let (result, took) = rest.strip_prefix("ok ")?.rsplit_once(' ')?;
        let took = Duration::from_millis(took.strip_suffix("ms")?.parse().ok()?);
        Some((
            id,
            Self {
                result: Ok(result.to_owned()),
                took: Some(took),
            },
        ))
    }
}

/// An `err KIND: message` of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The KIND.
    pub kind: String,
    /// The text after the kind.
    pub message: String,
}

/// A command that was sent.
#[derive(Debug)]
#[must_use = "the answer may be an error"]
pub struct Pending {
    id: String,
    command: String,
    answer: oneshot::Receiver<Answer>,
}

impl Pending {
    /// The ID, for `cancel`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The answer; panics if none comes, or if the driver ends before.
    pub async fn answer(self) -> Answer {
        self.answer_within(DEADLINE).await
    }

    /// The answer; panics if none comes by the deadline, or if the driver ends before.
    pub async fn answer_within(self, deadline: Duration) -> Answer {
        match tokio::time::timeout(deadline, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => panic!("the driver ended without answering `{}`", self.command),
            Err(_) => panic!("no answer to `{}` within {deadline:?}", self.command),
        }
    }

    /// Whether the answer has not come yet.
    pub fn is_pending(&mut self) -> bool {
        // Peeks: a received value would be lost otherwise.
        self.answer.is_empty() && !self.answer.is_terminated()
    }

    /// Waits until the driver has ended without an answer; panics if it answers.
    pub async fn abandoned(self) {
        if let Ok(answer) = within(DEADLINE, self.answer).await {
            panic!("`{}` was answered: {answer:?}", self.command);
        }
    }
}

/// A running line driver; killed when dropped. What it logged is printed when the test fails.
#[derive(Debug)]
pub struct Driver {
    process: ChildProcess,
    lines: Option<mpsc::Sender<String>>,
    waiting: Arc<Waiting>,
    next: AtomicU64,
    log: File,
}

#[derive(Debug, Default)]
struct Waiting {
    // `None` once the driver's output has ended.
    answers: Mutex<Option<HashMap<String, oneshot::Sender<Answer>>>>,
}

impl Driver {
    /// Starts the program: `env!("CARGO_BIN_EXE_driver")` in this member's tests.
    pub fn start(program: impl AsRef<Path>) -> Self {
        let program = program.as_ref();
        let log = tempfile::tempfile().expect("a temporary file");
        let mut process = ChildProcess::spawn::<&str>(program, [], |command| {
            command
                .stdout(Stdio::piped())
                .stderr(log.try_clone().expect("a file can be cloned"));
        })
        .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let stdin = process.take_stdin().expect("stdin is piped");
        let stdout = process.take_stdout().expect("stdout is piped");
        let waiting = Arc::new(Waiting {
            answers: Mutex::new(Some(HashMap::new())),
        });
        let (lines, queue) = mpsc::channel();
        spawn("driver-writer", move || write_lines(stdin, &queue));
        spawn("driver-reader", {
            let waiting = waiting.clone();
            move || read_answers(stdout, &waiting)
        });
        Self {
            process,
            lines: Some(lines),
            waiting,
            next: AtomicU64::new(1),
            log,
        }
    }

    /// Sends `[@CLIENT] COMMAND args`. Never blocks, even while the driver is paused.
    pub fn send(&self, command: &str) -> Pending {
        let id = format!("c{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        if let Some(answers) = lock(&self.waiting.answers).as_mut() {
            answers.insert(id.clone(), sender);
        }
        self.send_line(&format!("{id} {command}"));
        Pending {
            id,
            command: command.to_owned(),
            answer,
        }
    }

    /// Sends a line as it is, for instance a malformed one.
    pub fn send_line(&self, line: &str) {
        let lines = self.lines.as_ref().expect("stdin was closed");
        // Fails when the driver has ended; then no answer comes either.
        let _ = lines.send(format!("{line}\n"));
    }

    /// Sends a command and waits for its answer.
    pub async fn call(&self, command: &str) -> Answer {
        self.send(command).answer().await
    }

    /// Sends a command that must succeed, and returns its result.
    pub async fn ok(&self, command: &str) -> String {
        let answer = self.call(command).await;
        answer
            .result
            .unwrap_or_else(|error| panic!("`{command}` was answered {error:?}"))
    }

    /// Cancels a command that was sent.
    pub async fn cancel(&self, pending: &Pending) -> Answer {
        self.call(&format!("cancel {}", pending.id)).await
    }

    /// Process id of the driver.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the driver with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the driver with SIGSTOP.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets a paused driver continue.
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Closes the driver's stdin, so that it drains its releases and exits.
    pub fn close_stdin(&mut self) {
        self.lines = None;
    }

    /// Waits for the driver to exit; panics if it does not.
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.process
            .wait(DEADLINE)
            .expect("the driver does not exit")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Its end of the log shares the position in the file with ours.
        self.process.kill();
        if thread::panicking() {
            let mut text = String::new();
            if self
                .log
                .rewind()
                .and_then(|()| self.log.read_to_string(&mut text))
                .is_ok()
            {
                eprintln!("--- driver {}:\n{text}---", self.pid());
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .expect("a thread");
}

fn write_lines(mut stdin: ChildStdin, queue: &mpsc::Receiver<String>) {
    // Until the handle closes it or the driver has ended.
    while let Ok(line) = queue.recv() {
        if stdin.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

fn read_answers(stdout: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        match Answer::parse(&line) {
            Some((id, answer)) => {
                let waiter = lock(&waiting.answers)
                    .as_mut()
                    .and_then(|waiters| waiters.remove(id));
                // A test that dropped its `Pending` does not care.
                let _ = waiter.map(|waiter| waiter.send(answer));
            }
            None => eprintln!("the driver wrote a line that is no answer: {line:?}"),
        }
    }
    // Drops the senders, so that waiting tasks learn that no answer will come.
    lock(&waiting.answers).take();
}
