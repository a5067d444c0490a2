//! What excuses something is no excuse for what it has not to do with. Most excuses have their tests beside those
//! of the rule.

use tests::history::{
    Ack, Again, EXCUSES, History, LatchAct, LatchCall, Mode, Moved, Ms, Outcome, Sight, Wiped,
};

use super::serving::{PROMPT, free_until};
use super::{KEY, asks, broken, excused, foreigner, history, holds, sight, strike, with};

/// The key was forgotten at this time.
fn wiped(at: Ms) -> Wiped {
    let (until, key) = (at, Some(KEY.to_owned()));
    Wiped { at, until, key }
}

/// A master failed, and what it wrote since then was lost.
fn failed(from: Ms, lost: Option<Ms>) -> Moved {
    Moved {
        key: KEY.to_owned(),
        node: 1,
        from,
        at: from + 1,
        told: from + 1,
        followed: from + 1,
        epoch: 2,
        failed: true,
        lost,
        until: from + 1,
    }
}

/// The table of `docs/testing.md` names each excuse, why it is one, and the test of its limits.
#[test]
fn each_excuse_has_its_reason_and_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let docs = read("../docs/testing.md");
    for excuse in EXCUSES {
        let begin = format!("| `{excuse}` | ");
        let row = docs.lines().find(|line| line.starts_with(&begin));
        let test = row.and_then(|row| row.rsplit('`').nth(1));
        let named = test.and_then(|test| test.split_once("::"));
        let is_there = named.is_some_and(|(file, name)| {
            read(&format!("history/{file}.rs")).contains(&format!("fn {name}() {{"))
        });
        assert!(
            is_there,
            "{excuse}: its row in docs/testing.md names {test:?}"
        );
    }
}

/// A latch of two of which this was left when it was counted down once.
fn latch(left: u64) -> History {
    let call = |act, called, returned| LatchCall {
        process: 1,
        key: KEY.to_owned(),
        called,
        act,
        over: Some(called + 5),
        returned: Some((called + 5, returned)),
    };
    let mut history = history([]);
    history.latches = vec![
        call(LatchAct::Set(2), 1, 2),
        call(LatchAct::CountDown, 10, left),
    ];
    history
}

#[test]
fn a_latch_that_was_forgotten_later_has_counted() {
    assert_eq!(broken(&latch(0)), ["latch"]);
    let forgotten = |at| {
        let mut latch = latch(0);
        latch.wiped.push(wiped(at));
        latch
    };
    assert_eq!(excused(&forgotten(12)), ["latch: forgotten"]);
    assert_eq!(broken(&forgotten(16)), ["latch"], "only later");
    let lost = |since| {
        let mut latch = latch(0);
        latch.moves.push(failed(20, since));
        latch
    };
    assert_eq!(excused(&lost(Some(12))), ["latch: failed over"]);
    assert_eq!(broken(&lost(Some(16))), ["latch"], "only later");
    assert_eq!(broken(&lost(None)), ["latch"], "nothing was lost");
}

#[test]
fn a_latch_is_counted_twice_by_a_redisson_client_that_was_struck() {
    let struck = |process| {
        let mut latch = latch(0);
        latch.foreign.push(foreigner(1));
        latch.strikes.push(strike(Some(process), 8, 9));
        latch
    };
    assert_eq!(excused(&struck(1)), ["latch: repeated by another kind"]);
    assert_eq!(broken(&struck(2)), ["latch"], "another process");
    let mut ours = struck(1);
    ours.foreign.clear();
    assert_eq!(broken(&ours), ["latch"], "ours does not repeat it");
}

#[test]
fn a_count_that_a_master_wrote_last_may_be_lost() {
    let lost = |moved| {
        let twice = with(holds(1, 20, 200), |grant| {
            grant.again.push(Again {
                called: 40,
                at: Some(50),
                ended: None,
            });
        });
        let mut history = history([twice]);
        history.sights = vec![sight(15, &["client-1:20"]), sight(205, &[])];
        history.moves.extend(moved);
        history
    };
    assert_eq!(broken(&lost(None)), ["count"]);
    let failed = |from, since| lost(Some(failed(from, since)));
    assert_eq!(excused(&failed(60, Some(45))), ["count: failed over"]);
    assert_eq!(broken(&failed(60, None)), ["count"], "nothing was lost");
    assert_eq!(broken(&failed(206, Some(45))), ["count"], "only later");
}

#[test]
fn a_queue_that_was_forgotten_is_another_one() {
    let all = ["client-1:1", "client-2:1"];
    let seen = |at, queue: &[&str], holders: &[&str]| Sight {
        queue: queue.iter().map(|owner| (*owner).to_owned()).collect(),
        ..sight(at, holders)
    };
    let overtaken = |at| {
        let mut history = history([asks(1, 10), asks(2, 20)]);
        history.end = 120;
        history.sights = vec![seen(40, &all, &[]), seen(100, &all[..1], &all[1..])];
        history.wiped.push(wiped(at));
        history
    };
    assert_eq!(excused(&overtaken(60)), ["fifo: forgotten"]);
    assert_eq!(broken(&overtaken(39)), ["fifo"], "before");
    assert_eq!(broken(&overtaken(101)), ["fifo"], "only later");
}

#[test]
fn of_two_servers_one_is_not_seen() {
    let refused = |until| {
        let mut one = asks(1, 60);
        (one.bound, one.returned) = (Some(0), Some((65, Outcome::Refused)));
        let mut history = history([one]);
        history.sights = vec![sight(18, &[])];
        history.wiped.push(Wiped { until, ..wiped(40) });
        history
    };
    assert_eq!(excused(&refused(60)), ["refusal: two servers"]);
    assert_eq!(broken(&refused(59)), ["refusal"], "the old one was gone");
    assert_eq!(broken(&refused(40)), ["refusal"], "there was one");
}

#[test]
fn another_master_is_found_within_a_recovery() {
    let recovery = free_until(0).recovery();
    let moved = |from, at| {
        let mut history = free_until(at);
        history.moves.push(failed(from, None));
        history
    };
    let last = 1101 + recovery;
    assert_eq!(excused(&moved(1100, last)), ["serving: failed over"]);
    assert_eq!(broken(&moved(1100, last + 1)), ["serving"]);
    assert_eq!(broken(&moved(2000, 1500)), ["serving"], "only later");
    let mut other = moved(1100, last);
    other.moves[0].key = "another".to_owned();
    assert_eq!(broken(&other), ["serving"]);
}

#[test]
fn who_may_share_it_may_have_it_and_wait_for_replicas() {
    let shares = |mode, ack| {
        let mut history = free_until(50_000);
        (history.acquisitions[0].mode, history.acquisitions[0].ack) = (mode, ack);
        history
    };
    let ack = Some(Ack::All);
    let excuse = ["serving: waits for replicas"];
    assert_eq!(excused(&shares(Mode::Shared, ack)), excuse);
    assert_eq!(broken(&shares(Mode::Shared, None)), ["serving"]);
    assert_eq!(
        broken(&shares(Mode::Exclusive, ack)),
        ["serving"],
        "what it has is not free"
    );
}

#[test]
fn who_has_it_no_more_is_told_when_the_turn_for_replicas_ends() {
    let ends = |after: Ms| {
        let mut history = free_until(1000 + PROMPT + after);
        history.acquisitions[0].ack = Some(Ack::All);
        history
    };
    assert_eq!(excused(&ends(800)), ["serving: waits for replicas"]);
    assert_eq!(broken(&ends(801)), ["serving"]);
}
