//! One instance of the app: what a request to place an order does.

use std::time::{Duration, Instant};

use crate::cli::Lock;
use crate::db::{Books, Database};

/// One app instance, with connections of its own to the database.
#[derive(Debug)]
pub(crate) struct Instance {
    shop: Database,
    think: Duration,
    lock: Lock,
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The user has the voucher now.
    Ordered,
    /// The user had ordered before.
    Already,
    /// No voucher is left.
    SoldOut,
}

/// An answer, and how long the request stood in front of the body of the function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) answer: Answer,
    pub(crate) waited: Duration,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

impl OrderError {
    /// Whether the request was turned away because the user's lock stayed taken for the whole wait.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Database(_) => false,
        }
    }
}

impl Instance {
    pub(crate) fn new(shop: Database, think: Duration, lock: Lock) -> Self {
        Self { shop, think, lock }
    }

    /// Handles one request of a user for the voucher.
    pub(crate) async fn order(&self, user_id: i64) -> Result<Placed, OrderError> {
        let called = Instant::now();
        match self.lock {
            Lock::On => self.place_order(user_id, called).await,
            Lock::Off => self.place_order(user_id, called).await,
        }
    }

    /// One order per user: look, think, buy. Right only while nobody else does it for this user.
    async fn place_order(&self, user_id: i64, called: Instant) -> Result<Placed, OrderError> {
        let waited = called.elapsed();
        let answer = if self.shop.has_order(user_id).await? {
            Answer::Already
        } else {
            tokio::time::sleep(self.think).await;
            if self.shop.buy(user_id).await? {
                Answer::Ordered
            } else {
                Answer::SoldOut
            }
        };
        Ok(Placed { answer, waited })
    }

    /// What the orders table says.
    pub(crate) async fn books(&self) -> Result<Books, sqlx::Error> {
        self.shop.books().await
    }

    pub(crate) async fn close(&self) {
        self.shop.close().await;
    }
}
