//! Whether those who waited for each other, at a barrier or at a latch, passed together.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    check::{MS, Window},
    event::{Act, Event, Stage},
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
    ours: Vec<&'a Meeting>,
    is_barrier: bool,
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
        Self {
            history,
            ours: ours.collect(),
            is_barrier: subject == "barrier",
        }
    }

    /// The faults after which a server does not have what it had acknowledged. Replicas are not waited for.
    fn lossy(&self) -> impl Iterator<Item = &'a Window> {
        let topology = self.history.topology;
        let windows = self.history.windows.iter();
        windows.filter(move |window| {
            window.fault.starts_with("failover") || may_overlap(topology, &window.fault)
        })
    }

    /// Generations begin anew where a server has lost its data.
    fn together(&self) -> Vec<Together<'a>> {
        let mut together = BTreeMap::<_, Vec<&Meeting>>::new();
        for meeting in &self.ours {
            if let Some(at) = meeting.passed() {
                let era = self.lossy().filter(|window| window.from <= at).count();
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
        let near = u64::try_from(ROUND.as_nanos()).expect("seconds");
        let is_kept = |all: &Together<'_>| {
            let is_lost =
                |window: &Window| window.from <= all.ended.1 + near && all.asked.0 < window.until;
            !self.lossy().any(is_lost)
        };
        together.filter(is_kept).collect()
    }

    /// Whether this one may have been counted there, though it did not pass with the others.
    fn may_have_come(&self, meeting: &Meeting, there: &Together<'_>) -> bool {
        let first = there.ended.0;
        if !self.is_barrier {
            return meeting.round == there.round
                && meeting.asked <= first
                && meeting.passed().is_none();
        }
        let lease = self.history.lease;
        let is_quiet = self.history.is_quiet(first.saturating_sub(lease), first);
        // A party that has died is there until its lease is over.
        let stays = if is_quiet {
            AT_ONCE
        } else {
            lease + ON_ITS_WAY
        };
        let wait = u64::try_from(WAIT.as_nanos()).expect("seconds");
        let until = meeting.ended.unwrap_or(meeting.asked + wait);
        // One who hears of its arrival behind its lease arrives again.
        let again = meeting.round > there.round && until - meeting.asked > lease / 20 * 19;
        let is_open = meeting.asked <= first && until + stays >= first;
        is_open && (meeting.passed().is_none() || again)
    }

    /// Asked by the first who passed, it ended much later.
    fn was_late(&self, meeting: &Meeting, there: &Together<'_>) -> Option<u64> {
        let first = there.ended.0;
        let ended = meeting.ended.filter(|_| meeting.round == there.round)?;
        let is_late = meeting.asked <= first && ended > first + GIVEN;
        (is_late && self.history.is_quiet(first, ended)).then_some(ended)
    }

    /// What is wrong.
    pub(crate) fn found(&self) -> Vec<Found> {
        let parties = if self.is_barrier { PARTIES } else { COUNT } as usize;
        let mut found = Vec::new();
        for there in self.together() {
            let (first, end) = there.ended;
            let came = there.passed.iter().filter(|one| one.asked <= first);
            let unknown = self.ours.iter();
            let unknown = unknown.filter(|one| self.may_have_come(one, &there));
            if came.count() + unknown.count() < parties {
                found.push(("passed before all had come", first, first));
            }
            let places: HashSet<_> = there.passed.iter().map(|one| one.index).collect();
            let too_many = there.passed.len() > parties.min(places.len());
            if self.is_barrier && (too_many || there.asked.1 > first) {
                found.push(("one more passed with those of a generation", end, end));
            }
            let mut late = self.ours.iter();
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
    use crate::check::MS;

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
