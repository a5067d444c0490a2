//! Chooses the beats of one call.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::queue::BeatRequest;
use super::{FairMap, waiters::FairWaiters};
use crate::clock;
use crate::name::LockName;
use crate::shim::lock;
use crate::wire::Slot;

/// The most names in one call: few enough not to delay the server.
const MOST_NAMES: usize = 100;
/// A call that asks about this many owners takes no more names.
const MOST_OWNERS: usize = 400;

impl FairMap {
    /// Takes the names with due beats, up to the limit of one call, and the names that are due within half of
    /// the time since the first one's last beat. So names that began at different moments share calls, and a
    /// name that has just looked does not bring others forward. All names of a call are in one slot. `is_full`:
    /// the server of a slot takes no more calls now; its names are held up.
    pub(super) fn pick(
        &self,
        now: Instant,
        slot_of: impl Fn(&LockName) -> Slot,
        is_full: impl Fn(Slot) -> bool,
    ) -> (Vec<PendingBeat>, Vec<HeldUp>) {
        let mut batch: Vec<PendingBeat> = Vec::new();
        // Names of other slots are due again at the end.
        let (mut held_up, mut others) = (Vec::new(), Vec::new());
        let mut call = None;
        let (mut horizon, mut owners) = (now, 0);
        while batch.len() < MOST_NAMES && owners < MOST_OWNERS {
            let due = lock(&self.schedule).pop_due(horizon);
            let Some((_, weak)) = due else { break };
            let Some(waiters) = weak.upgrade() else {
                continue;
            };
            waiters.withdraw(now);
            let slot = slot_of(waiters.name());
            let is_full = is_full(slot);
            if is_full || call.is_some_and(|call| call != slot) {
                let name = HeldUp { slot, weak };
                match is_full {
                    true => held_up.push(name),
                    false => others.push(name),
                }
                continue;
            }
            let Some(request) = waiters.begin_beat(now) else {
                continue;
            };
            if call.replace(slot).is_none() {
                horizon = clock::after(now, request.since_last / 2);
            }
            owners += request.left_over.len() + request.oldest.len();
            batch.push(PendingBeat {
                waiters,
                request,
                answered: false,
            });
        }
        (batch, held_up)
    }
}

/// A name whose beat is due while its server takes no more calls, or another call is made. Dropping this makes
/// it due again.
pub(super) struct HeldUp {
    pub(super) slot: Slot,
    weak: Weak<FairWaiters>,
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        if let Some(waiters) = self.weak.upgrade() {
            let mut schedule = lock(&waiters.map.schedule);
            let _ = schedule.set(waiters.id, clock::now_in_drop(), Weak::clone(&self.weak));
        }
    }
}

/// A beat in progress. A beat that is dropped without a reply is repeated soon.
pub(super) struct PendingBeat {
    pub(super) waiters: Arc<FairWaiters>,
    pub(super) request: BeatRequest,
    answered: bool,
}

impl PendingBeat {
    /// Passes the reply to `act`.
    pub(super) fn answered(mut self, act: impl FnOnce(&FairWaiters)) {
        self.answered = true;
        act(&self.waiters);
    }
}

impl Drop for PendingBeat {
    fn drop(&mut self) {
        if !self.answered {
            self.waiters.beat_failed(clock::now_in_drop());
        }
    }
}
