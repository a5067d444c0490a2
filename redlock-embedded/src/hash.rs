//! A fast hasher for short byte keys. It is seeded: clients choose the keys, and could otherwise choose
//! colliding ones, 60 000 of which took 48 s.

use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};

pub(super) type FastMap<K, V> = HashMap<K, V, RandomState>;
pub(super) type FastSet<K> = HashSet<K, RandomState>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    /// An unseeded hasher returned to its start after each of these, which any client can compute.
    #[test]
    fn members_that_were_made_to_fall_together_took_a_minute() {
        let fold = |word: u64| {
            let product = u128::from(word) * 0x9e37_79b9_7f4a_7c15;
            (product as u64) ^ (product >> 64) as u64
        };
        let build = RandomState::default();
        let hashes = (0..4096).map(|word: u64| {
            let member = [word.to_le_bytes(), fold(word).to_le_bytes()].concat();
            build.hash_one(&member[..]) & 0xffff
        });
        let spread = hashes.collect::<HashSet<u64>>().len();
        assert!(spread > 3500, "{spread} of 4096 distinct");
    }
}
