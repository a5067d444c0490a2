//! What may stand after `client =`, and what happens without.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mock;

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use mock::{Client, Error};
use redlock_macros::distributed_lock;

static CLIENT: LazyLock<Client> = LazyLock::new(Client::new);

#[distributed_lock(key = "static", client = CLIENT, crate = crate::mock)]
async fn by_static() -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "arc", client = client, crate = crate::mock)]
async fn by_arc(client: Arc<Client>) -> Result<Arc<Client>, Error> {
    Ok(client)
}

#[distributed_lock(key = "value", client = client, crate = crate::mock)]
async fn by_value(client: Client) -> Result<Client, Error> {
    Ok(client)
}

#[distributed_lock(key = "reference", client = &client, crate = crate::mock)]
async fn by_reference_to_value(client: Client) -> Result<Client, Error> {
    Ok(client)
}

/// As the extractors of web frameworks.
struct State<T>(T);

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[distributed_lock(key = "state", client = state, crate = crate::mock)]
async fn by_state(state: State<Arc<Client>>) -> Result<(), Error> {
    drop(state);
    Ok(())
}

#[distributed_lock(key = "call", client = make(client), crate = crate::mock)]
async fn by_call(client: &Client) -> Result<(), Error> {
    Ok(())
}

fn make(client: &Client) -> Client {
    client.note("made");
    client.clone()
}

#[distributed_lock(key = "cell", client = client.borrow(), crate = crate::mock)]
async fn by_cell(client: Rc<RefCell<Client>>) -> Result<(), Error> {
    client.borrow_mut().note("body");
    Ok(())
}

#[tokio::test]
async fn whatever_dereferences_to_a_client() {
    by_static().await.unwrap();
    assert_eq!(CLIENT.keys(), ["static"]);

    let client = Client::new();
    by_arc(Arc::new(client.clone())).await.unwrap();
    by_value(client.clone()).await.unwrap();
    by_reference_to_value(client.clone()).await.unwrap();
    by_state(State(Arc::new(client.clone()))).await.unwrap();
    assert_eq!(client.keys(), ["arc", "value", "reference", "state"]);
}

#[tokio::test]
async fn the_expression_is_evaluated_once_and_before_the_lock() {
    let client = Client::new();
    by_call(&client).await.unwrap();
    assert_eq!(client.log(), ["made", "locked", "released"]);
}

#[tokio::test]
async fn what_the_expression_borrows_is_free_in_the_body() {
    let client = Rc::new(RefCell::new(Client::new()));
    by_cell(Rc::clone(&client)).await.unwrap();
    assert_eq!(client.borrow().log(), ["locked", "body", "released"]);
}

#[distributed_lock(key = "default", crate = crate::mock)]
async fn by_default() -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn without_one_the_default_is_taken() {
    assert_eq!(by_default().await, Err(Error::NoClient));
    let client = Client::new();
    mock::set_default_client(client.clone());
    assert_eq!(by_default().await, Ok(()));
    assert_eq!(client.keys(), ["default"]);
}

static OF_TESTS: LazyLock<Client> = LazyLock::new(Client::new);

#[distributed_lock(key = "test", client = OF_TESTS, crate = crate::mock)]
#[tokio::test]
async fn a_test_may_be_locked() -> Result<(), Error> {
    assert_eq!(OF_TESTS.log(), ["locked"]);
    Ok(())
}

mod renamed {
    pub(crate) mod locks {
        pub(crate) use crate::mock::*;
    }

    #[redlock_macros::distributed_lock(key = "path", client = client, crate = locks)]
    pub(crate) async fn relative(client: &locks::Client) -> Result<(), locks::Error> {
        Ok(())
    }

    #[redlock_macros::distributed_lock(key = "path", client = client, crate = self::locks)]
    pub(crate) async fn explicit(client: &locks::Client) -> Result<(), locks::Error> {
        Ok(())
    }
}

#[tokio::test]
async fn the_crate_may_have_another_name() {
    let client = Client::new();
    renamed::relative(&client).await.unwrap();
    renamed::explicit(&client).await.unwrap();
    assert_eq!(client.keys(), ["path", "path"]);
}
