//! The expressions for keys and clients, on the embedded engine.

use std::{
    cell::RefCell,
    ops::Deref,
    rc::Rc,
    sync::{Arc, LazyLock},
};

use redlock_rt::{Client, Error, distributed_lock};

/// The name of the lock of a call.
type Name = Result<String, Error>;

struct Order {
    id: u64,
    buyer: Buyer,
    r#type: &'static str,
}

struct Buyer {
    name: String,
}

impl Buyer {
    fn name(&self) -> &str {
        &self.name
    }
}

fn ada() -> Buyer {
    let name = "ada".to_owned();
    Buyer { name }
}

#[distributed_lock(
    key = "order:<order.id>:<order.id:08x>:<order.buyer.name>:<order.buyer.name()>:<order.buyer.name().len()>:<order.type>",
    guard = held,
    client = client
)]
async fn every_kind_of_access(client: &Client, order: Order) -> Name {
    drop(order);
    Ok(held.name().to_owned())
}

#[distributed_lock(
    key = "{<<a>>}:<pair.0>-<pair.1.0>:<r#fn:?>",
    guard = held,
    client = client
)]
async fn odd_names(client: &Client, pair: (u8, (u8,)), r#fn: &str) -> Name {
    Ok(held.name().to_owned())
}

struct Path<T>(T);

#[distributed_lock(key = "order:<id>:<name>:<b>", guard = held, client = client)]
async fn taken_apart(
    client: &Client,
    Path(id): Path<u64>,
    Buyer { name }: Buyer,
    (_, &b): (u8, &u8),
) -> Name {
    drop(name);
    Ok(held.name().to_owned())
}

#[tokio::test]
async fn a_key_takes_fields_methods_indices_formats_and_patterns() {
    let client = Client::embedded();
    let order = Order {
        id: 48_879,
        buyer: ada(),
        r#type: "gift",
    };
    let name = every_kind_of_access(&client, order).await.unwrap();
    assert_eq!(name, "order:48879:0000beef:ada:ada:3:gift");
    let name = odd_names(&client, (1, (2,)), "f").await.unwrap();
    assert_eq!(name, "{<a>}:1-2:\"f\"");
    let name = taken_apart(&client, Path(3), ada(), (1, &2)).await.unwrap();
    assert_eq!(name, "order:3:ada:2");
}

macro_rules! locked {
    ($name:ident, $key:literal, $held:ident, $parameter:ident) => {
        #[distributed_lock(key = $key, guard = $held, client = client)]
        async fn $name(client: &Client, $parameter: u64) -> Name {
            Ok($held.name().to_owned())
        }
    };
    // Here the parameter comes from a macro, and so does the name in the key.
    ($name:ident) => {
        #[distributed_lock(key = "own:<id>", guard = held, client = client)]
        async fn $name(client: &Client, id: u64) -> Name {
            Ok(held.name().to_owned())
        }
    };
}

locked!(given, "given:<user>", held, user);
locked!(own);

#[tokio::test]
async fn a_macro_may_give_the_key_or_have_its_own() {
    let client = Client::embedded();
    assert_eq!(given(&client, 3).await.unwrap(), "given:3");
    assert_eq!(own(&client, 4).await.unwrap(), "own:4");
}

#[distributed_lock(key = "all", client = client)]
async fn labels_and_locals(client: &Client) -> Result<u8, Error> {
    #![allow(clippy::never_loop)]
    // Names that the expansion also uses.
    let (key, options, body) = (1, 2, 4);
    'outer: for _ in 0..2 {
        for _ in 0..2 {
            break 'outer;
        }
    }
    let value = async { key + options + body }.await;
    Ok::<_, Error>(value)
}

#[tokio::test]
async fn nothing_in_the_body_clashes_with_the_expansion() {
    assert_eq!(labels_and_locals(&Client::embedded()).await.unwrap(), 7);
}

/// Whether the client holds the lock of the call.
type Held = Result<bool, Error>;

static CLIENT: LazyLock<Client> = LazyLock::new(Client::embedded);

#[distributed_lock(key = "k", client = CLIENT)]
async fn by_static() -> Held {
    CLIENT.rlock("k").is_locked().await
}

#[distributed_lock(key = "k", client = client)]
async fn by_arc(client: Arc<Client>) -> Held {
    client.rlock("k").is_locked().await
}

#[distributed_lock(key = "k", client = client)]
async fn by_value(client: Client) -> Held {
    client.rlock("k").is_locked().await
}

#[distributed_lock(key = "k", client = &client)]
async fn by_reference_to_value(client: Client) -> Held {
    client.rlock("k").is_locked().await
}

/// Like the extractors of web frameworks.
struct State<T>(T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[distributed_lock(key = "k", client = state)]
async fn by_state(state: State<Arc<Client>>) -> Held {
    state.rlock("k").is_locked().await
}

/// The borrows of the option have ended in the body.
#[distributed_lock(key = "k", client = client.borrow())]
async fn by_cell(client: Rc<RefCell<Client>>) -> Held {
    let lock = client.borrow_mut().rlock("k");
    lock.is_locked().await
}

#[tokio::test]
async fn a_client_is_whatever_dereferences_to_one() {
    let client = Client::embedded();
    assert!(by_static().await.unwrap());
    assert!(by_arc(Arc::new(client.clone())).await.unwrap());
    assert!(by_value(client.clone()).await.unwrap());
    assert!(by_reference_to_value(client.clone()).await.unwrap());
    assert!(by_state(State(Arc::new(client.clone()))).await.unwrap());
    assert!(by_cell(Rc::new(RefCell::new(client))).await.unwrap());
}
