//! Distributed locks and synchronisers on Redis for async Rust.
