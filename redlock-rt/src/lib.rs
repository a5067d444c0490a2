//! Distributed locks and synchronisers on Redis for async Rust.

#[cfg(feature = "embedded")]
pub mod embedded;
