//! Waiters that are served, in every interleaving. `loom_latch` has those that leave, and a shut-down.

use std::future::poll_fn;
use std::task::Poll;

use ::loom::future::block_on;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{Departure, Ticket, WaitQueue, Wake};
use crate::shim::{Mutex, lock, model};

type Queue = Arc<Mutex<WaitQueue<()>>>;

/// As `WaiterGuard::called` without its timers.
async fn called(queue: &Queue, ticket: Ticket) -> Wake<()> {
    poll_fn(|cx| {
        let mut state = lock(queue);
        match state.poll(ticket, cx.waker()) {
            Poll::Ready(Wake::Head) => state.poll(ticket, cx.waker()),
            poll => poll,
        }
    })
    .await
}

fn leave(queue: &Queue, ticket: Ticket, departure: Departure) {
    let next = lock(queue).leave(ticket, departure);
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

/// Two announcements, two waiters that are served one after the other.
#[test]
fn each_release_serves_one_waiter() {
    model(None, || {
        let queue = Queue::default();
        let first = lock(&queue).enter().0;
        let second = lock(&queue).enter().0;
        notify(&queue);
        let holder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                assert_eq!(block_on(called(&queue, first)), Wake::Try);
                leave(
                    &queue,
                    first,
                    Departure::Served {
                        shared: false,
                        more: false,
                        listens: true,
                    },
                );
                // It held the lock, and this is its release.
                notify(&queue);
            })
        };
        assert_eq!(block_on(called(&queue, second)), Wake::Try);
        holder.join().unwrap();
    });
}

/// A release of two permits with three waiters: two try, and get them; the third is not woken.
#[test]
fn a_release_of_some_permits_serves_as_many() {
    model(Some(2), || {
        let queue = Queue::default();
        let free = Arc::new(AtomicUsize::new(0));
        let tries = Arc::new(AtomicUsize::new(0));
        let [first, second, third] = [(); 3].map(|()| lock(&queue).enter().0);
        let take = |ticket| {
            let (queue, free, tries) = (Arc::clone(&queue), Arc::clone(&free), Arc::clone(&tries));
            move || {
                assert_eq!(block_on(called(&queue, ticket)), Wake::Try);
                tries.fetch_add(1, Ordering::AcqRel);
                let left = free.fetch_sub(1, Ordering::AcqRel) - 1;
                leave(
                    &queue,
                    ticket,
                    Departure::Served {
                        shared: true,
                        more: left > 0,
                        listens: true,
                    },
                );
            }
        };
        let holder = {
            let (queue, free) = (Arc::clone(&queue), Arc::clone(&free));
            thread::spawn(move || {
                free.store(2, Ordering::Release);
                notify(&queue);
            })
        };
        let other = thread::spawn(take(second));
        take(first)();
        other.join().unwrap();
        holder.join().unwrap();
        assert_eq!(tries.load(Ordering::Acquire), 2);
        let waker = std::task::Waker::noop();
        let told = lock(&queue).poll(third, waker);
        assert_eq!(
            told,
            Poll::Ready(Wake::Head),
            "it has the timer, and no try"
        );
        assert_eq!(lock(&queue).poll(third, waker), Poll::Pending);
    });
}
