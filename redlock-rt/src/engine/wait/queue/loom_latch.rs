//! Waiters that come, look, are told and leave, in every interleaving.

use std::future::poll_fn;
use std::time::Instant;

use ::loom::future::block_on;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{Departure, Health, Ticket, WaitQueue, Wake};
use crate::shim::{Mutex, lock, model};

type Queue = Arc<Mutex<WaitQueue<usize>>>;

/// The state of the latch behind the queue: 1 is open.
type Latch = Arc<AtomicUsize>;

fn queue() -> Queue {
    Arc::new(Mutex::new(WaitQueue::default()))
}

/// As `Waiters::enter`.
fn enter(queue: &Queue) -> Ticket {
    let mut queue = lock(queue);
    let (ticket, first) = queue.enter();
    if first {
        drop(queue.notify());
    }
    ticket
}

async fn called(queue: &Queue, ticket: Ticket) -> Wake<usize> {
    poll_fn(|cx| lock(queue).poll(ticket, cx.waker())).await
}

fn leave(queue: &Queue, ticket: Ticket) {
    let next = lock(queue).leave(ticket, Departure::GaveUp { passes_on: false });
    if let Some(waker) = next {
        waker.wake();
    }
}

fn notify(queue: &Queue) {
    let head = lock(queue).notify();
    if let Some(waker) = head {
        waker.wake();
    }
}

/// As `pass` without its timers: only an announcement makes a head look again.
async fn pass(queue: &Queue, ticket: Ticket, latch: &Latch) -> Wake<usize> {
    loop {
        match called(queue, ticket).await {
            Wake::Head => {}
            Wake::Try => match latch.load(Ordering::Acquire) {
                0 => lock(queue).tried(ticket, Some(Instant::now()), Health::Answering),
                open => {
                    let wakers = lock(queue).finish(ticket, &open);
                    wakers.into_iter().for_each(std::task::Waker::wake);
                }
            },
            word => return word,
        }
    }
}

/// Opened and announced once, whatever earlier looks found: all are told.
#[test]
fn one_announcement_lets_everybody_through() {
    model(Some(2), || {
        let (queue, latch) = (queue(), Latch::default());
        let first = enter(&queue);
        let second = enter(&queue);
        let open = {
            let (queue, latch) = (Arc::clone(&queue), Arc::clone(&latch));
            thread::spawn(move || {
                latch.store(1, Ordering::Release);
                notify(&queue);
            })
        };
        let other = {
            let (queue, latch) = (Arc::clone(&queue), Arc::clone(&latch));
            thread::spawn(move || {
                assert_eq!(block_on(pass(&queue, second, &latch)), Wake::Done(1));
                leave(&queue, second);
            })
        };
        assert_eq!(block_on(pass(&queue, first, &latch)), Wake::Done(1));
        leave(&queue, first);
        open.join().unwrap();
        other.join().unwrap();
        assert!(lock(&queue).is_empty());
    });
}

/// The head leaves, with or without a look in progress, during the announcement. The waiter behind
/// it gets to look.
#[test]
fn an_announcement_survives_the_head_that_leaves() {
    model(Some(2), || {
        let (queue, latch) = (queue(), Latch::default());
        let first = enter(&queue);
        let second = enter(&queue);
        let goes = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // Polled once, and dropped with any result.
                block_on(poll_fn(|cx| {
                    let _ = lock(&queue).poll(first, cx.waker());
                    std::task::Poll::Ready(())
                }));
                leave(&queue, first);
            })
        };
        let open = {
            let (queue, latch) = (Arc::clone(&queue), Arc::clone(&latch));
            thread::spawn(move || {
                latch.store(1, Ordering::Release);
                notify(&queue);
            })
        };
        assert_eq!(block_on(pass(&queue, second, &latch)), Wake::Done(1));
        leave(&queue, second);
        goes.join().unwrap();
        open.join().unwrap();
        assert!(lock(&queue).is_empty());
    });
}

/// A waiter that comes while a look is in progress gets the result of a later look: the result is
/// no older than the state that the waiter saw when it came.
#[test]
fn a_late_waiter_gets_a_look_of_its_own() {
    model(Some(2), || {
        // Counts the looks, so that each finds another number.
        let queue = queue();
        let looks = Arc::new(AtomicUsize::new(0));
        async fn pass(queue: &Queue, ticket: Ticket, looks: &Arc<AtomicUsize>) -> usize {
            loop {
                match called(queue, ticket).await {
                    Wake::Try => {
                        let found = looks.fetch_add(1, Ordering::AcqRel) + 1;
                        let wakers = lock(queue).finish(ticket, &found);
                        wakers.into_iter().for_each(std::task::Waker::wake);
                    }
                    Wake::Done(found) => return found,
                    Wake::Head => {}
                    Wake::Closed => unreachable!("it is never closed here"),
                }
            }
        }
        let first = enter(&queue);
        let late = {
            let (queue, looks) = (Arc::clone(&queue), Arc::clone(&looks));
            thread::spawn(move || {
                let before = looks.load(Ordering::Acquire);
                let ticket = enter(&queue);
                let found = block_on(pass(&queue, ticket, &looks));
                leave(&queue, ticket);
                assert!(found > before, "told of look {found}, came after {before}");
            })
        };
        assert!(block_on(pass(&queue, first, &looks)) >= 1);
        leave(&queue, first);
        late.join().unwrap();
        assert!(lock(&queue).is_empty());
        // One look each at most.
        assert!(looks.load(Ordering::Acquire) <= 2);
    });
}

/// A shut-down reaches every waiter, wherever it is.
#[test]
fn closing_wakes_everybody() {
    model(Some(2), || {
        let (queue, latch) = (queue(), Latch::default());
        let first = enter(&queue);
        let second = enter(&queue);
        let close = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let wakers = lock(&queue).close();
                wakers.into_iter().for_each(std::task::Waker::wake);
            })
        };
        let other = {
            let (queue, latch) = (Arc::clone(&queue), Arc::clone(&latch));
            thread::spawn(move || {
                assert_eq!(block_on(pass(&queue, second, &latch)), Wake::Closed);
                leave(&queue, second);
            })
        };
        assert_eq!(block_on(pass(&queue, first, &latch)), Wake::Closed);
        leave(&queue, first);
        close.join().unwrap();
        other.join().unwrap();
    });
}
