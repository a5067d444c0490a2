//! What is promised under faults, and what a run has broken of that.

use std::{collections::BTreeMap, iter};

use serde::{Deserialize, Serialize};

use super::{
    check::{self, Hold, Holds, MS, Window},
    event::nanos,
    faults::{BEHIND, CLOCKS_DIFFER, SERVER_AHEAD, SERVER_BEHIND},
    meeting::{Meetings, Outcome},
    worker::{HUNG, lease},
};

/// A rule that was broken, by the fault during which or after which that was seen first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Breach {
    pub(crate) fault: String,
    pub(crate) kind: String,
    pub(crate) rule: String,
    pub(crate) times: u64,
    /// From the first fault on.
    pub(crate) seconds: f64,
}

impl Breach {
    pub(crate) fn new(fault: &str, kind: &str, rule: &str, times: u64, seconds: f64) -> Self {
        let (fault, kind, rule) = (fault.to_owned(), kind.to_owned(), rule.to_owned());
        Self {
            fault,
            kind,
            rule,
            times,
            seconds,
        }
    }
}

/// A lock that is free and waited for is given by then: less than the interval in which waiters poll.
pub(crate) const GIVEN: u64 = 800 * MS;
/// A dead waiter of a fair lock is passed over by then, and a dead server replaced.
const ALIVE: u64 = 10_000 * MS;
/// All who count in a round of a latch pass by then: a fault may cost two rounds, and the next ones as many.
const ROUNDS: u64 = 24_000 * MS;
/// So often the counter without a lock is written meanwhile, by a machine that has time for anything.
const UNSTARVED: usize = 200;

/// Faults after which a server may not have what it had acknowledged. A failover loses what no replica had, unless
/// acquisitions wait for all replicas and the old master is dead: one that lives goes on for a moment. When a server's
/// clock goes forward by more than a lease, all leases are over there at once.
pub(crate) fn may_overlap(topology: &str, fault: &str) -> bool {
    match fault {
        "FLUSHALL" | SERVER_AHEAD | SERVER_BEHIND => true,
        "kill and restart a server" => matches!(topology, "single-everysec" | "single-none"),
        "failover, forced" => topology != "ack",
        _ => fault.starts_with("failover"),
    }
}

/// Whether tokens may go back by so many microseconds: another master goes on whose clock is behind the last token
/// (docs/fencing.md).
fn may_go_back(window: &Window, by: u64) -> bool {
    window.fault == CLOCKS_DIFFER || window.fault.starts_with("failover") && by <= 1000
}

/// Faults behind which permits without a lease stay taken by nobody, or are given twice.
pub(crate) fn loses_permits(topology: &str, fault: &str) -> bool {
    fault == "kill a client" || fault.starts_with("failover") || may_overlap(topology, fault)
}

/// A rule, a moment of the fault that broke it, and when it was seen.
pub(crate) type Found = (&'static str, u64, u64);

pub(crate) struct History<'a> {
    pub(crate) topology: &'a str,
    pub(crate) lease: u64,
    pub(crate) windows: &'a [Window],
}

/// What the history shows.
pub(crate) fn breaches(topology: &str, holds: &Holds, windows: &[Window]) -> Vec<Breach> {
    let lease = nanos(lease(topology));
    let history = History {
        topology,
        lease,
        windows,
    };
    let mut all = history.hung(holds);
    for (kind, held) in check::by_lock(holds) {
        let got = held.iter().map(|hold| hold.got);
        let mut found = history.guards(&held);
        found.extend(history.waiters(&kind, &held));
        found.extend(history.gaps(&kind, got, holds));
        all.push((kind, found));
    }
    for kind in ["barrier", "latch"] {
        let meetings = Meetings::new(&history, kind, &holds.meetings);
        let (mut found, moments) = (meetings.found(), meetings.moments());
        if !moments.is_empty() {
            found.extend(history.gaps(kind, moments.into_iter(), holds));
        }
        all.push((kind.to_owned(), found));
    }
    let mut breaches = BTreeMap::new();
    for (kind, found) in &all {
        for (rule, at, seen) in found {
            let Some(window) = check::window_at(windows, *at) else {
                continue;
            };
            let seconds = ((seen - windows[0].from) / MS) as f64 / 1000.0;
            let new = || Breach::new(&window.fault, kind, rule, 0, seconds);
            let breach = breaches
                .entry((&window.fault, kind, rule))
                .or_insert_with(new);
            breach.times += 1;
            breach.seconds = breach.seconds.min(seconds);
        }
    }
    let mut breaches: Vec<_> = breaches.into_values().collect();
    breaches.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    breaches
}

