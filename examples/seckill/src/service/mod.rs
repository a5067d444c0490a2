//! What the shop does. Routes call it and it calls the store; every lock is taken in here.
//!
//! | file | does | under |
//! | --- | --- | --- |
//! | `order` | places an order | `#[distributed_lock]` of the user; the steps that led there |
//! | `steps` | the locks that one writes before one has a library | `SET NX` and so on |
//! | `catalogue` | what is for sale, kept in the process | `ReadWriteLock` |
//! | `payment` | pays an order | `PermitExpirableSemaphore` |
//! | `swap` | two users swap their vouchers | `MultiLock` |
//! | `room` | the waiting room in front of a sale | `FairLock` |
//! | `jobs` | settles what was paid, ends what is over | `FencedLock`, `min_hold` |
//! | `rush` | all instances begin a rush at one moment | `CountDownLatch` |
//! | `live` | who waits, who holds, and for how long | |

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_rt::{Client, LockOptions, Shutdown};
use uuid::Uuid;

use crate::payment::Payments;
use crate::store::Store;

mod catalogue;
mod error;
mod jobs;
mod live;
mod lock_kind;
mod order;
mod payment;
mod room;
mod rush;
mod steps;
mod swap;

pub(crate) use self::catalogue::{CreateVoucher, NewSale};
pub(crate) use self::error::ShopError;
pub(crate) use self::live::{Live, LiveReport, WAIT_BOUNDS};
pub(crate) use self::lock_kind::LockKind;
pub(crate) use self::order::{Answer, Placed};
pub(crate) use self::room::RoomEvent;
pub(crate) use self::rush::{RushRequest, RushState, SAMPLE, ShareReport};

use self::catalogue::Catalogue;
use self::order::SoldOut;
use self::rush::Samples;
use self::steps::RawLocks;

/// How long an instance may take to give its last locks back when it shuts down.
const LAST_RELEASES: Duration = Duration::from_secs(5);

/// How long the tables may take: an instance that hangs over them keeps the others out for so long.
const MIGRATION: Duration = Duration::from_secs(60);

/// What can be set about a shop.
#[derive(Clone, Debug)]
pub(crate) struct ShopConfig {
    /// Time an order takes between its check and its transaction.
    pub(crate) think: Duration,
    /// One order in so many takes far longer, if its sale does not say; none for zero.
    pub(crate) stall_one_in: u32,
    /// What a new sale's orders are placed under, if it does not say.
    pub(crate) lock: LockKind,
    /// How long a sale is kept after its end.
    pub(crate) keep: Duration,
    /// How far apart the waiting room lets its visitors in.
    pub(crate) pace: Duration,
}

impl Default for ShopConfig {
    fn default() -> Self {
        Self {
            think: Duration::ZERO,
            stall_one_in: 0,
            lock: LockKind::Rlock,
            keep: Duration::from_secs(3600),
            pace: Duration::from_millis(100),
        }
    }
}

/// One app instance, with a lock client and database connections of its own.
#[derive(Debug)]
pub(crate) struct Shop {
    locks: Client,
    raw: RawLocks,
    store: Store,
    catalogue: Catalogue,
    sold_out: SoldOut,
    payments: Option<Payments>,
    live: Live,
    samples: Samples,
    config: ShopConfig,
}

impl Shop {
    /// `redis` is where the locks of the steps before a library are kept, if anywhere.
    pub(crate) fn new(
        locks: Client,
        redis: Option<(String, String)>,
        store: Store,
        payments: Option<Payments>,
        config: ShopConfig,
    ) -> Self {
        Self {
            catalogue: Catalogue::new(&locks),
            raw: RawLocks::new(redis),
            sold_out: SoldOut::default(),
            live: Live::default(),
            samples: Samples::default(),
            locks,
            store,
            payments,
            config,
        }
    }

    /// Brings the tables up to date, one instance at a time.
    ///
    /// # Errors
    ///
    /// The locks or the database cannot be had, or the tables are not this program's.
    pub(crate) async fn migrate(&self) -> Result<(), ShopError> {
        let options = LockOptions::new().max_hold(MIGRATION);
        let guard = self.locks.rlock("migrate").lock_with(options).await?;
        Ok(guard.run(self.store.migrate()).await??)
    }

    /// Whether the database answers.
    pub(crate) async fn ready(&self) -> Result<(), ShopError> {
        Ok(self.store.ping().await?)
    }

    /// Who waits for a user's lock, who has one, and how long it took.
    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// What an order of a new sale is placed under, if the sale does not say.
    pub(crate) fn default_lock(&self) -> LockKind {
        self.config.lock
    }

    /// Gives back every lock and closes every connection.
    pub(crate) async fn close(&self) {
        self.catalogue.put_away().await;
        if let Err(error) = self.locks.shutdown(Shutdown::Drain(LAST_RELEASES)).await {
            tracing::warn!(%error, "locks may be left until their leases end");
        }
        self.store.close().await;
    }
}

/// An identifier that sorts by the time at which it was made (UUIDv7).
fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// Milliseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A duration as whole milliseconds.
fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::store::DatabaseUrl;

    /// An instance with locks of its own that nobody knows of, the voucher that it sells, and what its database stands in.
    pub(crate) async fn shop_with_sale(stock: i64) -> (Shop, String, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::file(&directory.path().join("shop.db")).unwrap();
        let store = Store::open(&url, Duration::from_secs(60)).await.unwrap();
        let shop = Shop::new(Client::embedded(), None, store, None, ShopConfig::default());
        shop.migrate().await.unwrap();
        let begins_at = now();
        let voucher = CreateVoucher {
            name: "Tea".to_owned(),
            price_cents: 500,
            sale: Some(NewSale {
                stock,
                begins_at,
                ends_at: begins_at + 3_600_000,
                lock: None,
                waiting_room: false,
                stall_one_in: None,
            }),
        };
        let voucher = shop.create_voucher(voucher).await.unwrap();
        (shop, voucher.id, directory)
    }
}
