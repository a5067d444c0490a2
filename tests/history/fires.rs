//! The rule of what is to be done once.

use tests::history::{History, LatchAct, LatchCall, Ms, Started, Wiped};

use super::{KEY, broken, excused, history};

const DONE: Option<u64> = Some(Started::Done as u64);
const BEGUN: Option<u64> = Some(Started::Begun as u64);
const RUNNING: Option<u64> = Some(Started::Running as u64);
const FAILED: Option<u64> = Some(Started::Failed as u64);

fn call(act: LatchAct, called: Ms, over: Ms, number: Option<u64>) -> LatchCall {
    LatchCall {
        process: 1,
        key: KEY.to_owned(),
        called,
        act,
        over: Some(over),
        returned: number.map(|number| (over, number)),
    }
}

/// A start of a fire with two attempts.
fn start(called: Ms, over: Ms, told: Option<u64>) -> LatchCall {
    let act = LatchAct::Start {
        most: 2,
        lease: 1000,
    };
    call(act, called, over, told)
}

fn mark(called: Ms, over: Ms, is_done: bool) -> LatchCall {
    call(LatchAct::Mark, called, over, is_done.then_some(0))
}

fn fire<const N: usize>(calls: [LatchCall; N]) -> History {
    let mut history = history([]);
    history.latches = calls.into();
    history
}

fn is_found<const N: usize>(calls: [LatchCall; N]) -> bool {
    match &*broken(&fire(calls)) {
        [] => false,
        rules => rules == ["once"],
    }
}

#[test]
fn a_fire_is_done_once_and_all_are_told_so() {
    let (first, last) = (start(10, 20, BEGUN), start(60, 70, DONE));
    let waited = start(15, 45, DONE);
    assert!(!is_found([
        first.clone(),
        mark(30, 50, true),
        waited,
        last.clone()
    ]));
    // Nobody heard that it was marked.
    assert!(!is_found([
        first.clone(),
        mark(30, 50, false),
        last.clone()
    ]));
    assert!(is_found([first.clone(), last]), "nobody has marked it");
    let early = start(15, 25, DONE);
    assert!(is_found([first, mark(30, 50, true), early]));
}

#[test]
fn a_fire_that_is_done_twice_or_begun_after_it_was_done_is_found() {
    assert!(is_found([mark(30, 50, true), mark(31, 51, true)]));
    for told in [BEGUN, RUNNING, FAILED] {
        let done = [start(1, 9, BEGUN), start(2, 9, BEGUN), mark(30, 50, true)];
        let [one, other, mark] = done;
        let late = start(60, 70, told);
        assert!(is_found([one, other, mark, late]), "{told:?}");
    }
    assert!(
        !is_found([mark(30, 50, true), start(49, 70, BEGUN)]),
        "it raced"
    );
}

#[test]
fn attempts_are_counted() {
    let [one, two] = [start(10, 20, BEGUN), start(30, 40, BEGUN)];
    let failed = start(50, 60, FAILED);
    assert!(!is_found([one.clone(), two.clone(), failed.clone()]));
    assert!(is_found([one.clone(), two, start(50, 60, BEGUN)]), "three");
    assert!(is_found([one.clone(), failed.clone()]), "one of two");
    // A first attempt of the same call, whose reply was lost, may have counted once its lease was over.
    let of = |answered| [start(10, answered, BEGUN), start(2000, 2010, FAILED)];
    assert!(!is_found(of(1010)));
    assert!(is_found(of(1009)));
    // One that was cancelled, or whose process died, may have begun it.
    assert!(!is_found([one, start(30, 40, None), failed]));
}

#[test]
fn what_redis_forgot_is_done_again() {
    let forgotten = |at| {
        let mut twice = fire([mark(30, 50, true), mark(80, 90, true)]);
        let (until, key) = (at, Some(KEY.to_owned()));
        twice.wiped.push(Wiped { at, until, key });
        twice
    };
    assert_eq!(excused(&forgotten(60)), ["once: forgotten"]);
    assert_eq!(broken(&forgotten(91)), ["once"], "only later");
}
