//! Who waits for what is free in Redis has it soon.
//!
//! Judged by what Redis showed: while a lock is free, permits are left, or a latch is open, and somebody
//! waits for it, that must change within the time that its announcement and a try need. Who has just
//! come needs the time to connect and to subscribe as well. Where a fault struck the waiter, it has the
//! time to recover from it.
//!
//! In each process the first that waits asks for all of them, so the rule is about that one, and when it
//! has left, about the next; in a fair queue it is about the process whose waiter is first in Redis, and if
//! that has crashed, about all, once it had to be given up.

use std::collections::BTreeMap;

use super::replicated::TURNS;
use super::{Acquisition, History, LatchAct, Mode, Ms, Sight, Verdict, Violation};

const RULE: &str = "serving";
/// Ways of a message: the announcement, and the try.
const TOLD: Ms = 2;
/// Ways of a message until a latch's waiter knows: the announcement, the look and its answer.
const LOOKED: Ms = 3;
/// In a fair queue the first may have left just now: its leave goes first.
const LEFT: Ms = 2;
/// The server does not know the script: it says so, the script is sent, and the try once more.
const LOADED: Ms = 4;
/// Ways of a message until a waiter is told of everything: two connections are made, scripts loaded.
pub(super) const SETUP: Ms = 24;
/// What whole milliseconds and the order of tasks add.
const SLACK: Ms = 10;

/// Somebody who waits.
struct Waiter<'a> {
    key: &'a str,
    process: u32,
    called: Ms,
    /// Since when nobody of its process waits before it.
    first: Ms,
    /// When it ended to wait.
    until: Ms,
    /// How many ways of a message it takes to serve it.
    ways: Ms,
    announced: bool,
    /// Whether it is a read-write lock.
    reads_and_writes: bool,
    /// For how long more it may wait for replicas: it has it, which does not show where others can have it
    /// too, or has it no more, and does not know that until the turn ends.
    replicas: Ms,
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for key in history.seen_keys() {
        let all = history.of_key(key);
        let reads_and_writes = all.iter().any(|one| one.mode == Mode::Shared);
        for (sight, end) in history.states(key) {
            for waiter in latch_waiters(history, key, sight) {
                judge(history, sight, end, &waiter, verdict);
            }
            for (one, first) in firsts(history, &all, sight, end) {
                let waiter = Waiter {
                    key,
                    process: one.process,
                    called: one.called,
                    first: first.max(history.stands_aside(one)),
                    until: end_of(history, one),
                    ways: if sight.queue.is_empty() {
                        TOLD
                    } else {
                        TOLD + LEFT
                    },
                    announced: one.announced,
                    reads_and_writes,
                    replicas: match (one.ack, one.mode) {
                        (None, _) => 0,
                        (_, Mode::Exclusive) => TURNS,
                        _ => Ms::MAX,
                    },
                };
                judge(history, sight, end, &waiter, verdict);
            }
        }
    }
}

fn judge(history: &History, sight: &Sight, end: Ms, waiter: &Waiter<'_>, verdict: &mut Verdict) {
    let until = end.min(waiter.until);
    let due = prompt(history, sight, waiter, 0);
    if until <= due {
        return;
    }
    let unannounced = unannounced(history, sight, waiter);
    let found = prompt(history, sight, waiter, unannounced);
    let moved = moved(history, sight, waiter, until);
    let struck = struck(history, sight, waiter, until);
    let due = due.max(found).max(moved).max(struck);
    let excused = verdict.excuses(
        "serving: waits for replicas",
        waiter.replicas > 0 && until <= due.saturating_add(waiter.replicas),
    ) || verdict.excuses("serving: not announced", until <= found)
        || verdict.excuses("serving: failed over", until <= moved)
        || verdict.excuses("serving: struck", until <= struck);
    if !excused {
        let what = format!(
            "{}: free from {} to {until} ms, while process {} waited since {} ms, and due at {due} ms",
            waiter.key, sight.at, waiter.process, waiter.called
        );
        verdict.push(Violation::new(RULE, until, what));
    }
}

/// When it must have what is free since this sight, where nothing goes wrong.
fn prompt(history: &History, sight: &Sight, waiter: &Waiter<'_>, unannounced: Ms) -> Ms {
    let terms = &history.terms;
    let pause = if waiter.announced { 0 } else { terms.backoff };
    // The end of a lease is not announced: a waiter knows when it will be, by its own clock.
    let loads = if terms.forgets_scripts { LOADED } else { 0 };
    let ways = (waiter.ways + loads) * terms.latency;
    let since = sight.at.max(waiter.first);
    let told = since + pause + unannounced + ways + terms.drift(terms.poll) + terms.yields + SLACK;
    let ready = waiter.called + SETUP * terms.latency + pause + SLACK;
    told.max(ready)
}

/// From when a waiter that a fault kept from it has the time to recover.
fn begun(sight: &Sight, waiter: &Waiter<'_>) -> Ms {
    waiter.called.max(sight.at).max(waiter.first)
}

/// The same where its master was another one meanwhile.
fn moved(history: &History, sight: &Sight, waiter: &Waiter<'_>, until: Ms) -> Ms {
    let since = waiter.called.max(sight.at);
    let moves = history
        .moved(waiter.key)
        .filter(|moved| moved.from <= until && since <= moved.at + history.recovery());
    let ends = moves.map(|moved| moved.at.max(begun(sight, waiter)) + history.recovery());
    ends.max().unwrap_or(0)
}