impl History<'_> {
    /// Whether nothing was done between these moments, and no process was killed right before.
    pub(crate) fn is_quiet(&self, from: u64, until: u64) -> bool {
        let place = self.windows.partition_point(|window| window.from <= from);
        let [before, window] = [2, 1].map(|back| self.windows.get(place.wrapping_sub(back)));
        window.is_some_and(|window| window.fault == "none" && until < window.until)
            && before.is_none_or(|before| before.fault != "kill a client")
    }

    /// Whether these must not have been given beside each other.
    fn is_promised(&self, window: &Window, hold: &Hold, others: &[&Hold]) -> bool {
        match &*window.fault {
            fault if !may_overlap(self.topology, fault) => true,
            // Renewals do not wait for replicas.
            BEHIND if self.topology == "ack" => others.iter().all(|other| other.got >= window.from),
            _ => others
                .iter()
                .chain([&hold])
                .all(|hold| hold.asked >= window.healed),
        }
    }

    fn guards(&self, held: &[&Hold]) -> Vec<Found> {
        let mut found = Vec::new();
        for (hold, others) in check::overlaps(held, |hold| hold.valid_until) {
            let window = check::window_at(self.windows, hold.got);
            if window.is_some_and(|window| self.is_promised(window, hold, &others)) {
                found.push(("two valid guards at once", hold.got, hold.got));
            }
        }
        for (at, by) in check::tokens_back(held) {
            if !check::window_at(self.windows, at).is_some_and(|window| may_go_back(window, by)) {
                found.push(("a token went back", at, at));
            }
        }
        for hold in held {
            let Some(lost) = hold.lost else { continue };
            if self.is_quiet(hold.got, lost) {
                found.push(("a guard was lost without a fault", lost, lost));
            }
            let window = check::window_at(self.windows, lost);
            let is_promised = window.is_some_and(|window| self.is_promised(window, hold, &[hold]));
            // A guard is over a little before its lease.
            if is_promised && lost < hold.asked + self.lease / 20 * 19 {
                found.push(("a guard was lost within its lease", lost, lost));
            }
        }
        // Five servers do not forget at once.
        let flushes = self.windows.iter();
        for window in
            flushes.filter(|window| window.fault == "FLUSHALL" && self.topology != "redlock")
        {
            let late = held.iter().filter(|hold| {
                hold.got < window.from && hold.valid_until > window.healed + self.lease
            });
            let rule = "a guard was valid a lease after its lock was gone";
            found.extend(late.map(|hold| (rule, window.from, hold.valid_until)));
        }
        found
    }

    fn waiters(&self, kind: &str, held: &[&Hold]) -> Vec<Found> {
        let mut found = Vec::new();
        for hold in check::passed_by(held) {
            if kind == "fair" && self.is_quiet(hold.asked, hold.got) {
                found.push(("a waiter was passed in the queue", hold.got, hold.got));
            }
        }
        for (free, got) in free(held, self.lease) {
            // Who has resigned lets others win first.
            if kind != "leader" && got - free > GIVEN && self.is_quiet(free, got) {
                found.push(("free for 800 ms, though one waited", free, got));
            }
        }
        found
    }

    /// The calls that outlived their waits, each with its kind, where no process stood still meanwhile.
    fn hung(&self, holds: &Holds) -> Vec<(String, Vec<Found>)> {
        let failed = holds.failed.iter().filter(|(.., error)| error == HUNG);
        let failed = failed.map(|(kind, since, at, _)| (kind, *since, *at));
        let is_hung = |outcome: &Outcome| *outcome == Outcome::Failed(HUNG.to_owned());
        let met = holds.meetings.iter().filter(|one| is_hung(&one.outcome));
        let met = met.filter_map(|one| Some((&one.subject, one.asked, one.ended?)));
        let is_paused = |since: u64, at: u64| {
            let mut windows = self.windows.iter();
            windows.any(|window| {
                window.fault.starts_with("pause a client")
                    && window.from < at
                    && since < window.until
            })
        };
        let hung = failed.chain(met);
        let hung = hung.filter(|(_, since, at)| !is_paused(*since, *at));
        hung.map(|(kind, since, at)| (kind.clone(), vec![("a call outlived its wait", since, at)]))
            .collect()
    }

    /// The longest times in which nobody got it, or passed.
    fn gaps(&self, kind: &str, got: impl Iterator<Item = u64>, holds: &Holds) -> Vec<Found> {
        let mut found = Vec::new();
        let (Some(first), Some(last)) = (self.windows.first(), self.windows.last()) else {
            return found;
        };
        let got = iter::once(first.from).chain(got.map(|got| got.max(first.from)));
        let got: Vec<_> = got.chain([last.until]).collect();
        let (longest, rule) = match kind {
            // Somebody has passed.
            "latch" if got.len() > 3 => (ROUNDS, "passed by nobody for 24 s"),
            _ => (ALIVE, "given to nobody for 10 s"),
        };
        for two in got.windows(2) {
            // Until then there may be no master.
            let meanwhile = |window: &&Window| window.from < two[1] && window.until > two[0];
            let windows = self.windows.iter().filter(meanwhile);
            let failovers = windows
                .clone()
                .filter(|window| window.fault.starts_with("failover"));
            let healed = failovers.map(|window| window.healed).max();
            let from = healed.map_or(two[0], |healed| healed.max(two[0]));
            // A permit without a lease whose release is lost stays taken until the semaphore begins anew.
            let taken = windows.filter(|window| {
                kind == "semaphore" && loses_permits(self.topology, &window.fault)
            });
            let from = taken.map(|window| window.until).max().unwrap_or(from);
            let unlocked = holds
                .unlocked
                .iter()
                .filter(|at| (from..two[1]).contains(at));
            if two[1].saturating_sub(from) > longest && unlocked.count() > UNSTARVED {
                found.push((rule, from, from + longest));
            }
        }
        found
    }
}

