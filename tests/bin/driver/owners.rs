//! Owners: the identity, the command queue and the guards of each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock_rt::{GuardState, HoldId, Owner, Unlocked};
use tests::lock;
use tokio::{
    sync::{RwLock, watch},
    time::timeout,
};

use super::{
    answer::{Failure, Outcome},
    kinds::{Held, LockId},
    turns::Turns,
};

/// The owners of one client, by name.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_word: Mutex<HashMap<String, Arc<OwnerState>>>,
}

#[derive(Debug, Default)]
pub(crate) struct OwnerState {
    pub(crate) identity: Owner,
    pub(crate) turns: Turns,
    /// The guards of each lock; the last re-entry is at the end.
    guards: Mutex<HashMap<LockId, Vec<Arc<Slot>>>>,
}

/// A guard that other commands may use while it is being released.
#[derive(Debug)]
struct Slot {
    guard: RwLock<Option<Box<dyn Held>>>,
    /// Tells commands that wait for the loss, and so borrow the guard, that it will be released.
    leaving: watch::Sender<bool>,
}

impl Owners {
    pub(crate) fn get(&self, word: &str) -> Arc<OwnerState> {
        lock(&self.by_word)
            .entry(word.to_owned())
            .or_default()
            .clone()
    }

    /// Drops all guards, which queues their releases.
    pub(crate) fn drop_all(&self) {
        for owner in lock(&self.by_word).values() {
            lock(&owner.guards).clear();
        }
    }
}

impl OwnerState {
    pub(crate) fn add(&self, of: &LockId, guard: Box<dyn Held>) {
        let slot = Slot {
            guard: RwLock::new(Some(guard)),
            leaving: watch::Sender::new(false),
        };
        lock(&self.guards)
            .entry(of.clone())
            .or_default()
            .push(Arc::new(slot));
    }

    /// Releases the guard of the last re-entry.
    pub(crate) async fn unlock(&self, of: &LockId) -> Outcome {
        let guard = self.take_guard(of).await?;
        match guard.unlock().await? {
            Unlocked::Released => Ok("true".to_owned()),
            Unlocked::StillHeld => Ok("false".to_owned()),
            _ => Err(Failure::lost(format!(
                "the lock {of} had expired or was lost before"
            ))),
        }
    }

    /// Takes the guard of the last re-entry out.
    async fn take_guard(&self, of: &LockId) -> Result<Box<dyn Held>, Failure> {
        let slot = self.take(of).ok_or_else(|| not_held(of))?;
        slot.leaving.send_replace(true);
        let guard = slot.guard.write().await.take();
        guard.ok_or_else(|| not_held(of))
    }

    /// Makes a ticket of the guard.
    pub(crate) async fn ticket(&self, of: &LockId) -> Outcome {
        self.take_guard(of).await?.ticket().map_err(|(guard, why)| {
            self.add(of, guard);
            why
        })
    }

    /// Converts the guard of the last re-entry into one of the other mode.
    pub(crate) async fn convert(&self, from: &LockId) -> Outcome {
        let guard = self.take_guard(from).await?;
        match guard.convert().await {
            Ok(guard) => {
                self.add(&from.other_mode(), guard);
                Ok("ok".to_owned())
            }
            Err((guard, why)) => {
                self.add(from, guard);
                Err(why)
            }
        }
    }

    /// Whether the guard is valid.
    pub(crate) fn held(&self, of: &LockId) -> bool {
        let held = |guard: &dyn Held| matches!(guard.state(), GuardState::Held { .. });
        self.ask(of, held).unwrap_or_default()
    }

    /// The hold count of the owner, 0 after a loss.
    pub(crate) fn hold_count(&self, of: &LockId) -> u64 {
        let count = |guard: &dyn Held| {
            if guard.state().is_valid() {
                u64::from(guard.hold_count())
            } else {
                0
            }
        };
        self.ask(of, count).unwrap_or_default()
    }

    /// The identity on the wire of the owner's present hold.
    pub(crate) fn id(&self, of: &LockId) -> Option<HoldId> {
        self.ask(of, |guard| {
            guard.state().is_valid().then(|| guard.hold_id())
        })
        .flatten()
    }

    /// Waits for the lost signal: `false` if it does not come in time, or if the guard is released.
    pub(crate) async fn lost(&self, of: &LockId, wait: Duration) -> Outcome {
        let slot = self.last(of).ok_or_else(|| not_held(of))?;
        let mut leaving = slot.leaving.subscribe();
        let guard = slot.guard.read().await;
        let guard = guard.as_ref().ok_or_else(|| not_held(of))?;
        let lost = async {
            tokio::select! {
                biased;
                _ = guard.lost() => true,
                _ = leaving.wait_for(|&leaving| leaving) => false,
            }
        };
        Ok(timeout(wait, lost).await.unwrap_or_default().to_string())
    }

    fn ask<T>(&self, of: &LockId, question: impl FnOnce(&dyn Held) -> T) -> Option<T> {
        let slot = self.last(of)?;
        // Only a command that releases the guard locks it for writing.
        let guard = slot.guard.try_read().ok()?;
        guard.as_deref().map(question)
    }

    fn last(&self, of: &LockId) -> Option<Arc<Slot>> {
        lock(&self.guards).get(of)?.last().cloned()
    }

    fn take(&self, of: &LockId) -> Option<Arc<Slot>> {
        let mut guards = lock(&self.guards);
        let slots = guards.get_mut(of)?;
        let slot = slots.pop();
        if slots.is_empty() {
            guards.remove(of);
        }
        slot
    }
}

fn not_held(of: &LockId) -> Failure {
    Failure::not_owner(format!("this owner has no guard of {of}"))
}
