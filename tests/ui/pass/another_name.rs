//! A crate that hands out `redlock_rt` under another name, and one that has taken the usual names
//! for its own things.

#![allow(dead_code, unused_macros, non_camel_case_types)]

mod facade {
    pub use redlock_rt as locks;
}

mod core {}
mod std {}

struct Result;
struct Option;
struct Ok;
struct Err;
struct Key;

macro_rules! format_args {
    () => {};
}

macro_rules! concat {
    () => {};
}

use facade::locks::distributed_lock;

type Reply = ::core::result::Result<(), facade::locks::Error>;

#[distributed_lock(key = "order:<key>:<client>", wait = "1s", crate = facade::locks)]
async fn place(key: u64, client: u64, value: u64, error: u64) -> Reply {
    let _ = (value, error);
    ::core::result::Result::Ok(())
}

#[distributed_lock(key = "order:<options>:<fake_return>")]
async fn place_too(options: u64, fake_return: u64) -> Reply {
    ::core::result::Result::Ok(())
}

fn main() {}
