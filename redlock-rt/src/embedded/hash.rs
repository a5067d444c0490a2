//! A fast hasher for short byte keys.
//!
//! The keys come from the user's own tests, so resistance to crafted collisions is not needed.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;
pub(super) type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Default)]
pub(super) struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(SEED | 1);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !tail.is_empty() {
            let mut last = [0; 8];
            last[..tail.len()].copy_from_slice(tail);
            self.mix(u64::from_le_bytes(last));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        // Hash tables take their bucket from the low bits and their tag from the high ones.
        self.0 ^ (self.0 >> 32) ^ SEED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn similar_keys_spread() {
        let build = BuildHasherDefault::<FastHasher>::default();
        let low: HashSet<u64> = (0..4096)
            .map(|i| build.hash_one(format!("key:{i}").as_bytes()) & 0xffff)
            .collect();
        assert!(low.len() > 3500, "{} of 4096 distinct", low.len());
    }
}
