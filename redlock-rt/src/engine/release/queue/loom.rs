//! Releases that are pushed, taken and put back beside a shut-down, in every interleaving.

use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering};
use ::loom::thread;

use super::Queue;
use crate::shim::{Mutex, lock};

/// Every item is run, refused, or left to who closes: exactly one of them.
#[test]
fn nothing_is_lost_and_nothing_is_run_after_the_end() {
    ::loom::model(|| {
        let queue = Arc::new(Mutex::new(Queue::default()));
        let (run, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let push = {
            let (queue, refused) = (Arc::clone(&queue), Arc::clone(&refused));
            thread::spawn(move || {
                for item in 0..2 {
                    if lock(&queue).push(item).is_err() {
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
                // The second it cannot finish: its runtime ends, and it goes back.
                let taken = lock(&queue).pop();
                if let Some(item) = taken
                    && lock(&queue).push_first(item).is_err()
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
