//! The rules of histories, each seen to be broken by a wrong one and kept by a right one beside it.

mod barriers;
mod bounds;
mod counts;
mod exclusion;
mod excuses;
mod fifo;
mod fires;
mod floods;
mod foreign;
mod handed;
mod latches;
mod leaders;
mod losses;
mod majorities;
mod moves;
mod refusals;
mod replicated;
mod serving;
mod shares;
mod tickets;
mod tokens;
mod told;

use tests::history::{
    Acquisition, End, Foreign, Grant, History, Mode, Ms, Outcome, Sight, Strike, Terms, check,
    judge,
};

const TERMS: Terms = Terms {
    latency: 5,
    waiter_timeout: 500,
    response: 1000,
    server: 50,
    connect: 1000,
    poll: 2000,
    backoff: 256,
    yields: 0,
    skew: 1000,
    keeps_lost_connections: false,
    sets_clock_back: false,
    forgets_scripts: false,
    throng: false,
    flood: None,
    replicas: 0,
    copying: 0,
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

/// A process is a client of another kind.
fn foreigner(process: u32) -> Foreign {
    Foreign {
        client: client(process),
        process,
        wait: 5000,
    }
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
        ack: None,
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
        lengthened: 0,
        renewed: false,
        lost: None,
        again: Vec::new(),
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

/// A fault that struck a process, or all.
fn strike(process: Option<u32>, from: Ms, until: Ms) -> Strike {
    Strike {
        from,
        until,
        process,
        unheard: 0,
        only_wipes: false,
    }
}

/// The key as it stands from then on, held by these.
fn sight(at: Ms, holders: &[&str]) -> Sight {
    let holders = holders.iter().map(|owner| ((*owner).to_owned(), 1));
    Sight {
        at,
        key: KEY.to_owned(),
        holders: holders.collect(),
        ..Sight::default()
    }
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

/// What keeps a history from breaking a rule.
fn excused(history: &History) -> Vec<&'static str> {
    let verdict = judge(history);
    assert_eq!(verdict.broken, []);
    verdict.excused.into_keys().collect()
}

#[test]
fn turns_one_after_the_other_break_nothing() {
    let turns = history([holds(1, 10, 50), holds(2, 60, 90), holds(1, 100, 120)]);
    assert_eq!(check(&turns), []);
}
