//! Re-entry by explicit owners.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use super::reentry::EnclosingHold;
use crate::engine::guard::HoldGuard;
use crate::engine::hold::{OwnedHolds, OwnerSlot, Request};
use crate::name::{ClientId, HoldId, LockName};
use crate::shim::lock_std;
use crate::wire::Recipe;

/// An explicit identity for re-entry: a call with an owner re-enters the locks that the owner
/// holds.
///
/// By default every acquisition is a new hold, and re-entry follows the call tree: a body run by
/// `guard.run(..)`, `lock.with(..)` or the attribute. Use an owner where the call tree is not
/// enough, for example across tasks that work on one job. Concurrent calls of one owner for one
/// name run one after the other and then share a hold: **they do not exclude each other**.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Client, LockOptions, Owner};
///
/// let client = Client::embedded();
/// let lock = client.rlock("job:7");
/// let owner = Owner::new();
///
/// let outer = lock.lock_with(LockOptions::new().owner(&owner)).await?;
/// let inner = lock.lock_with(LockOptions::new().owner(&owner)).await?;
/// assert_eq!(lock.hold_count().await?, 2);
/// inner.unlock().await?;
/// outer.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Owner {
    slots: Arc<Mutex<Slots>>,
}

#[derive(Default)]
struct Slots {
    map: HashMap<OwnedName, OwnerSlot>,
    /// The locks that the owner waits for, with the id of each wait.
    asking: Vec<(OwnedName, &'static str, HoldId)>,
    /// At this number of names, ended holds are removed.
    sweep_at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OwnedName {
    client: ClientId,
    name: LockName,
}

/// The hold of one lock among these holds of an owner.
pub(super) fn owned(holds: &OwnedHolds, recipe: &dyn Recipe) -> Option<EnclosingHold> {
    holds
        .valid()
        .filter_map(|hold| EnclosingHold::of(&hold, &hold.engine.id, recipe))
        .reduce(EnclosingHold::or)
}

/// Adds an acquired hold to the holds of its owner.
pub(super) fn keep(holds: &mut OwnedHolds, slot: &OwnerSlot, guard: HoldGuard) -> HoldGuard {
    guard.hold.set_slot(slot);
    holds.add(&guard.hold);
    guard
}

impl Owner {
    /// Returns a new owner, which holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn slot(&self, client: &ClientId, recipe: &dyn Recipe) -> OwnerSlot {
        let key = OwnedName {
            client: client.clone(),
            name: recipe.name().clone(),
        };
        let mut slots = lock_std(&self.slots);
        // An owner that lives long takes many names. A sweep whenever the number has doubled costs
        // O(1) per name.
        if slots.map.len() >= slots.sweep_at {
            slots.map.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || !slot.try_lock().is_ok_and(|holds| holds.is_over())
            });
            slots.sweep_at = 2 * slots.map.len().max(FEW_SLOTS);
        }
        Arc::clone(slots.map.entry(key).or_default())
    }

    /// Records the owner number of a wait until the result is dropped.
    pub(super) fn ask(&self, request: &Request) -> OwnerWait {
        let key = OwnedName {
            client: request.engine.id.clone(),
            name: request.recipe.name().clone(),
        };
        let id = HoldId::from_wire(&request.id());
        let entry = (key, request.recipe.profile().kind, id.clone());
        lock_std(&self.slots).asking.push(entry);
        OwnerWait {
            slots: Arc::clone(&self.slots),
            id,
        }
    }

    /// The id with which the owner waits for this lock at present.
    pub(crate) fn asks_as(&self, client: &ClientId, recipe: &dyn Recipe) -> Option<HoldId> {
        let slots = lock_std(&self.slots);
        let asked = slots.asking.iter().find(|(key, kind, _)| {
            let same = key.client == *client && key.name == *recipe.name();
            same && *kind == recipe.profile().kind
        });
        asked.map(|(_, _, id)| id.clone())
    }
}

/// Records that an owner waits, until it is dropped.
pub(super) struct OwnerWait {
    slots: Arc<Mutex<Slots>>,
    id: HoldId,
}

impl Drop for OwnerWait {
    fn drop(&mut self) {
        let mut slots = lock_std(&self.slots);
        slots.asking.retain(|(_, _, id)| *id != self.id);
    }
}

/// Fewer names than this are not worth a sweep.
const FEW_SLOTS: usize = 16;

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RLockWire;

    #[test]
    fn an_owner_forgets_what_it_does_not_hold() -> Result<(), crate::name::BadName> {
        let (owner, client) = (Owner::new(), ClientId::random());
        let mut held = Vec::new();
        for number in 0..1000 {
            let wire = RLockWire::new(LockName::new(None, &format!("name:{number}"))?);
            let slot = owner.slot(&client, &wire);
            // In use: a call is acquiring it.
            if number % 100 == 0 {
                held.push((wire, slot));
            }
        }
        let known = lock(&owner).map.len();
        assert!(known < 3 * FEW_SLOTS, "{known}");
        for (wire, slot) in held {
            assert!(Arc::ptr_eq(&slot, &owner.slot(&client, &wire)));
        }
        Ok(())
    }

    fn lock(owner: &Owner) -> std::sync::MutexGuard<'_, Slots> {
        lock_std(&owner.slots)
    }
}
