use tests::history::{Acquisition, Ms, Outcome, Strike};

use super::{asks, broken, history};

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
    assert_eq!(broken(&history([waits(200, 309)])), [""; 0], "2 % and 5 ms");
    assert_eq!(broken(&history([waits(200, 310)])), ["bound"]);
}

#[test]
fn who_stood_still_cannot_keep_a_bound() {
    let mut history = history([waits(200, 700)]);
    history.strikes.push(Strike {
        from: 200,
        until: 600,
        process: Some(1),
        stands: false,
    });
    assert_eq!(broken(&history), ["bound"], "another fault is no excuse");
    history.strikes[0].stands = true;
    assert_eq!(broken(&history), [""; 0]);
}
