//! The function stays what it was: its kind, its parameters, its lifetimes, its attributes.

#![deny(warnings, clippy::all, clippy::pedantic)]
#![allow(clippy::unwrap_used, clippy::unused_async, reason = "tests")]

mod mock;

use std::fmt::Display;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use mock::{Client, Error};
use redlock_macros::distributed_lock;

#[derive(Debug)]
struct Shop {
    locks: Client,
    tenant: String,
    stock: u32,
}

fn shop() -> Shop {
    Shop {
        locks: Client::new(),
        tenant: "acme".to_owned(),
        stock: 1,
    }
}

impl Shop {
    /// By reference, with a lifetime that comes out again.
    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn name(&self) -> Result<&str, Error> {
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "<self.tenant>:<by>", client = self.locks, crate = crate::mock)]
    pub(crate) async fn restock(&mut self, by: u32) -> Result<&mut u32, Error> {
        self.stock += by;
        tokio::task::yield_now().await;
        Ok(&mut self.stock)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn close(self) -> Result<Self, Error> {
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn rename(mut self, name: String) -> Result<Self, Error> {
        self.tenant = name;
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn shared(self: Arc<Self>) -> Result<usize, Error> {
        let this = tokio::spawn(async move { Arc::strong_count(&self) });
        Ok(this.await.unwrap())
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn shared_ref(self: &Arc<Self>) -> Result<usize, Error> {
        Ok(Arc::strong_count(self))
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn boxed(self: Box<Self>) -> Result<u32, Error> {
        Ok(self.stock)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, crate = crate::mock)]
    async fn pinned(self: Pin<&mut Self>) -> Result<u32, Error> {
        let this = self.get_mut();
        this.stock += 1;
        Ok(this.stock)
    }

    #[distributed_lock(key = "open", client = locks, crate = crate::mock)]
    async fn open(locks: Client) -> Result<Self, Error> {
        Ok(Self {
            locks,
            tenant: String::new(),
            stock: 0,
        })
    }
}

#[tokio::test]
async fn every_kind_of_self() {
    let mut shop = shop();
    assert_eq!(shop.name().await, Ok("acme"));
    *shop.restock(2).await.unwrap() += 1;
    assert_eq!(shop.stock, 4);
    let shop = shop
        .close()
        .await
        .unwrap()
        .rename("ace".to_owned())
        .await
        .unwrap();
    assert_eq!(shop.locks.keys(), ["acme", "acme:2", "acme", "acme"]);
    let mut shop = Arc::new(shop);
    assert_eq!(shop.shared_ref().await, Ok(1));
    assert_eq!(Arc::clone(&shop).shared().await, Ok(2));
    assert_eq!(
        Pin::new(Arc::get_mut(&mut shop).unwrap()).pinned().await,
        Ok(5)
    );
    assert_eq!(
        Box::new(Arc::into_inner(shop).unwrap()).boxed().await,
        Ok(5)
    );
    assert_eq!(
        Shop::open(Client::new()).await.unwrap().locks.keys(),
        ["open"]
    );
}

trait Warehouse {
    async fn take(&mut self, units: u32) -> Result<u32, Error>;

    /// A default method.
    #[distributed_lock(key = "warehouse", client = client, crate = crate::mock)]
    async fn count(&self, client: &Client) -> Result<u32, Error>
    where
        Self: Display,
    {
        Ok(self.to_string().parse().unwrap())
    }
}

impl Display for Shop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stock.fmt(f)
    }
}

impl Warehouse for Shop {
    #[distributed_lock(key = "<self.tenant>:<units>", client = self.locks, crate = crate::mock)]
    async fn take(&mut self, units: u32) -> Result<u32, Error> {
        self.stock -= units;
        Ok(self.stock)
    }
}

#[tokio::test]
async fn methods_of_traits() {
    let mut shop = shop();
    assert_eq!(shop.take(1).await, Ok(0));
    assert_eq!(shop.count(&shop.locks).await, Ok(0));
    assert_eq!(shop.locks.keys(), ["acme:1", "warehouse"]);
}

#[distributed_lock(key = "<id>:<n>", client = client, crate = crate::mock)]
async fn generic<'a, T, const N: usize>(
    client: &Client,
    id: impl Display + Copy,
    values: &'a [T; N],
    n: u8,
) -> Result<&'a T, Error>
where
    T: PartialEq,
{
    Ok(&values[0])
}

