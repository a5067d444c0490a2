//! Payments with the header `Idempotency-Key`: a client that got no answer sends the request again, and pays once.
//! A repeated request may be paid a second time if the service died between payment and answer, if the lock was lost
//! during the payment, or if Redis did not take the answer. So the key is passed on to the bank, which prevents that.
//!
//! | answer | when |
//! | --- | --- |
//! | 201 with the receipt | it was paid by this request |
//! | 201 with the same receipt and `Idempotency-Replayed: true` | it was paid by an earlier request with this key |
//! | 400 | no key, or one that is none; an amount that is no number |
//! | 402 | the bank declines; the key is open for another try |
//! | 409 with `Retry-After` | an earlier request with this key is still being paid |
//! | 422 | the key was used for another payment |
//! | 503 with `Retry-After` | Redis does not answer; nothing was paid |
//! | 503 without `Retry-After` | the lock was lost while it was paid: perhaps it is |

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use redlock_rt::{Answer, Client, Error, LockOptions};
use tokio::sync::Semaphore;

/// The service.
#[derive(Debug, Clone)]
pub struct Payments {
    locks: Client,
    bank: Arc<Bank>,
}

/// What takes the money.
#[derive(Debug)]
pub struct Bank {
    /// The receipts, by the key of their payment.
    taken: Mutex<HashMap<String, Vec<u8>>>,
    /// How many payments may go on; each has one of these to itself.
    pub open: Semaphore,
}

/// Why a request has no receipt.
#[derive(Debug)]
enum Refusal {
    NoKey,
    NoAmount,
    Declined,
    Lock(Error),
}

impl Bank {
    /// A bank that takes this many payments at once.
    #[must_use]
    pub fn new(open: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            open: Semaphore::new(open),
        })
    }

    /// How many payments it has taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Takes a payment, once for each key.
    async fn charge(&self, key: &str, user: &str, amount: u64) -> Result<Vec<u8>, Refusal> {
        let _turn = self.open.acquire().await;
        if amount == 0 {
            return Err(Refusal::Declined);
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.len() + 1;
        let receipt = || format!("receipt {number}: {user} has paid {amount}\n").into_bytes();
        Ok(taken.entry(key.to_owned()).or_insert_with(receipt).clone())
    }
}

/// The routes of the service.
pub fn router(locks: Client, bank: Arc<Bank>) -> Router {
    Router::new()
        .route("/users/{user}/payments", post(pay))
        .with_state(Payments { locks, bank })
}

async fn pay(
    State(payments): State<Payments>,
    Path(user): Path<String>,
    headers: HeaderMap,
    amount: String,
) -> Result<Response, Refusal> {
    let key = headers.get("idempotency-key").ok_or(Refusal::NoKey)?;
    let key = key.to_str().ok().filter(|key| !key.trim().is_empty());
    let key = key.ok_or(Refusal::NoKey)?;
    let number = amount
        .trim()
        .parse::<u64>()
        .map_err(|_| Refusal::NoAmount)?;
    // The key of one user is not that of another. A service knows the user from the login.
    // In quotes: a colon in it does not end it.
    let key = format!("{user:?}:{key}");
    let request = payments.locks.idempotent(&key);
    // The key again with another amount is a mistake, which the client learns of.
    let request = request.request(&amount);
    // The caller is told at once that the first request goes on, and asks again.
    let request = request.options(LockOptions::new().wait(Duration::ZERO));
    // A task, since this handler is dropped where the client goes away.
    let paid = tokio::spawn(async move {
        let charge = payments.bank.charge(&key, &user, number);
        request.run(charge).await
    });
    Ok(match paid.await.expect("a payment does not panic")? {
        Answer::First(receipt) => (StatusCode::CREATED, receipt).into_response(),
        Answer::Stored(receipt) => {
            let replayed = [("idempotency-replayed", "true")];
            (StatusCode::CREATED, replayed, receipt).into_response()
        }
        _ => (StatusCode::CONFLICT, [(RETRY_AFTER, "1")]).into_response(),
    })
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoKey => (StatusCode::BAD_REQUEST, "no Idempotency-Key\n").into_response(),
            Self::NoAmount => (StatusCode::BAD_REQUEST, "no amount\n").into_response(),
            Self::Declined => StatusCode::PAYMENT_REQUIRED.into_response(),
            Self::Lock(error) if error.is_other_request() => {
                let says = "the Idempotency-Key was used for another payment\n";
                (StatusCode::UNPROCESSABLE_ENTITY, says).into_response()
            }
            Self::Lock(error) if error.is_bad_input() => {
                (StatusCode::BAD_REQUEST, "no such Idempotency-Key\n").into_response()
            }
            // Nothing tells the client to pay again at once.
            Self::Lock(error) if error.lost_reason().is_some() => {
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
            Self::Lock(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")]).into_response()
            }
        }
    }
}
