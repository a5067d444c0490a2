//! The body is the user's: whatever leaves it, the lock is released and the value arrives.

#![allow(clippy::unwrap_used, reason = "tests")]

mod mock;

use mock::{Client, Error};
use redlock_macros::distributed_lock;

#[derive(Debug, PartialEq, Eq)]
enum AppError {
    Lock(Error),
    NotANumber,
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::NotANumber
    }
}

#[distributed_lock(key = "number:<text>", client = client, crate = crate::mock)]
async fn number(client: &Client, text: &str) -> Result<u32, AppError> {
    client.note("body");
    if text == "twelve" {
        return Ok(12);
    }
    let number: u32 = text.parse()?;
    tokio::task::yield_now().await;
    Ok(number)
}

#[tokio::test]
async fn the_value_arrives_and_the_lock_is_released() {
    let client = Client::new();
    assert_eq!(number(&client, "7").await, Ok(7));
    assert_eq!(client.log(), ["locked", "body", "released"]);
    assert_eq!(client.keys(), ["number:7"]);
}

#[tokio::test]
async fn return_leaves_the_body_and_not_the_lock() {
    let client = Client::new();
    assert_eq!(number(&client, "twelve").await, Ok(12));
    assert_eq!(client.log(), ["locked", "body", "released"]);
}

#[tokio::test]
async fn question_mark_leaves_the_body_and_not_the_lock() {
    let client = Client::new();
    assert_eq!(number(&client, "seven").await, Err(AppError::NotANumber));
    assert_eq!(client.log(), ["locked", "body", "released"]);
}

#[tokio::test]
async fn the_error_of_the_lock_arrives_as_the_functions_own_and_the_body_never_runs() {
    let client = Client::refusing();
    assert_eq!(
        number(&client, "7").await,
        Err(AppError::Lock(Error::Refused))
    );
    assert!(client.log().is_empty());
}

#[tokio::test]
async fn a_blank_part_is_refused() {
    let client = Client::new();
    let expected = AppError::Lock(Error::BlankPart("text".to_owned()));
    assert_eq!(number(&client, " ").await, Err(expected));
    assert!(client.log().is_empty());
}

#[distributed_lock(key = "panic", client = client, crate = crate::mock)]
async fn panics(client: &Client) -> Result<(), Error> {
    client.note("body");
    panic!("in the body")
}

#[tokio::test]
async fn a_panic_goes_on_and_the_lock_is_released() {
    let client = Client::new();
    let task = tokio::spawn({
        let client = client.clone();
        async move { panics(&client).await }
    });
    let error = task.await.expect_err("panic");
    assert_eq!(error.into_panic().downcast_ref(), Some(&"in the body"));
    assert_eq!(client.log(), ["locked", "body", "released"]);
    assert!(client.is_free());
}

#[tokio::test]
async fn the_body_is_not_polled_before_the_lock_is_held() {
    let client = Client::closed();
    let mut call = Box::pin(number(&client, "7"));
    for _ in 0..3 {
        assert!(poll_once(call.as_mut()).is_pending());
        assert!(client.log().is_empty());
    }
    client.grant();
    assert_eq!(call.await, Ok(7));
}

#[tokio::test]
async fn a_call_that_is_dropped_releases() {
    let client = Client::new();
    let mut call = Box::pin(number(&client, "7"));
    assert!(poll_once(call.as_mut()).is_pending());
    assert_eq!(client.log(), ["locked", "body"]);
    drop(call);
    assert_eq!(client.log(), ["locked", "body", "released"]);
}

#[tokio::test]
async fn a_call_that_is_never_polled_does_nothing() {
    let client = Client::new();
    drop(number(&client, "7"));
    assert!(client.asked().is_empty());
}

#[distributed_lock(key = "outer", client = client, crate = crate::mock)]
#[distributed_lock(key = "inner", client = other, crate = crate::mock)]
#[distributed_lock(key = "innermost", client = client, crate = crate::mock)]
async fn thrice(client: &Client, other: &Client) -> Result<u8, Error> {
    client.note("body");
    Ok(3)
}

#[tokio::test]
async fn several_attributes_lock_in_the_order_in_which_they_are_written() {
    let (client, other) = (Client::new(), Client::refusing());
    assert_eq!(thrice(&client, &other).await, Err(Error::Refused));
    assert_eq!(client.log(), ["locked", "released"]);
    assert_eq!(
        (client.keys(), other.keys()),
        (vec!["outer".into()], vec!["inner".into()])
    );

    let (client, other) = (Client::many(2), Client::new());
    assert_eq!(thrice(&client, &other).await, Ok(3));
    assert_eq!(
        client.log(),
        ["locked", "locked", "body", "released", "released"]
    );
    assert_eq!(client.keys(), ["outer", "innermost"]);
}

#[distributed_lock(key = "all", client = client, crate = crate::mock)]
async fn labels_and_locals(client: &Client) -> Result<u8, Error> {
    #![allow(clippy::never_loop)]
    // Names that the expansion uses itself.
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
    assert_eq!(labels_and_locals(&Client::new()).await, Ok(7));
}

/// Polls once, to see what the first step does.
fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}
