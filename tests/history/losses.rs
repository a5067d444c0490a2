use tests::history::{Acquisition, Ahead, Grant, History, Mode, Ms, Wiped};

use super::{KEY, LEASE, TERMS, broken, foreigner, history, holds, strike, with};

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

/// The lock was handed over, after Redis had forgotten it.
#[test]
fn what_redis_forgot_before_it_was_handed_over_may_be_lost() {
    let owner = |owner: &'static str| move |grant: &mut Grant| grant.owner = owner.to_owned();
    let chain = |first| {
        let first = with(holds(1, 20, 45), owner(first));
        let next = with(holds(1, 60, 499), |grant| {
            (grant.lost, grant.ended) = (Some(500), None);
            owner("client-1:7")(grant);
        });
        let mut history = history([first, next]);
        history.hand_over.push((1, 100));
        history.wiped.push(Wiped {
            at: 40,
            until: 40,
            key: Some(KEY.to_owned()),
        });
        history
    };
    assert_eq!(broken(&chain("client-1:7")), [""; 0]);
    assert_eq!(broken(&chain("client-1:6")), ["loss"], "another hold");
}

const PERMITS: Mode = Mode::Permits { taken: 1, limit: 2 };

/// A permit that is lost at 500 ms, and one for which a client of another kind asked in this time. The
/// clock of that client is ahead since 100 ms.
fn taken_back(called: Ms, returned: Ms) -> History {
    let permit = |of| Acquisition {
        mode: PERMITS,
        ..of
    };
    let ours = lost(500, |grant| grant.renewed = true);
    let asked = Acquisition {
        called,
        ..holds(2, returned, returned + 200)
    };
    let mut history = history([permit(ours), permit(asked)]);
    history.foreign.push(foreigner(2));
    history.ahead.push(Ahead {
        process: 2,
        from: 100,
        until: Ms::MAX,
    });
    history
}

#[test]
fn a_client_whose_clock_is_ahead_takes_back_permits() {
    assert_eq!(broken(&taken_back(300, 400)), [""; 0]);
    assert_eq!(broken(&taken_back(50, 110)), [""; 0], "while it waits");
    let mut back = taken_back(300, 400);
    back.ahead[0].until = 310;
    assert_eq!(broken(&back), [""; 0], "as it asked");
}

#[test]
fn a_client_whose_clock_is_ahead_is_no_other_excuse() {
    assert_eq!(broken(&taken_back(520, 600)), ["loss"], "only later");
    // What it sent last arrives a way of a message later.
    let answered = 100 - TERMS.latency;
    assert_eq!(broken(&taken_back(50, answered)), [""; 0]);
    assert_eq!(broken(&taken_back(50, answered - 1)), ["loss"], "before");
    let mut earlier = taken_back(50, 60);
    earlier.ahead[0].from = 40;
    assert_eq!(broken(&earlier), [""; 0]);
    earlier.acquisitions[0].called = 60 + TERMS.latency + 1;
    assert_eq!(broken(&earlier), ["loss"], "before ours asked");

    let mut right = taken_back(300, 400);
    right.ahead[0].until = 300 - TERMS.latency - 1;
    assert_eq!(broken(&right), ["loss"], "its clock was right again");
    let mut other = taken_back(300, 400);
    other.ahead[0].process = 3;
    assert_eq!(broken(&other), ["loss"], "another client's clock");
    let mut elsewhere = taken_back(300, 400);
    elsewhere.acquisitions[1].key = "another".to_owned();
    assert_eq!(broken(&elsewhere), ["loss"]);
    let mut lock = taken_back(300, 400);
    for one in &mut lock.acquisitions {
        one.mode = Mode::Shared;
    }
    assert_eq!(broken(&lock), ["loss"], "only permits are taken back");
}
