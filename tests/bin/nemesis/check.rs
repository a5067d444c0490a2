//! What a history shows, for each fault and each kind of lock. Shares no code with the rules of the simulation.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
};

use serde::{Deserialize, Serialize};

use super::{
    event::{Act, Event, Stage},
    meeting::{self, Meeting, Outcome},
    subject::PERMITS,
};

pub(crate) const MS: u64 = 1_000_000;
/// A waiter that came this much later is behind another one, wherever they wait.
const BEHIND: u64 = 250 * MS;

/// A fault, from its begin until the next one begins.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) fault: String,
    pub(crate) from: u64,
    /// When it was undone.
    pub(crate) healed: u64,
    pub(crate) until: u64,
}

pub(crate) fn window_at(windows: &[Window], at: u64) -> Option<&Window> {
    let place = windows.partition_point(|window| window.from <= at);
    let window = windows.get(place.checked_sub(1)?);
    window.filter(|window| at < window.until)
}

/// What was seen of a kind of lock under a fault.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// How often the lock was acquired, and how often an acquisition failed, by its error.
    pub(crate) acquired: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    /// Two guards that exclude each other said at one moment that they are valid.
    pub(crate) valid_overlaps: u64,
    /// A body ran on beside another one, though its guard said that it is lost.
    pub(crate) bodies_overlap: u64,
    /// A token that is not greater than one that was given before it was asked for.
    pub(crate) tokens_back: u64,
    /// A waiter of a fair lock that was passed by one that came at least 250 ms later.
    pub(crate) passed_by: u64,
    pub(crate) lost: u64,
    /// The longest from the fault to a guard that says that it is lost, in ms.
    pub(crate) longest_told_ms: u64,
    pub(crate) longest_wait_ms: u64,
    /// The longest without an acquisition by any process, in ms.
    pub(crate) longest_gap_ms: u64,
}

/// Between an acquisition and its end.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) subject: String,
    pub(crate) asked: u64,
    pub(crate) got: u64,
    /// The last moment at which the guard said that it is valid.
    pub(crate) valid_until: u64,
    pub(crate) lost: Option<u64>,
    pub(crate) ended: u64,
    /// When its release was confirmed.
    pub(crate) freed: Option<u64>,
    token: Option<u64>,
}

/// The holds and the failed acquisitions of a history.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// What was asked for, had or not.
    pub(crate) asked: BTreeSet<String>,
    pub(crate) held: Vec<Hold>,
    pub(crate) failed: Vec<(String, u64, u64, String)>,
    pub(crate) meetings: Vec<Meeting>,
    /// When the counter without a lock was written: what a machine does that is not starved.
    pub(crate) unlocked: Vec<u64>,
}

pub(crate) fn holds(events: &[Event]) -> Holds {
    let mut holds = Holds::default();
    let mut asked = HashMap::new();
    let mut open: HashMap<(u32, u32), Hold> = HashMap::new();
    for event in events {
        let who = (event.process, event.task);
        match (event.act, event.stage) {
            (Act::Lock, Stage::Invoke) => {
                holds.asked.insert(event.subject.clone());
                asked.insert(who, event.at);
            }
            (Act::Lock, Stage::Ok) => {
                let hold = Hold {
                    subject: event.subject.clone(),
                    asked: asked.remove(&who).unwrap_or(event.at),
                    got: event.at,
                    valid_until: event.at,
                    lost: None,
                    ended: event.at,
                    freed: None,
                    token: event.value,
                };
                holds.held.extend(open.insert(who, hold));
            }
            (Act::Count, Stage::Ok) if event.subject == "count:off" => {
                holds.unlocked.push(event.at)
            }
            // It was given up.
            (Act::Lock, Stage::Info) => {
                asked.remove(&who);
            }
            (Act::Lock, Stage::Fail) => {
                let since = asked.remove(&who).unwrap_or(event.at);
                let error = event.error.clone().unwrap_or_default();
                holds
                    .failed
                    .push((event.subject.clone(), since, event.at, error));
            }
            (act, stage) => {
                let Some(hold) = open.get_mut(&who) else {
                    continue;
                };
                match (act, stage) {
                    (Act::End, Stage::Ok) => hold.freed = Some(event.at),
                    (Act::End, Stage::Info) => {}
                    _ => hold.ended = event.at,
                }
                match act {
                    Act::Valid => hold.valid_until = event.at,
                    Act::Lost => hold.lost = Some(event.at),
                    _ => {}
                }
            }
        }
    }
    holds.held.extend(open.into_values());
    holds.held.sort_by_key(|hold| hold.got);
    holds.meetings = meeting::read(events);
    holds
}

