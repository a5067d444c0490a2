//! FairLock: its order, its queue in Redis, and dead waiters.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

mod stage;

mod beats;
mod cost;
mod damage;
mod dead;
mod deadlines;
mod java;
mod leaving;
mod looks;
mod order;
mod scripts;
mod wake;
