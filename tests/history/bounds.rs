use tests::history::{Ack, Acquisition, Mode, Ms, Outcome, Pause, TimedCall};

use super::{TERMS, asks, broken, history, strike};

fn waits(bound: Ms, returned: Ms) -> Acquisition {
    Acquisition {
        bound: Some(bound),
        returned: Some((returned, Outcome::TimedOut)),
        ..asks(1, 100)
    }
}

#[test]
fn a_wait_that_lasts_too_long_is_found() {
    assert_eq!(broken(&history([waits(200, 300)])), [""; 0]);
    assert_eq!(broken(&history([waits(200, 307)])), [""; 0], "1 % and 5 ms");
    assert_eq!(broken(&history([waits(200, 308)])), ["bound"]);
}

#[test]
fn a_try_that_waits_for_its_answer_for_too_long_is_found() {
    let longest = 100 + TERMS.response + TERMS.response / 100 + 5;
    assert_eq!(broken(&history([waits(0, longest)])), [""; 0]);
    assert_eq!(broken(&history([waits(0, longest + 1)])), ["bound"]);
}

#[test]
fn a_call_that_waits_for_nobody_and_takes_too_long_is_found() {
    let call = |returned| {
        let mut history = history([]);
        history.calls.push(TimedCall {
            process: 1,
            what: "unlock".to_owned(),
            called: 100,
            bound: 200,
            rest: 0,
            returned,
        });
        broken(&history)
    };
    assert_eq!(call(Some(307)), [""; 0]);
    assert_eq!(call(Some(308)), ["bound"]);
    assert_eq!(call(None), [""; 0], "its process ended");
}

#[test]
fn who_stood_still_returns_when_it_goes_on() {
    let mut history = history([waits(200, 605)]);
    history.strikes.push(strike(Some(1), 200, 600));
    assert_eq!(broken(&history), ["bound"], "another fault is no excuse");
    let mut pause = Pause {
        process: 1,
        from: 200,
        until: 600,
    };
    history.pauses.push(pause);
    assert_eq!(broken(&history), [""; 0]);
    history.acquisitions = vec![waits(200, 606)];
    assert_eq!(broken(&history), ["bound"]);
    // It stood still only when it was late already.
    pause.from = 308;
    history.pauses = vec![pause];
    assert_eq!(broken(&history), ["bound"]);
}

#[test]
fn a_party_that_stood_still_has_still_to_leave() {
    let call = |rest, returned| {
        let mut history = history([]);
        history.calls.push(TimedCall {
            process: 1,
            what: "wait at a barrier".to_owned(),
            called: 100,
            bound: 200,
            rest,
            returned: Some(returned),
        });
        history.pauses.push(Pause {
            process: 1,
            from: 200,
            until: 600,
        });
        broken(&history)
    };
    assert_eq!(call(50, 650), [""; 0]);
    assert_eq!(call(50, 670), ["bound"]);
    assert_eq!(call(0, 650), ["bound"]);
}

#[test]
fn a_try_that_stood_still_then_waits_for_replicas() {
    let tries = |returned| {
        let tries = Acquisition {
            ack: Some(Ack::All),
            bound: Some(0),
            ..waits(0, returned)
        };
        let mut history = history([tries]);
        history.terms.replicas = 300;
        history.pauses.push(Pause {
            process: 1,
            from: 100,
            until: 9000,
        });
        broken(&history)
    };
    // The response time-out, and that of the replicas, by a slow clock.
    assert_eq!(tries(9000 + 1313 + 5), [""; 0]);
    assert_eq!(tries(9000 + 1313 + 6), ["bound"]);
}

/// The servers are asked for 50 ms, and what was had is given back for as long.
#[test]
fn a_try_for_a_majority_gives_back_what_it_had() {
    let tries = |returned, pause: Option<(Ms, Ms)>| {
        let tries = Acquisition {
            mode: Mode::Majority(3),
            ..waits(0, returned)
        };
        let mut history = history([tries]);
        history.pauses.extend(pause.map(|(from, until)| Pause {
            process: 1,
            from,
            until,
        }));
        broken(&history)
    };
    let longest = 100 + 2 * TERMS.server + 1 + 5;
    assert_eq!(tries(longest, None), [""; 0]);
    assert_eq!(tries(longest + 1, None), ["bound"]);
    // Its process stood still while the servers answered.
    let late = 600 + TERMS.server + 1 + 5;
    assert_eq!(tries(late, Some((110, 600))), [""; 0]);
    assert_eq!(tries(late + 1, Some((110, 600))), ["bound"]);
}
