//! Kinds of functions that the attribute can stand on, without a warning; `tests/attribute/places.rs` has others.

#![deny(warnings)]
#![allow(dead_code)]

use std::sync::{Arc, LazyLock};

use redlock_rt::{Client, Error, distributed_lock};

type Reply<T> = Result<T, Error>;

#[distributed_lock(
    key = "free:<id>",
    wait = "0s",
    lease = "30s",
    max_hold = "1m30s",
    renew = true
)]
async fn free(id: u64) -> Result<u64, Error> {
    Ok(id)
}

#[distributed_lock(key = "aliased")]
pub(crate) async fn aliased() -> Reply<()> {
    Ok(())
}

#[distributed_lock(key = "unsafe")]
async unsafe fn unsafe_too() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "never")]
async fn never() -> Result<std::convert::Infallible, Error> {
    loop {
        std::future::pending::<()>().await;
    }
}

#[distributed_lock(key = "todo:<id>")]
async fn unfinished(id: u64) -> Result<(), Error> {
    todo!()
}

static LOCKS: LazyLock<Arc<Client>> = LazyLock::new(|| unreachable!());

#[distributed_lock(key = "static", client = LOCKS)]
async fn with_static_client() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "main")]
#[tokio::main(flavor = "current_thread")]
async fn above_tokio_main() -> Result<(), Error> {
    Ok(())
}

fn main() {}
