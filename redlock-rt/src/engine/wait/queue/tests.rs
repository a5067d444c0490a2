use proptest::prelude::*;

use super::super::count_waker::waker;
use super::*;

type Queue = WaitQueue<u64>;

const TRY: Poll<Wake<u64>> = Poll::Ready(Wake::Try);
const HEAD: Poll<Wake<u64>> = Poll::Ready(Wake::Head);
const GAVE_UP: Departure = Departure::GaveUp { passes_on: false };

fn served(shared: bool, more: bool) -> Departure {
    Departure::Served {
        shared,
        more,
        listens: true,
    }
}

impl<T: Clone, O> WaitQueue<T, O> {
    /// The try in progress is over without success.
    pub(super) fn try_ends(&mut self, retry_at: Option<Instant>, health: Health) {
        let by = self.trying.unwrap().by;
        self.tried(by, retry_at, health);
    }

    /// The try in progress found the end of the wait of all.
    fn look_ends(&mut self, outcome: &T) -> Vec<Waker> {
        let by = self.trying.unwrap().by;
        self.finish(by, outcome)
    }
}

fn done(outcome: u64) -> Poll<Wake<u64>> {
    Poll::Ready(Wake::Done(outcome))
}

/// A queue of `N` waiters with a permit for the first.
fn queue<const N: usize>() -> (Queue, [Ticket; N]) {
    let mut queue = Queue::default();
    let tickets = [(); N].map(|()| queue.enter().0);
    assert!(queue.notify().is_none(), "nobody sleeps yet");
    (queue, tickets)
}

#[test]
fn one_permit_is_the_firsts_and_the_second_waits_for_an_announcement() {
    let (_, waker) = waker();
    let (mut queue, [first, second]) = queue();
    assert_eq!(queue.poll(first, &waker), TRY);
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    assert!(queue.leave(first, served(false, false)).is_some());
    assert_eq!(queue.poll(second, &waker), HEAD);
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    assert!(queue.notify().is_some());
    assert_eq!(queue.poll(second, &waker), TRY);
}

/// All other wake-ups need a poll with a waker.
#[test]
fn a_try_at_once_is_the_one_that_a_poll_would_begin() {
    let (_, waker) = waker();
    let (mut queue, [first, second]) = queue();
    assert!(!queue.tries_at_once(second), "it is not the head");
    assert!(queue.tries_at_once(first));
    assert!(queue.notify().is_none());
    assert!(!queue.tries_at_once(first), "its try is under way");
    let _ = queue.leave(first, served(false, false));
    assert!(queue.notify().is_none());
    assert!(queue.tries_at_once(second));
    assert!(!queue.tries_at_once(second), "there is no other permit");
    queue.try_ends(None, Health::Answering);
    assert_eq!(queue.poll(second, &waker), HEAD, "it was not told yet");

    let mut offering = WaitQueue::<u64, ()>::default();
    let (head, _) = offering.enter();
    assert!(offering.notify().is_none());
    assert!(offering.offer(()).is_ok());
    assert!(!offering.tries_at_once(head), "there is something better");

    let (mut done, [head, waiting]) = self::queue();
    assert_eq!(done.poll(head, &waker), TRY);
    let _ = done.look_ends(&7);
    assert!(done.notify().is_none());
    assert!(!done.tries_at_once(waiting), "its wait is over");

    let (mut closed, [head]) = self::queue();
    let _ = closed.close();
    assert!(!closed.tries_at_once(head));
}

#[test]
fn where_many_may_hold_it_each_has_the_next_try() {
    let (_, waker) = waker();
    let (mut queue, tickets) = queue::<3>();
    for ticket in &tickets[1..] {
        assert_eq!(queue.poll(*ticket, &waker), Poll::Pending);
    }
    for (at, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(queue.poll(ticket, &waker), TRY);
        let next = queue.leave(ticket, served(true, true));
        assert_eq!(next.is_some(), at < 2);
    }
    // A later waiter knows nothing of it.
    let (late, first) = queue.enter();
    assert!(first);
    assert_eq!(queue.poll(late, &waker), HEAD);
    assert_eq!(queue.poll(late, &waker), Poll::Pending);
}

#[test]
fn a_waiter_that_leaves_in_the_middle_of_a_try_passes_it_on() {
    let (count, waker) = waker();
    let (mut queue, [first, second]) = queue();
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    assert_eq!(queue.poll(first, &waker), TRY);
    queue.set_health(Health::Asking(Instant::now()));
    queue
        .leave(first, GAVE_UP)
        .into_iter()
        .for_each(Waker::wake);
    assert_eq!(count.get(), 1);
    assert_eq!(queue.health(Instant::now()), Health::Answering);
    assert_eq!(queue.poll(second, &waker), TRY);
}

