//! Real servers, real processes, real time, and faults: what every kind of lock then does.
//!
//!     nemesis run TOPOLOGY [--seconds N] [--seed N] [--faults 'A;B'] [--out DIR]
//!     nemesis peer LIBRARY TOPOLOGY […]   the same with the lock of another library
//!     nemesis peers DIR            keeps the results in DIR/LIBRARY-TOPOLOGY-SEED for the page
//!     nemesis short                a short run of each topology; fails if a promise is broken
//!     nemesis add DIR              adds the run whose result is in DIR to the page's
//!     nemesis report               writes docs/under-faults.md from docs/under-faults/*.json
//!
//! TOPOLOGY is one of single, single-everysec, single-none, sentinel, cluster, redlock, ack.

#![allow(clippy::print_stdout)]

mod check;
mod crew;
mod event;
mod faults;
mod masters;
mod meet;
mod meeting;
mod peers;
mod plot;
mod report;
mod row;
mod rules;
mod run;
mod subject;
mod sum;
mod topology;
mod worker;

use std::{env, error::Error, path::Path, time::Duration};

use self::run::Plan;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["worker", kinds, servers, store, start, tasks, log] => {
            worker::run(kinds, servers, store, start, tasks.parse()?, Path::new(log))
        }
        ["run", topology, ref options @ ..] => {
            let plan = Plan::of(topology, options)?;
            let outcome = run::run(&plan)?;
            report::print(&outcome);
            report::broken(&outcome)
        }
        ["peer", library, topology, ref options @ ..] => {
            let plan = Plan {
                worker: peers::command(library, topology)?,
                ..Plan::of(topology, options)?
            };
            report::print(&run::run(&plan)?);
            Ok(())
        }
        ["short"] => {
            for topology in ["single", "sentinel", "cluster", "redlock", "ack"] {
                let plan = Plan {
                    seconds: Duration::from_secs(20),
                    ..Plan::of(topology, &[])?
                };
                let outcome = run::run(&plan)?;
                report::print(&outcome);
                report::broken(&outcome)?;
            }
            Ok(())
        }
        ["peers", results] => {
            peers::collect(Path::new(results), Path::new("docs/under-faults/peers.md"))
        }
        ["add", result] => sum::add(Path::new(result), Path::new("docs/under-faults")),
        ["report"] => report::write(Path::new("docs")),
        _ => Err(format!(
            "usage: nemesis run TOPOLOGY … | peer … | peers DIR | short | add DIR | report, not {arguments:?}"
        )
        .into()),
    }
}
