//! Random bits from the standard library's hasher keys; no test needs better ones.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 64 random bits.
pub(crate) fn random_u64() -> u64 {
    // Within a thread the keys of successive states differ by one, so the counter-like input is
    // mixed by SipHash.
    RandomState::new().build_hasher().finish()
}

/// A random UUID of version 4.
pub(crate) fn random_uuid() -> String {
    let (high, low) = (random_u64(), random_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0x0fff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff,
    )
}
