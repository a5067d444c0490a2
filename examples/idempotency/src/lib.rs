//! Payments with the header `Idempotency-Key`: a client that got no answer sends the request again, and pays once.
//! If the service dies between payment and answer, it is paid again, unless the bank knows the key, too.
//!
//! | answer | when |
//! | --- | --- |
//! | 201 with the receipt | it was paid by this request |
//! | 201 with the same receipt and `Idempotency-Replayed: true` | it was paid by an earlier request with this key |
//! | 400 | no key, or one that is none |
//! | 402 | the bank declines; the key is open for another try |
//! | 409 with `Retry-After` | an earlier request with this key is still being paid |
//! | 422 | the key was used for another payment |
//! | 503 with `Retry-After` | Redis does not answer; nothing was paid, or the lock was lost while it was paid |

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    taken: AtomicU64,
    /// How many payments may go on; each has one of these to itself.
    pub open: Semaphore,
}

/// Why a request has no receipt.
#[derive(Debug)]
enum Refusal {
    NoKey,
    Declined,
    Lock(Error),
}

impl Bank {
    /// A bank that takes this many payments at once.
    #[must_use]
    pub fn new(open: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU64::new(0),
            open: Semaphore::new(open),
        })
    }

    /// How many payments it has taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }

    async fn charge(&self, user: &str, amount: u64) -> Result<Vec<u8>, Refusal> {
        let _turn = self.open.acquire().await;
        if amount == 0 {
            return Err(Refusal::Declined);
        }
        let number = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(format!("receipt {number}: {user} has paid {amount}\n").into_bytes())
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
    // The key of one user is not that of another. A service knows the user from the login.
    // In quotes: a colon in it does not end it.
    let request = payments.locks.idempotent(format!("{user:?}:{key}"));
    // The key again with another amount is a mistake, which the client learns of.
    let request = request.request(&amount);
    // The caller is told at once that the first request goes on, and asks again.
    let request = request.options(LockOptions::new().wait(Duration::ZERO));
    let amount = amount.trim().parse().unwrap_or(0);
    // A task, since this handler is dropped where the client goes away.
    let paid = tokio::spawn(async move { request.run(payments.bank.charge(&user, amount)).await });
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
            Self::Declined => StatusCode::PAYMENT_REQUIRED.into_response(),
            Self::Lock(error) if error.is_other_request() => {
                let says = "the Idempotency-Key was used for another payment\n";
                (StatusCode::UNPROCESSABLE_ENTITY, says).into_response()
            }
            Self::Lock(error) if error.is_bad_input() => {
                (StatusCode::BAD_REQUEST, "no such Idempotency-Key\n").into_response()
            }
            Self::Lock(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")]).into_response()
            }
        }
    }
}
