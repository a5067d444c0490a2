//! What the key is made of, and when.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mock;

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use mock::{Asked, Client, Error};
use redlock_macros::distributed_lock;

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

fn order() -> Order {
    Order {
        id: 48_879,
        buyer: Buyer {
            name: "ada".to_owned(),
        },
        r#type: "gift",
    }
}

#[distributed_lock(
    key = "order:<order.id>:<order.id:08x>:<order.buyer.name>:<order.buyer.name()>:<order.buyer.name().len()>:<order.type>",
    client = client,
    crate = crate::mock
)]
async fn every_kind_of_access(client: &Client, order: Order) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn fields_methods_and_formats() {
    let client = Client::new();
    every_kind_of_access(&client, order()).await.unwrap();
    assert_eq!(client.keys(), ["order:48879:0000beef:ada:ada:3:gift"]);
}

#[distributed_lock(key = "{<<a>>}:<pair.0>-<pair.1.0>:<r#fn:?>", client = client, crate = crate::mock)]
async fn odd_names(client: &Client, pair: (u8, (u8,)), r#fn: &str) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn indices_raw_names_escapes_and_debug() {
    let client = Client::new();
    odd_names(&client, (1, (2,)), "f").await.unwrap();
    assert_eq!(client.keys(), ["{<a>}:1-2:\"f\""]);
}

#[distributed_lock(key = "order:<text>", client = client, crate = crate::mock)]
async fn consumes(client: &Client, text: String) -> Result<Vec<u8>, Error> {
    drop(tokio::spawn(async {}));
    Ok(text.into_bytes())
}

#[tokio::test]
async fn the_key_borrows_before_the_body_takes() {
    let client = Client::new();
    assert_eq!(consumes(&client, "ab".to_owned()).await, Ok(b"ab".to_vec()));
    assert_eq!(client.keys(), ["order:ab"]);
}

/// Counts how often it is shown.
struct Counted<'a>(&'a Cell<u32>);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.set(self.0.get() + 1);
        write!(f, "{}", self.0.get())
    }
}

#[distributed_lock(key = "order:<counted>", client = client, crate = crate::mock)]
async fn counts(client: &Client, counted: Counted<'_>, other: &Cell<u32>) -> Result<u32, Error> {
    Ok(other.get())
}

#[tokio::test]
async fn the_key_is_made_once_and_before_anything_is_awaited() {
    let (client, shown) = (Client::closed(), Cell::new(0));
    let mut call = Box::pin(counts(&client, Counted(&shown), &shown));
    assert_eq!(
        shown.get(),
        0,
        "an async fn does nothing before it is polled"
    );
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(call.as_mut().poll(&mut context).is_pending());
    assert_eq!(shown.get(), 1);
    shown.set(7);
    client.grant();
    assert_eq!(call.await, Ok(7));
    assert_eq!(client.keys(), ["order:1"]);
}

struct Path<T>(T);

#[distributed_lock(key = "order:<id>:<name>:<b>", client = client, crate = crate::mock)]
async fn taken_apart(
    client: &Client,
    Path(id): Path<u64>,
    Buyer { name }: Buyer,
    (_, &b): (u8, &u8),
) -> Result<String, Error> {
    Ok(name)
}

#[tokio::test]
async fn names_bound_by_patterns() {
    let client = Client::new();
    let buyer = Buyer {
        name: "ada".to_owned(),
    };
    assert_eq!(
        taken_apart(&client, Path(3), buyer, (1, &2)).await.unwrap(),
        "ada"
    );
    assert_eq!(client.keys(), ["order:3:ada:2"]);
}

macro_rules! locked {
    ($name:ident, $key:literal, $parameter:ident) => {
        #[distributed_lock(key = $key, client = client, crate = $crate::mock)]
        async fn $name(client: &Client, $parameter: u64) -> Result<u64, Error> {
            Ok($parameter)
        }
    };
    // Here the parameter is the macro's own, and so is the name in the key.
    ($name:ident) => {
        #[distributed_lock(key = "own:<id>", client = client, crate = $crate::mock)]
        async fn $name(client: &Client, id: u64) -> Result<u64, Error> {
            Ok(id)
        }
    };
}

locked!(given, "given:<user>", user);
locked!(own);

#[tokio::test]
async fn functions_written_by_macros() {
    let client = Client::new();
    assert_eq!(given(&client, 3).await, Ok(3));
    assert_eq!(own(&client, 4).await, Ok(4));
    assert_eq!(client.keys(), ["given:3", "own:4"]);
}

#[distributed_lock(
    key = "all",
    wait = "0s",
    lease = "1m30s",
    max_hold = "1m30s",
    renew = false,
    client = client,
    crate = crate::mock,
)]
async fn every_option(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "none", client = client, crate = crate::mock)]
async fn no_option(client: &Client) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn options_are_passed_on_and_those_not_given_are_left_to_the_client() {
    let client = Client::new();
    every_option(&client).await.unwrap();
    no_option(&client).await.unwrap();
    assert_eq!(
        client.asked(),
        [
            Asked {
                name: "key::every_option",
                key: "all".to_owned(),
                wait: Some(Duration::ZERO),
                lease: Some(Duration::from_secs(90)),
                max_hold: Some(Duration::from_secs(90)),
                renew: Some(false),
            },
            Asked {
                name: "key::no_option",
                key: "none".to_owned(),
                ..Asked::default()
            },
        ]
    );
}
