//! One numbered database: keys, their values and their expiry.

use super::collections::{OrderedMap, SortedSet};
use super::hash::FastMap;
use super::resp::{Blob, Fail};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// Expired keys that one command removes in addition to its own work.
const SWEEP: usize = 8;

#[derive(Debug)]
pub(super) enum Value {
    Str(Blob),
    Hash(OrderedMap<Blob>),
    List(VecDeque<Blob>),
    Set(OrderedMap<()>),
    Zset(SortedSet),
}

impl Value {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Str(_) => "string",
            Self::Hash(_) => "hash",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
        }
    }
}

#[derive(Debug)]
struct StoredValue {
    value: Value,
    /// Milliseconds since the Unix epoch.
    expires: Option<i64>,
    /// The earliest time for which this key is in the queue.
    queued: Option<i64>,
}

/// # Invariants
///
/// 1. Every entry that expires is in `queue` at or before its time: a sweep never misses one.
/// 2. No container in `entries` is empty once a command has ended.
/// 3. `queue` is at most twice as long as `entries`, plus a constant: stale places are removed.
#[derive(Debug, Default)]
pub(super) struct Db {
    entries: FastMap<Blob, StoredValue>,
    /// When to check a key again. If a key's expiry becomes later, its place does not change.
    queue: BinaryHeap<Reverse<(i64, Blob)>>,
    /// Milliseconds since the Unix epoch, frozen for the length of a command or script.
    pub(super) now: i64,
}

macro_rules! typed {
    ($read:ident, $variant:ident, $type:ty) => {
        pub(super) fn $read(&mut self, key: &[u8]) -> Result<Option<&$type>, Fail> {
            match self.value(key) {
                None => Ok(None),
                Some(Value::$variant(value)) => Ok(Some(value)),
                Some(_) => Err(WRONG_TYPE.into()),
            }
        }
    };
    ($read:ident, $change:ident, $create:ident, $variant:ident, $type:ty) => {
        typed!($read, $variant, $type);

        /// Changes the container, if there is one, and removes it if it became empty (invariant 2).
        pub(super) fn $change<T>(
            &mut self,
            key: &[u8],
            change: impl FnOnce(&mut $type) -> T,
        ) -> Result<Option<T>, Fail> {
            self.expire_if_due(key);
            let Some(entry) = self.entries.get_mut(key) else {
                return Ok(None);
            };
            let Value::$variant(value) = &mut entry.value else {
                return Err(WRONG_TYPE.into());
            };
            let outcome = change(value);
            if value.is_empty() {
                self.entries.remove(key);
            }
            Ok(Some(outcome))
        }

        /// Creates the container; the caller puts something in (invariant 2).
        pub(super) fn $create(&mut self, key: &[u8]) -> Result<&mut $type, Fail> {
            self.expire_if_due(key);
            if !self.entries.contains_key(key) {
                self.create(key, Value::$variant(<$type>::default()));
            }
            match self.entries.get_mut(key).map(|entry| &mut entry.value) {
                Some(Value::$variant(value)) => Ok(value),
                _ => Err(WRONG_TYPE.into()),
            }
        }
    };
}

impl Db {
    typed!(string, Str, Blob);
    typed!(hash, change_hash, hash_or_new, Hash, OrderedMap<Blob>);
    typed!(list, change_list, list_or_new, List, VecDeque<Blob>);
    typed!(set, change_set, set_or_new, Set, OrderedMap<()>);
    typed!(zset, change_zset, zset_or_new, Zset, SortedSet);

