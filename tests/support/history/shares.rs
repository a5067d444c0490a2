//! Where all want one thing all the time and nothing goes wrong, each process has its share of the turns, and
//! nobody waits for long.

use std::collections::BTreeMap;

use super::serving::SETUP;
use super::{History, Ms, Verdict, Violation};

const RULE: &str = "share";
/// The slowest process has this part of the median's turns at least.
const PART: usize = 4;
/// A median of fewer turns says nothing.
const FEWEST: usize = 4;
/// How many times the time in which each process has a turn anybody waits at most.
const TIMES: Ms = 4;
/// For how long, times the number of processes, a slower one may be taken for one that wants nothing.
const PASSED_OVER: Ms = 128;

/// Calls a turn: those that take and release, heartbeats of a fair lock, and one more for so many processes.
const CALLS: usize = 5;
const EACH: usize = 8;

/// When each process asked, and when it had what it asked for.
type Turns = BTreeMap<u32, Vec<(Ms, Ms)>>;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    if !history.terms.throng {
        return;
    }
    for key in history.keys() {
        let mut turns = Turns::new();
        for one in history.of_key(key) {
            let at = one.grant.as_ref().map_or(history.end, |grant| grant.at);
            turns.entry(one.process).or_default().push((one.called, at));
        }
        // Tasks of one process hand it over to each other, so their turns are no measure.
        if turns.values().all(|of| is_lone(of)) {
            few(key, &turns, verdict);
        }
        long(key, &turns, history.terms.latency, verdict);
        many(history, key, &turns, verdict);
    }
}

/// Who has too few turns, from when all have had one until the first wants nothing more.
fn few(key: &str, turns: &Turns, verdict: &mut Verdict) {
    let firsts = turns
        .values()
        .filter_map(|of| of.iter().map(|(_, at)| *at).min());
    let lasts = turns
        .values()
        .filter_map(|of| of.iter().map(|(called, _)| *called).max());
    let during = firsts.max().unwrap_or(0)..lasts.min().unwrap_or(0);
    let count = |of: &[(Ms, Ms)]| of.iter().filter(|(_, at)| during.contains(at)).count();
    let mut counts: Vec<(usize, u32)> = turns.iter().map(|(one, of)| (count(of), *one)).collect();
    counts.sort_unstable();
    let (fewest, process) = counts[0];
    let (median, _) = counts[counts.len() / 2];
    if median >= FEWEST && fewest * PART < median {
        let what = format!("{key}: process {process} had {fewest} turns, and the median {median}");
        verdict.push(Violation::new(RULE, during.end, what));
    }
}

/// Who of the processes with one task waits too long.
fn long(key: &str, turns: &Turns, latency: Ms, verdict: &mut Verdict) {
    let of_each = |(process, of): (&u32, &Vec<(Ms, Ms)>)| {
        let process = *process;
        of.iter()
            .map(move |(_, at)| (*at, process))
            .collect::<Vec<_>>()
    };
    let mut had: Vec<(Ms, u32)> = turns.iter().flat_map(of_each).collect();
    had.sort_unstable();
    had.dedup_by_key(|(_, process)| *process);
    let (first, last) = (had[0].0, had[had.len() - 1].0);
    let round = (last - first) * turns.len() as Ms / had.len() as Ms;
    let most = TIMES * round + SETUP * latency + PASSED_OVER * turns.len() as Ms;
    for (process, of) in turns {
        let alone = is_lone(of);
        for (called, at) in of.iter().filter(|(called, at)| alone && at - called > most) {
            let what = format!(
                "{key}: process {process} waited from {called} ms, {} ms, and {most} ms at most",
                at - called
            );
            verdict.push(Violation::new(RULE, *at, what));
        }
    }
}

/// More calls than the turns need.
fn many(history: &History, key: &str, turns: &Turns, verdict: &mut Verdict) {
    let count: usize = turns.values().map(Vec::len).sum();
    let most = (CALLS + turns.len() / EACH) * count;
    let calls = history.calls_run;
    if calls > most {
        let what = format!("{key}: {calls} calls for {count} turns, and {most} at most");
        verdict.push(Violation::new(RULE, history.end, what));
    }
}

/// Whether these are the turns of one task.
fn is_lone(of: &[(Ms, Ms)]) -> bool {
    let mut of = of.to_vec();
    of.sort_unstable();
    of.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}
