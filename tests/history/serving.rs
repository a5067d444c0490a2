use tests::history::{Acquisition, End, History, Ms, Outcome, Strike};

use super::{LEASE, asks, broken, history, holds, with};

/// One that waits since 20 ms and is served then.
fn served(at: Ms) -> Acquisition {
    Acquisition {
        called: 20,
        ..holds(2, at, at + 10)
    }
}

fn strike(history: &mut History, from: Ms, until: Ms) {
    history.strikes.push(Strike {
        from,
        until,
        process: None,
        stands: false,
    });
}

#[test]
fn a_waiter_that_is_not_told_of_a_release_is_found() {
    // 24 ways of 5 ms, and 20 ms.
    assert_eq!(broken(&history([holds(1, 20, 50), served(190)])), [""; 0]);
    assert_eq!(
        broken(&history([holds(1, 20, 50), served(191)])),
        ["serving"]
    );
}

#[test]
fn a_fault_may_keep_a_waiter_for_a_while_and_not_for_ever() {
    let late = |at| {
        let mut history = history([holds(1, 20, 50), served(at)]);
        strike(&mut history, 30, 40);
        broken(&history)
    };
    let longest = 2 * (LEASE + 500 + 1000 + 1000);
    assert_eq!(late(50 + longest), [""; 0]);
    assert_eq!(late(51 + longest), ["serving"]);
    // While it lasts nothing is asked for.
    let mut history = history([holds(1, 20, 50), served(20_000)]);
    strike(&mut history, 30, 19_000);
    assert_eq!(broken(&history), [""; 0]);
}

#[test]
fn what_nobody_released_is_not_free_before_its_lease_is_over() {
    let left = with(holds(1, 20, 50), |grant| {
        grant.ended = Some((50, End::Left))
    });
    assert_eq!(
        broken(&history([left.clone(), served(50 + LEASE + 140)])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([left, served(50 + LEASE + 141)])),
        ["serving"]
    );
}

#[test]
fn who_waits_until_the_end_of_the_run_is_found() {
    assert_eq!(
        broken(&history([holds(1, 20, 50), asks(2, 30)])),
        ["serving"]
    );
    let gave_up = Acquisition {
        returned: Some((60, Outcome::TimedOut)),
        ..asks(2, 30)
    };
    assert_eq!(broken(&history([holds(1, 20, 50), gave_up])), [""; 0]);
}
