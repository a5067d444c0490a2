//! Who may re-enter what: the call tree, and owners that callers make themselves.
//!
//! Neither threads nor tasks are owners: a task polls several futures at once (`join!`), and moves
//! between threads. A frame is opened around a body that runs under a guard, and inside it a lock
//! of the same name re-enters the hold of the guard. Siblings under `join!` have the frames of
//! their callers, not each other's, so they exclude each other; where their caller holds the very
//! lock, their bodies (`lock.with`, the attribute) re-enter it one after the other.
//! `tokio::spawn` inherits nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::hold::Hold;
use crate::name::{ClientId, LockName};
use crate::wire::Recipe;

tokio::task_local! {
    static FRAME: Frame;
}

/// A body that runs under a hold.
#[derive(Clone)]
struct Frame(Arc<Level>);

struct Level {
    parent: Option<Frame>,
    hold: Arc<Hold>,
    /// Bodies that re-enter from this frame side by side (`join!`) take turns.
    turn: Turn,
}

/// The turn among sibling bodies.
pub(super) type Turn = Arc<tokio::sync::Mutex<()>>;

/// Runs `body` in a frame of its own, in which `hold` may be re-entered.
pub(crate) async fn under<F: Future>(hold: &Arc<Hold>, body: F) -> F::Output {
    let parent = FRAME.try_with(Clone::clone).ok();
    let frame = Frame(Arc::new(Level {
        parent,
        hold: Arc::clone(hold),
        turn: Turn::default(),
    }));
    FRAME.scope(frame, body).await
}

/// The hold of an enclosing frame that a lock of this kind and name re-enters, and the turn of the
/// bodies that do so from that frame.
pub(super) fn enclosing(client: &ClientId, recipe: &dyn Recipe) -> Option<(Arc<Hold>, Turn)> {
    let innermost = FRAME.try_with(Clone::clone).ok();
    let mut frame = innermost.as_ref();
    while let Some(Frame(level)) = frame {
        if matches(&level.hold, client, recipe) {
            return Some((Arc::clone(&level.hold), Arc::clone(&level.turn)));
        }
        frame = level.parent.as_ref();
    }
    None
}

fn matches(hold: &Hold, client: &ClientId, recipe: &dyn Recipe) -> bool {
    hold.recipe.kind() == recipe.kind()
        && hold.recipe.name() == recipe.name()
        && hold.engine.id == *client
}

/// An identity that a caller makes and shares: who locks with it re-enters what it holds.
///
/// By default every acquisition is a fresh hold, and only the call tree re-enters: a body run by
/// `guard.run(..)`, `lock.with(..)` or the attribute. Use an owner where the call tree does not
/// tell, for instance across tasks that work on one job. Locks of one name taken under one owner
/// at the same time are taken one after the other, and then share a hold: **they do not exclude
/// each other**.
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
    map: HashMap<Key, Slot>,
    /// With so many what is over is forgotten.
    sweep_at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    client: ClientId,
    kind: &'static str,
    name: LockName,
}

/// What an owner holds of one name; locked while it is being acquired.
pub(super) type Slot = Arc<tokio::sync::Mutex<Weak<Hold>>>;

impl Owner {
    /// Makes an identity that holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn slot(&self, client: &ClientId, recipe: &dyn Recipe) -> Slot {
        let key = Key {
            client: client.clone(),
            kind: recipe.kind(),
            name: recipe.name().clone(),
        };
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // An owner that lives long takes many names. Swept whenever they have doubled, each costs
        // the same however many there are.
        if slots.map.len() >= slots.sweep_at {
            slots.map.retain(|_, slot| {
                let over = |hold: &Weak<Hold>| hold.strong_count() == 0;
                Arc::strong_count(slot) > 1 || !slot.try_lock().is_ok_and(|hold| over(&hold))
            });
            slots.sweep_at = 2 * slots.map.len().max(FEW_SLOTS);
        }
        Arc::clone(slots.map.entry(key).or_default())
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
            // In use: somebody is acquiring it.
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
        owner.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
