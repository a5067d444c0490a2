//! Hides types from the proof that a future is `Send`.

use std::ops::Deref;
use std::sync::{Arc, Weak};

/// An `Arc` whose type is hidden from the compiler's proof that a future is `Send`.
///
/// The states of a client refer to each other in cycles. For each type in a cycle the compiler visits all
/// others, once for each shape of a future (its lifetimes and bounds). That takes a second for each method of
/// an `async_trait` that holds a guard. An `Opaque` in each cycle stops this; so does a boxed future.
pub(super) struct Opaque<T>(Arc<dyn Contents<T>>);

trait Contents<T>: Send + Sync {
    fn as_value(&self) -> &T;

    fn into_arc(self: Arc<Self>) -> Arc<T>;
}

impl<T: Send + Sync> Contents<T> for T {
    fn as_value(&self) -> &T {
        self
    }

    fn into_arc(self: Arc<Self>) -> Arc<T> {
        self
    }
}

impl<T> Opaque<T> {
    /// The same value, with its type.
    pub(super) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0).into_arc()
    }
}

impl<T: Send + Sync + 'static> From<Arc<T>> for Opaque<T> {
    fn from(value: Arc<T>) -> Self {
        Self(value)
    }
}

impl<T> Deref for Opaque<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).as_value()
    }
}

/// The same for a `Weak`.
pub(super) struct OpaqueWeak<T>(Weak<dyn Contents<T>>);

impl<T: Send + Sync + 'static> OpaqueWeak<T> {
    pub(super) fn of(value: &Arc<T>) -> Self {
        let weak = Arc::downgrade(value);
        Self(weak)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    pub(super) fn upgrade(&self) -> Option<Arc<T>> {
        self.0.upgrade().map(Contents::into_arc)
    }
}
