//! A process that campaigns for ever, and records each moment at which it leads.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    process,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use redlock_rt::{Client, ErrorKind};
use tests::monotonic;

use super::{Failure, say};

/// How often a leader records that it leads.
const OFTEN: Duration = Duration::from_millis(2);
/// One leader of so many resigns at each of these moments.
const SELDOM: u32 = 400;

/// Writes lines `TERM NANOS PID` to the log: by its guard, it led at that moment. Ends with its stdin.
pub(crate) fn run(url: &str, name: &str, lease: u64, log: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(url))?;
    let election = client
        .leader_election(name)
        .lease(Duration::from_millis(lease));
    let store = client.fenced_value(format!("{name}:value"));
    let log = OpenOptions::new().append(true).open(log)?;
    let log = Arc::new(Mutex::new(log));
    thread::spawn(|| {
        // The test holds the other end.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    say("ready")?;
    let never = runtime.block_on(election.run(async move |leadership| {
        let term = leadership.term();
        loop {
            let at = monotonic();
            if leadership.is_leader() {
                let line = format!("{term} {} {}\n", at.as_nanos(), process::id());
                log.lock().unwrap().write_all(line.as_bytes()).unwrap();
            }
            if let Err(error) = store.set(term.to_string(), term).await
                && error.kind() == ErrorKind::StaleToken
                && leadership.is_leader()
            {
                let line = format!("{term} refused {}\n", process::id());
                log.lock().unwrap().write_all(line.as_bytes()).unwrap();
            }
            if fastrand::u32(..SELDOM) == 0 {
                return;
            }
            tokio::time::sleep(OFTEN).await;
        }
    }));
    Err(never.unwrap_err().into())
}
