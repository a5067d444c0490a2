//! Who is next when a lock is released: other clients, or another task of the same one.

mod crowd;
mod fair;
mod fenced;
mod java;
mod local;
mod others;
mod stage;
mod takers;