    pub(super) fn value(&mut self, key: &[u8]) -> Option<&Value> {
        self.expire_if_due(key);
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub(super) fn exists(&mut self, key: &[u8]) -> bool {
        self.value(key).is_some()
    }

    /// Sets a string and drops the old value; keeps the expiry on demand.
    pub(super) fn set_string(&mut self, key: &[u8], text: Blob, keep_expiry: bool) {
        self.expire_if_due(key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = Value::Str(text);
            if !keep_expiry {
                entry.expires = None;
            }
        } else {
            self.create(key, Value::Str(text));
        }
    }

    fn create(&mut self, key: &[u8], value: Value) {
        let entry = StoredValue {
            value,
            expires: None,
            queued: None,
        };
        self.entries.insert(Blob::from(key), entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.expire_if_due(key);
        self.entries.remove(key).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.entries = FastMap::default();
        self.queue.clear();
    }

    // Expiry

    pub(super) fn expiry(&mut self, key: &[u8]) -> Option<Option<i64>> {
        self.expire_if_due(key);
        self.entries.get(key).map(|entry| entry.expires)
    }

    /// Sets when a key expires. If that is in the past, the next access removes the key.
    pub(super) fn expire_at(&mut self, key: &[u8], at: i64) {
        let Some((name, _)) = self.entries.get_key_value(key) else {
            return;
        };
        let name = Blob::clone(name);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.expires = Some(at);
        if entry.queued.is_none_or(|queued| queued > at) {
            entry.queued = Some(at);
            self.queue.push(Reverse((at, name)));
            self.shrink_queue();
        }
    }

    pub(super) fn persist(&mut self, key: &[u8]) -> bool {
        self.expire_if_due(key);
        let entry = self.entries.get_mut(key);
        entry.and_then(|entry| entry.expires.take()).is_some()
    }

    fn expire_if_due(&mut self, key: &[u8]) {
        let due = self.entries.get(key).and_then(|entry| entry.expires);
        // As in Redis, a key is still there with 0 ms left.
        if due.is_some_and(|at| at < self.now) {
            self.entries.remove(key);
        }
    }

    /// Removes a few expired keys, so that a key that no command reads does not stay for ever.
    pub(super) fn sweep_some(&mut self) {
        for _ in 0..SWEEP {
            if !self.sweep_next() {
                return;
            }
        }
    }

    /// Removes every key that is due.
    pub(super) fn sweep_all(&mut self) {
        while self.sweep_next() {}
    }

    fn sweep_next(&mut self) -> bool {
        match self.queue.peek() {
            Some(Reverse((at, _))) if *at < self.now => {}
            _ => return false,
        }
        let Some(Reverse((at, key))) = self.queue.pop() else {
            return false;
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return true;
        };
        if entry.queued != Some(at) {
            return true;
        }
        entry.queued = None;
        match entry.expires {
            Some(later) if later >= self.now => self.expire_at(&key, later),
            Some(_) => self.expire_if_due(&key),
            None => {}
        }
        true
    }

    /// Upholds invariant 3. The cost is amortised over the pushes since the last rebuild.
    fn shrink_queue(&mut self) {
        if self.queue.len() <= 64 + 2 * self.entries.len() {
            return;
        }
        let mut places = Vec::with_capacity(self.entries.len());
        for (key, entry) in &mut self.entries {
            entry.queued = entry.expires;
            if let Some(at) = entry.expires {
                places.push(Reverse((at, Blob::clone(key))));
            }
        }
        self.queue = places.into();
    }

    // The keyspace as a whole. Sweep first: expired keys must not be seen.

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (&Blob, &Value)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn db_with(keys: &[(&str, i64)]) -> Db {
        let mut db = Db::default();
        for (key, at) in keys {
            db.set_string(key.as_bytes(), Blob::from(&b"v"[..]), false);
            db.expire_at(key.as_bytes(), *at);
        }
        db
    }

    #[test]
    fn due_keys_are_gone_at_access_and_by_sweeping() {
        let mut db = db_with(&[("a", 10), ("b", 20), ("c", 30)]);
        db.now = 10;
        assert!(db.exists(b"a"));
        db.now = 11;
        assert!(!db.exists(b"a"));
        db.now = 25;
        db.sweep_all();
        assert_eq!(db.len(), 1);
    }

    #[test]
    fn a_renewed_key_outlives_its_first_place_in_the_queue() {
        let mut db = db_with(&[("a", 10), ("b", 10)]);
        db.expire_at(b"a", 100);
        db.expire_at(b"b", 50);
        db.now = 50;
        db.sweep_all();
        assert!(db.exists(b"a"));
        db.now = 100;
        db.sweep_all();
        assert_eq!(db.len(), 1);
        db.now = 101;
        db.sweep_all();
        assert_eq!(db.len(), 0);
    }

    #[test]
    fn renewals_and_short_lives_do_not_grow_the_queue() {
        let mut db = db_with(&[("held", 1_000_000)]);
        for round in 0..10_000 {
            db.expire_at(b"held", 2_000_000 - round);
            db.set_string(b"brief", Blob::from(&b"v"[..]), false);
            db.expire_at(b"brief", 3_000_000 + round);
            db.remove(b"brief");
        }
        assert!(db.queue.len() <= 70, "{}", db.queue.len());
    }
}
