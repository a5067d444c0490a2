//! The processes that contend.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tests::{ChildProcess, with_clock};
use tokio::time::sleep;

/// How the names of all locks start.
pub(crate) const START: &str = "nemesis";
pub(crate) const PROCESSES: u32 = 4;
pub(crate) const TASKS: u32 = 2;

pub(crate) struct Crew {
    /// The words that start a process.
    worker: Vec<String>,
    spec: String,
    store: String,
    logs: PathBuf,
    /// Each with the file of its clock.
    processes: Vec<(ChildProcess, PathBuf)>,
    started: usize,
    /// Processes that ended by themselves.
    ended: usize,
}

/// The name of the lock of a kind.
pub(crate) fn name(kind: &str) -> String {
    format!("{START}:{kind}")
}

impl Crew {
    pub(crate) fn start(worker: &[String], spec: &str, store: &str, logs: &Path) -> Self {
        let (spec, store, logs) = (spec.to_owned(), store.to_owned(), logs.to_owned());
        let mut crew = Self {
            worker: worker.to_vec(),
            spec,
            store,
            logs,
            processes: Vec::new(),
            started: 0,
            ended: 0,
        };
        for _ in 0..PROCESSES {
            let process = crew.spawn();
            crew.processes.push(process);
        }
        crew
    }

    /// Where those that start from now on connect.
    pub(crate) fn serve(&mut self, spec: &str) {
        spec.clone_into(&mut self.spec);
    }

    fn spawn(&mut self) -> (ChildProcess, PathBuf) {
        self.started += 1;
        let log = self.logs.join(format!("{}.log", self.started));
        let tasks = TASKS.to_string();
        let arguments = [
            &self.spec,
            &self.store,
            START,
            &tasks,
            log.to_str().expect("a path is text"),
        ];
        let errors =
            fs::File::create(self.logs.join(format!("{}.err", self.started))).expect("a file");
        let clock = self.logs.join(format!("{}.clock", self.started));
        let piped = |command: &mut std::process::Command| {
            with_clock(command, &clock);
            command.stdout(Stdio::piped()).stderr(errors);
        };
        let (program, words) = self.worker.split_first().expect("a program");
        let arguments = words.iter().map(String::as_str).chain(arguments);
        let mut process = ChildProcess::spawn(program, arguments, piped).expect("it starts");
        let mut line = String::new();
        let output = process.take_stdout().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it writes");
        assert_eq!(line, "ready\n", "a worker does not start");
        (process, clock)
    }

    /// Starts another for each that has ended by itself, which is a failure of its library.
    pub(crate) fn revive(&mut self) {
        for at in 0..self.processes.len() {
            if self.processes[at].0.try_wait().is_some() {
                self.ended += 1;
                self.processes[at] = self.spawn();
            }
        }
    }

    fn any(&mut self) -> &mut (ChildProcess, PathBuf) {
        let at = fastrand::usize(..self.processes.len());
        &mut self.processes[at]
    }

    pub(crate) async fn pause(&mut self, lasts: Duration) {
        let (process, _) = self.any();
        process.pause();
        sleep(lasts).await;
        process.resume();
    }

    /// That of one of them.
    pub(crate) fn clock(&mut self) -> &Path {
        &self.any().1
    }

    /// Starts another, and kills one.
    pub(crate) fn replace(&mut self) {
        let process = self.spawn();
        *self.any() = process;
    }

    /// Ends all by the end of their input. Returns how many did not end, or not well, or before.
    pub(crate) fn end(mut self) -> usize {
        for (process, _) in &mut self.processes {
            drop(process.take_stdin());
        }
        let ends = self
            .processes
            .iter_mut()
            .map(|(process, _)| process.wait(Duration::from_secs(30)));
        let ends = ends.filter(|status| !status.is_some_and(|status| status.success()));
        self.ended + ends.count()
    }

    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        (1..=self.started)
            .map(|number| self.logs.join(format!("{number}.log")))
            .collect()
    }
}
