//! CountDownLatch: every waiter wakes, nothing counts twice, and nothing is left.

// clippy.toml allows it in test functions, but not in what they call.
#![allow(clippy::unwrap_used)]

mod stage;

mod basics;
mod bounds;
mod cancel;
mod cost;
mod ends;
mod lost_reply;
mod mixed;
mod waking;