#[test]
fn a_permit_that_came_too_late_for_the_head_is_the_next_heads() {
    let (_, waker) = waker();
    let (mut queue, [first, second]) = queue();
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    assert_eq!(queue.poll(first, &waker), TRY);
    queue.put_back(first);
    assert!(queue.leave(first, GAVE_UP).is_some());
    assert_eq!(queue.poll(second, &waker), TRY);
}

#[test]
fn a_pause_begins_anew_with_each_announcement_and_ends_with_a_permit() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let (count, waker) = waker();
    let mut queue = Queue::default();
    let [head, second] = [(); 2].map(|()| queue.enter().0);
    queue.set_retry(Some(start + 9 * ms));
    for ticket in [head, second] {
        let _ = queue.poll(ticket, &waker);
        assert_eq!(queue.poll(ticket, &waker), Poll::Pending);
    }
    // The second later than the first, and the third earlier.
    for after in [3, 5, 4] {
        let told = queue.notify_at(start + after * ms);
        told.into_iter().for_each(Waker::wake);
        assert_eq!(queue.poll(head, &waker), HEAD);
        assert_eq!(queue.poll(head, &waker), Poll::Pending);
        assert_eq!(queue.retry_at(head, || None), Some(start + after * ms));
        assert_eq!(queue.retry_at(second, || None), None);
    }
    assert_eq!(count.get(), 3);
    assert!(queue.notify().is_some());
    assert_eq!(queue.retry_at(head, || None), Some(start + 9 * ms));
    let _ = queue.notify_at(start + 5 * ms);
    assert_eq!(queue.poll(head, &waker), TRY, "it was there before");
}

/// The wait was over before it was, without a try.
#[test]
fn a_pause_ends_while_there_is_time_for_a_try() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let mut queue = Queue::default();
    let (head, _) = queue.enter();
    let latest = Some(start + 4 * ms);
    queue.set_retry(Some(start + 9 * ms));
    // Without a pause the clock is not read for it.
    let unasked = || unreachable!("there is no pause");
    assert_eq!(queue.retry_at(head, unasked), Some(start + 9 * ms));
    for (pause, at) in [(7, 4), (3, 3)] {
        let _ = queue.notify_at(start + pause * ms);
        assert_eq!(queue.retry_at(head, || latest), Some(start + at * ms));
    }
    let (second, _) = queue.enter();
    let unasked = || unreachable!("it is not the head");
    assert_eq!(queue.retry_at(second, unasked), None);
}

/// Redis may have answered the try in progress before the announced release.
#[test]
fn a_pause_that_begins_in_a_try_is_the_next_trys() {
    let (start, ms) = (Instant::now(), Duration::from_millis(1));
    let (mut queue, [head, second]) = queue();
    assert_eq!(queue.poll(head, Waker::noop()), TRY);
    let _ = queue.notify_at(start + 2 * ms);
    queue.try_ends(Some(start + 9 * ms), Health::Answering);
    assert_eq!(queue.poll(head, Waker::noop()), HEAD);
    assert_eq!(queue.poll(head, Waker::noop()), Poll::Pending);
    assert_eq!(queue.retry_at(head, || None), Some(start + 2 * ms));
    // The next head goes on with it, unless the first was served.
    let mut left = queue.leave(head, GAVE_UP).into_iter();
    assert!(left.next().is_none(), "it has not been polled");
    assert_eq!(queue.retry_at(second, || None), Some(start + 2 * ms));
    queue.retry();
    assert_eq!(queue.poll(second, Waker::noop()), TRY);
    let (third, _) = queue.enter();
    let _ = queue.notify_at(start + 3 * ms);
    let _ = queue.leave(second, served(false, false));
    assert_eq!(queue.retry_at(third, || None), None);
}

/// The cost of a waiter for the others does not depend on their number.
#[test]
fn among_ten_thousand_waiters_who_comes_or_goes_wakes_the_next_head_at_most() {
    const WAITERS: usize = 10_000;
    let (count, waker) = waker();
    let mut queue = Queue::default();
    let mut tickets: Vec<_> = (0..WAITERS).map(|_| queue.enter().0).collect();
    for ticket in &tickets[1..] {
        assert_eq!(queue.poll(*ticket, &waker), Poll::Pending);
    }
    // From the middle, like waiters that give up.
    for ticket in tickets.drain(WAITERS / 4..WAITERS / 2) {
        assert!(queue.leave(ticket, GAVE_UP).is_none());
    }
    assert_eq!(count.get(), 0);
    for (served_before, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(count.get(), served_before);
        assert_eq!(queue.poll(ticket, &waker), HEAD);
        let told = queue.notify();
        assert!(told.is_none(), "it is awake");
        assert_eq!(queue.poll(ticket, &waker), TRY);
        let next = queue.leave(ticket, served(false, false));
        next.into_iter().for_each(Waker::wake);
    }
    assert!(queue.is_empty());
}

