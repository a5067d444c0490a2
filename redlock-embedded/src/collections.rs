//! The containers behind hashes, sets and sorted sets.

use super::hash::FastMap;
use super::resp::Blob;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Up to this size a map is a plain list in order of insertion, as small hashes are in Redis:
/// scripts see the same order there.
const SMALL: usize = 128;

/// The most changes of one command to a sorted set that are made one by one.
const MANY: usize = 1000;

/// A map that keeps the order of insertion while it is small.
#[derive(Debug)]
pub(super) struct OrderedMap<V> {
    items: Vec<(Blob, V)>,
    /// Position of each key, once a scan would be too long.
    index: Option<FastMap<Blob, usize>>,
}

impl<V> Default for OrderedMap<V> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            index: None,
        }
    }
}

impl<V> OrderedMap<V> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Blob, &V)> {
        self.items.iter().map(|(key, value)| (key, value))
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(key).copied(),
            None => self.items.iter().position(|(known, _)| **known == *key),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.position(key).map(|at| &self.items[at].1)
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.position(key).is_some()
    }

    /// Sets a value; true when the key is new.
    pub(super) fn insert(&mut self, key: &[u8], value: V) -> bool {
        if let Some(at) = self.position(key) {
            self.items[at].1 = value;
            return false;
        }
        let key = Blob::from(key);
        if let Some(index) = &mut self.index {
            index.insert(Blob::clone(&key), self.items.len());
        }
        self.items.push((key, value));
        if self.index.is_none() && self.items.len() > SMALL {
            let places = self.items.iter().enumerate();
            self.index = Some(
                places
                    .map(|(at, (key, _))| (Blob::clone(key), at))
                    .collect(),
            );
        }
        true
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(at) = self.position(key) else {
            return false;
        };
        match &mut self.index {
            None => {
                self.items.remove(at);
            }
            Some(index) => {
                index.remove(key);
                self.items.swap_remove(at);
                if let Some((moved, _)) = self.items.get(at) {
                    index.insert(Blob::clone(moved), at);
                }
            }
        }
        true
    }
}

/// Members ordered by score, then by their bytes.
#[derive(Debug, Default)]
pub(super) struct SortedSet {
    scores: FastMap<Blob, f64>,
    order: VecDeque<(f64, Blob)>,
    /// Set while `order` waits for the end of many changes.
    unordered: bool,
}

impl SortedSet {
    /// Makes this many changes. Each alone would move a large part of the others.
    pub(super) fn change<T>(&mut self, many: usize, changes: impl FnOnce(&mut Self) -> T) -> T {
        self.unordered = many > MANY;
        let outcome = changes(self);
        if std::mem::take(&mut self.unordered) {
            let pairs = self.scores.iter();
            self.order = pairs
                .map(|(member, score)| (*score, Blob::clone(member)))
                .collect();
            let order = self.order.make_contiguous();
            order.sort_unstable_by(|(a, left), (b, right)| a.total_cmp(b).then(left.cmp(right)));
        }
        outcome
    }

    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    pub(super) fn nth(&self, rank: usize) -> Option<(f64, &Blob)> {
        self.order.get(rank).map(|(score, member)| (*score, member))
    }

    fn place(&self, score: f64, member: &[u8]) -> usize {
        self.order.partition_point(|(other, known)| {
            // Scores are never NaN: the commands refuse it.
            match other.partial_cmp(&score).unwrap_or(Ordering::Equal) {
                Ordering::Equal => **known < *member,
                unequal => unequal == Ordering::Less,
            }
        })
    }

    /// The number of members for which the predicate, true for a prefix, holds.
    pub(super) fn prefix(&self, holds: impl Fn(f64) -> bool) -> usize {
        self.order.partition_point(|(score, _)| holds(*score))
    }

    /// Sets a score; returns the old one.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        // Small sorted sets keep whole scores as integers in Redis, which have no negative zero.
        let score = if score == 0.0 { 0.0 } else { score };
        let old = self.score(member);
        let blob = match old {
            Some(old) if old == score => return Some(old),
            Some(old) if !self.unordered => {
                let at = self.place(old, member);
                self.order
                    .remove(at)
                    .map_or_else(|| Blob::from(member), |(_, blob)| blob)
            }
            _ => Blob::from(member),
        };
        self.scores.insert(Blob::clone(&blob), score);
        if !self.unordered {
            self.order.insert(self.place(score, member), (score, blob));
        }
        old
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        if !self.unordered {
            self.order.remove(self.place(score, member));
        }
        true
    }

    pub(super) fn remove_ranks(&mut self, ranks: std::ops::Range<usize>) -> usize {
        let removed: Vec<_> = self.order.drain(ranks).collect();
        for (_, member) in &removed {
            self.scores.remove(member);
        }
        removed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn small_maps_keep_their_order() {
        let mut map = OrderedMap::default();
        for key in ["c", "a", "b"] {
            assert!(map.insert(key.as_bytes(), 1));
        }
        assert!(!map.insert(b"a", 2));
        assert!(map.remove(b"c"));
        let keys: Vec<_> = map.iter().map(|(key, _)| key.to_vec()).collect();
        assert_eq!(keys, [b"a".to_vec(), b"b".to_vec()]);
    }

    #[test]
    fn many_changes_leave_the_order_that_single_ones_leave() {
        let (mut one_by_one, mut at_once) = (SortedSet::default(), SortedSet::default());
        let fill = |set: &mut SortedSet| {
            for at in 0..3000_u32 {
                set.insert(&(at % 1700).to_be_bytes(), f64::from(at * 7919 % 500));
            }
            for at in 0..500_u32 {
                set.remove(&(at * 3).to_be_bytes());
            }
        };
        fill(&mut one_by_one);
        at_once.change(MANY + 1, fill);
        assert_eq!(one_by_one.order, at_once.order);
        assert_eq!(one_by_one.len(), at_once.order.len());
    }

    proptest! {
        #[test]
        fn ordered_map_is_a_map(steps in proptest::collection::vec((any::<u8>(), any::<bool>()), 0..600)) {
            let mut map = OrderedMap::default();
            let mut model = BTreeMap::new();
            for (step, (key, insert)) in steps.into_iter().enumerate() {
                let key = [key % 200];
                if insert {
                    prop_assert_eq!(map.insert(&key, step), model.insert(key, step).is_none());
                } else {
                    prop_assert_eq!(map.remove(&key), model.remove(&key).is_some());
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
            }
            let got: BTreeMap<_, _> = map.iter().map(|(key, value)| ([key[0]], *value)).collect();
            prop_assert_eq!(got, model);
        }

        #[test]
        fn sorted_set_is_sorted(steps in proptest::collection::vec((0_u8..20, -3_i32..4, any::<bool>()), 0..200)) {
            let mut set = SortedSet::default();
            let mut model = BTreeMap::new();
            for (member, score, insert) in steps {
                let old = model.get(&[member]).copied();
                if insert {
                    prop_assert_eq!(set.insert(&[member], f64::from(score)), old.map(f64::from));
                    model.insert([member], score);
                } else {
                    prop_assert_eq!(set.remove(&[member]), model.remove(&[member]).is_some());
                }
            }
            let want: BTreeSet<_> = model.iter().map(|(member, score)| (*score, *member)).collect();
            let got: Vec<_> = (0..set.len())
                .filter_map(|rank| set.nth(rank))
                .map(|(score, member)| (score as i32, [member[0]]))
                .collect();
            prop_assert_eq!(&got, &want.into_iter().collect::<Vec<_>>());
        }
    }
}
