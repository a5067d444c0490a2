//! Who is next when a lock is released: other clients, or another task of the same one.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

mod crowd;
mod fair;
mod fenced;
mod java;
mod local;
mod others;
mod stage;
mod takers;
