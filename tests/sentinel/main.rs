//! A master that sentinels name: found on each connection, and followed when it changes.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

mod failover;
mod fake;
mod found;
mod real;
