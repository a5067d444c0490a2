//! In tests, a primitive is loom's if a model makes it, and else that of the standard library.
//!
//! So models run among the other tests. A `--cfg` for them would compile the crate and its dependencies
//! once more.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::lock_std;

thread_local! {
    /// Loom runs all threads of a model on the thread that checks the model.
    static IN_A_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Checks all interleavings, or only those with up to this many preemptions where there are too many.
pub(crate) fn model(preemptions: Option<usize>, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    let _end = InAModel::begin();
    builder.check(run);
}

/// Resets the flag also after a model that fails: the next test may run on the same thread.
struct InAModel;

impl InAModel {
    fn begin() -> Self {
        IN_A_MODEL.set(true);
        Self
    }
}

impl Drop for InAModel {
    fn drop(&mut self) {
        IN_A_MODEL.set(false);
    }
}

#[derive(Debug)]
pub(crate) enum Mutex<T> {
    Std(std::sync::Mutex<T>),
    Loom(loom::sync::Mutex<T>),
}

pub(crate) enum MutexGuard<'a, T> {
    Std(std::sync::MutexGuard<'a, T>),
    Loom(loom::sync::MutexGuard<'a, T>),
}

/// As [`lock_std`].
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex {
        Mutex::Std(mutex) => MutexGuard::Std(lock_std(mutex)),
        Mutex::Loom(mutex) => {
            MutexGuard::Loom(mutex.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        if IN_A_MODEL.get() {
            Self::Loom(loom::sync::Mutex::new(value))
        } else {
            Self::Std(std::sync::Mutex::new(value))
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Std(guard) => guard,
            Self::Loom(guard) => guard,
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Std(guard) => guard,
            Self::Loom(guard) => guard,
        }
    }
}

#[derive(Debug)]
pub(crate) enum AtomicBool {
    Std(std::sync::atomic::AtomicBool),
    Loom(loom::sync::atomic::AtomicBool),
}

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        if IN_A_MODEL.get() {
            Self::Loom(loom::sync::atomic::AtomicBool::new(value))
        } else {
            Self::Std(std::sync::atomic::AtomicBool::new(value))
        }
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        match self {
            Self::Std(flag) => flag.load(order),
            Self::Loom(flag) => flag.load(order),
        }
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        match self {
            Self::Std(flag) => flag.store(value, order),
            Self::Loom(flag) => flag.store(value, order),
        }
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        match self {
            Self::Std(flag) => flag.swap(value, order),
            Self::Loom(flag) => flag.swap(value, order),
        }
    }
}

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}