/// A semaphore without leases begins anew at the end of these faults, so who had a permit, or was asking for one, has
/// none from then on.
pub(crate) fn renew_permits(holds: &mut Holds, windows: &[Window], renew: impl Fn(&str) -> bool) {
    let semaphore = |hold: &&mut Hold| hold.subject == "semaphore";
    for hold in holds.held.iter_mut().filter(semaphore) {
        let mut next = windows.iter().filter(|window| hold.asked < window.until);
        if let Some(window) = next.find(|window| renew(&window.fault)) {
            // One that was had behind that was never a hold.
            hold.valid_until = hold.valid_until.min(window.from);
            hold.ended = hold.ended.min(hold.valid_until);
        }
    }
}

pub(crate) type Table = BTreeMap<String, BTreeMap<String, Seen>>;

/// By fault, then by kind.
pub(crate) fn check(holds: &Holds, windows: &[Window]) -> Table {
    let mut table = Table::new();
    let mut of = |when: u64, subject: &str, note: &mut dyn FnMut(&mut Seen, &Window)| {
        if let Some(window) = window_at(windows, when) {
            let row = table.entry(window.fault.clone()).or_default();
            note(row.entry(subject.to_owned()).or_default(), window);
        }
    };
    for hold in &holds.held {
        of(hold.got, &hold.subject, &mut |seen, _| {
            seen.acquired += 1;
            seen.longest_wait_ms = seen.longest_wait_ms.max((hold.got - hold.asked) / MS);
        });
        if let Some(lost) = hold.lost {
            of(lost, &hold.subject, &mut |seen, window| {
                seen.lost += 1;
                seen.longest_told_ms = seen.longest_told_ms.max((lost - window.from) / MS);
            });
        }
    }
    for (subject, since, at, error) in &holds.failed {
        of(*at, subject, &mut |seen, _| {
            *seen.failed.entry(error.clone()).or_default() += 1;
            seen.longest_wait_ms = seen.longest_wait_ms.max((at - since) / MS);
        });
    }
    for meeting in &holds.meetings {
        let Some(ended) = meeting.ended else { continue };
        of(ended, &meeting.subject, &mut |seen, _| {
            match &meeting.outcome {
                Outcome::Passed => seen.acquired += 1,
                Outcome::Failed(error) => *seen.failed.entry(error.clone()).or_default() += 1,
                Outcome::GivenUp => return,
            }
            seen.longest_wait_ms = seen.longest_wait_ms.max((ended - meeting.asked) / MS);
        });
    }
    for (subject, held) in by_lock(holds) {
        for (hold, _) in overlaps(&held, |hold| hold.valid_until) {
            of(hold.got, &subject, &mut |seen, _| seen.valid_overlaps += 1);
        }
        for (hold, _) in overlaps(&held, |hold| hold.ended) {
            of(hold.got, &subject, &mut |seen, _| seen.bodies_overlap += 1);
        }
        for (when, _) in tokens_back(&held) {
            of(when, &subject, &mut |seen, _| seen.tokens_back += 1);
        }
        if subject == "fair" {
            for hold in passed_by(&held) {
                of(hold.got, &subject, &mut |seen, _| seen.passed_by += 1);
            }
        }
        for window in windows {
            let first = held.partition_point(|hold| hold.got < window.from);
            let inside = held[first..]
                .iter()
                .map(|hold| hold.got)
                .take_while(|got| *got < window.until);
            let moments = iter::once(window.from).chain(inside);
            let moments: Vec<_> = moments.chain([window.until]).collect();
            let longest = moments.windows(2).map(|two| two[1] - two[0]).max();
            of(window.from, &subject, &mut |seen, _| {
                seen.longest_gap_ms = seen.longest_gap_ms.max(longest.unwrap_or_default() / MS);
            });
        }
    }
    table
}

/// The holds of each lock, also of one that nobody had. Readers and writers have one lock.
pub(crate) fn by_lock(holds: &Holds) -> BTreeMap<String, Vec<&Hold>> {
    let lock = |subject: &str| match subject {
        "read" | "write" => "read and write".to_owned(),
        subject => subject.to_owned(),
    };
    let asked = holds
        .asked
        .iter()
        .map(|subject| (lock(subject), Vec::new()));
    let mut locks: BTreeMap<String, Vec<&Hold>> = asked.collect();
    for hold in &holds.held {
        locks.entry(lock(&hold.subject)).or_default().push(hold);
    }
    locks
}

