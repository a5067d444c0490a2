use std::time::Duration;

use proptest::prelude::*;

use super::*;

const ALONE: FairPlace = FairPlace {
    is_next: false,
    lease: None,
    mixed: false,
    at: 0,
};
const MIXED: FairPlace = FairPlace {
    mixed: true,
    ..ALONE
};
/// The lease of every waiter.
const LEASE: Duration = Duration::from_secs(30);
const S: Duration = Duration::from_secs(1);

#[test]
fn the_head_is_woken_while_the_lock_is_free() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.enter(2, "b", LEASE, now);
    assert!(queue.reported(Some(1), false, &[], now).is_empty());
    assert!(queue.has_head());
    for _ in 0..2 {
        assert_eq!(queue.reported(Some(1), true, &[], now), ["a"]);
    }
    queue.leave(1);
    assert!(!queue.has_head());
    // The head is a waiter of another client.
    assert!(queue.reported(None, true, &[], now).is_empty());
    assert!(!queue.has_head());
}

/// A try may read the lease before the first beat, or while one is in progress.
#[test]
fn a_beat_is_due_when_the_lease_before_the_head_is_over() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now + 9 * S);
    queue.is_queued(1, ALONE, Some(now + 3 * S));
    assert_eq!(queue.due(), Some(now + 3 * S));
    queue.begin_beat(now, now + 9 * S).unwrap();
    queue.is_queued(1, ALONE, Some(now + 2 * S));
    queue.reported(None, false, &[], now);
    queue.beat_answered(now, now + 9 * S);
    assert_eq!(queue.due(), Some(now + 2 * S));
    queue.begin_beat(now, now + 9 * S).unwrap();
    queue.beat_answered(now, now + 9 * S);
    assert_eq!(queue.due(), Some(now + 9 * S), "the answer says when");
}

#[test]
fn an_announced_head_has_a_beat_when_the_lease_before_it_ends() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now + 9 * S);
    assert!(!queue.is_next(2, now + S), "no waiter has this number");
    // The announcement may come before the reply that says that the waiter is queued.
    assert!(queue.is_next(1, now + S));
    assert_eq!(queue.due(), Some(now + 9 * S));
    queue.is_queued(1, ALONE, None);
    assert!(queue.has_head());
    assert_eq!(queue.due(), Some(now + S));
    // The reply to a beat that was sent before does not cancel it.
    queue.begin_beat(now, now + 9 * S).unwrap();
    assert!(queue.is_next(1, now + S));
    queue.reported(None, false, &[], now);
    queue.beat_answered(now, now + 9 * S);
    assert_eq!(queue.due(), Some(now + S));
}

#[test]
fn the_head_tries_by_itself_while_beats_fail() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.is_queued(1, ALONE, Some(now));
    let fails = |queue: &mut FairWaitQueue<_>, at| {
        queue.begin_beat(at, at).unwrap();
        queue.beat_failed(at, at, at + 2 * S)
    };
    let woken: Vec<_> = (0..6).map(|at| fails(&mut queue, now + at * S)).collect();
    assert_eq!(woken, [None, None, Some("a"), None, Some("a"), None]);
    queue.begin_beat(now, now).unwrap();
    queue.beat_answered(now, now);
    assert_eq!(fails(&mut queue, now + 9 * S), None, "answered since");
    queue.leave(1);
    queue.enter(2, "b", LEASE, now);
    queue.is_queued(2, ALONE, None);
    let woken: Vec<_> = (0..6).map(|at| fails(&mut queue, now + at * S)).collect();
    assert_eq!(woken, [None; 6], "the head is another client's");
}

#[test]
fn a_beat_tells_the_time_since_the_last_one() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.is_queued(1, ALONE, None);
    let since_last =
        |queue: &mut FairWaitQueue<_>, at| queue.begin_beat(at, at).unwrap().since_last;
    assert_eq!(since_last(&mut queue, now), Duration::ZERO);
    queue.beat_answered(now + S, now);
    assert_eq!(since_last(&mut queue, now + 3 * S), 2 * S);
}

#[test]
fn a_dropped_waiter_is_woken() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.enter(2, "b", LEASE, now);
    assert_eq!(queue.reported(None, false, &[1, 2, 3], now), ["a", "b"]);
}

/// Otherwise beats would ask about the same few for ever, and miss that the others are gone.
#[test]
fn a_waiter_that_queues_again_is_behind_the_others() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    for number in 1..=3 {
        queue.enter(number, "queue", LEASE, now);
        queue.is_queued(number, ALONE, None);
    }
    queue.reported(None, false, &[1], now);
    assert_eq!(queue.oldest().collect::<Vec<_>>(), [2, 3]);
    queue.is_queued(1, ALONE, None);
    assert_eq!(queue.oldest().collect::<Vec<_>>(), [2, 3, 1]);
    queue.leave(2);
    assert_eq!(queue.oldest().collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn beats_end_with_the_last_waiter() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    assert_eq!(queue.due(), Some(now));
    queue.leave(1);
    assert_eq!(queue.due(), None);
    queue.ask(now);
    assert_eq!(queue.due(), None);
}

