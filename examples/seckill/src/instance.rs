//! One instance of the app: what a request to place an order does.

use std::time::{Duration, Instant};

use redlock_rt::{Client, Shutdown, distributed_lock};

use crate::cli::Lock;
use crate::db::{Books, Database};

/// How long an instance may take to give its last locks back when it shuts down.
const LAST_RELEASES: Duration = Duration::from_secs(5);

/// One app instance, with a lock client and database connections of its own.
#[derive(Debug)]
pub(crate) struct Instance {
    locks: Client,
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
    #[error("lock: {0}")]
    Lock(#[from] redlock_rt::Error),
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

impl OrderError {
    /// Whether the request was turned away because the user's lock stayed taken for the whole wait.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_timed_out())
    }
}

impl Instance {
    pub(crate) fn new(locks: Client, shop: Database, think: Duration, lock: Lock) -> Self {
        Self {
            locks,
            shop,
            think,
            lock,
        }
    }

    /// Handles one request of a user for the voucher.
    pub(crate) async fn order(&self, user_id: i64) -> Result<Placed, OrderError> {
        let called = Instant::now();
        match self.lock {
            Lock::On => self.place_order(user_id, called).await,
            Lock::Off => self.place_order_unlocked(user_id, called).await,
        }
    }

    /// Places an order while no other request of this user is in here, on any instance.
    #[distributed_lock(key = "order:<user_id>", wait = "1s", client = self.locks)]
    async fn place_order(&self, user_id: i64, called: Instant) -> Result<Placed, OrderError> {
        self.place_order_unlocked(user_id, called).await
    }

    /// One order per user: look, think, buy. Right only while nobody else does so for this user.
    async fn place_order_unlocked(
        &self,
        user_id: i64,
        called: Instant,
    ) -> Result<Placed, OrderError> {
        let waited = called.elapsed();
        if self.shop.has_order(user_id).await? {
            return Ok(Placed {
                answer: Answer::Already,
                waited,
            });
        }
        tokio::time::sleep(self.think).await;
        let answer = if self.shop.buy(user_id).await? {
            Answer::Ordered
        } else {
            Answer::SoldOut
        };
        Ok(Placed { answer, waited })
    }

    /// What the orders table says.
    pub(crate) async fn books(&self) -> Result<Books, sqlx::Error> {
        self.shop.books().await
    }

    /// Gives back every lock and closes every connection.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.locks.shutdown(Shutdown::Drain(LAST_RELEASES)).await {
            eprintln!("seckill: {error}");
        }
        self.shop.close().await;
    }
}
