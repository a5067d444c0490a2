//! Whether those who waited for each other, at a barrier or at a latch, passed together.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    check::{MS, Window},
    event::{Act, Event, Stage, nanos},
    meet::{COUNT, MOST_PARTIES, PARTIES, ROUND},
    rules::{Found, GIVEN, History, may_overlap},
    worker::WAIT,
};

/// For how long a fault keeps a call from Redis that has been sent.
const ON_ITS_WAY: u64 = 1500 * MS;
/// The same without a fault.
const AT_ONCE: u64 = 200 * MS;

/// A wait for others.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) subject: String,
    pub(crate) asked: u64,
    /// `None`: the process was killed.
    pub(crate) ended: Option<u64>,
    pub(crate) outcome: Outcome,
    /// The generation of a barrier that was passed, or the round of a latch.
    round: Option<u64>,
    /// At a barrier.
    index: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The caller went away, or was killed.
    GivenUp,
}

impl Meeting {
    pub(crate) fn passed(&self) -> Option<u64> {
        self.ended.filter(|_| self.outcome == Outcome::Passed)
    }

    /// A caller that was killed had waited for as long as it would have at most.
    fn until(&self) -> u64 {
        self.ended.unwrap_or_else(|| self.asked + nanos(WAIT))
    }
}

pub(crate) fn read(events: &[Event]) -> Vec<Meeting> {
    let (mut meetings, mut open) = (Vec::new(), HashMap::new());
    for event in events.iter().filter(|event| event.act == Act::Meet) {
        let who = (event.process, event.task);
        if event.stage == Stage::Invoke {
            open.insert(who, meetings.len());
            meetings.push(Meeting {
                subject: event.subject.clone(),
                asked: event.at,
                ended: None,
                outcome: Outcome::GivenUp,
                round: event.value,
                index: None,
            });
            continue;
        }
        let Some(at) = open.remove(&who) else {
            continue;
        };
        let meeting: &mut Meeting = &mut meetings[at];
        meeting.ended = Some(event.at);
        meeting.outcome = match event.stage {
            Stage::Ok => Outcome::Passed,
            Stage::Fail => Outcome::Failed(event.error.clone().unwrap_or_default()),
            _ => Outcome::GivenUp,
        };
        if let Some(value) = event.value.filter(|_| event.subject == "barrier") {
            meeting.round = Some(value / MOST_PARTIES);
            meeting.index = Some(value % MOST_PARTIES);
        }
    }
    meetings
}

/// The meetings of a subject, in a history.
pub(crate) struct Meetings<'a> {
    history: &'a History<'a>,
    /// In the order in which they asked.
    ours: Vec<&'a Meeting>,
    is_barrier: bool,
    /// The faults after which a server does not have what it had acknowledged. Replicas are not waited for.
    lossy: Vec<&'a Window>,
    /// Who asked longer ago has nothing to do with those who pass.
    reach: u64,
}

/// Those who passed in one generation or round.
struct Together<'a> {
    passed: Vec<&'a Meeting>,
    round: Option<u64>,
    /// When the first and the last one asked.
    asked: (u64, u64),
    /// When the first and the last one passed.
    ended: (u64, u64),
}

impl<'a> Meetings<'a> {
    pub(crate) fn new(history: &'a History<'a>, subject: &str, all: &'a [Meeting]) -> Self {
        let ours = all.iter().filter(|meeting| meeting.subject == subject);
        let mut ours: Vec<_> = ours.collect();
        ours.sort_by_key(|meeting| meeting.asked);
        let lossy = history.windows.iter().filter(|window| {
            window.fault.starts_with("failover") || may_overlap(history.topology, &window.fault)
        });
        let lasted = ours.iter().map(|meeting| meeting.until() - meeting.asked);
        let longest = lasted.max().unwrap_or_default();
        Self {
            history,
            is_barrier: subject == "barrier",
            lossy: lossy.collect(),
            reach: longest + history.lease + ON_ITS_WAY + nanos(ROUND),
            ours,
        }
    }

