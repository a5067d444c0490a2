//! A lock that so many replicas must have is given out when so many have it, and refused only where they
//! have it not.
//!
//! Judged by what the replicas showed. Which of them a master counted does not matter: it may have lost its
//! place to one of them since.

use std::collections::BTreeSet;

use super::serving::SETUP;
use super::{Acquisition, History, Mode, Ms, Outcome, Verdict, Violation};

const RULE: &str = "replicated";
/// The caller reads what its server told one way of a message before.
const WAYS: Ms = 2;
/// What whole milliseconds and the order of tasks add.
const SLACK: Ms = 2;
/// The turn of others on the same connection, with the time by which a server ends it late, and the same for
/// one's own.
pub(super) const TURNS: Ms = 2 * (250 + 150);

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for one in &history.acquisitions {
        let locked = matches!(one.mode, Mode::Exclusive | Mode::Shared);
        let seen = history.copies.iter().any(|(_, sight)| sight.key == one.key);
        let (Some(ack), Some((returned, outcome))) = (one.ack, &one.returned) else {
            continue;
        };
        if !locked || !seen {
            continue;
        }
        match (outcome, &one.grant) {
            (Outcome::Granted, Some(grant)) => {
                let wanted = ack.wanted(counts(history, one.called, *returned).min().unwrap_or(0));
                given(history, one, (&grant.owner, *returned), wanted, verdict);
            }
            (Outcome::NotReplicated { wanted, .. }, _) => {
                // One that has gone is missed.
                let most = counts(history, 0, *returned).max().unwrap_or(0);
                let asked = ack.wanted(most);
                if *wanted as usize > asked {
                    let what = format!(
                        "{}: {wanted} were missed where {asked} were asked for",
                        one.key
                    );
                    verdict.push(Violation::new(RULE, *returned, what));
                }
                refused(history, one, *returned, asked, verdict);
            }
            _ => {}
        }
    }
}

/// How many replicas the master had at some moment of this time.
fn counts(history: &History, from: Ms, until: Ms) -> impl Iterator<Item = usize> {
    let all = &history.replicas;
    let ends = all.iter().skip(1).map(|(at, _)| *at).chain([Ms::MAX]);
    let during = all.iter().zip(ends);
    let during = during.filter(move |((at, _), end)| *at <= until && from <= *end);
    during.map(|((_, count), _)| *count)
}

fn given(
    history: &History,
    one: &Acquisition,
    (owner, returned): (&str, Ms),
    wanted: usize,
    verdict: &mut Verdict,
) {
    let mut strikes = history.strikes.iter();
    let struck = strikes.any(|strike| {
        let of = strike.process.is_none_or(|process| process == one.process);
        of && strike.from <= returned && one.called <= strike.until
    });
    let spans = spans(history, one, &[], |of| of == owner);
    let most = |since: Ms| {
        let during = spans.iter();
        let during = during.filter(|(from, until, _)| *from <= returned && since <= *until);
        during.map(|(.., count)| *count).max().unwrap_or(0)
    };
    let had = most(returned.saturating_sub(WAYS * history.terms.latency + SLACK));
    // It was told before somebody else became the master, or that took long to arrive.
    let before = struck && most(one.called) >= wanted;
    // Replicas acknowledge what the master has written up to then, and that it forgot it.
    let mut wiped = history.wiped(&one.key);
    let forgotten = wiped.any(|wiped| one.called <= wiped.until && wiped.at <= returned);
    let mut excused = || {
        verdict.excuses("replicated: forgotten", forgotten)
            || verdict.excuses("replicated: struck", before)
    };
    if had < wanted && !excused() {
        let what = format!(
            "{}: {owner} (process {}) had it, and {had} of {wanted} replicas had it then",
            one.key, one.process
        );
        verdict.push(Violation::new(RULE, returned, what));
    }
}

fn refused(
    history: &History,
    one: &Acquisition,
    returned: Ms,
    wanted: usize,
    verdict: &mut Verdict,
) {
    // What no caller says that it has is what this one was refused.
    let all = history.of_key(&one.key);
    let given = |owner: &str| {
        let mut grants = all.iter().filter_map(|one| one.grant.as_ref());
        grants.any(|grant| grant.owner == owner)
    };
    // A replica that stood still may have what an earlier call was refused.
    let before = history
        .copies
        .iter()
        .filter(|(_, sight)| sight.at < one.called);
    let earlier: Vec<_> = before
        .filter(|(_, sight)| sight.key == one.key)
        .flat_map(|(_, sight)| sight.holders.iter().map(|(of, _)| of.as_str()))
        .collect();
    let mine = |owner: &str| {
        history.process_of(owner) == Some(one.process) && !given(owner) && !earlier.contains(&owner)
    };
    let enough = TURNS + SETUP * history.terms.latency + 2 * history.terms.copying;
    let mut had = 0;
    for (from, until, count) in spans(history, one, &history.standing, mine) {
        let (from, until) = (from.max(one.called), until.min(returned));
        match count >= wanted && from < until {
            true => had += until - from,
            false => had = 0,
        }
        if had > enough {
            let struck = !history.is_calm(one.process, one.called, returned);
            if verdict.excuses("replicated: struck", struck) {
                return;
            }
            let what = format!(
                "{}: process {} was told that too few replicas have it, and {count} had it for {had} ms",
                one.key, one.process
            );
            return verdict.push(Violation::new(RULE, returned, what));
        }
    }
}

/// How many replicas had the key for one of these owners, and when; those that stood still (`standing`) say
/// nothing.
fn spans(
    history: &History,
    one: &Acquisition,
    standing: &[(usize, Ms, Ms)],
    owner: impl Fn(&str) -> bool,
) -> Vec<(Ms, Ms, usize)> {
    let sights = history.copies.iter();
    let mut changes: Vec<_> = sights
        .filter(|(_, sight)| sight.key == one.key)
        .map(|(replica, sight)| {
            let has = sight.holders.iter().any(|(of, _)| owner(of));
            (sight.at, *replica, Some(has))
        })
        .collect();
    let ends = |(replica, from, until): &(usize, Ms, Ms)| [(*from, *replica), (*until, *replica)];
    let ends = standing.iter().flat_map(ends);
    changes.extend(ends.map(|(at, replica)| (at, replica, None)));
    changes.sort_by_key(|(at, ..)| *at);
    let (mut have, mut still) = (BTreeSet::new(), BTreeSet::new());
    let mut spans: Vec<(Ms, Ms, usize)> = vec![(0, Ms::MAX, 0)];
    for (at, replica, change) in changes {
        let (of, comes) = match change {
            Some(has) => (&mut have, has),
            None => (
                &mut still,
                standing
                    .iter()
                    .any(|(of, from, _)| (*of, *from) == (replica, at)),
            ),
        };
        match comes {
            true => of.insert(replica),
            false => of.remove(&replica),
        };
        if let Some(last) = spans.last_mut() {
            last.1 = at;
        }
        spans.push((at, Ms::MAX, have.difference(&still).count()));
    }
    spans
}
