use tests::history::{History, Mode, Ms, Wiped};

use super::{KEY, LEASE, broken, history, holds, strike, with};

const RULE: [&str; 1] = ["exclusion"];

fn mode(of: tests::history::Acquisition, mode: Mode) -> tests::history::Acquisition {
    tests::history::Acquisition { mode, ..of }
}

#[test]
fn two_that_believe_at_once_are_found() {
    assert_eq!(broken(&history([holds(1, 10, 50), holds(2, 40, 90)])), RULE);
    // However far apart they began, and whoever is written down first.
    assert_eq!(
        broken(&history([
            holds(2, 40, 90),
            holds(3, 60, 65),
            holds(1, 10, 41)
        ])),
        RULE
    );
}

/// The seed 1796051931000026: the first one asked last, got the lock handed over, and gave it up at once.
#[test]
fn who_has_and_gives_up_a_lock_in_one_millisecond_may_have_asked_last() {
    let next = holds(2, 40, 90);
    assert_eq!(broken(&history([next.clone(), holds(1, 40, 40)])), [""; 0]);
    assert_eq!(broken(&history([next, holds(1, 40, 41)])), RULE);
}

#[test]
fn two_of_one_chain_that_believed_at_once_were_not_seen() {
    let first = holds(1, 10, 60);
    let owner = first.grant.as_ref().unwrap().owner.clone();
    let next = with(holds(1, 40, 90), |grant| grant.owner = owner);
    assert_eq!(broken(&history([first.clone(), next.clone()])), RULE);
    let reads = mode(next, Mode::Shared);
    assert_eq!(broken(&history([first, reads])), [""; 0], "a conversion");
}

#[test]
fn who_was_asked_only_when_it_was_had_was_not_judged() {
    assert_eq!(broken(&history([holds(1, 10, 50), holds(2, 40, 40)])), RULE);
    assert_eq!(
        broken(&history([holds(1, 10, 40), holds(2, 40, 40)])),
        [""; 0]
    );
    let unasked = with(holds(2, 40, 40), |grant| grant.owner = "body 1".to_owned());
    assert_eq!(broken(&history([holds(1, 10, 50), unasked])), [""; 0]);
    let takes = |process, from, until| {
        let mode = Mode::Permits { taken: 1, limit: 1 };
        self::mode(holds(process, from, until), mode)
    };
    assert_eq!(broken(&history([takes(1, 10, 50), takes(2, 40, 40)])), RULE);
}

#[test]
fn readers_go_together_and_not_with_a_writer() {
    let reader = |process, from, until| mode(holds(process, from, until), Mode::Shared);
    assert_eq!(
        broken(&history([reader(1, 10, 50), reader(2, 20, 90)])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([reader(1, 10, 50), holds(2, 40, 90)])),
        RULE
    );
    assert_eq!(
        broken(&history([holds(1, 10, 50), reader(2, 40, 90)])),
        RULE
    );
}

#[test]
fn more_permits_than_there_are_are_found() {
    let takes = |process, taken, from, until| {
        mode(
            holds(process, from, until),
            Mode::Permits { taken, limit: 3 },
        )
    };
    assert_eq!(
        broken(&history([takes(1, 2, 10, 50), takes(2, 1, 20, 90)])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([takes(1, 2, 10, 50), takes(2, 2, 20, 90)])),
        RULE
    );
}

/// A hold that Redis forgot at that time, and another, until both are believed in.
fn overlap(wiped: Ms, until: Ms, renewed: bool) -> History {
    let mut history = history([
        with(holds(1, 10, until), |grant| {
            grant.ended = None;
            grant.renewed = renewed;
        }),
        holds(2, 200, until + 10),
    ]);
    history.wiped.push(Wiped {
        at: wiped,
        until: wiped,
        key: Some(KEY.to_owned()),
    });
    history
}

/// Six ways of a message, and 5 ms.
const ANSWER: Ms = 6 * 5 + 5;

#[test]
fn what_redis_forgot_excuses_an_overlap_for_as_long_as_a_lease() {
    let last = 100 + LEASE * 101 / 100 + ANSWER;
    assert_eq!(broken(&overlap(100, last, false)), [""; 0]);
    assert_eq!(broken(&overlap(100, last + 1, false)), RULE);
    assert_eq!(
        broken(&overlap(250, 300, false)),
        RULE,
        "forgotten only afterwards"
    );
}

/// Its process may hand it over for a moment, since it does not know yet.
#[test]
fn a_hold_that_was_forgotten_may_be_handed_over_before_that_is_noticed() {
    let first = holds(1, 10, 60);
    let owner = first.grant.as_ref().unwrap().owner.clone();
    let chained = with(holds(1, 120, 220), |grant| grant.owner = owner);
    let mut history = history([first, chained, holds(2, 200, 300)]);
    assert_eq!(broken(&history), RULE);
    history.wiped.push(Wiped {
        at: 70,
        until: 70,
        key: None,
    });
    assert_eq!(broken(&history), [""; 0]);
    history.acquisitions.remove(0);
    assert_eq!(broken(&history), RULE, "it was asked for afterwards");
}

#[test]
fn what_is_renewed_is_known_to_be_forgotten_at_the_next_renewal() {
    // A third of 1000 ms, and 1 %.
    let last = 100 + 333 + 4 + ANSWER;
    assert_eq!(broken(&overlap(100, last, true)), [""; 0]);
    assert_eq!(broken(&overlap(100, last + 1, true)), RULE);
    // Which a fault may prevent.
    let mut struck = overlap(100, last + 1, true);
    struck.strikes.push(strike(Some(1), 120, 130));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0].only_wipes = true;
    assert_eq!(broken(&struck), RULE, "that fault is what was forgotten");
}

#[test]
fn a_process_that_stood_still_reads_late_that_it_had_the_lock() {
    let late = |wiped: Ms, stood_still: bool| {
        let mut first = holds(1, 300, 350);
        first.called = 90;
        let mut history = history([holds(2, 200, 400), first]);
        history.wiped.push(Wiped {
            at: wiped,
            until: wiped,
            key: Some(KEY.to_owned()),
        });
        if stood_still {
            history.strikes.push(strike(Some(1), 120, 290));
        }
        broken(&history)
    };
    assert_eq!(late(150, true), [""; 0]);
    assert_eq!(late(150, false), RULE);
    assert_eq!(late(80, true), RULE, "forgotten before");
}
