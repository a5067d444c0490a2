//! A process that takes part in a test of several processes.
//!
//!     participant lock URL NAME TASKS LOG               contends for a lock
//!     participant permits URL NAME TASKS LOG LEASE_MS   contends for permits
//!     participant inside URL NAME PARTIES LEASE_MS        enters a double barrier, and stays until it is broken
//!     participant barrier URL NAME PARTIES LOG LEASE_MS   passes generations of a barrier until it is broken
//!     participant lead URL NAME LEASE_MS LOG            campaigns to be the leader
//!     participant leave URL NAME WHAT RUNTIME END       ends while it holds something
//!     participant once URL JOB LOG FIRES OFFSET_MS START_MS   starts a job at its times
//!     participant fork URL NAME HOW                     forks, with a client from before

mod barrier;
mod contest;
mod fork;
mod lead;
mod leave;
mod lock;
mod once;
mod permits;

use std::{
    env,
    error::Error,
    io::{self, Write},
};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["lock", url, name, tasks, log] => lock::run(url, name, tasks.parse()?, log),
        ["permits", url, name, tasks, log, lease] => {
            permits::run(url, name, tasks.parse()?, log, lease.parse()?)
        }
        ["inside", url, name, parties, lease] => {
            barrier::stay(url, name, parties.parse()?, lease.parse()?)
        }
        ["barrier", url, name, parties, log, lease] => {
            barrier::run(url, name, parties.parse()?, log, lease.parse()?)
        }
        ["lead", url, name, lease, log] => lead::run(url, name, lease.parse()?, log),
        ["leave", url, name, what, runtime, end] => leave::run(url, name, what, runtime, end),
        ["once", url, job, log, fires, offset, start] => once::run(
            url,
            job,
            log,
            fires.parse()?,
            offset.parse()?,
            start.parse()?,
        ),
        ["fork", url, name, how] => fork::run(url, name, how),
        _ => Err(format!("not a part that a process can take: {arguments:?}").into()),
    }
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
