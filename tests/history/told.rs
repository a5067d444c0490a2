use tests::history::{Acquisition, History, Ms};

use super::{TERMS, broken, history, holds, sight, strike, with};

/// A third of the lease, eight ways of a message, and what clocks and whole milliseconds add.
const DUE: Ms = 333 + 4 + 8 * TERMS.latency + 10;

/// One that has it from 20 ms on and is seen to believe in it until then; Redis forgets it at 100 ms.
fn believes(until: Ms) -> History {
    let one = with(holds(1, 20, until), |grant| {
        grant.renewed = true;
        grant.lost = Some(until + 1);
        grant.ended = None;
    });
    let owner = one.grant.as_ref().map(|grant| grant.owner.clone());
    let mut history = history([one]);
    history.sights = vec![sight(15, &[&owner.unwrap_or_default()]), sight(100, &[])];
    history.wiped.push(tests::history::Wiped {
        at: 100,
        until: 100,
        key: None,
    });
    history
}

#[test]
fn a_loss_that_is_told_late_is_found() {
    assert_eq!(broken(&believes(100 + DUE)), [""; 0]);
    assert_eq!(broken(&believes(100 + DUE + 5)), ["told"]);
}

#[test]
fn a_hold_that_is_not_renewed_ends_with_its_lease() {
    let mut plain = believes(100 + DUE + 5);
    let grant = |one: &mut Acquisition| one.grant.as_mut().map(|grant| grant.renewed = false);
    plain.acquisitions.iter_mut().for_each(|one| {
        grant(one);
    });
    assert_eq!(broken(&plain), [""; 0]);
}

#[test]
fn whom_a_fault_struck_may_hear_of_it_later() {
    let mut struck = believes(100 + DUE + 5);
    struck.strikes.push(strike(Some(1), 110, 120));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0].only_wipes = true;
    assert_eq!(broken(&struck), ["told"]);
    struck.strikes[0] = strike(Some(2), 110, 120);
    assert_eq!(broken(&struck), ["told"], "another process");
}