/// A spin lock's head that has run out of retries while Redis is silent waits on.
#[test]
fn a_head_that_puts_a_permit_back_may_take_it_again() {
    let (mut queue, [head]) = queue();
    assert_eq!(queue.poll(head, Waker::noop()), TRY);
    queue.put_back(head);
    assert_eq!(queue.poll(head, Waker::noop()), TRY);
}

#[test]
fn a_notification_that_the_head_never_took_is_the_next_heads() {
    let (_, waker) = waker();
    let mut queue = Queue::default();
    let [first, second] = [(); 2].map(|()| queue.enter().0);
    assert_eq!(queue.poll(first, &waker), HEAD);
    assert_eq!(queue.poll(first, &waker), Poll::Pending);
    assert!(queue.notify().is_some());
    let _ = queue.leave(first, GAVE_UP);
    assert_eq!(queue.poll(second, &waker), TRY);
}

#[test]
fn a_try_after_one_that_failed_is_no_answer() {
    let (mut queue, [_head]) = queue();
    queue.set_health(Health::Failing);
    queue.set_health(Health::Asking(Instant::now()));
    assert_eq!(queue.health(Instant::now()), Health::Failing);
    queue.set_health(Health::Answering);
    assert_eq!(queue.health(Instant::now()), Health::Answering);
}

#[test]
fn a_queue_that_begins_anew_knows_of_no_refusal() {
    let (mut queue, [head, behind]) = queue();
    queue.refusal = Refusal::Unset;
    let _ = queue.leave(head, GAVE_UP);
    assert_eq!(queue.refusal, Refusal::Unset);
    let _ = queue.leave(behind, GAVE_UP);
    let _ = queue.enter();
    assert_eq!(queue.refusal, Refusal::Held);
}

#[test]
fn one_tries_and_all_that_waited_are_told() {
    let (count, waker) = waker();
    let (mut queue, tickets) = queue::<5>();
    for ticket in &tickets[1..] {
        assert_eq!(queue.poll(*ticket, &waker), Poll::Pending);
    }
    assert_eq!(queue.poll(tickets[0], &waker), TRY);
    queue.look_ends(&7).into_iter().for_each(Waker::wake);
    assert_eq!(count.get(), 4);
    for ticket in tickets {
        assert_eq!(queue.poll(ticket, &waker), done(7));
        assert!(queue.leave(ticket, GAVE_UP).is_none());
    }
    assert!(queue.is_empty());
}

#[test]
fn a_waiter_that_came_after_the_try_began_has_one_of_its_own() {
    let (count, waker) = waker();
    let (mut queue, [first]) = queue();
    assert_eq!(queue.poll(first, &waker), TRY);
    let (later, _) = queue.enter();
    assert_eq!(queue.poll(later, &waker), Poll::Pending);
    queue.look_ends(&1).into_iter().for_each(Waker::wake);
    assert_eq!(count.get(), 1);
    assert_eq!(queue.poll(later, &waker), TRY);
    let _ = queue.look_ends(&2);
    assert_eq!(queue.poll(first, &waker), done(1));
    assert_eq!(queue.poll(later, &waker), done(2));
}

#[test]
fn the_timer_is_the_heads_and_goes_with_it() {
    let (count, waker) = waker();
    let now = Instant::now();
    let (mut queue, [first, second]) = queue();
    assert_eq!(queue.poll(first, &waker), TRY);
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    queue.try_ends(Some(now), Health::Answering);
    let timers = [first, second].map(|ticket| queue.retry_at(ticket, || None));
    assert_eq!(timers, [Some(now), None]);
    queue
        .leave(first, GAVE_UP)
        .into_iter()
        .for_each(Waker::wake);
    assert_eq!(count.get(), 1);
    assert_eq!(queue.poll(second, &waker), HEAD);
    assert_eq!(queue.retry_at(second, || None), Some(now));
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    queue.retry();
    assert_eq!(queue.poll(second, &waker), TRY);
}

