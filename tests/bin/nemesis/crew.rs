//! The processes that contend.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tests::ChildProcess;
use tokio::time::sleep;

/// How the names of all locks start.
pub(crate) const START: &str = "nemesis";
const PROCESSES: usize = 4;
const TASKS: u32 = 2;

pub(crate) struct Crew {
    spec: String,
    store: String,
    logs: PathBuf,
    processes: Vec<ChildProcess>,
    started: usize,
}

/// The name of the lock of a kind.
pub(crate) fn name(kind: &str) -> String {
    format!("{START}:{kind}")
}

impl Crew {
    pub(crate) fn start(spec: &str, store: &str, logs: &Path) -> Self {
        let (spec, store, logs) = (spec.to_owned(), store.to_owned(), logs.to_owned());
        let mut crew = Self {
            spec,
            store,
            logs,
            processes: Vec::new(),
            started: 0,
        };
        for _ in 0..PROCESSES {
            let process = crew.spawn();
            crew.processes.push(process);
        }
        crew
    }

    fn spawn(&mut self) -> ChildProcess {
        self.started += 1;
        let log = self.logs.join(format!("{}.log", self.started));
        let tasks = TASKS.to_string();
        let arguments = [
            "worker",
            &self.spec,
            &self.store,
            START,
            &tasks,
            log.to_str().expect("a path is text"),
        ];
        let errors =
            fs::File::create(self.logs.join(format!("{}.err", self.started))).expect("a file");
        let piped = |command: &mut std::process::Command| {
            command.stdout(Stdio::piped()).stderr(errors);
        };
        let program = env::current_exe().expect("it runs");
        let mut process = ChildProcess::spawn(program, arguments, piped).expect("it starts");
        let mut line = String::new();
        let output = process.take_stdout().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it writes");
        assert_eq!(line, "ready\n", "a worker does not start");
        process
    }

    fn any(&mut self) -> &mut ChildProcess {
        let at = fastrand::usize(..self.processes.len());
        &mut self.processes[at]
    }

    pub(crate) async fn pause(&mut self, lasts: Duration) {
        let process = self.any();
        process.pause();
        sleep(lasts).await;
        process.resume();
    }

    /// Starts another, and kills one.
    pub(crate) fn replace(&mut self) {
        let process = self.spawn();
        *self.any() = process;
    }

    /// Ends all by the end of their input. Returns how many did not end, or not well.
    pub(crate) fn end(mut self) -> usize {
        for process in &mut self.processes {
            drop(process.take_stdin());
        }
        let ends = self
            .processes
            .iter_mut()
            .map(|process| process.wait(Duration::from_secs(30)));
        ends.filter(|status| !status.is_some_and(|status| status.success()))
            .count()
    }

    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        (1..=self.started)
            .map(|number| self.logs.join(format!("{number}.log")))
            .collect()
    }
}
