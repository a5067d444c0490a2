//! A payment service to try out against: slow, and wrong as often as one likes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use serde_json::{Value, json};

/// How slow and how wrong it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StubConfig {
    pub(crate) delay: Duration,
    /// Of a hundred payments, how many fail.
    pub(crate) failures: u32,
}

#[derive(Debug)]
struct Stub {
    config: StubConfig,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    paid: HashSet<String>,
    at_once: u64,
    most_at_once: u64,
}

/// What it serves.
pub(crate) fn stub(config: StubConfig) -> Router {
    let stub = Arc::new(Stub {
        config,
        books: Mutex::default(),
    });
    Router::new()
        .route("/payments/{order}", put(pay))
        .route("/payments", get(books))
        .with_state(stub)
}

async fn pay(State(stub): State<Arc<Stub>>, Path(order): Path<String>) -> StatusCode {
    stub.with(|books| {
        books.at_once += 1;
        books.most_at_once = books.most_at_once.max(books.at_once);
    });
    tokio::time::sleep(stub.config.delay).await;
    let fails = fastrand::u32(0..100) < stub.config.failures;
    stub.with(|books| {
        books.at_once -= 1;
        if !fails {
            books.paid.insert(order);
        }
    });
    if fails {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    }
}

/// How many payments were made, and the most that were under way at once.
async fn books(State(stub): State<Arc<Stub>>) -> Json<Value> {
    Json(stub.with(|books| json!({ "paid": books.paid.len(), "most_at_once": books.most_at_once })))
}

impl Stub {
    fn with<T>(&self, look: impl FnOnce(&mut Books) -> T) -> T {
        look(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
