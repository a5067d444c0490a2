//! CountDownLatch: every waiter wakes, nothing counts twice, and nothing is left.

mod stage;

mod basics;
mod bounds;
mod cancel;
mod cost;
mod ends;
mod lost_reply;
mod mixed;
mod waking;
