use tests::history::{Acquisition, Grant, Ms, Wiped};

use super::{KEY, LEASE, broken, history, holds, strike, with};

/// One that asks at 10 ms, has it at 20 ms, and is seen to be lost then.
fn lost(at: Ms, change: impl FnOnce(&mut Grant)) -> Acquisition {
    with(holds(1, 20, at - 1), |grant| {
        grant.lost = Some(at);
        grant.ended = None;
        change(grant);
    })
}

#[test]
fn a_guard_that_is_lost_although_nothing_happened_is_found() {
    let renewed = |grant: &mut Grant| grant.renewed = true;
    assert_eq!(broken(&history([lost(500, renewed)])), ["loss"]);
    assert_eq!(broken(&history([lost(500, |_| {})])), ["loss"]);
    // However long it was renewed.
    assert_eq!(broken(&history([lost(30_000, renewed)])), ["loss"]);
}

#[test]
fn a_lease_may_end() {
    let least = 10 + LEASE - LEASE / 100 - 2 * LEASE / 100 - 3;
    assert_eq!(broken(&history([lost(least, |_| {})])), [""; 0]);
    assert_eq!(broken(&history([lost(least - 1, |_| {})])), ["loss"]);
}

#[test]
fn what_redis_forgot_and_whom_a_fault_struck_may_be_lost() {
    let mut forgotten = history([lost(500, |grant| grant.renewed = true)]);
    forgotten.wiped.push(Wiped {
        at: 400,
        until: 400,
        key: Some(KEY.to_owned()),
    });
    assert_eq!(broken(&forgotten), [""; 0]);
    forgotten.wiped[0].at = 600;
    forgotten.wiped[0].until = 600;
    assert_eq!(broken(&forgotten), ["loss"], "only later");

    let mut struck = history([lost(500, |grant| grant.renewed = true)]);
    struck.strikes.push(strike(Some(1), 400, 450));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0].only_wipes = true;
    assert_eq!(broken(&struck), ["loss"], "another key was forgotten");
    struck.strikes[0].only_wipes = false;
    struck.strikes[0].process = Some(2);
    assert_eq!(broken(&struck), ["loss"], "another process");

    let mut closed = history([lost(500, |grant| grant.renewed = true)]);
    closed.shut_down.push((1, 490));
    assert_eq!(broken(&closed), [""; 0]);
    closed.shut_down[0] = (1, 510);
    assert_eq!(broken(&closed), ["loss"], "only later");
}
