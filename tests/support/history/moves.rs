//! What holds in a Redis Cluster while slots move and masters fail.
//!
//! * `redirected`: a node sends the calls of a process elsewhere only until that can know it.
//! * `verified`: a hold that is believed in after its key got another master was asked about there, as
//!   soon as its process was told which node that is, or with its next renewal.
//! * `kept`: it is not lost by that, unless the new master does not know it, or nobody could renew it for
//!   so long.
//!
//! What else must hold is judged by the other rules, to which a slot that moves is no excuse, but for
//! calls that need all keys of a slot at one place.

use super::exclusion::RENEWALS;
use super::serving::SETUP;
use super::{
    Acquisition, Grant, History, Mode, Moved, Ms, Redirection, Strike, Verdict, Violation, Wiped,
};

/// What whole milliseconds and the order of tasks add.
const SLACK: Ms = 10;
/// The longest pause between two tries of a call that a node refuses for the moment.
const PAUSE: Ms = 500;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    redirected(history, verdict);
    for key in history.seen_keys() {
        for one in history.of_key(key) {
            let Some(grant) = one.grant.as_ref().filter(|grant| grant.renewed) else {
                continue;
            };
            let Some(lease) = grant.longest() else {
                continue;
            };
            for moved in history.moved(key).filter(|moved| grant.at < moved.from) {
                let mut found = Verdict::default();
                verified(history, (one, grant, lease), moved, &mut found);
                kept(history, (one, grant, lease), moved, &mut found);
                let hindered = is_hindered(history, one.process, moved);
                for broken in found.broken {
                    if !verdict.excuses("moved: struck", hindered) {
                        verdict.push(broken);
                    }
                }
                for (excuse, count) in found.excused {
                    *verdict.excused.entry(excuse).or_default() += count;
                }
            }
        }
    }
}

fn redirected(history: &History, verdict: &mut Verdict) {
    let terms = &history.terms;
    for (place, last) in history.redirections.iter().enumerate() {
        let same = |first: &&Redirection| {
            let of = |one: &Redirection| (one.process, one.node, one.slot, one.epoch);
            of(first) == of(last)
        };
        let before = || history.redirections[..place].iter().filter(same);
        let Some(first) = before().next() else {
            continue;
        };
        // Sent before the first answer came.
        let latest = |first: &Redirection| first.at + 2 * terms.latency + SLACK;
        let latest_read = before().find(|first| is_read(history, first)).map(latest);
        let mut strikes = history.strikes.iter().filter(|strike| {
            let of = strike.process.is_none_or(|process| process == last.process);
            // What was sent during the cut is answered behind it, and its client may have left.
            let until = strike.until + strike.unheard + terms.latency;
            of && strike.from <= last.at && first.at <= until
        });
        // A node that did not know yet answered last.
        let mut told = history.layouts.iter().filter(|(at, process, epoch)| {
            let then = first.at <= at + terms.connect && *at <= last.at;
            *process == last.process && *epoch < last.epoch && then
        });
        // A renewal waits for its answer for half of what is left of the lease.
        let mut hasty = history.acquisitions.iter().filter(|one| {
            let grant = one.grant.as_ref().filter(|_| one.process == last.process);
            let lease = grant.and_then(|grant| Some((grant.at, grant.longest()?)));
            lease.is_some_and(|(at, lease)| {
                one.called + lease <= first.at + 4 * terms.latency && first.at <= at + lease
            })
        });
        let mut excused = || {
            verdict.excuses("moved: struck", strikes.next().is_some())
                || verdict.excuses("moved: told late", told.next().is_some())
                || verdict.excuses("moved: short of lease", hasty.next().is_some())
                || verdict.excuses(
                    "moved: nobody waits",
                    latest_read.is_none_or(|read| last.at <= read),
                )
        };
        if last.at > latest(first) && !excused() {
            let what = format!(
                "process {} asked node {} about slot {} at {} ms, where another node has it since \
                 {} ms at least",
                last.process, last.node, last.slot, last.at, first.at
            );
            verdict.push(Violation::new("redirected", last.at, what));
        }
    }
}

/// Whether somebody waits for the answer. Calls on latches leave nothing that a later call must end, so
/// nobody reads it once they were cancelled.
fn is_read(history: &History, first: &Redirection) -> bool {
    let answered = first.at..=first.at + history.terms.latency;
    let mut calls = history.latches.iter();
    !calls.any(|call| {
        let over = call.over.filter(|_| call.returned.is_none());
        call.process == first.process && over.is_some_and(|over| answered.contains(&over))
    })
}

/// The time that a process needs at most to find the new master, and to be answered there, from when it
/// asks.
fn finding(history: &History, moved: &Moved) -> Ms {
    let terms = &history.terms;
    let ways = 2 * SETUP * terms.latency + PAUSE + SLACK;
    match moved.failed {
        true => history
            .terms
            .slow(ways + terms.response + terms.connect + PAUSE),
        false => ways,
    }
}

