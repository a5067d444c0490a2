//! Waiters at a gate that opens while its channel is being confirmed, with the hub, in every
//! interleaving. Timers are left out: only what happens wakes a waiter.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::loom::future::block_on;
use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::thread;

use super::{Ended, Gates, Health, Hub, Place, Word, lock};

const CHANNEL: &str = "c";

/// As `pass` without its timers.
fn pass(place: &Place, hub: &Arc<Hub>, open: &AtomicBool) {
    loop {
        let word = poll_fn(|cx| lock(&place.gate.state).poll(place.ticket, cx.waker()));
        match block_on(word) {
            Word::Head => {}
            Word::Look => match open.load(Ordering::Acquire) {
                true => place.tell(&Ok(Ended::Open)),
                false => {
                    place.shut(Instant::now(), Health::Answering);
                    place.gate.listen(hub);
                }
            },
            Word::Over(outcome) => {
                assert!(outcome.is_ok());
                return;
            }
            Word::Closed => unreachable!("it is never closed here"),
        }
    }
}

/// The SUBSCRIBE of an earlier waiter is still under way. One waiter looks before it is confirmed,
/// the other comes after.
#[test]
fn who_looked_before_another_listened_looks_again() {
    let mut builder = ::loom::model::Builder::new();
    // Of more there are too many here.
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let hub = Arc::new(Hub::new(Duration::from_secs(600)));
        hub.up();
        let gates = Arc::new(Gates::default());
        let earlier = gates.enter(&hub, CHANNEL);
        earlier.gate.listen(&hub);
        drop(earlier);
        let confirm = hub.sent();
        let open = ::loom::sync::Arc::new(AtomicBool::new(false));
        let first = gates.enter(&hub, CHANNEL);
        let server = {
            let (hub, open) = (Arc::clone(&hub), open.clone());
            thread::spawn(move || {
                confirm();
                open.store(true, Ordering::Release);
                hub.delivered(CHANNEL);
            })
        };
        let other = {
            let (hub, gates, open) = (Arc::clone(&hub), Arc::clone(&gates), open.clone());
            thread::spawn(move || pass(&gates.enter(&hub, CHANNEL), &hub, &open))
        };
        pass(&first, &hub, &open);
        drop(first);
        server.join().unwrap();
        other.join().unwrap();
    });
}
