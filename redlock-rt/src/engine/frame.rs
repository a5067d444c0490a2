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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::hold::{Bid, Hold, HoldGuard};
use crate::name::{ClientId, LockName, OwnerId};
use crate::wire::{Recipe, Relation};

tokio::task_local! {
    static FRAME: Frame;
}

/// A body that runs under a hold.
#[derive(Clone)]
struct Frame(Arc<Level>);

struct Level {
    parent: Option<Frame>,
    place: Place,
    /// Bodies that re-enter from this frame side by side (`join!`) take turns.
    turn: Turn,
}

enum Place {
    Hold(Arc<Hold>),
    Post(Arc<Post>),
}

impl Place {
    fn hold(&self) -> Option<Arc<Hold>> {
        match self {
            Self::Hold(hold) => Some(Arc::clone(hold)),
            Self::Post(post) => post.lock().clone(),
        }
    }
}

/// Where a body finds the hold that it runs under, if there is one: another may take its place.
#[derive(Debug, Default)]
pub(crate) struct Post(Mutex<Option<Arc<Hold>>>);

impl Post {
    pub(crate) fn set(&self, hold: &Arc<Hold>) {
        let before = self.lock().replace(Arc::clone(hold));
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Hold>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn among sibling bodies.
pub(super) type Turn = Arc<tokio::sync::Mutex<()>>;

/// What a body runs in: the caller's frames, and its own around them.
#[derive(Clone, Default)]
pub(crate) struct Scope(Option<Frame>);

impl Scope {
    /// A frame of its own, in which `hold` may be re-entered.
    pub(crate) fn of(hold: &Arc<Hold>) -> Self {
        Self::around(Place::Hold(Arc::clone(hold)), innermost())
    }

    /// As [`of`](Self::of), for a body that runs under several holds at once.
    pub(crate) fn of_all(posts: &[Arc<Post>]) -> Self {
        let places = posts.iter().map(|post| Place::Post(Arc::clone(post)));
        let around = |outer: Self, place| Self::around(place, outer.0);
        places.fold(Self(innermost()), around)
    }

    fn around(place: Place, parent: Option<Frame>) -> Self {
        Self(Some(Frame(Arc::new(Level {
            parent,
            place,
            turn: Turn::default(),
        }))))
    }

    /// Runs `body` in it.
    pub(crate) async fn run<F: Future>(self, body: F) -> F::Output {
        match self.0 {
            Some(frame) => FRAME.scope(frame, body).await,
            None => body.await,
        }
    }

    /// Polls, or drops, a part of a body in it.
    pub(crate) fn enter(&self, part: impl FnOnce()) {
        match &self.0 {
            Some(frame) => FRAME.sync_scope(frame.clone(), part),
            None => part(),
        }
    }
}

fn innermost() -> Option<Frame> {
    FRAME.try_with(Clone::clone).ok()
}

/// A hold that the caller is under, and what a lock is to it.
pub(super) struct Around {
    pub(super) hold: Arc<Hold>,
    pub(super) relation: Relation,
    /// The turn of the bodies that re-enter from that frame.
    pub(super) turn: Option<Turn>,
}

impl Around {
    fn of(hold: &Arc<Hold>, client: &ClientId, recipe: &dyn Recipe) -> Option<Self> {
        if hold.engine.id != *client {
            return None;
        }
        match recipe.relation(&*hold.recipe) {
            Relation::None => None,
            relation => Some(Self {
                hold: Arc::clone(hold),
                relation,
                turn: None,
            }),
        }
    }

    /// Of two, the one that counts: the very lock, then one that may be joined, then the nearer.
    fn or(self, further: Self) -> Self {
        let rank = |around: &Self| match around.relation {
            Relation::Same => 0,
            Relation::Joins => 1,
            Relation::Deadlocks | Relation::None => 2,
        };
        if rank(&further) < rank(&self) {
            further
        } else {
            self
        }
    }
}

/// What the caller's frames hold of this lock.
pub(super) fn enclosing(client: &ClientId, recipe: &dyn Recipe) -> Option<Around> {
    let innermost = innermost();
    let mut frame = innermost.as_ref();
    let mut found: Option<Around> = None;
    while let Some(Frame(level)) = frame {
        let around = level.place.hold();
        if let Some(mut around) = around.and_then(|hold| Around::of(&hold, client, recipe)) {
            around.turn = Some(Arc::clone(&level.turn));
            found = Some(match found {
                None => around,
                Some(nearer) => nearer.or(around),
            });
        }
        frame = level.parent.as_ref();
    }
    found
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
    /// What it waits for, and as whom.
    asking: Vec<(Key, &'static str, OwnerId)>,
    /// With so many what is over is forgotten.
    sweep_at: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    client: ClientId,
    name: LockName,
}

/// What an owner holds of one name; locked while it is being acquired.
pub(super) type Slot = Arc<tokio::sync::Mutex<Holdings>>;

/// The holds of one owner in one name, one of a kind.
#[derive(Default)]
pub(super) struct Holdings(Vec<Weak<Hold>>);

impl Holdings {
    /// What the owner holds of this lock.
    pub(super) fn around(&self, recipe: &dyn Recipe) -> Option<Around> {
        let holds = self.0.iter().filter_map(Weak::upgrade);
        holds
            .filter(|hold| hold.is_valid())
            .filter_map(|hold| Around::of(&hold, &hold.engine.id, recipe))
            .reduce(Around::or)
    }

    /// Keeps in mind what was acquired.
    pub(super) fn keep(&mut self, slot: &Slot, guard: HoldGuard) -> HoldGuard {
        guard.hold.set_slot(slot);
        self.0.retain(|hold| {
            let hold = hold.upgrade();
            hold.is_some_and(|hold| !Arc::ptr_eq(&hold, &guard.hold) && hold.is_valid())
        });
        self.0.push(Arc::downgrade(&guard.hold));
        guard
    }

    fn is_over(&self) -> bool {
        self.0.iter().all(|hold| hold.strong_count() == 0)
    }
}

impl Owner {
    /// Makes an identity that holds nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn slot(&self, client: &ClientId, recipe: &dyn Recipe) -> Slot {
        let key = Key {
            client: client.clone(),
            name: recipe.name().clone(),
        };
        let mut slots = self.slots();
        // An owner that lives long takes many names. Swept whenever they have doubled, each costs
        // the same however many there are.
        if slots.map.len() >= slots.sweep_at {
            slots.map.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || !slot.try_lock().is_ok_and(|holds| holds.is_over())
            });
            slots.sweep_at = 2 * slots.map.len().max(FEW_SLOTS);
        }
        Arc::clone(slots.map.entry(key).or_default())
    }

    /// Keeps in mind as whom it waits, until the result is dropped.
    pub(super) fn ask(&self, bid: &Bid) -> Asking {
        let key = Key {
            client: bid.engine.id.clone(),
            name: bid.recipe.name().clone(),
        };
        let entry = (key, bid.recipe.kind(), bid.owner.clone());
        self.slots().asking.push(entry);
        Asking {
            slots: Arc::clone(&self.slots),
            owner: bid.owner.clone(),
        }
    }

    /// As whom it waits for this lock at present.
    pub(crate) fn asks_as(&self, client: &ClientId, recipe: &dyn Recipe) -> Option<OwnerId> {
        let slots = self.slots();
        let asked = slots.asking.iter().find(|(key, kind, _)| {
            key.client == *client && key.name == *recipe.name() && *kind == recipe.kind()
        });
        asked.map(|(_, _, owner)| owner.clone())
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner waits for something.
pub(super) struct Asking {
    slots: Arc<Mutex<Slots>>,
    owner: OwnerId,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.asking.retain(|(_, _, owner)| *owner != self.owner);
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

    fn lock(owner: &Owner) -> MutexGuard<'_, Slots> {
        owner.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
