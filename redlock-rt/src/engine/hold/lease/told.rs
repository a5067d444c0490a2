//! Reports the events of a hold.

use std::ops::{Deref, DerefMut};

use super::{HoldPhase, Lease};
use crate::engine::ClientEngine;
use crate::engine::hold::Hold;
use crate::meter::{LockEvent, Spanned};
use crate::shim::MutexGuard;
use crate::wire::Recipe;

/// The lease under its mutex. A change of its phase is reported before other threads can see it, so the
/// events of a hold are in order.
pub(crate) struct ToldLease<'a> {
    pub(in crate::engine::hold) hold: &'a Hold,
    pub(in crate::engine::hold) lease: MutexGuard<'a, Lease>,
}

impl Lease {
    pub(in crate::engine::hold) fn tell(
        &mut self,
        engine: &ClientEngine,
        recipe: &dyn Recipe,
        event: LockEvent,
    ) {
        self.held.hears(&event, || recipe.permits());
        if let Some(rare) = &mut self.rare {
            engine.news.ends(rare.span.hears(&event));
        }
        engine.tells(recipe, event);
    }

    pub(super) fn event(&self) -> LockEvent {
        match &self.phase {
            HoldPhase::Held => LockEvent::ValidAgain,
            HoldPhase::Suspect => LockEvent::Suspect,
            HoldPhase::Lost(reason) => {
                let (first, reason) = (self.tenants.first(), reason.clone());
                LockEvent::Lost(match first {
                    Some(tenant) => self.reason(tenant, reason),
                    None => reason,
                })
            }
            HoldPhase::Released => LockEvent::Released,
        }
    }
}

impl ToldLease<'_> {
    /// A caller that traces has the hold. Returns an unneeded span, to be dropped with no mutex held.
    pub(in crate::engine) fn traced(mut self, span: Spanned) -> Spanned {
        let is_held = self.lease.phase == HoldPhase::Held;
        let rare = self.lease.rare.get_or_insert_default();
        match is_held && !rare.span.is_some() {
            true => std::mem::replace(&mut rare.span, span),
            false => span,
        }
    }
}

impl Drop for ToldLease<'_> {
    fn drop(&mut self) {
        if std::mem::take(&mut self.lease.untold) {
            let hold = self.hold;
            let event = self.lease.event();
            self.lease.tell(&hold.engine, &*hold.recipe, event);
        }
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
