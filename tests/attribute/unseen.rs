//! What the attribute must not let be seen: warnings, a larger future, values of options that live
//! on.

#![deny(warnings, clippy::all, clippy::pedantic)]
#![allow(clippy::unused_async, clippy::non_minimal_cfg, reason = "tests")]

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redlock_rt::{Client, Error, distributed_lock};

/// One whose braces are on one line is not warned about them: that it compiles is the test.
#[rustfmt::skip]
#[distributed_lock(key = "line", client = client)]
async fn one_line(client: &Client) -> Result<u64, Error> { client.rlock("line").hold_count().await }

#[tokio::test]
async fn a_function_on_one_line_has_no_unnecessary_braces() {
    assert_eq!(one_line(&Client::embedded()).await.unwrap(), 1);
}

#[distributed_lock(key = "large", client = client)]
async fn large(client: &Client) -> Result<u8, Error> {
    let kept = [1; 10_000];
    client.rlock("large").is_locked().await?;
    Ok(kept[17])
}

#[distributed_lock(key = "large", client = client, on_timeout = skip, guard = guard)]
async fn large_with_guard(client: &Client) -> Result<u8, Error> {
    let kept = [1; 10_000];
    client.rlock(guard.name()).is_locked().await?;
    Ok(kept[17])
}

#[tokio::test]
async fn a_body_has_no_room_in_the_future_around_it() {
    let client = Client::embedded();
    let (one, other) = (large(&client), large_with_guard(&client));
    for size in [size_of_val(&one), size_of_val(&other)] {
        assert!(size < 1000, "{size} bytes");
    }
    assert_eq!((one.await.unwrap(), other.await.unwrap()), (1, 1));
}

struct Shop {
    tenant: Mutex<String>,
    locks: Client,
}

impl Shop {
    /// Nobody else may have it at this moment.
    fn tenant(&self) -> MutexGuard<'_, String> {
        self.tenant.try_lock().unwrap()
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.tenant().len() as u64)
    }

    #[distributed_lock(
        key = "<self.tenant()>",
        client = { assert!(!self.tenant().is_empty()); &self.locks },
        renew = self.tenant().len() > 1,
        lease = self.patience(),
        wait = self.patience()
    )]
    async fn open(&self) -> Result<(), Error> {
        self.patience();
        Ok(())
    }

    #[distributed_lock(
        keys = ["<self.tenant()>", "<self.tenant()>:stock", self.tenant()],
        client = self.locks,
        wait = self.patience(),
        on_timeout = skip,
        guard = guard
    )]
    async fn move_stock(&self) -> Result<usize, Error> {
        self.patience();
        Ok(guard.names().len())
    }
}

#[tokio::test]
async fn what_an_option_locks_is_free_for_the_next_and_for_the_body() {
    let shop = Shop {
        tenant: Mutex::new("acme".to_owned()),
        locks: Client::embedded(),
    };
    shop.open().await.unwrap();
    assert_eq!(shop.move_stock().await.unwrap(), 2);
}

#[distributed_lock(key = "cfg:<id>", wait = "0s", client = client, on_timeout = call(busy))]
async fn on_this_system(
    client: &Client,
    #[cfg(any())] never: Never,
    #[cfg(not(any()))] id: u32,
) -> Result<u32, Error> {
    let mut id = id;
    if client.rlock("cfg:0").is_locked().await? {
        id += 1;
    }
    Ok(id)
}

async fn busy(_: &Client, id: u32) -> Result<u32, Error> {
    Ok(id)
}

#[tokio::test]
async fn a_parameter_that_is_not_there_is_not_passed_on() {
    let client = Client::embedded();
    let elsewhere = client.rlock("cfg:7").lock().await.unwrap();
    assert_eq!(on_this_system(&client, 7).await.unwrap(), 7);
    elsewhere.unlock().await.unwrap();
}

/// Lints that are forbidden cannot be allowed, not even by an expansion: that it compiles is the
/// test.
mod forbidden {
    #![forbid(
        unused_imports,
        unreachable_code,
        unused_variables,
        unused_must_use,
        dead_code
    )]
    #![forbid(
        clippy::unreachable,
        clippy::needless_return,
        clippy::diverging_sub_expression
    )]

    use redlock_rt::{Client, Error, distributed_lock};

    #[distributed_lock(key = "k", client = client, on_timeout = skip, guard = guard)]
    pub(super) async fn plain(client: &Client) -> Result<bool, Error> {
        client.rlock(guard.name()).is_locked().await
    }

    #[distributed_lock(key = "k", client = client)]
    pub(super) async fn diverges(client: &Client) -> Result<bool, Error> {
        client.rlock("k").is_locked().await?;
        panic!("always")
    }

    #[distributed_lock(key = "k", client = client)]
    pub(super) fn boxed(client: Client) -> futures_like::BoxFuture<'static, Result<u8, Error>> {
        Box::pin(async move { client.rlock("k").is_locked().await.map(u8::from) })
    }

    mod futures_like {
        pub(super) type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
    }
}

#[tokio::test]
async fn a_crate_may_forbid_lints() {
    let client = Client::embedded();
    assert!(forbidden::plain(&client).await.unwrap());
    assert_eq!(forbidden::boxed(client.clone()).await.unwrap(), 1);
    let call = tokio::spawn(async move { forbidden::diverges(&client).await });
    assert!(call.await.unwrap_err().is_panic());
}
