//! Values by key that exist while they are used.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::shim::{Mutex, lock};

/// Values by key. The map keeps none alive: a value [forgets](Self::forget) itself when its last
/// reference is dropped.
///
/// # Lock order
///
/// The map's lock is taken when the last reference to a value is dropped, so no reference is dropped
/// under it.
#[derive(Debug)]
pub(crate) struct WeakMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Ord, V> WeakMap<K, V> {
    /// The value of a key, made if there is none.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce() -> Arc<V>) -> Arc<V> {
        let mut map = lock(&self.0);
        let known = map.entry(key).or_default();
        known.upgrade().unwrap_or_else(|| {
            let value = make();
            *known = Arc::downgrade(&value);
            value
        })
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        lock(&self.0).get(key).and_then(Weak::upgrade)
    }

    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        let map = lock(&self.0);
        let known = map.iter();
        let mut all: Vec<_> = known
            .filter_map(|(key, value)| Some((key, value.upgrade()?)))
            .collect();
        // In an order that a simulation repeats.
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, value)| value).collect()
    }

    /// How many keys there are of this kind.
    pub(crate) fn count(&self, is_one: impl Fn(&K) -> bool) -> usize {
        lock(&self.0).keys().filter(|key| is_one(key)).count()
    }

    /// The last reference to this value is being dropped.
    pub(crate) fn forget(&self, key: &K, value: &V) {
        let mut map = lock(&self.0);
        // Another value of this key may have been made since.
        let known = map.get(key);
        if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), value)) {
            map.remove(key);
        }
    }
}