/// From when to when a lock was free, while somebody waited who had it then, or later.
fn free(held: &[&Hold], lease: u64) -> Vec<(u64, u64)> {
    let mut waits: Vec<_> = held.iter().map(|hold| hold.asked).collect();
    for at in (1..waits.len()).rev() {
        waits[at - 1] = waits[at - 1].min(waits[at]);
    }
    let (mut found, mut last) = (Vec::new(), None);
    for (hold, since) in held.iter().zip(waits) {
        let from = last.map_or(hold.got, |last| since.max(last));
        found.extend((from < hold.got).then_some((from, hold.got)));
        // What was not confirmed ends with its lease.
        last = last.max(Some(hold.freed.unwrap_or(hold.ended + lease)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            event::{Act, Event, Stage},
            meet::COUNT,
            meeting,
        },
        *,
    };
    use check::tests::hold;

    const S: u64 = 1000 * MS;

    /// The rules that these holds broke under a fault of four seconds, which is over after one.
    fn broken(fault: &str, held: Vec<Hold>) -> Vec<String> {
        let holds = Holds {
            held,
            ..Holds::default()
        };
        broken_for(4, fault, &holds)
    }

    /// The same under one of so many seconds.
    fn broken_for(seconds: u64, fault: &str, holds: &Holds) -> Vec<String> {
        let window = Window {
            fault: fault.to_owned(),
            from: MS,
            healed: S,
            until: seconds * S,
        };
        let breaches = breaches("single", holds, &[window]);
        breaches.into_iter().map(|breach| breach.rule).collect()
    }

    #[test]
    fn a_lock_that_nobody_ever_had_was_no_breach() {
        let of = |held| {
            let holds = Holds {
                asked: ["spin".to_owned()].into(),
                held,
                unlocked: (1..1500).map(|at| at * 20 * MS).collect(),
                ..Holds::default()
            };
            broken_for(30, "CLIENT KILL", &holds)
        };
        let rule = ["given to nobody for 10 s"];
        assert_eq!(of(Vec::new()), rule);
        let at = |seconds| hold("spin", [0, seconds * S, seconds * S, seconds * S], None);
        assert_eq!(of(vec![at(25)]), rule);
        assert!(of(vec![at(8), at(16), at(24)]).is_empty());
    }

    #[test]
    fn a_latch_that_could_not_be_set_was_no_breach() {
        let event = |task, at, stage| Event {
            at,
            process: 1,
            task,
            subject: "latch".to_owned(),
            act: Act::Meet,
            stage,
            value: None,
            error: None,
        };
        let of = |passed: u32, seconds| {
            let came = (0..passed).map(|task| event(task, S, Stage::Invoke));
            let passed = (0..passed).map(|task| event(task, 2 * S, Stage::Ok));
            let failed = [(2, Stage::Invoke), (3, Stage::Fail)];
            let failed = failed.map(|(at, stage)| event(99, at * S, stage));
            let events: Vec<_> = came.chain(passed).chain(failed).collect();
            let holds = Holds {
                meetings: meeting::read(&events),
                unlocked: (1..3000).map(|at| at * 20 * MS).collect(),
                ..Holds::default()
            };
            broken_for(seconds, "CLIENT KILL", &holds)
        };
        assert_eq!(of(0, 20), ["given to nobody for 10 s"]);
        assert_eq!(of(COUNT, 60), ["passed by nobody for 24 s"]);
        assert!(of(COUNT, 26).is_empty());
    }

    /// The fault before it was blamed, if the last to have the lock had it then.
    #[test]
    fn a_failover_that_took_long_was_no_excuse_for_the_fault_before_it() {
        let window = |fault: &str, [from, healed, until]: [u64; 3]| Window {
            fault: fault.to_owned(),
            from: from * S,
            healed: healed * S,
            until: until * S,
        };
        let held =
            [[0, 2, 3, 3], [4, 18, 19, 19]].map(|span| hold("rlock", span.map(|at| at * S), None));
        let holds = Holds {
            held: held.to_vec(),
            unlocked: (1..3000).map(|at| at * 20 * MS).collect(),
            ..Holds::default()
        };
        let rules = |healed| {
            let windows = [
                window("CLIENT KILL", [1, 1, 3]),
                window("failover, forced", [3, healed, 20]),
            ];
            let breaches = breaches("single", &holds, &windows);
            breaches
                .into_iter()
                .map(|breach| breach.rule)
                .collect::<Vec<_>>()
        };
        assert!(rules(17).is_empty());
        assert_eq!(rules(7), ["given to nobody for 10 s"]);
    }

    #[test]
    fn a_call_that_outlived_its_wait_was_taken_for_one_that_was_given_up() {
        let of = |fault, error: &str| {
            let failed = ("rlock".to_owned(), S, 11 * S, error.to_owned());
            let holds = Holds {
                failed: vec![failed],
                ..Holds::default()
            };
            broken_for(30, fault, &holds)
        };
        assert_eq!(of("CLIENT KILL", HUNG), ["a call outlived its wait"]);
        assert!(of("CLIENT KILL", "TimedOut").is_empty());
        assert!(of("pause a client for less than its lease", HUNG).is_empty());
    }

    #[test]
    fn a_lock_that_is_free_while_one_waits_is_found() {
        let of = |fault: &str, asked| {
            let mut first = hold("rlock", [0, 1, 2, 2], None);
            first.freed = Some(S);
            let next = hold("rlock", [2 * S - 1, 2 * S, 2 * S, 2 * S], None);
            let waiter = hold("rlock", [asked, 3 * S, 3 * S, 3 * S], None);
            broken(fault, vec![first, next, waiter])
        };
        assert_eq!(of("none", S), ["free for 800 ms, though one waited"]);
        assert!(of("none", S + 300 * MS).is_empty());
        assert!(of("CLIENT KILL", S).is_empty());
    }

    #[test]
    fn a_token_that_goes_back_is_found_but_where_the_clocks_differ() {
        let of = |fault: &str, by: u64| {
            let first = hold("fenced", [0, 1, 2, 2], Some(9000));
            let next = hold("fenced", [S, S, S, S], Some(9000 - by));
            broken(fault, vec![first, next])
        };
        let rule = ["a token went back"];
        assert_eq!(of("FLUSHALL", 1), rule);
        assert_eq!(of("failover, asked", 1001), rule);
        assert!(of("failover, asked", 1000).is_empty());
        assert!(of(CLOCKS_DIFFER, 8000).is_empty());
    }

    #[test]
    fn a_loss_without_a_reason_is_found() {
        let of = |fault: &str, asked, lost| {
            let mut held = hold("rlock", [asked, asked, lost, lost], None);
            held.lost = Some(lost);
            broken(fault, vec![held])
        };
        let early = ["a guard was lost within its lease"];
        assert_eq!(of("CLIENT KILL", S, S + 900 * MS), early);
        assert_eq!(of("FLUSHALL", S, S + 900 * MS), early);
        assert!(of("FLUSHALL", S - 1, S).is_empty());
        assert!(of("CLIENT KILL", S, 2 * S).is_empty());
        assert_eq!(of("none", S, 2 * S), ["a guard was lost without a fault"]);
    }

    #[test]
    fn a_guard_that_outlives_its_lock_is_found() {
        let of = |valid| broken("FLUSHALL", vec![hold("rlock", [0, 0, valid, valid], None)]);
        let rule = ["a guard was valid a lease after its lock was gone"];
        assert!(of(2 * S).is_empty());
        assert_eq!(of(2 * S + 1), rule);
    }
}
