//! What the service answers to a request that comes again.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use payments::{Bank, router};
use redlock_rt::{Client, Shutdown};
use tests::{DEADLINE, eventually, within};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

/// Status, body, and whether it is an answer that was stored.
type Answer = (StatusCode, String, bool);

async fn pay(service: &Router, user: &str, key: Option<&str>, amount: &str) -> Answer {
    let mut request = Request::post(format!("/users/{user}/payments"));
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let request = request.body(Body::from(amount.to_owned())).unwrap();
    let response = within(DEADLINE, service.clone().oneshot(request))
        .await
        .unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let retries = [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE];
    assert_eq!(
        headers.contains_key("retry-after"),
        retries.contains(&status)
    );
    let body = to_bytes(response.into_body(), 1000).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (status, body, headers.contains_key("idempotency-replayed"))
}

/// A service that has begun a payment, which the bank does not answer yet.
async fn under_way() -> (Arc<Bank>, Client, Router, JoinHandle<Answer>) {
    let (bank, locks) = (Bank::new(0), Client::embedded());
    let service = router(locks.clone(), Arc::clone(&bank));
    let paying = service.clone();
    let first = tokio::spawn(async move { pay(&paying, "ann", Some("1"), "100").await });
    eventually(DEADLINE, async || locks.stats().held == 1).await;
    (bank, locks, service, first)
}

#[tokio::test]
async fn a_payment_that_comes_again_is_taken_once() {
    let bank = Bank::new(10);
    let service = router(Client::embedded(), Arc::clone(&bank));
    let (status, receipt, replayed) = pay(&service, "ann", Some("1"), "100").await;
    assert_eq!((status, replayed), (StatusCode::CREATED, false));
    let again = pay(&service, "ann", Some("1"), "100").await;
    assert_eq!(again, (StatusCode::CREATED, receipt.clone(), true));
    assert_eq!(bank.taken(), 1);
    // Another payment with the same key, and the same key of another user.
    let (status, _, _) = pay(&service, "ann", Some("1"), "200").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, other, replayed) = pay(&service, "bob", Some("1"), "100").await;
    assert_eq!((status, replayed), (StatusCode::CREATED, false));
    assert_ne!(other, receipt);
    assert_eq!(bank.taken(), 2);
}

#[tokio::test]
async fn a_payment_under_way_is_a_conflict() {
    let (bank, _, service, first) = under_way().await;
    let (status, _, _) = pay(&service, "ann", Some("1"), "100").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _, _) = pay(&service, "ann", Some("1"), "200").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    bank.open.add_permits(1);
    let (status, receipt, _) = within(DEADLINE, first).await.unwrap();
    assert_eq!(status, StatusCode::CREATED);
    let again = pay(&service, "ann", Some("1"), "100").await;
    assert_eq!(again, (StatusCode::CREATED, receipt, true));
}

/// One got the receipt of the other, who had paid.
#[tokio::test]
async fn a_colon_made_two_users_one() {
    let bank = Bank::new(10);
    let service = router(Client::embedded(), Arc::clone(&bank));
    for (user, key) in [("ann", "x:1"), ("ann:x", "1")] {
        let (status, _, replayed) = pay(&service, user, Some(key), "100").await;
        assert_eq!((status, replayed), (StatusCode::CREATED, false));
    }
    assert_eq!(bank.taken(), 2);
}

/// Its request was open again, whatever the bank had done by then.
#[tokio::test]
async fn a_payment_was_given_up_when_its_client_went_away() {
    let (bank, locks, service, first) = under_way().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    bank.open.add_permits(1);
    eventually(DEADLINE, async || bank.taken() == 1).await;
    eventually(DEADLINE, async || locks.stats().held == 0).await;
    let (status, _, replayed) = pay(&service, "ann", Some("1"), "100").await;
    assert_eq!((status, replayed), (StatusCode::CREATED, true));
}

#[tokio::test]
async fn a_payment_that_was_declined_may_be_tried_again() {
    let bank = Bank::new(10);
    let service = router(Client::embedded(), Arc::clone(&bank));
    for _ in 0..2 {
        let (status, _, replayed) = pay(&service, "ann", Some("1"), "0").await;
        assert_eq!((status, replayed), (StatusCode::PAYMENT_REQUIRED, false));
    }
    assert_eq!(bank.taken(), 0);
}

#[tokio::test]
async fn a_payment_whose_lock_was_lost_was_to_come_again_at_once() {
    let (bank, locks) = (Bank::new(0), Client::embedded());
    let service = router(locks.clone(), bank);
    let request = Request::post("/users/ann/payments").header("Idempotency-Key", "1");
    let paying = tokio::spawn(service.oneshot(request.body(Body::from("100")).unwrap()));
    eventually(DEADLINE, async || locks.stats().held == 1).await;
    locks.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let response = within(DEADLINE, paying).await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(!response.headers().contains_key("retry-after"));
}

/// As by a Redis that has lost the answer, or has not taken it.
#[tokio::test]
async fn a_payment_whose_answer_was_not_stored_was_taken_twice() {
    let bank = Bank::new(10);
    for _ in 0..2 {
        let forgetful = router(Client::embedded(), Arc::clone(&bank));
        let (status, receipt, replayed) = pay(&forgetful, "ann", Some("1"), "100").await;
        assert_eq!((status, replayed), (StatusCode::CREATED, false));
        assert!(receipt.starts_with("receipt 1:"), "{receipt}");
    }
    assert_eq!(bank.taken(), 1);
}

/// It was the bank that declined, said the answer.
#[tokio::test]
async fn an_amount_that_is_no_number_was_declined() {
    let bank = Bank::new(10);
    let service = router(Client::embedded(), Arc::clone(&bank));
    for amount in ["", "much", "-5", "1.5"] {
        let (status, _, _) = pay(&service, "ann", Some("1"), amount).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{amount}");
    }
    // Its key is not used.
    let (status, _, _) = pay(&service, "ann", Some("1"), "5").await;
    assert_eq!(status, StatusCode::CREATED);
}

#[tokio::test]
async fn what_is_no_key_and_a_redis_that_is_gone_have_their_answers() {
    let bank = Bank::new(10);
    let service = router(Client::embedded(), Arc::clone(&bank));
    let long = "x".repeat(600);
    for key in [None, Some(""), Some(long.as_str())] {
        let (status, _, _) = pay(&service, "ann", key, "100").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    // Nobody listens there.
    let gone = Client::builder()
        .url("redis://127.0.0.1:1")
        .build()
        .unwrap();
    let (status, _, _) = pay(&router(gone, Arc::clone(&bank)), "ann", Some("1"), "100").await;
    assert_eq!((status, bank.taken()), (StatusCode::SERVICE_UNAVAILABLE, 0));
}
