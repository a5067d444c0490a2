//! The rule of leaders; that they exclude each other and that terms grow, say the rules of locks and tokens.

use tests::history::{Acquisition, History, Ms};

use super::{TERMS, asks, broken, excused, history, holds, strike};

/// A leader resigns at 1000 ms and wins again then, beside others.
fn resigned(wins: Ms, others: impl IntoIterator<Item = Acquisition>) -> History {
    let own = [holds(1, 900, 1000), holds(1, wins, wins + 50)];
    let mut history = history(own.into_iter().chain(others));
    history.resigned.push((0, 1));
    history
}

/// Has waited for long, and wins then.
fn waits(wins: Ms) -> Acquisition {
    let called = 0;
    let won = holds(2, wins, wins + 10);
    Acquisition { called, ..won }
}

#[test]
fn who_resigned_and_wins_before_one_who_waits_is_found() {
    assert_eq!(broken(&resigned(1050, [waits(1200)])), ["leader"]);
    assert_eq!(broken(&resigned(1050, [asks(2, 0)])), ["leader"]);
}

#[test]
fn who_resigned_may_win_alone_behind_another_and_after_a_while() {
    assert_eq!(broken(&resigned(1050, [])), [""; 0]);
    assert_eq!(broken(&resigned(1050, [waits(1020)])), [""; 0]);
    assert_eq!(broken(&resigned(1000 + TERMS.poll, [asks(2, 0)])), [""; 0]);
    let came_later = holds(2, 1200, 1210);
    assert_eq!(broken(&resigned(1050, [came_later])), [""; 0]);
}

#[test]
fn whom_a_fault_struck_may_not_be_heard_of() {
    let mut struck = resigned(1050, [waits(1200)]);
    struck.strikes.push(strike(Some(2), 950, 960));
    assert_eq!(excused(&struck), ["leader: struck"]);
    struck.strikes[0].process = Some(3);
    assert_eq!(broken(&struck), ["leader"], "another one");
}