#[test]
fn a_beat_asked_for_while_one_is_under_way_is_due_when_that_is_over() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.is_queued(1, ALONE, None);
    assert_eq!(queue.begin_beat(now, now + S).unwrap().oldest, [1]);
    queue.ask(now);
    assert_eq!(queue.due(), None);
    queue.beat_answered(now, now + 2 * S);
    assert_eq!(queue.due(), Some(now));
    queue.begin_beat(now, now + S);
    queue.beat_answered(now, now + 2 * S);
    assert_eq!(queue.due(), Some(now + 2 * S));
}

#[test]
fn a_beat_asked_for_before_a_waiter_is_queued_is_due_when_one_is() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now + S);
    queue.ask(now);
    assert!(queue.begin_beat(now, now + S).is_none());
    assert_eq!(queue.due(), Some(now + S));
    queue.is_queued(1, ALONE, None);
    assert_eq!(queue.due(), Some(now));
}

#[test]
fn a_head_without_a_ticket_is_taken_out_by_the_next_beat() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(2, "b", LEASE, now + S);
    queue.is_queued(2, ALONE, None);
    assert!(queue.reported(Some(1), true, &[], now).is_empty());
    assert_eq!(queue.due(), Some(now));
    let request = queue.begin_beat(now, now + S).unwrap();
    assert_eq!((request.left_over, request.oldest), (vec![1], vec![2]));
    let request = queue.begin_beat(now, now + S).unwrap();
    assert!(request.left_over.is_empty());
}

#[test]
fn a_ticket_dropped_while_a_beat_is_under_way_is_no_left_over() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    for number in 1..=2 {
        queue.enter(number, number, LEASE, now + S);
        queue.is_queued(number, ALONE, None);
    }
    queue.begin_beat(now, now + S).unwrap();
    // Served, or its leave is in progress.
    queue.leave(1);
    assert!(queue.reported(Some(1), true, &[], now).is_empty());
    queue.beat_answered(now, now + S);
    assert_eq!(queue.due(), Some(now + S));
    // It is still the head.
    queue.begin_beat(now, now + S).unwrap();
    assert!(queue.reported(Some(1), true, &[], now).is_empty());
    assert_eq!(queue.begin_beat(now, now + S).unwrap().left_over, [1]);
}

#[test]
fn an_announcement_without_a_ticket_brings_the_next_beat_nearer() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now + S);
    queue.is_queued(1, ALONE, None);
    assert_eq!(queue.due(), Some(now + S));
    queue.unclaimed(now);
    assert_eq!(queue.due(), Some(now + SOON));
}

#[test]
fn in_a_mixed_queue_the_oldest_that_are_queued_have_channels() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    for number in 1..=9 {
        queue.enter(number, "queue", LEASE, now);
        if number > 1 {
            queue.is_queued(number, ALONE, None);
        }
    }
    assert_eq!(queue.with_channels(), [0; 0]);
    queue.is_queued(9, MIXED, None);
    assert_eq!(queue.with_channels(), [2, 3, 4, 5]);
    queue.leave(3);
    assert_eq!(queue.with_channels(), [2, 4, 5, 6]);
    assert_eq!((1..=9).filter(|number| queue.leave(*number)).count(), 8);
    queue.enter(10, "queue", LEASE, now);
    queue.is_queued(10, ALONE, None);
    assert_eq!(
        queue.with_channels(),
        [0; 0],
        "the waiter that queued beside others has left"
    );
    queue.is_queued(10, ALONE, Some(now));
    assert_eq!(queue.with_channels(), [10], "it is the head");
    queue.leave(10);
    assert_eq!(queue.with_channels(), [0; 0]);
}

/// A second beat would take tickets that were dropped during the first for left-overs.
#[test]
fn a_waiter_that_comes_while_a_beat_is_under_way_begins_none() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now);
    queue.is_queued(1, ALONE, None);
    queue.begin_beat(now, now + S).unwrap();
    queue.leave(1);
    queue.enter(2, "b", LEASE, now);
    assert_eq!(queue.due(), None);
    assert!(queue.reported(Some(1), true, &[], now).is_empty());
    queue.beat_answered(now, now + S);
    assert_eq!(queue.due(), Some(now + S));
}

/// Its first call is in progress.
#[test]
fn a_waiter_with_a_ticket_is_not_taken_out() {
    let now = Instant::now();
    let mut queue = FairWaitQueue::default();
    queue.enter(1, "a", LEASE, now + S);
    assert_eq!(queue.reported(Some(1), true, &[], now), ["a"]);
    queue.is_queued(1, ALONE, None);
    assert!(queue.begin_beat(now, now + S).unwrap().left_over.is_empty());
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enter(u64),
    Leave(u64),
    Queued(u64),
    Ask,
    Begin,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4u64).prop_map(Step::Enter),
        (0..4u64).prop_map(Step::Leave),
        (0..4u64).prop_map(Step::Queued),
        Just(Step::Ask),
        Just(Step::Begin),
        Just(Step::End),
    ]
}

