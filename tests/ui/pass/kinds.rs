//! The kinds of functions that the attribute can stand on.

#![deny(warnings)]
#![allow(dead_code)]

use std::fmt::Display;
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

#[distributed_lock(key = "opaque")]
async fn opaque() -> Result<impl Display, Error> {
    Ok(1)
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

#[distributed_lock(key = "generic:<id>:<name>")]
async fn generic<'a, T, const N: usize>(id: T, name: impl Display, all: &'a [T; N]) -> Reply<&'a T>
where
    T: Display,
{
    Ok(&all[0])
}

struct Shop {
    locks: Client,
    tenant: String,
}

impl Shop {
    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_ref(&self) -> Result<&str, Error> {
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_mut(&mut self) -> Result<&mut String, Error> {
        Ok(&mut self.tenant)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_value(mut self) -> Result<Self, Error> {
        self.tenant.clear();
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_arc(self: Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_pin(self: Pin<&mut Self>) -> Result<(), Error> {
        self.get_mut().tenant.clear();
        Ok(())
    }
}

trait Close {
    async fn close(&self, id: u64) -> Result<u64, Error>;

    #[distributed_lock(key = "default")]
    async fn default(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Close for Shop {
    #[distributed_lock(key = "<self.tenant>:<id>", client = &self.locks)]
    async fn close(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
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