/// Whether anything else kept a process from its holds.
fn is_hindered(history: &History, process: u32, moved: &Moved) -> bool {
    let recovery = history.recovery();
    let mut others = history.moved(&moved.key).filter(|other| {
        let apart = other.until + recovery < moved.from || moved.until + recovery < other.from;
        other.at != moved.at && !apart
    });
    let is_it = |strike: &Strike| {
        let strikes = |moved: &Moved| moved.failed || moved.at < moved.until;
        let of = |moved: &Moved| strikes(moved) && moved.from == strike.from;
        strike.process.is_none() && history.moves.iter().any(of)
    };
    let mut strikes = history.struck(process, moved.from, moved.until + recovery);
    let mut ends = history.shut_down.iter();
    let mut pauses = history.pauses.iter();
    strikes.any(|strike| !is_it(strike) && !strike.only_wipes)
        || others.next().is_some()
        || ends.any(|(of, _)| *of == process)
        || pauses.any(|pause| pause.process == process)
}

fn verified(
    history: &History,
    (one, grant, lease): (&Acquisition, &Grant, Ms),
    moved: &Moved,
    verdict: &mut Verdict,
) {
    // Who was told of the change asks at once.
    let knows = |(at, process, epoch): &&(Ms, u32, u64)| {
        *process == one.process && *epoch >= moved.epoch && *at >= moved.told
    };
    let told = history.layouts.iter().find(knows).map(|(at, ..)| *at);
    let renewal = moved.followed + history.terms.slow(lease / RENEWALS);
    let latest = renewal.min(told.unwrap_or(renewal)) + finding(history, moved);
    let ended = grant
        .ended
        .map_or(grant.believed, |(at, _)| at.min(grant.believed));
    if ended <= latest {
        return;
    }
    // A body does not say under which number it runs.
    let is_body = grant.owner.starts_with("body");
    let of = |(_, process): &&(String, u32)| is_body && *process == one.process;
    let clients = history.clients.iter().filter(of);
    let names: Vec<&str> = clients.map(|(client, _)| &**client).collect();
    let named = |word: &String| {
        word.contains(&*grant.owner) || names.iter().any(|name| word.contains(name))
    };
    let mut heard = history.heard.iter().filter(|heard| {
        let then = (moved.from..=latest).contains(&heard.at);
        heard.node == moved.node && then && heard.words.contains(&moved.key)
    });
    if !heard.any(|heard| heard.words.iter().any(named)) {
        let what = format!(
            "{}: {} (process {}) believed in its hold until {ended} ms, and did not ask node {}, which \
             has it since {} ms, by {latest} ms",
            moved.key, grant.owner, one.process, moved.node, moved.at
        );
        verdict.push(Violation::new("verified", latest, what));
    }
}

fn kept(
    history: &History,
    (one, grant, lease): (&Acquisition, &Grant, Ms),
    moved: &Moved,
    verdict: &mut Verdict,
) {
    let Some(lost) = grant.lost.filter(|lost| moved.from <= *lost) else {
        return;
    };
    // Renewed shortly before, at the latest.
    let least = left_of(history, lease);
    let short = moved.followed + finding(history, moved) < moved.from + least;
    let forgotten = moved.lost.is_some() || history.wiped(&moved.key).any(|wiped| wiped.at <= lost);
    let early = lost < moved.from + least || short;
    if early && !verdict.excuses("moved: forgotten", forgotten) {
        let what = format!(
            "{}: {} (process {}) had it from {} ms, and lost it although node {} has it since {} ms",
            moved.key, grant.owner, one.process, grant.at, moved.node, moved.at
        );
        verdict.push(Violation::new("kept", lost, what));
    }
}

/// How much of a lease is left at any time, where it is renewed in time.
fn left_of(history: &History, lease: Ms) -> Ms {
    let terms = &history.terms;
    let renewal = terms.slow(lease / RENEWALS) + super::exclusion::ANSWER * terms.latency + SLACK;
    let least = lease - lease / 100 - terms.drift(lease);
    least.saturating_sub(renewal)
}

/// What the new master does not know, as if it had been forgotten, and since when it was written.
pub(super) fn forgotten(moved: &Moved) -> Option<(Wiped, Ms)> {
    let wiped = Wiped {
        at: moved.at,
        until: moved.until,
        key: Some(moved.key.clone()),
    };
    Some((wiped, moved.lost?))
}

/// Whether a hold, or what kept it until this moment, may have been written after `since`.
pub(super) fn is_since(history: &History, one: &Acquisition, since: Ms, moment: Ms) -> bool {
    let Some(grant) = &one.grant else {
        return false;
    };
    let owner = |other: &Grant| other.owner == grant.owner;
    let of = history
        .of_key(&one.key)
        .into_iter()
        .filter(|other| other.process == one.process && other.mode == one.mode);
    let had = of.filter_map(|other| other.grant.as_ref().filter(|grant| owner(grant)));
    let first = had.map(|grant| grant.at).min().unwrap_or(grant.at);
    let renewed = grant.renewed && {
        let mut strikes = history.strikes.iter();
        let is_slow = strikes.any(|strike| strike.process == Some(one.process));
        let lease = grant.longest().unwrap_or(0);
        is_slow || moment + SLACK >= since + left_of(history, lease)
    };
    first >= since || grant.lengthened > 0 || renewed
}

/// Whether a call about this key needs keys that were on their way at some moment of that time, or
/// shortly before.
pub(super) fn was_apart(history: &History, one: &Acquisition, until: Ms) -> bool {
    let several = matches!(one.mode, Mode::Shared | Mode::Permits { .. });
    let during =
        |moved: &Moved| moved.from <= until && one.called <= moved.at + finding(history, moved);
    several && history.moved(&one.key).any(during)
}
