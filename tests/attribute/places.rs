//! The functions that may have the attribute: every kind of async function.

use std::{
    collections::HashMap,
    fmt::{self, Display},
    pin::Pin,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use redlock_rt::{Client, Error, distributed_lock};

static CLIENT: LazyLock<Client> = LazyLock::new(Client::embedded);

#[derive(Debug, Clone)]
struct Shop {
    locks: Client,
    tenant: String,
    stock: u32,
}

fn shop(tenant: &str) -> Shop {
    Shop {
        locks: Client::embedded(),
        tenant: tenant.to_owned(),
        stock: 3,
    }
}

impl Shop {
    async fn is_locked(&self) -> bool {
        self.locks.rlock(&self.tenant).is_locked().await.unwrap()
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_ref(&self) -> Result<&str, Error> {
        assert!(self.is_locked().await);
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, guard = held)]
    async fn by_mut(&mut self, stock: u32) -> Result<&mut u32, Error> {
        assert!(held.is_valid() && self.is_locked().await);
        self.stock = stock;
        Ok(&mut self.stock)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks, on_timeout = skip)]
    async fn by_value(mut self) -> Result<Option<Self>, Error> {
        assert!(self.is_locked().await);
        self.tenant.push('!');
        Ok(Some(self))
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_box(self: Box<Self>) -> Result<Box<Self>, Error> {
        assert!(self.is_locked().await);
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_rc(self: Rc<Self>) -> Result<Rc<Self>, Error> {
        assert!(self.is_locked().await);
        Ok(self)
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_arc(self: Arc<Self>) -> Result<usize, Error> {
        assert!(self.is_locked().await);
        Ok(Arc::strong_count(&self))
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_arc_ref(self: &Arc<Self>) -> Result<usize, Error> {
        assert!(self.is_locked().await);
        Ok(Arc::strong_count(self))
    }

    #[distributed_lock(key = "<self.tenant>", client = self.locks)]
    async fn by_pin(self: Pin<&mut Self>) -> Result<u32, Error> {
        assert!(self.is_locked().await);
        let this = self.get_mut();
        this.stock += 1;
        Ok(this.stock)
    }

    #[distributed_lock(key = "<tenant>", client = CLIENT)]
    async fn without(tenant: &str) -> Result<Self, Error> {
        let shop = Self {
            locks: CLIENT.clone(),
            ..shop(tenant)
        };
        assert!(shop.is_locked().await);
        Ok(shop)
    }
}

#[tokio::test]
async fn every_kind_of_self() {
    let mut shop = shop("acme");
    assert_eq!(shop.by_ref().await.unwrap(), "acme");
    *shop.by_mut(5).await.unwrap() += 1;
    let shop = shop.by_value().await.unwrap().unwrap();
    assert_eq!((&*shop.tenant, shop.stock), ("acme!", 6));
    let shop = *Box::new(shop).by_box().await.unwrap();
    let mut shop = Rc::into_inner(Rc::new(shop).by_rc().await.unwrap()).unwrap();
    assert_eq!(Pin::new(&mut shop).by_pin().await.unwrap(), 7);
    let shop = Arc::new(shop);
    assert_eq!(shop.by_arc_ref().await.unwrap(), 1);
    assert_eq!(Arc::clone(&shop).by_arc().await.unwrap(), 2);
    assert!(!shop.is_locked().await);
    assert_eq!(Shop::without("own").await.unwrap().tenant, "own");
}

#[distributed_lock(key = "<id>:<values.len()>", client = client)]
async fn generic<'a, 'b: 'a, T, const N: usize>(
    client: &Client,
    id: impl Display + Clone,
    values: &'b [T; N],
    pick: impl AsyncFn(&T) -> bool,
) -> Result<Option<&'a T>, Error>
where
    T: PartialEq + fmt::Debug,
{
    let name = format!("{}:{N}", id.clone());
    assert!(client.rlock(name).is_locked().await?);
    for value in values {
        if pick(value).await {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[distributed_lock(key = "opaque:<up_to>", client = client)]
async fn opaque<'a>(
    client: &Client,
    up_to: u32,
    text: &'a str,
) -> Result<
    (
        impl Fn(u32) -> bool + use<'a>,
        Vec<impl Display + 'a + use<'a>>,
    ),
    Error,
> {
    tokio::task::yield_now().await;
    Ok((move |n| n < up_to, vec![text]))
}

#[distributed_lock(
    key = "map",
    client = client,
    on_timeout = value(Ok(HashMap::new())),
    map_err = Box::new
)]
async fn nested_types<K, V>(
    client: &Client,
    key: K,
    value: V,
) -> Result<HashMap<K, [Option<V>; 1]>, Box<Error>>
where
    K: Eq + std::hash::Hash,
{
    Ok(HashMap::from([(key, [Some(value)])]))
}

#[distributed_lock(key = "dynamic", client = client)]
async fn dynamic(
    client: &Client,
    what: &(dyn Display + Sync),
    call: &mut (dyn FnMut() -> u8 + Send),
) -> Result<Box<dyn Display + Send>, Error> {
    Ok(Box::new(format!("{what}{}", call())))
}

#[tokio::test]
async fn generics_lifetimes_opaque_types_and_where_clauses() {
    let (client, values) = (Client::embedded(), [7, 8]);
    let found = {
        let id = String::from("x");
        generic(&client, &id, &values, async |value| *value > 7).await
    };
    assert_eq!(found.unwrap(), Some(&8));
    let (below, texts) = opaque(&client, 3, "text").await.unwrap();
    assert!(below(2) && !below(3));
    assert_eq!(texts[0].to_string(), "text");
    let map = nested_types(&client, 'k', "v").await.unwrap();
    assert_eq!(map[&'k'], [Some("v")]);
    let dynamic = dynamic(&client, &1, &mut || 2).await.unwrap();
    assert_eq!(dynamic.to_string(), "12");
}

trait Warehouse: Sized {
    type Unit: Display;

    async fn take(&mut self, units: Self::Unit) -> Result<u32, Error>;

    /// A default method.
    #[distributed_lock(key = "warehouse:<units>", client = client)]
    async fn count(self, client: &Client, units: Self::Unit) -> Result<(Self, bool), Error> {
        let is_locked = client
            .rlock(format!("warehouse:{units}"))
            .is_locked()
            .await?;
        Ok((self, is_locked))
    }
}

impl Warehouse for Shop {
    type Unit = u32;

    #[distributed_lock(
        key = "<self.tenant>:<units>",
        client = self.locks,
        on_timeout = call(TakeNone::take_none)
    )]
    async fn take(&mut self, units: Self::Unit) -> Result<u32, Error> {
        self.stock -= units;
        Ok(self.stock)
    }
}

trait TakeNone: Warehouse {
    async fn take_none(&mut self, _: Self::Unit) -> Result<u32, Error> {
        Ok(0)
    }
}

impl TakeNone for Shop {}

#[tokio::test]
async fn methods_of_traits() {
    let mut shop = shop("acme");
    assert_eq!(shop.take(1).await.unwrap(), 2);
    let client = shop.locks.clone();
    let (mut shop, is_locked) = shop.count(&client, 7).await.unwrap();
    assert!(is_locked);
    let held = client.rlock("acme:2").lock().await.unwrap();
    assert_eq!(shop.take(2).await.unwrap(), 0);
    held.unlock().await.unwrap();
    assert_eq!(shop.take(2).await.unwrap(), 0);
}

/// Documented.
///
/// In several paragraphs.
#[distributed_lock(key = "kept", client = client)]
#[inline]
#[cfg_attr(all(), must_use = "told so")]
async fn attributes(client: &Client, #[cfg(test)] mut number: u8) -> Result<u8, Error> {
    number += 1;
    let number = number;
    Ok(number)
}

macro_rules! locked {
    ($(#[$attr:meta])* $vis:vis fn $name:ident($($param:ident: $ty:ty),*) -> $returns:ty $body:block) => {
        $(#[$attr])*
        #[distributed_lock(key = "macro:<id>", client = CLIENT, on_timeout = skip)]
        $vis async fn $name($($param: $ty),*) -> $returns $body
    };
}

locked! {
    /// Documented.
    pub(crate) fn from_a_macro(id: u8, more: Vec<u8>) -> Result<usize, Error> {
        Ok(more.len() + usize::from(id))
    }
}

#[tokio::test]
async fn attributes_are_kept_and_macros_may_write_functions() {
    assert_eq!(attributes(&Client::embedded(), 1).await.unwrap(), 2);
    assert_eq!(from_a_macro(1, vec![1, 2]).await.unwrap(), 3);
}

static ENGINE: LazyLock<Client> = LazyLock::new(Client::embedded);

#[distributed_lock(key = "test", client = ENGINE, guard = held)]
#[tokio::test]
async fn a_test_may_be_locked() -> Result<(), Error> {
    assert!(held.is_valid());
    assert!(ENGINE.rlock("test").is_locked().await?);
    Ok(())
}

#[distributed_lock(key = "outer", client = CLIENT, guard = outer, wait = "5s")]
#[distributed_lock(
    keys = ["inner:<id>", "inner:<id:04>"],
    client = client,
    guard = inner,
    on_timeout = value(Ok(outer.is_valid().into()))
)]
#[redlock_rt::distributed_lock(key = "innermost", kind = fenced, token = fence, client = client)]
async fn several(client: &Client, id: u32, text: String) -> Result<u64, Error> {
    assert!(outer.is_valid() && inner.is_valid());
    assert!(CLIENT.rlock("outer").is_locked().await?);
    drop(text);
    Ok(100 + fence)
}

#[tokio::test]
async fn several_attributes_hold_several_locks() {
    let client = Client::embedded();
    let first = several(&client, 1, String::new()).await.unwrap();
    assert!(first > 100);
    let held = client.rlock("inner:1").lock().await.unwrap();
    assert_eq!(several(&client, 1, String::new()).await.unwrap(), 1);
    held.unlock().await.unwrap();
    assert!(several(&client, 1, String::new()).await.unwrap() > first);
    assert_eq!(client.stats().held, 0);
}

mod renamed {
    pub(crate) mod locks {
        pub(crate) use redlock_rt::*;
    }

    #[locks::distributed_lock(
        key = "path",
        client = client,
        kind = semaphore(limit = 2),
        on_unavailable = skip,
        crate = locks
    )]
    pub(crate) async fn relative(client: &locks::Client) -> Result<(), locks::Error> {
        Ok(())
    }

    #[locks::distributed_lock(key = "path", client = client, crate = self::locks)]
    pub(crate) async fn explicit(client: &locks::Client) -> Result<(), locks::Error> {
        Ok(())
    }
}

#[tokio::test]
async fn the_crate_may_have_another_name() {
    renamed::relative(&Client::embedded()).await.unwrap();
    renamed::explicit(&Client::embedded()).await.unwrap();
}
