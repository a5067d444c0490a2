//! Values by key that exist while they are used.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;

use crate::shim::{Mutex, lock};

/// A value that knows its key.
pub(crate) trait Keyed<K> {
    fn key(&self) -> &K;
}

/// Values by key. The map keeps none alive: a value [forgets](Self::forget) itself when its last
/// reference is dropped.
///
/// It has the hashes of the keys only: there is an entry for each lock that is held, and its value
/// knows the key. Hashes are seeded at random, since names may come from strangers; keys with the same
/// hash cost time, and nothing else.
///
/// # Lock order
///
/// The map's lock is taken when the last reference to a value is dropped, so no reference is dropped
/// under it.
#[derive(Debug)]
pub(crate) struct WeakMap<K, V, S = RandomState> {
    values: Mutex<Values<V>>,
    hasher: S,
    keys: std::marker::PhantomData<fn(K)>,
}

#[derive(Debug)]
struct Values<V> {
    by_hash: HashMap<u64, Weak<V>, BuildHasherDefault<Hashed>>,
    /// Values of other keys with the same hashes; there are practically never any.
    others: Vec<Weak<V>>,
}

/// Hashes hashes.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

impl<K, V, S: Default> Default for WeakMap<K, V, S> {
    fn default() -> Self {
        Self {
            values: Mutex::new(Values {
                by_hash: HashMap::default(),
                others: Vec::new(),
            }),
            hasher: S::default(),
            keys: std::marker::PhantomData,
        }
    }
}

impl<K: Eq + Hash + Ord, V: Keyed<K>, S: BuildHasher> WeakMap<K, V, S> {
    /// The value of a key, made if there is none.
    pub(crate) fn get_or_make(&self, key: K, make: impl FnOnce(K) -> Arc<V>) -> Arc<V> {
        let hash = self.hasher.hash_one(&key);
        // Dropped behind the lock.
        let mut unlike = Vec::new();
        let mut values = lock(&self.values);
        if let Some(known) = values.find(hash, |known| known.key() == &key, &mut unlike) {
            return known;
        }
        let value = make(key);
        values.add(hash, &value);
        value
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut unlike = Vec::new();
        let values = lock(&self.values);
        values.find(hash, |known| known.key().borrow() == key, &mut unlike)
    }

    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        let mut all = self.unsorted();
        // In an order that a simulation repeats.
        all.sort_unstable_by(|one, other| one.key().cmp(other.key()));
        all
    }

    /// The number of values in use.
    pub(crate) fn len(&self) -> usize {
        self.unsorted().len()
    }

    fn unsorted(&self) -> Vec<Arc<V>> {
        let values = lock(&self.values);
        let known = values.by_hash.values().chain(&values.others);
        known.filter_map(Weak::upgrade).collect()
    }

    /// The last reference to this value is being dropped.
    pub(crate) fn forget(&self, key: &K, value: &V) {
        let hash = self.hasher.hash_one(key);
        lock(&self.values).remove(hash, value);
    }
}

impl<V> Values<V> {
    /// Values that were looked at and are others go to `unlike`: these may be the last references.
    fn find(
        &self,
        hash: u64,
        is_it: impl Fn(&V) -> bool,
        unlike: &mut Vec<Arc<V>>,
    ) -> Option<Arc<V>> {
        let first = self.by_hash.get(&hash).into_iter();
        for value in first.chain(&self.others).filter_map(Weak::upgrade) {
            if is_it(&value) {
                return Some(value);
            }
            unlike.push(value);
        }
        None
    }

    fn add(&mut self, hash: u64, value: &Arc<V>) {
        let new = Arc::downgrade(value);
        match self.by_hash.entry(hash) {
            Entry::Vacant(place) => drop(place.insert(new)),
            // Its last reference is being dropped.
            Entry::Occupied(mut known) if known.get().strong_count() == 0 => {
                known.insert(new);
            }
            Entry::Occupied(_) => self.others.push(new),
        }
    }

    /// Another value of this key may have been made since, and stays.
    fn remove(&mut self, hash: u64, value: &V) {
        let is_it = |known: &Weak<V>| std::ptr::eq(known.as_ptr(), value);
        if self.by_hash.get(&hash).is_some_and(is_it) {
            self.by_hash.remove(&hash);
        } else {
            self.others.retain(|known| !is_it(known));
        }
    }
}

#[cfg(all(test, not(redlock_loom)))]
mod tests {
    use super::*;

    /// All keys have the same hash.
    type Collides = BuildHasherDefault<One>;

    #[derive(Default)]
    struct One;

    impl Hasher for One {
        fn finish(&self) -> u64 {
            1
        }

        fn write(&mut self, _: &[u8]) {}
    }

    struct Value {
        map: Arc<WeakMap<String, Self, Collides>>,
        key: String,
    }

    impl Keyed<String> for Value {
        fn key(&self) -> &String {
            &self.key
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            self.map.forget(&self.key, self);
        }
    }

    #[test]
    fn keys_with_one_hash_have_values_of_their_own() {
        let map = Arc::new(WeakMap::default());
        let value = |key: &str| {
            map.get_or_make(key.to_owned(), |key| {
                let map = Arc::clone(&map);
                Arc::new(Value { map, key })
            })
        };
        let [a, b, c] = ["a", "b", "c"].map(value);
        for one in [&a, &b, &c] {
            assert!(Arc::ptr_eq(one, &value(&one.key)));
            assert!(
                map.get(&*one.key)
                    .is_some_and(|known| Arc::ptr_eq(one, &known))
            );
        }
        let keys = || {
            map.all()
                .iter()
                .map(|one| one.key.clone())
                .collect::<String>()
        };
        assert_eq!(keys(), "abc");
        drop(a);
        assert_eq!((keys().as_str(), map.get("a").is_none()), ("bc", true));
        let again = value("a");
        drop(c);
        assert_eq!((keys().as_str(), map.len()), ("ab", 2));
        drop((again, b));
        assert_eq!(keys(), "");
    }
}
