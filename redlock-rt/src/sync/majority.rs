//! Decides whether the parts of a group are held together. Pure state, which gets the state of each
//! part.
//!
//! # Invariants
//!
//! 1. The parts are held while at least `need` of them are, by the local clock alone. The deadline
//!    is the `need`-th latest of their deadlines.
//! 2. Lost and released are final. A lost part stays lost, so this follows without new parts. A new
//!    part is added only while `need` others are held. So if the parts are held now, they were held
//!    at every moment before.

use std::time::Duration;

use crate::clock;
use crate::engine::{GuardState, LostReason};

/// The final state of a group, and the progress towards it. Pure state.
#[derive(Debug)]
pub(super) struct Majority {
    need: usize,
    fate: Option<GuardState>,
}

impl Majority {
    pub(super) fn new(need: usize) -> Self {
        Self { need, fate: None }
    }

    /// Judges by the states of the parts at this moment.
    pub(super) fn judge(&mut self, parts: impl Iterator<Item = GuardState>) -> GuardState {
        if let Some(fate) = &self.fate {
            return fate.clone();
        }
        let mut deadlines = Vec::new();
        let (mut certain, mut reason) = (0, None);
        for part in parts {
            match part {
                GuardState::Held { until } => {
                    certain += 1;
                    deadlines.push(until);
                }
                GuardState::Suspect { until } => deadlines.push(until),
                GuardState::Lost(why) => reason = reason.or(Some(why)),
                // A guard in a group ends with the group, or with its client.
                GuardState::Released => reason = reason.or(Some(LostReason::ShutDown)),
            }
        }
        if deadlines.len() < self.need {
            let state = GuardState::Lost(reason.unwrap_or(LostReason::Expired));
            self.fate = Some(state.clone());
            return state;
        }
        deadlines.sort_unstable_by(|a, b| b.cmp(a));
        let until = match self.need.checked_sub(1) {
            Some(last) => deadlines[last],
            None => clock::after(clock::now(), Duration::MAX),
        };
        if certain >= self.need {
            GuardState::Held { until }
        } else {
            GuardState::Suspect { until }
        }
    }

    /// Whether a part may join that was acquired while the others had these states. Upholds
    /// invariant 2. Too few held parts are not a loss: parts that were not asked may be held.
    pub(super) fn admits(&self, others: impl Iterator<Item = GuardState>) -> bool {
        let held = others.filter(GuardState::is_valid).count();
        self.fate.is_none() && held >= self.need
    }

    /// The parts are given up. An earlier loss stays a loss.
    pub(super) fn end(&mut self) {
        self.fate.get_or_insert(GuardState::Released);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    fn majority(need: usize) -> Majority {
        Majority::new(need)
    }

    #[test]
    fn the_deadline_is_that_of_the_part_without_which_there_are_too_few() {
        let now = Instant::now();
        let held = |secs| GuardState::Held {
            until: now + secs * S,
        };
        let suspect = |secs| GuardState::Suspect {
            until: now + secs * S,
        };
        let lost = || GuardState::Lost(LostReason::Deleted);
        let judge = |need, parts: &[GuardState]| majority(need).judge(parts.iter().cloned());
        assert_eq!(judge(3, &[held(1), held(5), held(3)]), held(1));
        assert_eq!(judge(2, &[held(1), held(5), held(3)]), held(3));
        assert_eq!(judge(2, &[lost(), held(5), held(3)]), held(3));
        assert_eq!(judge(2, &[held(1), suspect(5), held(3)]), held(3));
        assert_eq!(judge(2, &[suspect(1), suspect(5), held(3)]), suspect(3));
        assert_eq!(judge(2, &[lost(), lost(), held(3)]), lost());
        let expired = GuardState::Lost(LostReason::Expired);
        assert_eq!(judge(1, &[]), expired);
    }

    #[test]
    fn a_lost_group_is_not_revived() {
        let now = Instant::now();
        let held = || GuardState::Held { until: now + S };
        let lost = || GuardState::Lost(LostReason::Taken);
        let mut majority = majority(2);
        assert_eq!(majority.judge([held(), lost()].into_iter()), lost());
        assert_eq!(majority.judge([held(), held(), held()].into_iter()), lost());
        assert!(!majority.admits([held(), held(), held()].into_iter()));
    }

    /// One part as the majority sees it over time: valid until a moment, and never again after it.
    #[derive(Debug, Clone, Copy)]
    struct Model {
        since: u64,
        until: u64,
    }

    #[derive(Debug, Clone)]
    enum Event {
        Passes(u64),
        Loses(usize),
        Lengthens(usize, u64),
        /// A part is acquired again; others may be confirmed or not.
        Joins(u64),
        Looks,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (1..4_u64).prop_map(Event::Passes),
            (0..5_usize).prop_map(Event::Loses),
            (0..5_usize, 1..8_u64).prop_map(|(part, more)| Event::Lengthens(part, more)),
            (1..8_u64).prop_map(Event::Joins),
            Just(Event::Looks),
        ]
    }

    proptest! {
        /// Whenever it is found valid, enough parts were valid together at every moment before.
        #[test]
        fn validity_was_never_interrupted(
            need in 1..4_usize,
            leases in prop::collection::vec(1..8_u64, 5),
            events in prop::collection::vec(event(), 1..60),
        ) {
            let origin = Instant::now();
            let at = |tick: u64| origin + u32::try_from(tick).unwrap() * S;
            let mut now = 0;
            let mut parts: Vec<Model> = leases
                .iter()
                .map(|lease| Model { since: 0, until: *lease })
                .collect();
            let mut majority = majority(need);
            // The model: once false, for ever.
            let mut unbroken = true;
            for event in events {
                match event {
                    Event::Passes(ticks) => {
                        for _ in 0..ticks {
                            now += 1;
                            let valid = parts.iter().filter(|part| now < part.until).count();
                            unbroken &= valid >= need;
                        }
                    }
                    Event::Loses(part) => {
                        parts[part].until = parts[part].until.min(now);
                        let valid = parts.iter().filter(|part| now < part.until).count();
                        unbroken &= valid >= need;
                    }
                    Event::Lengthens(part, more) => {
                        if now < parts[part].until {
                            parts[part].until = parts[part].until.max(now + more);
                        }
                    }
                    Event::Joins(lease) => {
                        let Some(place) = parts.iter().position(|part| now >= part.until) else {
                            continue;
                        };
                        let others = parts.iter().enumerate().filter(|(other, _)| *other != place);
                        let states = others.map(|(_, part)| state(part, now, at));
                        if majority.admits(states) {
                            parts[place] = Model { since: now, until: now + lease };
                        }
                    }
                    Event::Looks => {}
                }
                let found = majority.judge(parts.iter().map(|part| state(part, now, at)));
                prop_assert!(!found.is_valid() || unbroken, "{found:?} at {now}: {parts:?}");
                if let GuardState::Held { until } = found {
                    prop_assert!(until > at(now));
                    let then = parts.iter().filter(|part| at(part.until) >= until).count();
                    prop_assert!(then >= need && parts.iter().all(|part| part.since <= now));
                }
            }
        }
    }

    fn state(part: &Model, now: u64, at: impl Fn(u64) -> Instant) -> GuardState {
        if now < part.until {
            GuardState::Held {
                until: at(part.until),
            }
        } else {
            GuardState::Lost(LostReason::Expired)
        }
    }
}
