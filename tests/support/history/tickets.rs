//! A ticket is adopted once, and not behind its lease: nobody had the lock between its hold and the adopter's.

use super::{Acquisition, Grant, History, Sight, Verdict, Violation};

const RULE: &str = "tickets";

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    let granted = |place: usize| {
        let one = &history.acquisitions[place];
        Some((one, one.grant.as_ref()?))
    };
    for (place, adoption) in history.adoptions.iter().enumerate() {
        let Some((one, grant)) = granted(adoption.acquisition) else {
            continue;
        };
        let mut before = history.adoptions[..place].iter();
        let again = before
            .any(|other| other.owner == adoption.owner && granted(other.acquisition).is_some());
        if again || is_late(history, &adoption.owner, one, grant) {
            let what = format!("{} adopts {}, which is over", grant.owner, adoption.owner);
            verdict.push(Violation::new(RULE, grant.at, what));
        }
    }
}

/// Whether Redis did not show the hold of the ticket right before the adopter's.
fn is_late(history: &History, owner: &str, one: &Acquisition, grant: &Grant) -> bool {
    // An old master may have had it.
    if history.wiped(&one.key).next().is_some() || history.moved(&one.key).next().is_some() {
        return false;
    }
    let has = |sight: &Sight, owner: &str| sight.holders.iter().any(|(one, _)| one == owner);
    let states = history.states(&one.key);
    let first = states
        .iter()
        .position(|(sight, _)| has(sight, &grant.owner));
    let before = first.and_then(|first| states.get(first.checked_sub(1)?));
    first.is_some() && !before.is_some_and(|(sight, _)| has(sight, owner))
}
