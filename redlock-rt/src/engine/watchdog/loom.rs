//! Renewal, the end of the last guard, re-entry and loss, in every interleaving, with the mutexes
//! that the watchdog and guards take and in their order: the schedule's, then the lease's.

use std::time::{Duration, Instant};

use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicBool, Ordering};
use ::loom::thread;

use super::schedule::Schedule;
use crate::engine::hold::{GuardId, Lease, Leave, LostReason, RenewalPlan, Terms};
use crate::shim::{Mutex, lock, model};

const LEASE: Duration = Duration::from_secs(30);

struct World {
    schedule: Mutex<Schedule<()>>,
    lease: Mutex<Lease>,
    /// Set with the schedule's lock held, when the release begins.
    released: AtomicBool,
    now: Instant,
}

impl World {
    /// A hold whose renewal is due.
    fn due() -> (Arc<Self>, GuardId) {
        let start = Instant::now();
        let renew = Some(LEASE / 3);
        let (lease, guard) = Lease::new(
            Terms {
                lease: LEASE,
                renew,
                max_hold: None,
                ..Terms::WITHOUT_LEASE
            },
            None,
            start,
        );
        let mut schedule = Schedule::default();
        let _ = schedule.set(1, start, ());
        let world = Self {
            schedule: Mutex::new(schedule),
            lease: Mutex::new(lease),
            released: AtomicBool::new(false),
            now: start + LEASE / 2,
        };
        (Arc::new(world), guard)
    }

    /// As the task; returns whether a renewal was sent.
    fn pick(&self) -> bool {
        let mut schedule = lock(&self.schedule);
        if schedule.pop_due(self.now).is_none() {
            return false;
        }
        let plan = lock(&self.lease).plan(self.now);
        let sent = matches!(plan, RenewalPlan::Renew(_));
        if sent {
            let released = self.released.load(Ordering::Acquire);
            assert!(!released, "a renewal was sent after the release began");
            let _ = schedule.set(1, self.now + LEASE, ());
        }
        sent
    }

    /// As `HoldGuard::leave`.
    fn leave(&self, guard: GuardId) -> Option<Leave> {
        let mut schedule = lock(&self.schedule);
        let left = lock(&self.lease).leave(guard);
        if left == Some(Leave::Last) {
            schedule.remove(1);
            self.released.store(true, Ordering::Release);
        }
        left
    }
}

#[test]
fn no_renewal_is_sent_after_the_last_guard_left() {
    model(None, || {
        let (world, guard) = World::due();
        let watchdog = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                if world.pick() {
                    lock(&world.lease).renewed(world.now, LEASE, world.now);
                }
            })
        };
        assert_eq!(world.leave(guard), Some(Leave::Last));
        watchdog.join().unwrap();
        assert!(!world.pick());
        assert!(!lock(&world.lease).is_valid(world.now));
    });
}

#[test]
fn a_loss_is_final_whatever_is_answered_beside_it() {
    model(None, || {
        let (world, guard) = World::due();
        let watchdog = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                if world.pick() {
                    lock(&world.lease).renewed(world.now, LEASE, world.now);
                }
            })
        };
        let reenter = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let terms = Terms {
                    lease: LEASE,
                    renew: None,
                    max_hold: None,
                    ..Terms::WITHOUT_LEASE
                };
                let joined = lock(&world.lease).join(terms, world.now);
                if let Ok(inner) = joined {
                    lock(&world.lease).renewed(world.now, LEASE, world.now);
                    assert!(world.leave(inner).is_some());
                }
            })
        };
        lock(&world.lease).lost(LostReason::Deleted, world.now);
        assert!(!lock(&world.lease).is_valid(world.now));
        watchdog.join().unwrap();
        reenter.join().unwrap();
        let reason = lock(&world.lease).lost_reason(world.now);
        assert_eq!(reason, Some(LostReason::Deleted));
        assert_eq!(world.leave(guard), Some(Leave::Last));
    });
}
