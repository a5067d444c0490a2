#![deny(unused_must_use)]

use redlock_rt::{Client, RLockGuard};

fn look(client: &Client, guard: &RLockGuard) {
    client.rlock("order:7");
    guard.is_valid();
}

fn main() {}
