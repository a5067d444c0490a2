//! Says what happens to a hold.

use std::ops::{Deref, DerefMut};

use super::{HoldPhase, Lease};
use crate::engine::hold::Hold;
use crate::meter::{LockEvent, Spanned};
use crate::shim::MutexGuard;

/// The lease under its mutex. A change of its phase is told before others can see it, so what is told of
/// a hold has the order in which it happened.
pub(crate) struct ToldLease<'a> {
    hold: &'a Hold,
    lease: MutexGuard<'a, Lease>,
    before: HoldPhase,
}

impl<'a> ToldLease<'a> {
    pub(in crate::engine::hold) fn new(hold: &'a Hold, lease: MutexGuard<'a, Lease>) -> Self {
        let before = lease.phase;
        Self {
            hold,
            lease,
            before,
        }
    }

    /// The hold has begun.
    pub(in crate::engine::hold) fn begins(mut self) {
        self.tell(LockEvent::Acquired);
    }

    /// A caller that traces has the hold.
    pub(in crate::engine) fn traced(mut self) {
        let (recipe, meter) = (&self.hold.recipe, self.lease.held.meter());
        let rare = self.lease.rare.get_or_insert_default();
        if self.before == HoldPhase::Held && !rare.span.is_some() {
            rare.span = Spanned::held(meter, recipe.profile().kind, recipe.name());
        }
    }

    fn tell(&mut self, event: LockEvent) {
        let recipe = &self.hold.recipe;
        self.lease.held.hears(event, || recipe.permits());
        if let Some(rare) = &mut self.lease.rare {
            rare.span.hears(event);
        }
        self.hold.engine.tells(&**recipe, event);
    }
}

impl Drop for ToldLease<'_> {
    fn drop(&mut self) {
        let event = match self.lease.phase {
            now if now == self.before => return,
            HoldPhase::Held => LockEvent::ValidAgain,
            HoldPhase::Suspect => LockEvent::Suspect,
            HoldPhase::Lost(reason) => {
                let first = self.lease.tenants.first();
                LockEvent::Lost(first.map_or(reason, |tenant| self.lease.reason(tenant, reason)))
            }
            HoldPhase::Released => LockEvent::Released,
        };
        self.tell(event);
    }
}

impl Deref for ToldLease<'_> {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl DerefMut for ToldLease<'_> {
    fn deref_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }
}
