//! Waiters that come, look, are told and leave, in every interleaving.

use std::future::poll_fn;
use std::time::Instant;

use ::loom::future::block_on;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{GateState, Health, Ticket, Word};
use crate::shim::{Mutex, lock};

type Gate = Arc<Mutex<GateState<usize>>>;

/// What the latch behind the gate is: 1 is open.
type Latch = Arc<AtomicUsize>;

/// All interleavings with up to two preemptions: of more there are too many here.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

fn gate() -> Gate {
    Arc::new(Mutex::new(GateState::default()))
}

async fn called(gate: &Gate, ticket: Ticket) -> Word<usize> {
    poll_fn(|cx| lock(gate).poll(ticket, cx.waker())).await
}

fn leave(gate: &Gate, ticket: Ticket) {
    let next = lock(gate).leave(ticket);
    if let Some(waker) = next {
        waker.wake();
    }
}

fn notify(gate: &Gate) {
    let head = lock(gate).notify();
    if let Some(waker) = head {
        waker.wake();
    }
}

/// As `pass` without its timers: only what is announced makes a head look again.
async fn pass(gate: &Gate, ticket: Ticket, latch: &Latch) -> Word<usize> {
    loop {
        match called(gate, ticket).await {
            Word::Head => {}
            Word::Look => match latch.load(Ordering::Acquire) {
                0 => lock(gate).shut(Instant::now(), Health::Answering),
                open => {
                    let wakers = lock(gate).tell(&open);
                    wakers.into_iter().for_each(std::task::Waker::wake);
                }
            },
            word => return word,
        }
    }
}

/// Opened and announced once, whatever the looks before it found: all are told.
#[test]
fn one_announcement_lets_everybody_through() {
    model(|| {
        let (gate, latch) = (gate(), Latch::default());
        let first = lock(&gate).enter();
        let second = lock(&gate).enter();
        let open = {
            let (gate, latch) = (Arc::clone(&gate), Arc::clone(&latch));
            thread::spawn(move || {
                latch.store(1, Ordering::Release);
                notify(&gate);
            })
        };
        let other = {
            let (gate, latch) = (Arc::clone(&gate), Arc::clone(&latch));
            thread::spawn(move || {
                assert_eq!(block_on(pass(&gate, second, &latch)), Word::Over(1));
                leave(&gate, second);
            })
        };
        assert_eq!(block_on(pass(&gate, first, &latch)), Word::Over(1));
        leave(&gate, first);
        open.join().unwrap();
        other.join().unwrap();
        assert!(lock(&gate).is_empty());
    });
}

/// The head goes, with a look under way or before it, beside the announcement: who is behind it
/// gets to look.
#[test]
fn an_announcement_survives_the_head_that_leaves() {
    model(|| {
        let (gate, latch) = (gate(), Latch::default());
        let first = lock(&gate).enter();
        let second = lock(&gate).enter();
        let goes = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                // Polled once, and dropped with whatever it was told.
                block_on(poll_fn(|cx| {
                    let _ = lock(&gate).poll(first, cx.waker());
                    std::task::Poll::Ready(())
                }));
                leave(&gate, first);
            })
        };
        let open = {
            let (gate, latch) = (Arc::clone(&gate), Arc::clone(&latch));
            thread::spawn(move || {
                latch.store(1, Ordering::Release);
                notify(&gate);
            })
        };
        assert_eq!(block_on(pass(&gate, second, &latch)), Word::Over(1));
        leave(&gate, second);
        goes.join().unwrap();
        open.join().unwrap();
        assert!(lock(&gate).is_empty());
    });
}

/// Who comes while a look is under way is told by a look that began after it came: what it is told
/// is no older than what it saw when it came.
#[test]
fn who_comes_late_is_told_by_a_look_of_its_own() {
    model(|| {
        // Counts the looks, so that each finds another number.
        let gate = gate();
        let looks = Arc::new(AtomicUsize::new(0));
        async fn pass(gate: &Gate, ticket: Ticket, looks: &Arc<AtomicUsize>) -> usize {
            loop {
                match called(gate, ticket).await {
                    Word::Look => {
                        let found = looks.fetch_add(1, Ordering::AcqRel) + 1;
                        let wakers = lock(gate).tell(&found);
                        wakers.into_iter().for_each(std::task::Waker::wake);
                    }
                    Word::Over(found) => return found,
                    Word::Head => {}
                    Word::Closed => unreachable!("it is never closed here"),
                }
            }
        }
        let first = lock(&gate).enter();
        let late = {
            let (gate, looks) = (Arc::clone(&gate), Arc::clone(&looks));
            thread::spawn(move || {
                let before = looks.load(Ordering::Acquire);
                let ticket = lock(&gate).enter();
                let found = block_on(pass(&gate, ticket, &looks));
                leave(&gate, ticket);
                assert!(found > before, "told of look {found}, came after {before}");
            })
        };
        assert!(block_on(pass(&gate, first, &looks)) >= 1);
        leave(&gate, first);
        late.join().unwrap();
        assert!(lock(&gate).is_empty());
        // One look each at most.
        assert!(looks.load(Ordering::Acquire) <= 2);
    });
}

/// A shut-down reaches every waiter, wherever it is.
#[test]
fn closing_wakes_everybody() {
    model(|| {
        let (gate, latch) = (gate(), Latch::default());
        let first = lock(&gate).enter();
        let second = lock(&gate).enter();
        let close = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || {
                let wakers = lock(&gate).close();
                wakers.into_iter().for_each(std::task::Waker::wake);
            })
        };
        let other = {
            let (gate, latch) = (Arc::clone(&gate), Arc::clone(&latch));
            thread::spawn(move || {
                assert_eq!(block_on(pass(&gate, second, &latch)), Word::Closed);
                leave(&gate, second);
            })
        };
        assert_eq!(block_on(pass(&gate, first, &latch)), Word::Closed);
        leave(&gate, first);
        close.join().unwrap();
        other.join().unwrap();
    });
}
