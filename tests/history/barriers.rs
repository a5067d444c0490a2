//! The rule of barriers.

use tests::history::{History, LatchAct, LatchCall, Ms, Wiped};

use super::{KEY, broken, excused, history};

/// A party of two, which passed or did not.
fn party(process: u32, called: Ms, over: Ms, passed: Option<u64>) -> LatchCall {
    LatchCall {
        process,
        key: KEY.to_owned(),
        called,
        act: LatchAct::Arrive {
            parties: 2,
            lease: 700,
        },
        over: Some(over),
        returned: passed.map(|generation| (over, generation)),
    }
}

fn parties<const N: usize>(calls: [LatchCall; N]) -> History {
    let mut history = history([]);
    history.latches = calls.into();
    history
}

#[test]
fn two_pass_when_both_have_come() {
    let both = [party(1, 10, 100, Some(1)), party(2, 90, 100, Some(1))];
    assert!(broken(&parties(both)).is_empty());
    // The other one was counted, and did not hear of it.
    let dead = [party(1, 10, 100, Some(1)), party(2, 90, 95, None)];
    assert!(broken(&parties(dead)).is_empty());
    // It heard of that too late, and came once more.
    let [one, other] = [party(2, 90, 200, Some(2)), party(3, 150, 200, Some(2))];
    let again = [party(1, 10, 100, Some(1)), one, other];
    assert!(broken(&parties(again)).is_empty());
}

#[test]
fn one_that_passes_alone_or_before_the_other_is_too_early() {
    assert_eq!(broken(&parties([party(1, 10, 100, Some(1))])), ["barrier"]);
    let late = [party(1, 10, 100, Some(1)), party(2, 101, 110, Some(1))];
    assert_eq!(broken(&parties(late)), ["barrier"]);
    let far = [party(2, 10, 20, None), party(1, 900_000, 900_100, Some(1))];
    assert_eq!(broken(&parties(far)), ["barrier"], "long gone");
    let three = [1, 2, 3].map(|process| party(process, 10, 100, Some(1)));
    assert_eq!(broken(&parties(three)), ["barrier"], "three of two");
}

#[test]
fn who_waits_with_one_that_dies_is_told() {
    let until = |over| {
        let mut history = parties([party(1, 10, over, None), party(2, 10, 5000, None)]);
        history.crashed.push((2, 5000));
        history
    };
    assert!(broken(&until(5800)).is_empty());
    assert_eq!(broken(&until(900_000)), ["barrier"]);
    // Not one that came to nothing by itself.
    let mut left = until(900_000);
    left.crashed.clear();
    assert!(broken(&left).is_empty());
    // They passed together, and this is the next generation.
    let mut passed = until(900_000);
    passed.latches.push(party(3, 20, 5100, Some(1)));
    assert!(broken(&passed).is_empty());
}

#[test]
fn what_redis_forgot_before_is_excused() {
    let forgotten = |at| {
        let mut early = parties([party(1, 10, 100, Some(1))]);
        let (until, key) = (at, Some(KEY.to_owned()));
        early.wiped.push(Wiped { at, until, key });
        early
    };
    assert_eq!(excused(&forgotten(50)), ["barrier: forgotten"]);
    assert_eq!(broken(&forgotten(101)), ["barrier"], "only later");
    let two = |at| [1, 2].map(|process| party(process, at - 90, at, Some(1)));
    let mut anew = parties([]);
    anew.latches = [two(100), two(300)].concat();
    assert_eq!(broken(&anew), ["barrier"]);
    let (at, until, key) = (200, 200, None);
    anew.wiped.push(Wiped { at, until, key });
    assert_eq!(excused(&anew), ["barrier: forgotten"]);
}
