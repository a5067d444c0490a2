//! Functions that return a boxed future: by `#[async_trait]`, and by hand.

use std::{pin::Pin, rc::Rc, sync::Arc};

use async_trait::async_trait;
use futures::future::{BoxFuture, LocalBoxFuture};
use redlock_rt::{Client, Error, distributed_lock};
use tokio::task::yield_now;

#[derive(Debug)]
struct Shop {
    locks: Client,
    tenant: String,
    stock: u32,
}

fn shop() -> Shop {
    Shop {
        locks: Client::embedded(),
        tenant: "acme".to_owned(),
        stock: 3,
    }
}

#[async_trait]
trait Orders: Send + Sync {
    async fn place(&self, id: u32) -> Result<String, Error>;

    async fn restock(&mut self, by: u32) -> Result<&mut u32, Error>;

    async fn close(self: Box<Self>) -> Result<u32, Error>;

    async fn share(self: Arc<Self>) -> Result<usize, Error>;

    async fn find<'a>(&self, all: &'a [String], id: usize) -> Result<Option<&'a str>, Error>;

    fn locks(&self) -> &Client;

    /// A default method.
    #[distributed_lock(key = "count:<of>", client = self.locks())]
    async fn count(&self, of: &str) -> Result<bool, Error> {
        self.locks().rlock(format!("count:{of}")).is_locked().await
    }

    #[distributed_lock(key = "static:<of>", client = client)]
    async fn of_no_self(client: &Client, of: u8) -> Result<bool, Error>
    where
        Self: Sized,
    {
        client.rlock(format!("static:{of}")).is_locked().await
    }
}

#[async_trait]
impl Orders for Shop {
    /// Has the options that use parameters.
    #[distributed_lock(
        key = "<self.tenant>:<id>",
        client = self.locks,
        wait = "0s",
        on_timeout = call(Self::refuse),
        when = self.stock > 0
    )]
    async fn place(&self, id: u32) -> Result<String, Error> {
        yield_now().await;
        if id == 0 {
            return Ok("none".to_owned());
        }
        let lock = self.locks.rlock(format!("acme:{id}"));
        assert!(lock.is_locked().await?);
        Ok(format!("{id} of {}", self.tenant))
    }

    #[distributed_lock(key = "<self.tenant>:<by>", client = self.locks)]
    async fn restock(&mut self, by: u32) -> Result<&mut u32, Error> {
        yield_now().await;
        self.stock += by;
        Ok(&mut self.stock)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn close(self: Box<Self>) -> Result<u32, Error> {
        Ok(self.stock)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn share(self: Arc<Self>) -> Result<usize, Error> {
        Ok(Arc::strong_count(&self))
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, on_unavailable = skip)]
    async fn find<'a>(&self, all: &'a [String], id: usize) -> Result<Option<&'a str>, Error> {
        let found = all.get(id);
        Ok(found.map(String::as_str))
    }

    fn locks(&self) -> &Client {
        &self.locks
    }
}

impl Shop {
    async fn refuse(&self, id: u32) -> Result<String, Error> {
        Ok(format!("no {id} of {}", self.tenant))
    }
}

#[tokio::test]
async fn methods_of_async_traits() {
    let mut shop = shop();
    let client = shop.locks.clone();
    {
        let orders: &mut dyn Orders = &mut shop;
        assert_eq!(orders.place(0).await.unwrap(), "none");
        assert_eq!(orders.place(7).await.unwrap(), "7 of acme");
        *orders.restock(2).await.unwrap() += 1;
        assert!(orders.count("x").await.unwrap());
        let all = ["a".to_owned()];
        assert_eq!(orders.find(&all, 0).await.unwrap(), Some("a"));
    }
    let held = client.rlock("acme:7").lock().await.unwrap();
    assert_eq!(shop.place(7).await.unwrap(), "no 7 of acme");
    held.unlock().await.unwrap();
    assert!(Shop::of_no_self(&client, 1).await.unwrap());
    let shop = Arc::new(shop);
    assert_eq!(Arc::clone(&shop).share().await.unwrap(), 2);
    let shop: Box<dyn Orders> = Box::new(Arc::into_inner(shop).unwrap());
    let closing = tokio::spawn(shop.close());
    assert_eq!(closing.await.unwrap().unwrap(), 6);
    assert_eq!(client.stats().held, 0);
}

#[async_trait(?Send)]
trait Local {
    async fn keep(&self, what: Rc<u8>) -> Result<Rc<u8>, Error>;

    #[distributed_lock(key = "default", client = client, guard = held)]
    async fn default(&self, client: &Client) -> Result<bool, Error> {
        let kept = Rc::new(held.is_valid());
        yield_now().await;
        Ok(*kept)
    }
}

#[async_trait(?Send)]
impl Local for Shop {
    #[distributed_lock(key = "<what>", client = self.locks)]
    async fn keep(&self, what: Rc<u8>) -> Result<Rc<u8>, Error> {
        yield_now().await;
        assert!(self.locks.rlock("7").is_locked().await?);
        Ok(what)
    }
}

#[tokio::test]
async fn methods_of_local_async_traits() {
    let shop = shop();
    assert_eq!(*shop.keep(Rc::new(7)).await.unwrap(), 7);
    assert!(shop.default(&shop.locks).await.unwrap());
}

#[distributed_lock(key = "<id>", client = client)]
fn by_hand(client: Client, id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>> {
    Box::pin(async move {
        assert!(client.rlock(id.to_string()).is_locked().await?);
        Ok(id)
    })
}

#[distributed_lock(key = "<id>", client = client, on_timeout = skip, guard = held)]
fn with_lifetime<'a>(client: &'a Client, id: &'a str) -> BoxFuture<'a, Result<&'a str, Error>> {
    let id = id.trim();
    ::std::boxed::Box::pin(async move {
        yield_now().await;
        Ok(if held.is_valid() { id } else { "" })
    })
}

#[distributed_lock(key = "<depth>", client = client)]
fn recursive(client: &Client, depth: u32) -> LocalBoxFuture<'_, Result<u64, Error>> {
    Box::pin(async move {
        if depth == 0 {
            return Ok(0);
        }
        let below = recursive(client, depth - 1).await?;
        Ok(below + client.rlock(depth.to_string()).hold_count().await?)
    })
}

#[tokio::test]
async fn by_the_users_own_hand() {
    let client = Client::embedded();
    let task = tokio::spawn(by_hand(client.clone(), 7));
    assert_eq!(task.await.unwrap().unwrap(), 7);
    assert_eq!(with_lifetime(&client, "x ").await.unwrap(), "x");
    assert_eq!(recursive(&client, 3).await.unwrap(), 3);
    assert_eq!(client.stats().held, 0);
}
