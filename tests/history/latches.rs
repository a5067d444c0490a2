use tests::history::{History, LatchAct, LatchCall, Ms};

use super::{KEY, broken, history};

fn call(act: LatchAct, called: Ms, returned: Option<(Ms, u64)>) -> LatchCall {
    LatchCall {
        process: 1,
        key: KEY.to_owned(),
        called,
        act,
        over: returned.map(|(at, _)| at),
        returned,
    }
}

fn down(called: Ms, left: u64) -> LatchCall {
    call(LatchAct::CountDown, called, Some((called + 5, left)))
}

fn opens(called: Ms, at: Ms) -> LatchCall {
    call(LatchAct::Wait, called, Some((at, 0)))
}

/// A latch of two, and what was done with it.
fn of_two(calls: impl IntoIterator<Item = LatchCall>) -> History {
    let mut history = history([]);
    history.latches = vec![call(LatchAct::Set(2), 1, Some((5, 2)))];
    history.latches.extend(calls);
    history
}

#[test]
fn a_latch_that_opens_too_early_is_found() {
    assert_eq!(
        broken(&of_two([down(10, 1), down(20, 0), opens(8, 30)])),
        [""; 0]
    );
    assert_eq!(broken(&of_two([down(10, 1), opens(8, 30)])), ["latch"]);
}

#[test]
fn a_call_that_counts_twice_or_not_at_all_is_found() {
    assert_eq!(broken(&of_two([down(10, 0)])), ["latch"], "twice");
    assert_eq!(broken(&of_two([down(10, 2)])), ["latch"], "not at all");
    let look = |at, left| call(LatchAct::Look, at, Some((at + 5, left)));
    assert_eq!(broken(&of_two([down(10, 1), look(20, 1)])), [""; 0]);
    assert_eq!(broken(&of_two([down(10, 1), look(20, 0)])), ["latch"]);
}

#[test]
fn two_calls_that_left_the_same_number_are_found() {
    assert_eq!(broken(&of_two([down(10, 1), down(12, 1)])), ["latch"]);
}

#[test]
fn a_call_of_which_nothing_was_heard_may_have_counted() {
    let lost = call(LatchAct::CountDown, 10, None);
    assert_eq!(broken(&of_two([lost.clone(), down(20, 0)])), [""; 0]);
    assert_eq!(broken(&of_two([lost, down(20, 1)])), [""; 0]);
}