/// The holds that began beside others that exclude them, and these.
pub(crate) fn overlaps<'a>(
    held: &[&'a Hold],
    until: impl Fn(&Hold) -> u64,
) -> Vec<(&'a Hold, Vec<&'a Hold>)> {
    let mut running: Vec<&Hold> = Vec::new();
    let mut found = Vec::new();
    for hold in held.iter().filter(|hold| until(hold) >= hold.got) {
        running.retain(|other| until(other) > hold.got);
        let excluded = match hold.subject.as_str() {
            "permits" | "semaphore" => running.len() >= PERMITS,
            "read" => running.iter().any(|other| other.subject == "write"),
            _ => !running.is_empty(),
        };
        found.extend(excluded.then(|| (*hold, running.clone())));
        running.push(hold);
    }
    found
}

/// When a token was had that is not greater than one before, and by how much.
pub(crate) fn tokens_back(held: &[&Hold]) -> Vec<(u64, u64)> {
    let mut by_asked = held.to_vec();
    by_asked.sort_by_key(|hold| hold.asked);
    let (mut before, mut greatest) = (held.iter().peekable(), 0);
    let mut found = Vec::new();
    for hold in by_asked {
        while let Some(earlier) = before.next_if(|earlier| earlier.got < hold.asked) {
            greatest = greatest.max(earlier.token.unwrap_or_default());
        }
        let token = hold.token.filter(|token| *token <= greatest);
        found.extend(token.map(|token| (hold.got, greatest - token)));
    }
    found
}

pub(crate) fn passed_by<'a>(held: &[&'a Hold]) -> Vec<&'a Hold> {
    let mut by_asked = held.to_vec();
    by_asked.sort_by_key(|hold| hold.asked);
    // The least moment at which one that came later had the lock.
    let mut least = vec![u64::MAX; by_asked.len() + 1];
    for (at, hold) in by_asked.iter().enumerate().rev() {
        least[at] = least[at + 1].min(hold.got);
    }
    let passed = by_asked.iter().filter(|hold| {
        let behind = by_asked.partition_point(|other| other.asked < hold.asked + BEHIND);
        least[behind] < hold.got
    });
    passed.copied().collect()
}

/// The counters: how often each was counted up, and what was lost of that.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) written: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) lost: u64,
}

