//! Waiters that register, are notified and give up, in every interleaving.

use std::future::poll_fn;
use std::task::Poll;

use ::loom::future::block_on;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{Exit, LineState, Ticket, Turn};
use crate::shim::{Mutex, lock};

type Line = Arc<Mutex<LineState>>;

/// As `Place::called` without its timers.
async fn called(line: &Line, ticket: Ticket) -> Turn {
    poll_fn(|cx| {
        let mut state = lock(line);
        match state.poll(ticket, cx.waker()) {
            Poll::Ready(Turn::Head) => state.poll(ticket, cx.waker()),
            poll => poll,
        }
    })
    .await
}

fn leave(line: &Line, ticket: Ticket, exit: Exit) {
    let next = lock(line).leave(ticket, exit);
    if let Some(waker) = next {
        waker.wake();
    }
}

fn notify(line: &Line) {
    let head = lock(line).notify();
    if let Some(waker) = head {
        waker.wake();
    }
}

/// One announcement, a head that looks once and gives up: the next in the queue gets to try.
#[test]
fn a_notification_survives_the_head_that_gives_up() {
    ::loom::model(|| {
        let line = Line::default();
        let first = lock(&line).enter();
        let second = lock(&line).enter();
        let announce = {
            let line = Arc::clone(&line);
            thread::spawn(move || notify(&line))
        };
        let give_up = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                let mut looks = poll_fn(|cx| {
                    Poll::Ready(lock(&line).poll(first, cx.waker()) == Poll::Ready(Turn::Try))
                });
                let trying = block_on(&mut looks);
                leave(&line, first, Exit::GaveUp { trying });
            })
        };
        assert_eq!(block_on(called(&line, second)), Turn::Try);
        announce.join().unwrap();
        give_up.join().unwrap();
    });
}

/// Two announcements, two waiters that are served one after the other.
#[test]
fn each_release_serves_one_waiter() {
    ::loom::model(|| {
        let line = Line::default();
        let first = lock(&line).enter();
        let second = lock(&line).enter();
        notify(&line);
        let holder = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                assert_eq!(block_on(called(&line, first)), Turn::Try);
                leave(
                    &line,
                    first,
                    Exit::Served {
                        shared: false,
                        more: false,
                    },
                );
                // It held the lock, and this is its release.
                notify(&line);
            })
        };
        assert_eq!(block_on(called(&line, second)), Turn::Try);
        holder.join().unwrap();
    });
}

/// A release of two permits beside their waiters: two try, and get them; the third is left alone.
#[test]
fn a_release_of_some_permits_serves_as_many() {
    let mut model = ::loom::model::Builder::new();
    // Of more there are too many here.
    model.preemption_bound = Some(2);
    model.check(|| {
        let line = Line::default();
        let free = Arc::new(AtomicUsize::new(0));
        let tries = Arc::new(AtomicUsize::new(0));
        let [first, second, third] = [(); 3].map(|()| lock(&line).enter());
        let take = |ticket| {
            let (line, free, tries) = (Arc::clone(&line), Arc::clone(&free), Arc::clone(&tries));
            move || {
                assert_eq!(block_on(called(&line, ticket)), Turn::Try);
                tries.fetch_add(1, Ordering::AcqRel);
                let left = free.fetch_sub(1, Ordering::AcqRel) - 1;
                leave(
                    &line,
                    ticket,
                    Exit::Served {
                        shared: true,
                        more: left > 0,
                    },
                );
            }
        };
        let holder = {
            let (line, free) = (Arc::clone(&line), Arc::clone(&free));
            thread::spawn(move || {
                free.store(2, Ordering::Release);
                notify(&line);
            })
        };
        let other = thread::spawn(take(second));
        take(first)();
        other.join().unwrap();
        holder.join().unwrap();
        assert_eq!(tries.load(Ordering::Acquire), 2);
        let waker = std::task::Waker::noop();
        let told = lock(&line).poll(third, waker);
        assert_eq!(
            told,
            Poll::Ready(Turn::Head),
            "it has the timer, and no try"
        );
        assert_eq!(lock(&line).poll(third, waker), Poll::Pending);
    });
}

/// A shut-down reaches every waiter, wherever in the queue.
#[test]
fn closing_wakes_everybody() {
    ::loom::model(|| {
        let line = Line::default();
        let first = lock(&line).enter();
        let second = lock(&line).enter();
        let waiter = {
            let line = Arc::clone(&line);
            thread::spawn(move || assert_eq!(block_on(called(&line, second)), Turn::Closed))
        };
        let close = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                let wakers = lock(&line).close();
                wakers.into_iter().for_each(std::task::Waker::wake);
            })
        };
        assert_eq!(block_on(called(&line, first)), Turn::Closed);
        waiter.join().unwrap();
        close.join().unwrap();
    });
}