    /// When the first one asked, and when each passed, in order.
    pub(crate) fn moments(&self) -> Vec<u64> {
        let begin = self.ours.first().map(|meeting| meeting.asked);
        let passed = self.ours.iter().filter_map(|meeting| meeting.passed());
        let mut moments: Vec<_> = begin.into_iter().chain(passed).collect();
        moments.sort_unstable();
        moments
    }

    /// Those who had asked by then, and may be there.
    fn near(&self, at: u64) -> &[&'a Meeting] {
        let place = |at| self.ours.partition_point(|meeting| meeting.asked < at);
        &self.ours[place(at.saturating_sub(self.reach))..place(at + 1)]
    }

    /// Generations begin anew where a server has lost its data.
    fn together(&self) -> Vec<Together<'a>> {
        let mut together = BTreeMap::<_, Vec<&Meeting>>::new();
        for meeting in &self.ours {
            if let Some(at) = meeting.passed() {
                let era = self.lossy.partition_point(|window| window.from <= at);
                let those = together.entry((era, meeting.round)).or_default();
                those.push(meeting);
            }
        }
        let both_ends = |moments: &mut dyn Iterator<Item = u64>| {
            moments.fold((u64::MAX, 0), |ends, at| (ends.0.min(at), ends.1.max(at)))
        };
        let together = together.into_iter().map(|((_, round), passed)| Together {
            asked: both_ends(&mut passed.iter().map(|meeting| meeting.asked)),
            ended: both_ends(&mut passed.iter().filter_map(|meeting| meeting.ended)),
            passed,
            round,
        });
        // Others of them may have passed when the data was lost.
        let is_kept = |all: &Together<'_>| {
            let end = all.ended.1 + nanos(ROUND);
            // A latch has its count since the round before.
            let set = all.round.filter(|_| !self.is_barrier);
            let set = set.map(|round| nanos(ROUND) * (round - 1));
            let begin = set.map_or(all.asked.0, |set| set.min(all.asked.0));
            let mut lossy = self.lossy.iter();
            !lossy.any(|window| window.from <= end && begin < window.until)
        };
        together.filter(is_kept).collect()
    }

    /// How many may have been counted there, though they did not pass with the others.
    fn unknown(&self, there: &Together<'_>) -> usize {
        let (first, lease) = (there.ended.0, self.history.lease);
        // A party that has died is there until its lease is over.
        let stays = match self.history.is_quiet(first.saturating_sub(lease), first) {
            true => AT_ONCE,
            false => lease + ON_ITS_WAY,
        };
        let may_have_come = |meeting: &&&Meeting| {
            let is_out = meeting.passed().is_none();
            if !self.is_barrier {
                return is_out && meeting.round == there.round;
            }
            // One who hears of its arrival behind its lease arrives again.
            let lasted = meeting.until() - meeting.asked;
            let again = meeting.round > there.round && lasted > lease / 20 * 19;
            meeting.until() + stays >= first && (is_out || again)
        };
        self.near(first).iter().filter(may_have_come).count()
    }

    /// When one ended that was there when the first one passed, if that was much later.
    fn was_late(&self, meeting: &Meeting, there: &Together<'_>) -> Option<u64> {
        let first = there.ended.0;
        let ended = meeting.ended.filter(|_| meeting.round == there.round)?;
        (ended > first + GIVEN && self.history.is_quiet(first, ended)).then_some(ended)
    }

    /// What is wrong.
    pub(crate) fn found(&self) -> Vec<Found> {
        let parties = if self.is_barrier { PARTIES } else { COUNT } as usize;
        let mut found = Vec::new();
        for there in self.together() {
            let (first, end) = there.ended;
            let came = there.passed.iter().filter(|one| one.asked <= first);
            if came.count() + self.unknown(&there) < parties {
                found.push(("passed before all had come", first, first));
            }
            let places: HashSet<_> = there.passed.iter().map(|one| one.index).collect();
            let too_many = there.passed.len() > parties.min(places.len());
            if self.is_barrier && (too_many || there.asked.1 > first) {
                found.push(("one more passed with those of a generation", end, end));
            }
            let mut late = self.near(first).iter();
            if let Some(until) = late.find_map(|one| self.was_late(one, &there)) {
                let rule = "heard for 800 ms nothing of those that had come";
                found.push((rule, first, until));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1000 * MS;

    fn passed(subject: &str, round: u64, asked: u64, ended: u64) -> Meeting {
        Meeting {
            subject: subject.to_owned(),
            asked,
            ended: Some(ended),
            outcome: Outcome::Passed,
            round: Some(round),
            index: Some(fastrand::u64(..)),
        }
    }

    /// The rules that these broke under a fault.
    fn broken(fault: &str, meetings: &[Meeting]) -> Vec<&'static str> {
        let window = Window {
            fault: fault.to_owned(),
            from: 0,
            healed: S,
            until: 9 * S,
        };
        let history = History {
            topology: "single",
            lease: S,
            windows: &[window],
        };
        let meetings = Meetings::new(&history, &meetings[0].subject, meetings);
        meetings.found().iter().map(|found| found.0).collect()
    }

    #[test]
    fn a_barrier_that_is_passed_by_too_few_is_found() {
        let two = [
            passed("barrier", 7, S, 2 * S),
            passed("barrier", 7, S, 2 * S),
        ];
        let rule = ["passed before all had come"];
        assert_eq!(broken("CLIENT KILL", &two), rule);
        assert!(broken("FLUSHALL", &two).is_empty());
        let [one, other] = two;
        let with = |third| broken("CLIENT KILL", &[one.clone(), other.clone(), third]);
        assert!(with(passed("barrier", 7, S, 2 * S)).is_empty());
        assert_eq!(with(passed("barrier", 6, S, S + MS)), rule);
        let mut died = passed("barrier", 7, 0, 0);
        (died.ended, died.round) = (None, None);
        assert!(with(died.clone()).is_empty());
        died.ended = Some(S - MS);
        died.outcome = Outcome::Failed("Lost".to_owned());
        assert!(with(died.clone()).is_empty());
        assert_eq!(broken("none", &[one.clone(), other.clone(), died]), rule);
    }

    #[test]
    fn a_party_too_many_is_found() {
        let three = [(); 3].map(|()| passed("barrier", 7, S, 2 * S));
        let with = |asked| {
            let more = passed("barrier", 7, asked, 3 * S);
            broken("CLIENT KILL", &[&three[..], &[more]].concat())
        };
        let rule = ["one more passed with those of a generation"];
        assert_eq!(with(S), rule);
        assert_eq!(with(2 * S + 1), rule);
    }

    #[test]
    fn a_latch_that_opens_too_early_is_found() {
        let of = |count: usize| {
            let all = vec![passed("latch", 3, S, 2 * S); count];
            broken("CLIENT KILL", &all)
        };
        let all = COUNT as usize;
        assert!(of(all).is_empty());
        assert_eq!(of(all - 1), ["passed before all had come"]);
    }

    #[test]
    fn who_is_not_woken_is_found() {
        let of = |fault, ended| {
            let all = [2 * S, 2 * S, ended].map(|ended| passed("barrier", 7, S, ended));
            broken(fault, &all)
        };
        assert!(of("none", 2 * S + GIVEN).is_empty());
        let rule = ["heard for 800 ms nothing of those that had come"];
        assert_eq!(of("none", 2 * S + GIVEN + 1), rule);
        assert!(of("CLIENT KILL", 4 * S).is_empty());
        let mut all = vec![passed("latch", 3, S, 2 * S); COUNT as usize];
        all[0].ended = Some(3 * S);
        all[0].outcome = Outcome::Failed("TimedOut".to_owned());
        assert_eq!(broken("none", &all), rule);
    }
}
