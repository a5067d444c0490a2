use tests::history::{Acquisition, History, Ms};

use super::{broken, history, holds};

/// Three processes that have turns of 10 ms one after the other, but for those that `left_out` names, and one
/// that goes on until all are over.
fn turns(left_out: impl Fn(u32, Ms) -> bool) -> History {
    let mut at = 10;
    let mut all: Vec<Acquisition> = Vec::new();
    let mut asked = [10; 4];
    for round in 0..60 {
        for process in 1..=3 {
            if left_out(process, round) {
                continue;
            }
            let mut one = holds(process, at, at + 9);
            one.called = asked[process as usize];
            all.push(one);
            at += 10;
            asked[process as usize] = at;
        }
    }
    let mut history = history(all);
    history.terms.throng = true;
    history
}

#[test]
fn turns_that_all_share_are_right() {
    assert_eq!(broken(&turns(|_, _| false)), [""; 0]);
    assert_eq!(
        broken(&turns(|process, round| process == 3 && round % 3 > 0)),
        [""; 0]
    );
}

#[test]
fn a_process_with_too_few_turns_is_found() {
    let few = |process, round| process == 3 && round % 6 > 0;
    assert!(broken(&turns(few)).contains(&"share"));
    let mut other = turns(few);
    other.terms.throng = false;
    assert_eq!(broken(&other), [""; 0], "others may want more");
}

#[test]
fn a_wait_of_many_rounds_is_found() {
    let gap =
        |rounds: std::ops::Range<Ms>| move |process, round| process == 2 && rounds.contains(&round);
    assert_eq!(broken(&turns(gap(20..26))), [""; 0]);
    assert_eq!(broken(&turns(gap(10..50))), ["share"]);
    assert_eq!(broken(&turns(gap(0..40))), ["share"], "also of a new one");
}

#[test]
fn more_calls_than_the_turns_need_are_found() {
    let mut busy = turns(|_, _| false);
    busy.calls_run = 5 * 180;
    assert_eq!(broken(&busy), [""; 0]);
    busy.calls_run += 1;
    assert_eq!(broken(&busy), ["share"]);
}
