//! Waiters at a gate that opens while its channel is being confirmed, with the hub, in every
//! interleaving. Timers are left out: only events wake a waiter.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::loom::future::block_on;
use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::thread;

use super::{Health, Hub, WaitKey, WaiterGuard, WaiterMap, Waits, Wake};
use crate::engine::wait::latch::LatchSubject;
use crate::name::LockName;
use crate::shim::model;
use crate::wire::keys::latch_channel;

fn name() -> LockName {
    LockName::new(None, "n").unwrap()
}

/// As `wait_latch`, but without timers.
fn enter(latches: &Arc<WaiterMap<LatchSubject>>, hub: &Arc<Hub>) -> WaiterGuard<LatchSubject> {
    let waiters = latches.waiters(WaitKey {
        kind: "latch",
        name: name(),
    });
    waiters.enter(
        hub,
        Some(latch_channel(&name())),
        || Instant::now() + Duration::from_secs(600),
        None,
    )
}

/// As `LatchWait::run` without its timers.
fn pass(place: &WaiterGuard<LatchSubject>, hub: &Arc<Hub>, open: &AtomicBool) {
    loop {
        let wake = poll_fn(|cx| place.poll(cx.waker()));
        match block_on(wake) {
            Wake::Head => {}
            Wake::Try => match open.load(Ordering::Acquire) {
                true => place.finish(&Ok(Ok("".into()))),
                false => {
                    place.tried(Some(Instant::now()), Health::Answering);
                    place.waiters.listen(hub, latch_channel(&name()));
                }
            },
            Wake::Done(outcome) => {
                assert!(outcome.is_ok());
                return;
            }
            Wake::Closed => unreachable!("it is never closed here"),
        }
    }
}

/// The SUBSCRIBE of an earlier waiter is still in progress. One waiter looks before it is
/// confirmed, the other comes after.
#[test]
fn a_waiter_that_looked_before_the_subscription_looks_again() {
    model(Some(2), || {
        let hub = Arc::new(Hub::new(Duration::from_secs(600), None));
        hub.up();
        let latches = WaiterMap::new(&Arc::default());
        let earlier = enter(&latches, &hub);
        earlier.waiters.listen(&hub, latch_channel(&name()));
        drop(earlier);
        let confirm = hub.sent();
        let open = ::loom::sync::Arc::new(AtomicBool::new(false));
        let first = enter(&latches, &hub);
        let server = {
            let (hub, open) = (Arc::clone(&hub), open.clone());
            thread::spawn(move || {
                confirm();
                open.store(true, Ordering::Release);
                hub.delivered(&String::from(latch_channel(&name())));
            })
        };
        let other = {
            let (hub, latches, open) = (Arc::clone(&hub), Arc::clone(&latches), open.clone());
            thread::spawn(move || pass(&enter(&latches, &hub), &hub, &open))
        };
        pass(&first, &hub, &open);
        drop(first);
        server.join().unwrap();
        other.join().unwrap();
    });
}
