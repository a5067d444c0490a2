use tests::history::{Acquisition, History, Ms, Wiped};

use super::{KEY, broken, history, holds, with};

fn token(process: u32, from: Ms, token: u64) -> Acquisition {
    with(holds(process, from, from + 5), |grant| {
        grant.token = Some(token)
    })
}

#[test]
fn tokens_that_fall_or_repeat_are_found() {
    assert_eq!(
        broken(&history([
            token(1, 20, 1),
            token(2, 40, 2),
            token(1, 60, 5)
        ])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([token(1, 20, 2), token(2, 40, 1)])),
        ["tokens"]
    );
    assert_eq!(
        broken(&history([token(1, 20, 2), token(2, 40, 2)])),
        ["tokens"]
    );
    // Not beside each other either.
    assert_eq!(
        broken(&history([
            token(1, 20, 5),
            token(2, 40, 7),
            token(3, 60, 8),
            token(1, 80, 6)
        ])),
        ["tokens"]
    );
}

/// Others have the lock since the server lost it, and then tasks of one process hand it on.
#[test]
fn the_tokens_of_a_chain_are_those_of_its_first_call() {
    let chained = |at, number| {
        with(token(1, at, number), |grant| {
            grant.owner = "chain:7".to_owned();
        })
    };
    let of = |later| history([chained(20, 2), token(2, 40, 4), chained(60, later)]);
    assert_eq!(broken(&of(3)), [""; 0]);
    assert_eq!(broken(&of(2)), ["tokens"], "each hold has its own");
}

#[test]
fn calls_that_were_under_way_together_may_be_served_in_any_order() {
    let mut slow = token(2, 40, 1);
    slow.called = 15;
    assert_eq!(broken(&history([token(1, 20, 2), slow])), [""; 0]);
}

/// A token of two, a loss of this key or of all, and then another token: a clock must have been set back.
#[track_caller]
fn after_a_loss(next: u64, key: Option<&str>) -> History {
    let mut lost = history([token(1, 20, 2), token(2, 40, next)]);
    lost.wiped.push(Wiped {
        at: 30,
        until: 30,
        key: key.map(str::to_owned),
    });
    assert_eq!(broken(&lost), ["tokens"]);
    lost.terms.sets_clock_back = true;
    assert_eq!(broken(&lost), [""; 0]);
    lost
}

#[test]
fn a_clock_that_is_set_back_and_a_counter_that_is_lost_may_give_the_same_again() {
    let _ = after_a_loss(2, None);
}

#[test]
fn two_servers_at_once_may_give_out_the_same() {
    let mut both = history([token(1, 20, 2), token(2, 40, 2)]);
    assert_eq!(broken(&both), ["tokens"]);
    both.wiped.push(Wiped {
        at: 15,
        until: 60,
        key: None,
    });
    assert_eq!(broken(&both), [""; 0]);
    both.wiped[0].until = 15;
    assert_eq!(broken(&both), ["tokens"], "one after the other");
}

#[test]
fn a_clock_that_is_behind_a_lost_token_gives_out_smaller_ones() {
    let mut lost = after_a_loss(1, Some(KEY));
    lost.wiped[0].at = 41;
    lost.wiped[0].until = 41;
    assert_eq!(broken(&lost), ["tokens"], "only later");
}

#[test]
fn a_token_may_be_forgotten_before_its_reply_comes() {
    // The first one was asked for at 10 ms.
    let forgotten = |at| {
        let mut history = history([token(1, 20, 2), token(2, 40, 1)]);
        history.terms.sets_clock_back = true;
        let (until, key) = (at, None);
        history.wiped.push(Wiped { at, until, key });
        broken(&history)
    };
    assert_eq!(forgotten(15), [""; 0]);
    assert_eq!(forgotten(9), ["tokens"], "before it was given out");
}