#[tokio::test]
async fn generics_lifetimes_and_where_clauses() {
    let (client, values) = (Client::new(), [7, 8]);
    let first = {
        let id = String::from("x");
        generic(&client, id.as_str(), &values, 2).await.unwrap()
    };
    assert_eq!(*first, 7);
    assert_eq!(client.keys(), ["x:2"]);
}

#[distributed_lock(key = "opaque", client = client, crate = crate::mock)]
async fn opaque(client: &Client, up_to: u32) -> Result<impl Fn(u32) -> bool + use<>, Error> {
    Ok(move |n| n < up_to)
}

type Reply<T> = Result<T, Error>;

#[distributed_lock(key = "alias", client = client, crate = crate::mock)]
async fn alias(client: &Client) -> Reply<u8> {
    Ok(1)
}

#[distributed_lock(key = "boxed error", client = client, crate = crate::mock)]
async fn boxed_error(client: &Client) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    Ok("8".parse()?)
}

#[tokio::test]
async fn return_types() {
    let client = Client::new();
    assert!(opaque(&client, 3).await.unwrap()(2));
    assert_eq!(alias(&client).await, Ok(1));
    assert_eq!(boxed_error(&client).await.unwrap(), 8);
}

/// Documented.
#[distributed_lock(key = "kept", client = client, crate = crate::mock)]
#[inline]
#[cfg_attr(all(), must_use = "told so")]
async fn attributes(client: &Client, #[cfg(test)] mut number: u8) -> Result<u8, Error> {
    #![allow(unused_assignments)]
    number += 1;
    let number = number;
    Ok(number)
}

#[tokio::test]
async fn attributes_are_kept() {
    assert_eq!(attributes(&Client::new(), 1).await, Ok(2));
}

fn is_send<F: Future + Send>(future: F) -> F {
    future
}

/// Neither borrows what is not `Send` nor keeps it across an await.
#[distributed_lock(key = "<id.to_rc()>", client = client, crate = crate::mock)]
async fn sends(client: &Client, id: Id, text: &mut str) -> Result<usize, Error> {
    let length = {
        let length = Rc::new(text.len());
        *length
    };
    tokio::task::yield_now().await;
    Ok(length)
}

#[derive(Clone, Copy)]
struct Id(u8);

impl Id {
    /// A part of the key that is not `Send`.
    fn to_rc(self) -> Rc<str> {
        self.0.to_string().into()
    }
}

/// A client that is borrowed through something that is not `Send`.
#[distributed_lock(key = "guarded", client = client.lock().unwrap(), crate = crate::mock)]
async fn guarded(client: &std::sync::Mutex<Client>) -> Result<(), Error> {
    tokio::task::yield_now().await;
    Ok(())
}

async fn generic_caller<T: Display + Send + Sync>(client: &Client, value: T) -> Result<T, Error> {
    #[distributed_lock(key = "<value>", client = client, crate = crate::mock)]
    async fn inner<T: Display>(client: &Client, value: T) -> Result<T, Error> {
        tokio::task::yield_now().await;
        Ok(value)
    }
    inner(client, value).await
}

#[tokio::test]
async fn a_future_that_was_send_is_send() {
    let client = Client::new();
    assert_eq!(
        is_send(sends(&client, Id(1), &mut String::from("abc"))).await,
        Ok(3)
    );
    assert_eq!(is_send(generic_caller(&client, 1)).await, Ok(1));
    let task = tokio::spawn({
        let client = client.clone();
        async move { sends(&client, Id(2), &mut String::new()).await }
    });
    assert_eq!(task.await.unwrap(), Ok(0));
    assert_eq!(
        is_send(guarded(&std::sync::Mutex::new(client))).await,
        Ok(())
    );
}

#[distributed_lock(key = "rc", client = client, crate = crate::mock)]
async fn not_send(client: Rc<Client>) -> Result<usize, Error> {
    let own = Rc::new(1);
    tokio::task::yield_now().await;
    Ok(Rc::strong_count(&own))
}

#[tokio::test]
async fn a_future_that_was_not_send_works_on_a_local_set() {
    let local = tokio::task::LocalSet::new();
    let task = local.spawn_local(not_send(Rc::new(Client::new())));
    local.await;
    assert_eq!(task.await.unwrap(), Ok(1));
}
