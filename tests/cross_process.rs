//! Two processes of many tasks each, all contending for one lock.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdout, Stdio},
    time::Duration,
};

use tests::{ChildProcess, LeakCheck, Turns, shared_server, unique};

const TASKS: usize = 64;
const CONTEST: Duration = Duration::from_secs(10);
/// The limit for a process to end.
const ENDS: Duration = Duration::from_secs(60);

/// One of the processes.
struct Contender {
    process: ChildProcess,
    output: BufReader<ChildStdout>,
}

impl Contender {
    fn start(url: &str, name: &str, log: &Path) -> Self {
        let (tasks, log) = (TASKS.to_string(), log.to_str().unwrap());
        let program = env!("CARGO_BIN_EXE_contender");
        let arguments = [url, name, &tasks, log];
        let mut process = ChildProcess::spawn(program, arguments, |command| {
            command.stdout(Stdio::piped());
        })
        .unwrap();
        let output = BufReader::new(process.take_stdout().unwrap());
        Self { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_one_lock_fairly_and_never_at_once() {
    let server = shared_server();
    let name = unique("contest");
    let leaks = LeakCheck::on(&server, &name).await;
    let log = tempfile::NamedTempFile::new().unwrap();

    let contest = || Contender::start(&server.url(), &name, log.path());
    let mut contenders = [contest(), contest()];
    let mut input = Vec::new();
    for contender in &mut contenders {
        assert_eq!(contender.line(), "ready");
        input.push(contender.process.take_stdin().unwrap());
    }
    for input in &mut input {
        input.write_all(b"go\n").unwrap();
    }
    tokio::time::sleep(CONTEST).await;
    // The end of their input tells them to stop.
    drop(input);
    let mut said = 0;
    for mut contender in contenders {
        let line = contender.line();
        let (turns, errors) = line.split_once(" turns, ").unwrap();
        assert_eq!(errors, "0 errors");
        said += turns.parse::<usize>().unwrap();
        assert!(contender.process.wait(ENDS).unwrap().success());
    }

    let turns = Turns::read(log.path()).unwrap();
    turns.check_exclusive().unwrap();
    let all = turns.all().len();
    assert_eq!(all, said);
    let (processes, owners) = (turns.per_process(), turns.per_owner());
    println!("{all} turns by {processes:?}");
    assert_eq!((processes.len(), owners.len()), (2, 2 * TASKS));
    for (process, had) in &processes {
        assert!(had * 5 >= all, "{process} had {had} turns of {all}");
        // The tasks of a process take turns, so no task waits much longer than the others.
        let of_it = || owners.iter().filter(|((other, _), _)| other == process);
        let rarest = of_it().map(|(_, had)| had).min().unwrap();
        let fair = had / TASKS;
        assert!(rarest * 2 >= fair, "a task had {rarest} turns, not {fair}");
    }

    let mut redis = server.connect().await.unwrap();
    let counter = format!("{name}:inside");
    let left: i64 = redis::cmd("GETDEL")
        .arg(counter)
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(left, 0);
    leaks.assert_clean().await;
}
