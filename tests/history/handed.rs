use tests::history::{Ack, Acquisition, History, Mode, Ms, Pause};

use super::{broken, foreigner, history, holds, sight, with};

/// How long a lock is handed over.
const LIMIT: Ms = 100;

/// Tasks of one process that have it one after the other, under one owner.
fn chain(turns: &[(Ms, Ms)]) -> History {
    let turns = turns.iter().map(|&(from, until)| {
        with(holds(1, from, until), |grant| {
            grant.owner = "client-1:7".to_owned();
        })
    });
    let mut history = history(turns);
    history.hand_over.push((1, LIMIT));
    history.sights.push(sight(10, &["client-1:7"]));
    history
}

#[test]
fn a_chain_that_has_no_end_is_found() {
    // 1 % and 5 ms.
    let last = 20 + LIMIT + 1 + 5;
    assert_eq!(
        broken(&chain(&[(20, 60), (60, last), (last, 900)])),
        [""; 0]
    );
    assert_eq!(
        broken(&chain(&[(20, 60), (60, 100), (last + 1, 900)])),
        ["handed"]
    );
    let mut never = chain(&[(20, 21), (30, 40)]);
    assert_eq!(broken(&never), [""; 0]);
    never.hand_over[0].0 = 2;
    assert_eq!(broken(&never), ["handed"], "a process that does not");
}

#[test]
fn a_process_that_stood_still_is_late() {
    let mut still = chain(&[(20, 60), (400, 500)]);
    assert_eq!(broken(&still), ["handed"]);
    let (from, until) = (70, 390);
    still.pauses.push(Pause {
        process: 1,
        from,
        until,
    });
    assert_eq!(broken(&still), [""; 0]);
}

#[test]
fn replicas_are_waited_for_after_the_hand_over() {
    let mut waits = chain(&[(20, 60), (400, 500)]);
    waits.terms.replicas = 400;
    assert_eq!(broken(&waits), ["handed"]);
    waits.acquisitions[1].ack = Some(Ack::All);
    assert_eq!(broken(&waits), [""; 0]);
}

#[test]
fn conversions_and_other_kinds_have_one_owner_for_longer() {
    let mut converts = chain(&[(20, 400), (400, 500)]);
    converts.acquisitions[1] = Acquisition {
        mode: Mode::Shared,
        ..converts.acquisitions[1].clone()
    };
    assert_eq!(broken(&converts), [""; 0]);
    let mut theirs = chain(&[(20, 400), (400, 500)]);
    assert_eq!(broken(&theirs), ["handed"]);
    theirs.foreign.push(foreigner(1));
    assert_eq!(broken(&theirs), [""; 0]);
}

#[test]
fn each_of_several_locks_is_handed_over_by_itself() {
    let mut several = chain(&[(20, 60), (400, 500)]);
    assert_eq!(broken(&several), ["handed"]);
    several.sights.clear();
    assert_eq!(broken(&several), [""; 0]);
}
