//! The rules of histories, each seen to be broken by a wrong one and kept by a right one beside it.

mod bounds;
mod exclusion;
mod fifo;
mod latches;
mod serving;
mod tokens;

use tests::history::{Acquisition, End, Grant, History, Mode, Ms, Outcome, Terms, check};

const TERMS: Terms = Terms {
    latency: 5,
    waiter_timeout: 500,
    response: 1000,
    connect: 1000,
    skew_percent: 2,
};
const LEASE: Ms = 1000;
const KEY: &str = "k";

/// A history of these acquisitions, which ends long after them.
fn history(acquisitions: impl IntoIterator<Item = Acquisition>) -> History {
    let acquisitions: Vec<Acquisition> = acquisitions.into_iter().collect();
    let processes = acquisitions
        .iter()
        .map(|one| (client(one.process), one.process));
    History {
        terms: TERMS,
        clients: processes.collect(),
        end: 100_000,
        acquisitions,
        ..History::default()
    }
}

fn client(process: u32) -> String {
    format!("client-{process}")
}

/// A process that asked, and waits.
fn asks(process: u32, called: Ms) -> Acquisition {
    Acquisition {
        process,
        key: KEY.to_owned(),
        mode: Mode::Exclusive,
        announced: true,
        called,
        bound: None,
        returned: None,
        grant: None,
    }
}

/// A process that asked at once for what it had, believed in and released in this time.
fn holds(process: u32, from: Ms, until: Ms) -> Acquisition {
    let grant = Grant {
        owner: format!("{}:{from}", client(process)),
        at: from,
        believed: until,
        token: None,
        lease: Some(LEASE),
        ended: Some((until, End::Released)),
    };
    Acquisition {
        returned: Some((from, Outcome::Granted)),
        grant: Some(grant),
        ..asks(process, from - 10)
    }
}

fn with(mut of: Acquisition, change: impl FnOnce(&mut Grant)) -> Acquisition {
    change(of.grant.as_mut().expect("it was granted"));
    of
}

/// The rules that are broken, each once.
fn broken(history: &History) -> Vec<&'static str> {
    let mut rules: Vec<_> = check(history)
        .into_iter()
        .map(|violation| violation.rule)
        .collect();
    rules.dedup();
    rules
}

#[test]
fn turns_one_after_the_other_break_nothing() {
    let turns = history([holds(1, 10, 50), holds(2, 60, 90), holds(1, 100, 120)]);
    assert_eq!(check(&turns), []);
}
