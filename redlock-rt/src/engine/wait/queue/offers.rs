//! Property tests of offers.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::engine::wait::count_waker;

type Queue = WaitQueue<(), u32>;

const GAVE_UP: Departure = Departure::GaveUp { passes_on: false };
const SERVED: Departure = Departure::Served {
    shared: false,
    more: false,
    listens: true,
};

#[test]
fn an_offer_is_the_heads_and_comes_before_a_permit() {
    let waker = Waker::noop();
    let mut queue = Queue::default();
    assert_eq!(queue.offer(0).unwrap_err(), 0, "nobody waits");
    let [first, second] = [(); 2].map(|()| queue.enter().0);
    let _ = queue.notify();
    assert!(queue.offer(1).unwrap().unwatched);
    assert_eq!(queue.offer(2).unwrap_err(), 2, "one at a time");
    assert_eq!(queue.poll(second, waker), Poll::Pending);
    assert_eq!(queue.poll(first, waker), Poll::Ready(Wake::Offered(1)));
    assert_eq!(queue.offer(3).unwrap_err(), 3, "a try is under way");
    let _ = queue.leave(first, SERVED);
    assert!(!queue.offer(4).unwrap().unwatched, "the timer is still set");
    assert_eq!(queue.poll(second, waker), Poll::Ready(Wake::Offered(4)));
}

#[test]
fn an_offer_that_nobody_is_left_to_take_comes_back() {
    let mut queue = Queue::default();
    let [first, second] = [(); 2].map(|()| queue.enter().0);
    assert!(queue.offer(1).is_ok());
    let _ = queue.leave(first, GAVE_UP);
    assert_eq!(queue.take_stranded(), None, "it is the next one's");
    let _ = queue.leave(second, GAVE_UP);
    assert_eq!(queue.take_stranded(), Some(1));
    let _ = queue.enter();
    assert!(queue.offer(2).is_ok());
    let _ = queue.close();
    assert_eq!(queue.take_stranded(), Some(2));
    assert_eq!(queue.offer(3).unwrap_err(), 3);
}

/// A task sleeps with this waker behind a head that has taken an offer, and has left.
fn behind_a_hold_handed_over(waker: &Waker) -> (Queue, Ticket) {
    let mut queue = Queue::default();
    let [first, second] = [(); 2].map(|()| queue.enter().0);
    assert_eq!(queue.poll(second, waker), Poll::Pending);
    assert!(queue.offer(1).unwrap().unwatched);
    let offered = queue.poll(first, Waker::noop());
    assert_eq!(offered, Poll::Ready(Wake::Offered(1)));
    assert!(queue.leave(first, SERVED).is_none());
    (queue, second)
}

/// Two wake-ups a turn cost a second thread at each turn, if several run the tasks.
#[test]
fn who_is_next_behind_a_hold_that_is_handed_over_is_woken_once() {
    let (woken, waker) = count_waker::waker();
    let (mut queue, second) = behind_a_hold_handed_over(&waker);
    let accepted = queue.offer(2).unwrap();
    accepted.waker.unwrap().wake();
    assert_eq!(woken.get(), 1);
    assert_eq!(queue.poll(second, &waker), Poll::Ready(Wake::Offered(2)));
}

#[test]
fn who_is_next_behind_a_hold_that_was_handed_over_learns_it_from_the_timer() {
    let (woken, waker) = count_waker::waker();
    let (mut queue, second) = behind_a_hold_handed_over(&waker);
    let now = Instant::now();
    match queue.look_at_offer(now, |_| now) {
        OfferLook::Gone(Some(head)) => head.wake(),
        look => panic!("{look:?}"),
    }
    assert_eq!(woken.get(), 1);
    assert_eq!(queue.poll(second, &waker), Poll::Ready(Wake::Head));
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    assert!(queue.offer(2).is_ok());
    assert_eq!(queue.poll(second, &waker), Poll::Ready(Wake::Offered(2)));
    queue.try_ends(None, Health::Answering);
    assert_eq!(queue.poll(second, &waker), Poll::Pending);
    // It knows that it is the head.
    let look = queue.look_at_offer(now, |_| now);
    assert!(matches!(look, OfferLook::Gone(None)), "{look:?}");
}