/// `last`: what the store has in the end.
pub(crate) fn counted(events: &[Event], subject: &str, last: u64) -> Counted {
    let mut counted = Counted::default();
    let counts = events
        .iter()
        .filter(|event| event.act == Act::Count && event.subject == subject);
    for event in counts {
        match event.stage {
            Stage::Invoke => {}
            Stage::Ok => counted.written += 1,
            Stage::Fail => counted.refused += 1,
            Stage::Info => counted.unknown += 1,
        }
    }
    counted.lost = counted.written.saturating_sub(last);
    counted
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hold(
        subject: &str,
        [asked, got, valid_until, ended]: [u64; 4],
        token: Option<u64>,
    ) -> Hold {
        let subject = subject.to_owned();
        Hold {
            subject,
            asked,
            got,
            valid_until,
            lost: None,
            ended,
            freed: None,
            token,
        }
    }

    /// It was had of the old semaphore, and the replicas that were to have it came later.
    #[test]
    fn a_permit_of_a_semaphore_that_has_begun_anew_was_counted_beside_the_new_ones() {
        let spans = [
            [50, 120, 200, 200],
            [101, 110, 300, 300],
            [102, 115, 300, 300],
        ];
        let mut held = spans.map(|span| hold("semaphore", span, None)).to_vec();
        held.sort_by_key(|hold| hold.got);
        let mut holds = Holds {
            held,
            ..Holds::default()
        };
        let overlaps = |holds: &Holds| {
            let held: Vec<_> = holds.held.iter().collect();
            overlaps(&held, |hold| hold.valid_until).len()
        };
        assert_eq!(overlaps(&holds), 1);
        let window = Window {
            fault: "f".into(),
            from: 10,
            healed: 20,
            until: 100,
        };
        renew_permits(&mut holds, &[window], |_| true);
        assert_eq!(overlaps(&holds), 0);
    }

    fn seen(held: Vec<Hold>) -> Seen {
        let window = Window {
            fault: "f".into(),
            from: 0,
            healed: 0,
            until: u64::MAX,
        };
        let held = Holds {
            held,
            ..Holds::default()
        };
        let mut table = check(&held, &[window]).remove("f").unwrap();
        let (_, mut all) = table.pop_first().unwrap();
        for (_, more) in table {
            all.valid_overlaps += more.valid_overlaps;
            all.bodies_overlap += more.bodies_overlap;
        }
        all
    }

    #[test]
    fn two_that_say_at_one_moment_that_they_hold_are_found() {
        let apart = seen(vec![
            hold("rlock", [0, 1, 5, 9], None),
            hold("rlock", [0, 5, 6, 7], None),
        ]);
        assert_eq!((apart.valid_overlaps, apart.bodies_overlap), (0, 1));
        let both = seen(vec![
            hold("rlock", [0, 1, 5, 9], None),
            hold("rlock", [0, 4, 6, 7], None),
        ]);
        assert_eq!(both.valid_overlaps, 1);
        let behind_a_third = vec![
            hold("rlock", [0, 1, 9, 9], None),
            hold("rlock", [0, 2, 3, 3], None),
            hold("rlock", [0, 4, 5, 5], None),
        ];
        assert_eq!(seen(behind_a_third).valid_overlaps, 2);
    }

    #[test]
    fn readers_share_and_permits_have_a_limit() {
        let of = |kinds: &[&str]| {
            let held = kinds
                .iter()
                .zip(1..)
                .map(|(kind, at)| hold(kind, [0, at, 9, 9], None));
            seen(held.collect()).valid_overlaps
        };
        assert_eq!(of(&["read", "read"]), 0);
        assert_eq!(of(&["read", "write"]), 1);
        assert_eq!(of(&["write", "read"]), 1);
        assert_eq!(of(&["permits", "permits"]), 0);
        assert_eq!(of(&["permits", "permits", "permits"]), 1);
    }

    #[test]
    fn a_token_is_greater_than_all_that_were_given_before_it_was_asked_for() {
        let of = |first, second, asked| {
            let held = vec![
                hold("fenced", [0, 10, 10, 10], Some(first)),
                hold("fenced", [asked, 20, 20, 20], Some(second)),
            ];
            seen(held).tokens_back
        };
        assert_eq!(of(5, 6, 15), 0);
        assert_eq!(of(5, 5, 15), 1);
        assert_eq!(of(6, 5, 15), 1);
        assert_eq!(of(6, 5, 9), 0, "both were asked for at once");
    }

    #[test]
    fn a_waiter_that_another_one_passed_is_found() {
        let of = |later: u64| {
            let held = vec![
                hold("fair", [later, 400 * MS, 0, 0], None),
                hold("fair", [0, 500 * MS, 0, 0], None),
            ];
            seen(held).passed_by
        };
        assert_eq!(of(240 * MS), 0);
        assert_eq!(of(260 * MS), 1);
    }

    #[test]
    fn the_longest_without_the_lock_is_inside_of_the_fault() {
        let held = [100, 900, 1000].map(|at| hold("rlock", [0, at * MS, 0, 0], None));
        let held = Holds {
            held: held.to_vec(),
            ..Holds::default()
        };
        let window = |from, until| Window {
            fault: "f".into(),
            from: from * MS,
            healed: from * MS,
            until: until * MS,
        };
        let gap = |from, until| check(&held, &[window(from, until)])["f"]["rlock"].longest_gap_ms;
        assert_eq!(gap(300, 1100), 600);
        assert_eq!(gap(950, 1300), 300);
        // None was counted before the first.
        assert_eq!(gap(0, 200), 100);
        assert_eq!(gap(0, 50), 50);
    }

    #[test]
    fn what_the_counter_does_not_have_was_lost() {
        let event = |stage| Event {
            at: 0,
            process: 1,
            task: 1,
            subject: "c".into(),
            act: Act::Count,
            stage,
            value: None,
            error: None,
        };
        let events = [Stage::Ok, Stage::Ok, Stage::Fail, Stage::Info].map(event);
        let found = counted(&events, "c", 1);
        assert_eq!(
            (found.written, found.refused, found.unknown, found.lost),
            (2, 1, 1, 1)
        );
        assert_eq!(counted(&events, "c", 3).lost, 0);
    }
}
