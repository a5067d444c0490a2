//! A list of events in their order.

use std::sync::{Arc, Mutex};

use crate::lock;

/// A list of events in their order; clones are the same list.
#[derive(Clone, Debug)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> Log<T> {
    /// Adds an event.
    pub fn add(&self, what: T) {
        lock(&self.0).push(what);
    }

    /// All events so far.
    pub fn all(&self) -> Vec<T> {
        lock(&self.0).clone()
    }
}
