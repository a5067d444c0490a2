use tests::history::{Acquisition, History, Mode, Ms, Outcome};

use super::{asks, broken, history, holds, sight, strike};

/// One that asks at once at this time, and is refused.
fn refused(process: u32, called: Ms) -> Acquisition {
    Acquisition {
        bound: Some(0),
        returned: Some((called + 5, Outcome::Refused)),
        ..asks(process, called)
    }
}

/// The other has it from 20 to 50 ms; the one that is refused asks at that time.
fn beside_a_hold(called: Ms) -> History {
    let mut history = history([holds(2, 20, 50), refused(1, called)]);
    history.sights = vec![sight(18, &["client-2:20"]), sight(52, &[])];
    history
}

#[test]
fn a_refusal_although_nobody_had_it_is_found() {
    assert_eq!(broken(&beside_a_hold(30)), [""; 0]);
    assert_eq!(broken(&beside_a_hold(52)), [""; 0]);
    assert_eq!(broken(&beside_a_hold(53)), ["refusal"]);
    assert_eq!(broken(&beside_a_hold(5)), ["refusal"]);
}

#[test]
fn a_wait_that_is_over_although_nobody_had_it_is_found() {
    let waits = |called, returned| {
        let mut history = beside_a_hold(called);
        let waiter = &mut history.acquisitions[1];
        waiter.bound = Some(returned - called);
        waiter.returned = Some((returned, Outcome::TimedOut));
        // Who waits for what is free is another rule.
        waiter.announced = false;
        broken(&history)
    };
    assert_eq!(waits(60, 60 + 119), [""; 0], "it has just come");
    assert_eq!(waits(60, 60 + 120), ["refusal"]);
    assert_eq!(waits(50, 50 + 120), [""; 0]);
}

#[test]
fn a_queue_and_too_few_permits_refuse() {
    let mut queued = beside_a_hold(60);
    queued.sights[1].queue = vec!["client-2:21".to_owned()];
    assert_eq!(broken(&queued), [""; 0]);
    let mut permits = beside_a_hold(60);
    for one in &mut permits.acquisitions {
        let taken = if one.process == 1 { 2 } else { 1 };
        one.mode = Mode::Permits { taken, limit: 3 };
    }
    permits.sights[1].number = Some(1);
    assert_eq!(broken(&permits), [""; 0]);
    permits.sights[1].number = Some(2);
    assert_eq!(broken(&permits), ["refusal"]);
}

#[test]
fn its_own_client_and_a_fault_excuse_a_refusal() {
    let mut own = beside_a_hold(53);
    own.acquisitions[0].process = 1;
    assert_eq!(broken(&own), [""; 0], "its release is on its way");
    own.acquisitions[1] = refused(1, 80);
    assert_eq!(broken(&own), ["refusal"]);
    let mut struck = beside_a_hold(53);
    struck.strikes.push(strike(Some(1), 40, 54));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0].process = Some(2);
    assert_eq!(broken(&struck), ["refusal"], "another process");
}