/// There is no subscription, or there is something to try: it does not wait for the timer.
#[test]
fn who_is_next_and_would_miss_something_is_woken_at_once() {
    let served = |listens, shared| Departure::Served {
        shared,
        more: false,
        listens,
    };
    let wakes = |announced: bool, departure| {
        let waker = Waker::noop();
        let mut queue = Queue::default();
        let [first, second] = [(); 2].map(|()| queue.enter().0);
        let _ = queue.poll(second, waker);
        assert!(queue.offer(1).is_ok());
        let _ = queue.poll(first, waker);
        if announced {
            let _ = queue.notify();
        }
        queue.leave(first, departure).is_some()
    };
    assert!(!wakes(false, served(true, false)));
    assert!(wakes(false, served(false, false)));
    assert!(wakes(true, served(true, true)));
    assert!(
        !wakes(true, served(true, false)),
        "that was its own release"
    );
    assert!(wakes(false, GAVE_UP));
}

proptest! {
    /// In every order of waiters: each offer is taken once by a head, comes back, or is ended by the
    /// timer. The timer is set while there is an offer, or while the head sleeps and does not know
    /// that it is the head.
    #[test]
    fn an_offer_is_taken_or_comes_back(
        steps in proptest::collection::vec((0..9u8, 0..5usize), 1..150)
    ) {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let until = |offer: &u32| start + second * *offer;
        let mut queue = Queue::default();
        let mut here: Vec<(Ticket, bool)> = vec![];
        let (mut made, mut ended) = (0, 0);
        let mut timer: Option<Instant> = None;
        for (step, at) in steps {
            let now = start + second * made;
            match step {
                0 | 1 => here.push((queue.enter().0, false)),
                2 | 3 => {
                    made += 1;
                    match queue.offer(made) {
                        Ok(accepted) => {
                            prop_assert!(here.first().is_some_and(|(_, trying)| !trying));
                            if accepted.unwatched {
                                prop_assert!(timer.is_none(), "two timers");
                                timer = Some(until(&made));
                            }
                        }
                        Err(offer) => {
                            prop_assert_eq!(offer, made);
                            ended += 1;
                        }
                    }
                }
                4 if !here.is_empty() => {
                    let at = at % here.len();
                    match queue.poll(here[at].0, Waker::noop()) {
                        Poll::Ready(Wake::Offered(_)) => {
                            prop_assert!(at == 0 && !here[0].1);
                            here[0].1 = true;
                            ended += 1;
                        }
                        Poll::Ready(Wake::Try) => {
                            prop_assert!(at == 0 && !here[0].1 && !queue.has_offer());
                            here[0].1 = true;
                        }
                        _ => {}
                    }
                }
                5 if !here.is_empty() => {
                    let (ticket, trying) = here.remove(at % here.len());
                    let how = if trying { SERVED } else { GAVE_UP };
                    let _ = queue.leave(ticket, how);
                    ended += u32::from(queue.take_stranded().is_some());
                }
                6 if here.first().is_some_and(|(_, trying)| *trying) => {
                    queue.try_ends(None, Health::Answering);
                    here[0].1 = false;
                }
                7 => drop(queue.notify()),
                8 => if let Some(due) = timer.take_if(|due| *due <= now) {
                    prop_assert!(due <= now);
                    match queue.look_at_offer(now, until) {
                        OfferLook::Gone(_) => {}
                        OfferLook::Over(offer) => {
                            prop_assert!(until(&offer) <= now);
                            ended += 1;
                        }
                        OfferLook::Again(at) => timer = Some(at),
                    }
                },
                _ => {}
            }
            prop_assert_eq!(made - ended, u32::from(queue.has_offer()));
            prop_assert!(!queue.has_offer() || (!here.is_empty() && timer.is_some()));
            let aware = queue.told == queue.head();
            let sleeps = queue.waiting.values().next().is_some_and(Option::is_some);
            prop_assert!(aware || !sleeps || timer.is_some(), "nobody tells the head");
        }
    }
}