/// The same where a fault struck it.
fn struck(history: &History, sight: &Sight, waiter: &Waiter<'_>, until: Ms) -> Ms {
    let since = waiter.called.max(sight.at);
    let strikes = history.strikes.iter().filter(|strike| {
        strike.process.is_none_or(|struck| struck == waiter.process)
            && strike.from <= until
            && since <= strike.until + strike.unheard + history.recovery()
    });
    let ends = strikes.map(|strike| strike.until.max(begun(sight, waiter)) + history.recovery());
    ends.max().unwrap_or(0)
}

/// How long it takes where nobody is told: until the waiter looks by itself.
fn unannounced(history: &History, sight: &Sight, waiter: &Waiter<'_>) -> Ms {
    let terms = &history.terms;
    // Its end was brought nearer after the waiter had read what another program had set.
    let set = |(at, key): &(Ms, String)| key == waiter.key && *at <= sight.at;
    if sight.expired && history.ttls.iter().any(set) {
        return terms.poll;
    }
    let mut foreign = history.had_by_foreign(waiter.key);
    // Redisson brings the end of the lock nearer and tells nobody; nor does one that reads since then.
    let reads = |one: &Acquisition| one.mode == Mode::Shared;
    if sight.shared && history.had_by_foreign(waiter.key).any(reads) {
        return terms.poll;
    }
    if sight.expired && waiter.reads_and_writes {
        return match foreign.any(reads) {
            true => terms.poll,
            false => 0,
        };
    }
    // Who became next by a script of Redisson, or was dropped by one, learns it by a beat.
    let asks = |one: &Acquisition| one.key == waiter.key && history.is_foreign(one.process);
    let dropped = history.clocks_differ.is_some_and(|at| at <= sight.at)
        || was_queued(history, waiter, sight.at);
    let queued = dropped || !sight.queue.is_empty();
    let mixed = queued && history.acquisitions.iter().any(asks);
    match mixed {
        true => terms.poll.max(terms.waiter_timeout),
        false => 0,
    }
}

/// Whether Redis showed a waiter of its process in the queue while it waited.
fn was_queued(history: &History, waiter: &Waiter<'_>, until: Ms) -> bool {
    let mut sights = history
        .sights
        .iter()
        .filter(|sight| sight.key == waiter.key && (waiter.called..=until).contains(&sight.at));
    let of = |owner: &String| history.process_of(owner) == Some(waiter.process);
    sights.any(|sight| sight.queue.iter().any(of))
}

fn end_of(history: &History, one: &Acquisition) -> Ms {
    one.returned.as_ref().map_or(history.end, |(at, _)| *at)
}

/// Those of each process that wait for what is free while nobody of it waits before them, and since
/// when that is so.
fn firsts<'a>(
    history: &History,
    all: &[&'a Acquisition],
    sight: &Sight,
    end: Ms,
) -> Vec<(&'a Acquisition, Ms)> {
    let next = sight.queue.first().map(|owner| history.process_of(owner));
    // Behind a dead one of ours all come, when it was given up.
    let ours = |process: u32| !history.is_foreign(process);
    let mut crashed = history.crashed.iter();
    let dead = crashed.find(|(process, _)| next == Some(Some(*process)) && ours(*process));
    let passed = dead.map_or(0, |(_, at)| sight.at.max(*at) + history.recovery());
    let mut waiting: BTreeMap<(u32, bool), Vec<&Acquisition>> = BTreeMap::new();
    let all = all.iter().filter(|one| ours(one.process));
    for one in all.filter(|one| one.bound != Some(0)) {
        // Others come after the one that is first in Redis.
        let comes = dead.is_some() || next.is_none_or(|process| process == Some(one.process));
        if comes && one.called < end && end_of(history, one) > sight.at {
            let kind = (one.process, one.mode == Mode::Shared);
            waiting.entry(kind).or_default().push(one);
        }
    }
    let mut firsts = Vec::new();
    for mut waiting in waiting.into_values() {
        waiting.sort_by_key(|one| one.called);
        // In a fair queue each has a place of its own.
        if !sight.queue.is_empty() {
            waiting.truncate(1);
        }
        let mut before = passed;
        for one in waiting {
            firsts.push((one, before.max(one.called)));
            before = before.max(end_of(history, one));
        }
    }
    let may = |one: &Acquisition| match one.mode {
        Mode::Exclusive | Mode::Majority(_) => sight.holders.is_empty(),
        Mode::Shared => sight.holders.is_empty() || sight.shared,
        Mode::Permits { taken, .. } => sight.number.is_some_and(|free| free >= u64::from(taken)),
    };
    firsts.retain(|(one, first)| may(one) && *first < end);
    firsts
}

/// Those that wait for a latch that is open.
fn latch_waiters<'a>(history: &'a History, key: &'a str, sight: &Sight) -> Vec<Waiter<'a>> {
    let calls = history.latches.iter();
    let ours = calls.filter(|call| !history.is_foreign(call.process));
    let waits = ours.filter(|call| call.key == key && call.act == LatchAct::Wait);
    let waiters = waits
        .filter(|_| sight.number == Some(0))
        .map(|call| Waiter {
            key,
            process: call.process,
            called: call.called,
            first: call.called,
            until: call.over.unwrap_or(history.end),
            ways: LOOKED,
            announced: true,
            reads_and_writes: false,
            replicas: 0,
        });
    waiters.filter(|waiter| waiter.until > sight.at).collect()
}
