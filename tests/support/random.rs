//! Random bits: from a seed, so that a test can be repeated, or from the standard library's hasher
//! keys.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 random bits.
pub(crate) fn random_u64() -> u64 {
    // Within a thread the keys of successive states differ by one, so the counter-like input is
    // mixed by SipHash.
    RandomState::new().build_hasher().finish()
}

/// The UUID of version 4 with these bits.
pub(crate) fn uuid_of(high: u64, low: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0x0fff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff,
    )
}

/// Random choices that follow from a seed: splitmix64.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() % bound as u64).expect("below a usize")
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}