#[test]
fn an_announcement_during_a_try_causes_another_try() {
    let waker = Waker::noop();
    let (mut queue, [ticket]) = queue();
    assert_eq!(queue.poll(ticket, waker), TRY);
    let _ = queue.notify();
    assert_eq!(queue.poll(ticket, waker), HEAD);
    assert_eq!(queue.poll(ticket, waker), Poll::Pending);
    queue.try_ends(Some(Instant::now()), Health::Answering);
    assert_eq!(queue.poll(ticket, waker), TRY);
}

#[test]
fn closing_tells_everybody() {
    let (count, waker) = waker();
    let (mut queue, tickets) = queue::<3>();
    for ticket in tickets {
        while queue.poll(ticket, &waker).is_ready() {}
    }
    queue.close().into_iter().for_each(Waker::wake);
    assert_eq!(count.get(), 3);
    for ticket in tickets {
        assert_eq!(queue.poll(ticket, &waker), Poll::Ready(Wake::Closed));
    }
}

proptest! {
    /// In every order of waiters: a notification that is given while a task waits reaches a head,
    /// unless a head of an exclusive lock was served after it.
    #[test]
    fn no_notification_is_lost(steps in proptest::collection::vec((0..8u8, 0..6usize), 1..80)) {
        let mut queue = Queue::default();
        let mut tickets: Vec<(Ticket, bool)> = vec![];
        let mut owed = false;
        for (step, at) in steps {
            match step {
                0 => tickets.push((queue.enter().0, false)),
                1 => {
                    let _ = queue.notify();
                    owed |= !tickets.is_empty();
                }
                2 if at < tickets.len() => {
                    let (ticket, trying) = tickets.remove(at);
                    let _ = queue.leave(ticket, GAVE_UP);
                    owed |= trying;
                }
                3 if !tickets.is_empty() => {
                    let (head, trying) = tickets[0];
                    let mut wake = queue.poll(head, Waker::noop());
                    if wake == HEAD {
                        wake = queue.poll(head, Waker::noop());
                    }
                    prop_assert_eq!(wake == TRY, owed && !trying);
                    if wake == TRY {
                        tickets[0].1 = true;
                        owed = false;
                    }
                }
                4..=6 if tickets.first().is_some_and(|(_, trying)| *trying) => {
                    let (ticket, _) = tickets.remove(0);
                    let (shared, more) = (step != 4, step == 5);
                    let _ = queue.leave(ticket, served(shared, more));
                    // An announcement during its try is not used up if there is more than one to be
                    // had.
                    owed = shared && (owed || more);
                }
                7 if tickets.first().is_some_and(|(_, trying)| *trying) => {
                    queue.try_ends(None, Health::Answering);
                    tickets[0].1 = false;
                }
                _ => {}
            }
            owed &= !tickets.is_empty();
        }
    }

    /// In every order of waiters: a waiter is told by a try that began after it came, and Redis is
    /// asked for as long as a task waits.
    #[test]
    fn no_waiter_is_forgotten(steps in proptest::collection::vec((0..7u8, 0..6usize), 1..120)) {
        let waker = Waker::noop();
        let mut queue = Queue::default();
        // Each waiter with the number of tries that had begun when it came.
        let mut here: Vec<(Ticket, u64)> = vec![];
        let mut begun = 0_u64;
        let poll_all = |queue: &mut Queue, here: &mut Vec<(Ticket, u64)>, begun: &mut u64| {
            let mut at = 0;
            while at < here.len() {
                let (ticket, since) = here[at];
                let trying = queue.trying.is_some();
                match queue.poll(ticket, waker) {
                    Poll::Ready(Wake::Done(found)) => {
                        prop_assert!(found > since, "told by a try that began before it came");
                        here.remove(at);
                        drop(queue.leave(ticket, GAVE_UP));
                    }
                    Poll::Ready(Wake::Try) => {
                        prop_assert!(!trying, "two tries at a time");
                        *begun += 1;
                    }
                    Poll::Ready(Wake::Head) => {}
                    Poll::Ready(Wake::Closed) => unreachable!("never closed here"),
                    Poll::Pending => at += 1,
                }
            }
            Ok(())
        };
        for (step, at) in steps {
            match step {
                0 | 1 => {
                    let (ticket, first) = queue.enter();
                    if first {
                        drop(queue.notify());
                    }
                    here.push((ticket, begun));
                }
                2 if !here.is_empty() => {
                    let (ticket, _) = here.remove(at % here.len());
                    drop(queue.leave(ticket, GAVE_UP));
                }
                3 => drop(queue.notify()),
                4 if queue.trying.is_some() => queue.try_ends(Some(Instant::now()), Health::Answering),
                5 if queue.trying.is_some() => drop(queue.look_ends(&begun)),
                6 => poll_all(&mut queue, &mut here, &mut begun)?,
                _ => {}
            }
            // A try is in progress, owed, or timed.
            let timed = here.iter().any(|(ticket, _)| queue.retry_at(*ticket, || None).is_some());
            let waiting = !queue.waiting.is_empty();
            prop_assert!(!waiting || queue.permit || timed || queue.trying.is_some());
        }
        // All are served in the end.
        for _ in 0..3 {
            poll_all(&mut queue, &mut here, &mut begun)?;
            match queue.trying.is_some() {
                true => drop(queue.look_ends(&begun)),
                false => drop(queue.notify()),
            }
        }
        poll_all(&mut queue, &mut here, &mut begun)?;
        prop_assert!(here.is_empty() && queue.is_empty());
    }
}

