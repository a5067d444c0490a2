//! Kinds of functions that the attribute can stand on, without a warning; `tests/attribute/places.rs` has others.

#![deny(warnings)]
#![allow(dead_code)]
// The compiler proves that a future is `Send` in few steps, far from the usual limit of 128, and so in
// little time: the proof once took a second for each shape of a future that holds a guard.
#![recursion_limit = "58"]

use std::pin::Pin;
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

type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

struct Shop(Client);

impl Shop {
    #[distributed_lock(key = "<name>", client = self.0)]
    async fn attributed(&self, name: &str) -> Result<(), Error> {
        Ok(())
    }

    // As `async_trait` writes a method.
    fn with_guards<'a>(&'a self, name: &'a str) -> Boxed<'a>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let guard = self.0.fair_lock(name).lock().await?;
            let read = self.0.read_write_lock(name).read().await?;
            self.0.count_down_latch(name).wait().await?;
            self.attributed(name).await?;
            drop(read);
            guard.unlock().await.map(drop)
        })
    }
}

#[distributed_lock(key = "main")]
#[tokio::main(flavor = "current_thread")]
async fn above_tokio_main() -> Result<(), Error> {
    Ok(())
}

fn main() {}
