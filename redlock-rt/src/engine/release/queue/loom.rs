//! Releases that are pushed, taken and put back, concurrent with a shut-down.

use std::time::{Duration, Instant};

use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::{Oldest, Queue};
use crate::connection::Came;
use crate::shim::{Mutex, lock, model};

/// Every item is either run, refused, or left to the closing task.
#[test]
fn nothing_is_lost_and_nothing_is_run_after_the_end() {
    model(None, || {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let (run, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let push = {
            let (queue, refused) = (Arc::clone(&queue), Arc::clone(&refused));
            thread::spawn(move || {
                for item in 0..2 {
                    if lock(&queue).push(item, false).is_err() {
                        refused.fetch_add(1, Ordering::AcqRel);
                    }
                }
            })
        };
        let task = {
            let (queue, run, refused) =
                (Arc::clone(&queue), Arc::clone(&run), Arc::clone(&refused));
            thread::spawn(move || {
                let taken = lock(&queue).pop();
                if taken.is_some() {
                    run.fetch_add(1, Ordering::AcqRel);
                }
                // The second item cannot be finished: its runtime ends, and it goes back.
                let taken = lock(&queue).pop();
                if let Some(item) = taken
                    && lock(&queue).push(item, true).is_err()
                {
                    refused.fetch_add(1, Ordering::AcqRel);
                }
            })
        };
        let left = lock(&queue).close().len();
        push.join().unwrap();
        task.join().unwrap();
        assert!(lock(&queue).pop().is_none());
        let run = run.load(Ordering::Acquire);
        assert_eq!(run + refused.load(Ordering::Acquire) + left, 2);
    });
}

/// Its reply comes at any moment, also before it is in the queue, or during a look for missing replies.
/// All interleavings with up to three preemptions; all of them would take a minute.
#[test]
fn an_item_that_was_sent_is_ended_once_whenever_its_reply_comes() {
    model(Some(3), || {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let (answered, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let hear = {
            let (queue, answered, ended) = (
                Arc::clone(&queue),
                Arc::clone(&answered),
                Arc::clone(&ended),
            );
            move || {
                if !lock(&queue).begin_ending() {
                    return;
                }
                loop {
                    let came = |_: &()| match answered.load(Ordering::Acquire) {
                        0 => Came::Nothing,
                        _ => Came::Reply,
                    };
                    match lock(&queue).oldest(came) {
                        Oldest::Answered(()) => ended.fetch_add(1, Ordering::AcqRel),
                        Oldest::Waits => return,
                        Oldest::TakenIn => unreachable!("it needs no more than its reply"),
                    };
                }
            }
        };
        let reply = {
            let (answered, hear) = (Arc::clone(&answered), hear.clone());
            thread::spawn(move || {
                answered.store(1, Ordering::Release);
                hear();
            })
        };
        let task = {
            let (queue, ended) = (Arc::clone(&queue), Arc::clone(&ended));
            thread::spawn(move || {
                let (now, span) = (Instant::now(), Duration::from_secs(1));
                let look_at = lock(&queue).watch(now, span);
                if let Some(at) = look_at {
                    lock(&queue).watch(at, span);
                }
                if lock(&queue).pop().is_some() {
                    ended.fetch_add(1, Ordering::AcqRel);
                }
            })
        };
        assert!(lock(&queue).push_sent(()).is_ok());
        hear();
        reply.join().unwrap();
        task.join().unwrap();
        assert_eq!(ended.load(Ordering::Acquire), 1);
    });
}