/// The first waiter, as if it was not polled any more. Returns when it was passed over.
fn passed_over(queue: &mut Queue) -> Instant {
    let now = Instant::now();
    assert!(queue.look_at_head(now).1);
    assert_eq!(
        queue.health(now),
        Health::Answering,
        "it may run at any moment"
    );
    assert_eq!(queue.health(now + PATIENCE / 2), Health::Unpolled);
    assert!(queue.look_at_head(now + PATIENCE / 2).1);
    assert!(queue.look_at_head(now + PATIENCE).1);
    now + PATIENCE
}

#[test]
fn a_head_that_is_not_polled_is_passed_over_and_has_its_place_when_it_is() {
    let (_, waker) = waker();
    for (tries, tried) in [(false, false), (true, false), (true, true)] {
        let (mut queue, [first, second, third]) = queue();
        assert!(queue.mind() && !queue.mind(), "one timer");
        if tries {
            assert_eq!(queue.poll(first, &waker), TRY);
        }
        assert_eq!(queue.poll(second, &waker), Poll::Pending);
        passed_over(&mut queue);
        assert_eq!(queue.poll(second, &waker), TRY);
        assert_eq!(queue.poll(third, &waker), Poll::Pending);
        if tried {
            // Its earlier try does not count any more.
            queue.runs(first, &waker);
            queue.tried(first, None, Health::Failing);
            assert_eq!(queue.health(Instant::now()), Health::Answering);
        }
        // Both try, and neither may end the other's try.
        assert_eq!(queue.poll(first, &waker), TRY);
        queue.tried(second, None, Health::Failing);
        assert_eq!(queue.health(Instant::now()), Health::Answering);
        assert_eq!(queue.poll(second, &waker), Poll::Pending);
        let _ = queue.leave(first, served(false, false));
        assert_eq!(queue.poll(second, &waker), HEAD);
    }
}

#[test]
fn a_head_that_runs_or_has_nothing_to_do_is_not_passed_over() {
    let (count, waker) = waker();
    let (mut queue, [first, second]) = queue();
    let mut now = Instant::now();
    assert!(queue.mind());
    assert_eq!(queue.poll(first, &waker), TRY);
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    for _ in 0..9 {
        queue.runs(first, &waker);
        queue.look_at_head(now).0.unwrap().wake();
        now += PATIENCE;
    }
    assert_eq!(count.get(), 9, "to see whether it runs");
    queue.runs(first, &waker);
    queue.try_ends(Some(now + 9 * PATIENCE), Health::Answering);
    for _ in 0..9 {
        assert!(matches!(queue.look_at_head(now), (None, true)));
        now += PATIENCE;
    }
    // Its time has come, and it does not notice that.
    assert_eq!(queue.health(now), Health::Answering);
    assert!(queue.look_at_head(now).0.is_some());
    assert!(queue.look_at_head(now + PATIENCE).1);
    assert_eq!(queue.poll(second, &waker), TRY);
    let _ = queue.leave(first, GAVE_UP);
    let _ = queue.leave(second, served(false, false));
    assert!(!queue.is_idle(), "the timer may come");
    assert!(!queue.look_at_head(now).1 && queue.is_idle());
}

/// No other task may try for it then.
#[test]
fn a_waiter_that_was_passed_over_and_is_alone_tries_when_it_is_polled() {
    let (_, waker) = waker();
    let (mut queue, [first, second]) = queue();
    passed_over(&mut queue);
    assert_eq!(queue.poll(second, &waker), TRY);
    let _ = queue.leave(second, served(false, false));
    assert!(!queue.look_at_head(Instant::now()).1 && !queue.is_idle());
    assert!(queue.notify().is_none(), "it has been woken");
    assert_eq!(queue.poll(first, &waker), TRY);
    let _ = queue.leave(first, GAVE_UP);
    assert!(queue.is_idle());
}
