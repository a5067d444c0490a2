//! Values by key that exist while they are used.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;

use crate::shim::{Mutex, lock};

/// Values by key. The map keeps none alive: a value [forgets](Self::forget) itself when its last
/// reference is dropped. Hashes are seeded at random, since names may come from untrusted input.
///
/// # Lock order
///
/// The map's lock is taken when the last reference to a value is dropped, so no reference is dropped
/// under it.
#[derive(Debug)]
pub(crate) struct WeakMap<K, V> {
    values: Mutex<HashMap<K, Weak<V>, RandomState>>,
}

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self {
            values: Mutex::new(HashMap::default()),
        }
    }
}

impl<K: Eq + Hash + Ord + Clone, V> WeakMap<K, V> {
    /// The value of a key, made if there is none.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce(K) -> Arc<V>) -> Arc<V> {
        let mut values = lock(&self.values);
        let known = values.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let value = make(key.clone());
            values.insert(key, Arc::downgrade(&value));
            value
        })
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        lock(&self.values).get(key).and_then(Weak::upgrade)
    }

    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        let values = lock(&self.values);
        let known = values
            .iter()
            .filter_map(|(key, value)| Some((key, value.upgrade()?)));
        let mut all: Vec<_> = known.collect();
        // In an order that makes a simulation repeatable.
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, value)| value).collect()
    }

    /// The number of values in use.
    pub(crate) fn len(&self) -> usize {
        let values = lock(&self.values);
        let used = values.values().filter(|value| value.strong_count() > 0);
        used.count()
    }

    /// The last reference to this value is being dropped. Another value of this key may have been made
    /// since; it stays.
    pub(crate) fn forget(&self, key: &K, value: &V) {
        let mut values = lock(&self.values);
        let is_it = |known: &Weak<V>| std::ptr::eq(known.as_ptr(), value);
        if values.get(key).is_some_and(is_it) {
            values.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_made_since_stays() {
        let map = WeakMap::default();
        let value = |key: &str| map.get_or_make(key.to_owned(), Arc::new);
        let [a, b] = ["a", "b"].map(value);
        assert!(Arc::ptr_eq(&a, &value("a")));
        assert!(Arc::ptr_eq(&b, &map.get("b").unwrap()));
        assert_eq!(map.all(), [Arc::clone(&a), Arc::clone(&b)]);
        let before = Arc::into_inner(a).unwrap();
        assert_eq!((map.get("a"), map.len()), (None, 1));
        let again = value("a");
        map.forget(&"a".to_owned(), &before);
        assert!(Arc::ptr_eq(&again, &value("a")));
        map.forget(&"b".to_owned(), &b);
        assert_eq!(map.all(), [again]);
    }
}