proptest! {
    /// Invariant 1.
    #[test]
    fn a_beat_that_was_asked_for_is_sent(steps in prop::collection::vec(step(), 1..60)) {
        let now = Instant::now();
        let later = now + S;
        let mut queue = FairWaitQueue::default();
        let mut owed = false;
        let mut under_way = false;
        for step in steps {
            match step {
                Step::Enter(number) if queue.seat_of(number).is_none() => {
                    queue.enter(number, number, LEASE, later);
                }
                Step::Enter(_) => {}
                Step::Leave(number) => drop(queue.leave(number)),
                Step::Queued(number) => {
                    queue.is_queued(number, ALONE, None);
                }
                Step::Ask => {
                    queue.ask(now);
                    owed = true;
                }
                Step::Begin if !under_way => {
                    under_way = queue.begin_beat(now, later).is_some();
                    owed &= !under_way;
                }
                Step::Begin => {}
                Step::End => {
                    if under_way {
                        queue.beat_answered(now, later);
                    }
                    under_way = false;
                }
            }
            owed &= !queue.is_empty();
            let can_be_sent = !under_way && queue.oldest().next().is_some();
            if owed && can_be_sent {
                prop_assert_eq!(queue.due(), Some(now));
            }
        }
    }
}

/// The replies to the calls that queue waiters are read in another order than Redis wrote them.
#[test]
fn a_release_names_those_that_redis_queued_first() {
    let (mut queue, now) = (FairWaitQueue::default(), Instant::now());
    for number in 1..=6 {
        queue.enter(number, number, number as u32 * LEASE, now);
    }
    let named = |queue: &FairWaitQueue<u64>| -> Vec<u64> {
        queue
            .next_in_line()
            .iter()
            .map(|(number, _)| *number)
            .collect()
    };
    for (number, at) in [(3, 30), (5, 50), (1, 10), (2, 20), (4, 20)] {
        queue.is_queued(number, FairPlace { at, ..ALONE }, None);
    }
    assert_eq!(named(&queue), [1, 2, 4, 3]);
    assert_eq!(queue.next_in_line()[1], (2, 2 * LEASE));
    assert_eq!(queue.grant(1, now), Some(1));
    assert_eq!(
        named(&queue),
        [2, 4, 3, 5],
        "who has the lock does not wait"
    );
    queue.leave(2);
    assert_eq!(named(&queue), [4, 3, 5]);
    assert_eq!(queue.take_grant(1, Some(now - S)), Some(now));
    assert_eq!(queue.take_grant(1, None), None);
    queue.grant(1, now);
    assert_eq!(
        queue.take_grant(1, Some(now + S)),
        None,
        "the answer is newer"
    );
    assert_eq!(queue.grant(2, now), None, "it has left");
    queue.revoke(now + S);
    queue.grant(3, now);
    assert_eq!(queue.take_grant(3, None), None, "freed by force since");
    queue.grant(3, now + 2 * S);
    assert_eq!(queue.take_grant(3, None), Some(now + 2 * S));
}

#[test]
fn who_is_queued_by_a_server_whose_clock_is_behind_comes_after_the_others() {
    let (mut queue, now) = (FairWaitQueue::default(), Instant::now());
    let hour = 3_600_000_000;
    for (number, at) in [(1, 2 * hour), (2, hour), (3, hour + 1), (4, 2 * hour - 1)] {
        queue.enter(number, "queue", LEASE, now);
        queue.is_queued(number, FairPlace { at, ..ALONE }, None);
    }
    let named = queue.next_in_line().into_iter().map(|(number, _)| number);
    assert_eq!(named.collect::<Vec<_>>(), [4, 1, 2, 3]);
}

#[test]
fn only_those_whose_turn_it_is_are_withdrawn_and_only_if_they_hang() {
    let (mut queue, now) = (FairWaitQueue::default(), Instant::now());
    for number in 1..=4 {
        queue.enter(number, number, LEASE, now);
        queue.is_queued(number, ALONE, None);
    }
    assert_eq!(queue.withdraw(|_| true), [0; 0], "it is nobody's turn");
    queue.reported(Some(1), true, &[], now);
    assert_eq!(queue.grant(2, now), Some(2));
    assert_eq!(queue.withdraw(|_| false), [0; 0]);
    assert_eq!(queue.withdraw(|seat| *seat == 2), [2]);
    assert_eq!(queue.take_grant(2, None), None);
    assert!(!queue.leave(2), "it is gone");
    queue.grant(1, now);
    assert_eq!(queue.withdraw(|_| true), [1], "once");
    assert!(queue.leave(3), "it may take what it is given");
}
