//! What is for sale. Each instance answers from a copy, and no copy is ever out of date.
//!
//! A copy is answered from for as long as the read lock of the catalogue is held for it, a quarter
//! of a second at most, and only while the guard is valid. A change of the catalogue
//! takes the write lock, so by then all copies of all instances are put away: a voucher that was made
//! is in every list from that moment. The stock in a copy is as old as the copy. Orders use it only
//! to see that nothing is left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redlock_rt::{Client, LockOptions, ReadGuard, ReadWriteLock};
use serde::Deserialize;

use super::{LockKind, Shop, ShopConfig, ShopError, new_id, now};
use crate::store::{Books, Sale, StoreError, Voucher};

/// How long a copy is kept. A change waits for so long at most.
const KEPT: Duration = Duration::from_millis(250);

/// How long a copy's read lock outlives an instance that dies: the others are kept from changing
/// anything for so long.
const READ_LEASE: Duration = Duration::from_secs(2);

const READ_WAIT: Duration = Duration::from_secs(1);
const WRITE_WAIT: Duration = Duration::from_secs(3);

const LONGEST_NAME: usize = 80;
const HIGHEST_PRICE: i64 = 100_000_000;
const LARGEST_STOCK: i64 = 1_000_000;

/// A voucher as somebody asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateVoucher {
    pub(crate) name: String,
    pub(crate) price_cents: i64,
    pub(crate) sale: Option<NewSale>,
}

/// A flash sale as somebody asks for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSale {
    pub(crate) stock: i64,
    /// Milliseconds since 1970.
    pub(crate) begins_at: i64,
    /// Milliseconds since 1970.
    pub(crate) ends_at: i64,
    pub(crate) lock: Option<String>,
    #[serde(default)]
    pub(crate) waiting_room: bool,
    /// One order in so many is slow.
    pub(crate) stall_one_in: Option<u32>,
}

/// This instance's copy.
#[derive(Debug)]
pub(super) struct Catalogue {
    lock: ReadWriteLock,
    copy: Arc<Mutex<Option<Copy>>>,
    /// One request at a time makes a copy; the others wait for it.
    filling: tokio::sync::Mutex<Filling>,
}

#[derive(Debug, Default)]
struct Filling {
    /// Of the newest copy.
    number: u64,
    /// When the read lock could not be had, if that was the last that was tried.
    refused_at: Option<Instant>,
}

#[derive(Debug)]
struct Copy {
    number: u64,
    page: Arc<Page>,
    guard: ReadGuard,
}

#[derive(Debug)]
struct Page {
    vouchers: Vec<Voucher>,
    sales: HashMap<String, Sale>,
}

impl Catalogue {
    pub(super) fn new(locks: &Client) -> Self {
        Self {
            // A stream of readers would otherwise delay a change for ever.
            lock: locks.read_write_lock("catalogue").prefer_writers(true),
            copy: Arc::default(),
            filling: tokio::sync::Mutex::default(),
        }
    }

    /// Gives the copy up, so that others may change the catalogue.
    pub(super) async fn put_away(&self) {
        let copy = lock(&self.copy).take();
        put_away(copy).await;
    }

    fn page(&self) -> Option<Arc<Page>> {
        let copy = lock(&self.copy);
        let copy = copy.as_ref().filter(|copy| copy.guard.is_valid())?;
        Some(Arc::clone(&copy.page))
    }
}

impl Shop {
    /// The vouchers, newest first.
    pub(crate) async fn vouchers(&self) -> Result<Vec<Voucher>, ShopError> {
        Ok(self.page().await?.vouchers.clone())
    }

    /// One voucher as it is at this moment.
    pub(crate) async fn voucher(&self, id: &str) -> Result<Voucher, ShopError> {
        self.store
            .voucher(id)
            .await?
            .ok_or(ShopError::NoSuchVoucher)
    }

    /// What the orders table says of a voucher.
    pub(crate) async fn books(&self, voucher: &str) -> Result<Books, ShopError> {
        Ok(self.store.books(voucher).await?)
    }

    /// Adds a voucher, and its sale if it has one.
    pub(crate) async fn create_voucher(&self, asked: CreateVoucher) -> Result<Voucher, ShopError> {
        let now = now();
        let voucher = checked(asked, &self.config, now)?;
        let made = self
            .change_catalogue(async || self.store.create_voucher(&voucher, now).await)
            .await?;
        if !made {
            return Err(ShopError::NameTaken(voucher.name));
        }
        tracing::info!(voucher = voucher.id, name = voucher.name, "voucher made");
        Ok(voucher)
    }

    /// Changes what is for sale while no instance answers from a copy.
    pub(super) async fn change_catalogue<T>(
        &self,
        change: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, ShopError> {
        self.catalogue.put_away().await;
        let options = LockOptions::new().wait(WRITE_WAIT);
        let guard = self.catalogue.lock.write_with(options).await?;
        // Cancelled where the lock is lost: copies may be made from then on.
        let changed = guard.run(change()).await;
        // What is changed stays changed, whatever becomes of the release.
        drop(guard);
        Ok(changed??)
    }

    /// The sale of a voucher.
    pub(super) async fn sale(&self, voucher: &str) -> Result<Sale, ShopError> {
        if let Some(sale) = self.page().await?.sales.get(voucher) {
            return Ok(sale.clone());
        }
        // Not among the newest, or none at all.
        self.voucher(voucher)
            .await?
            .sale
            .ok_or(ShopError::NotOnSale)
    }

    async fn page(&self) -> Result<Arc<Page>, ShopError> {
        if let Some(page) = self.catalogue.page() {
            return Ok(page);
        }
        let mut filling = self.catalogue.filling.lock().await;
        if let Some(page) = self.catalogue.page() {
            return Ok(page);
        }
        // Where locks cannot be had, one request a second waits for one. The others would otherwise
        // wait one after the other.
        if filling
            .refused_at
            .is_some_and(|at| at.elapsed() < READ_WAIT)
        {
            drop(filling);
            return Ok(Arc::new(self.load().await?));
        }
        let options = LockOptions::new().wait(READ_WAIT).lease(READ_LEASE);
        let guard = match self.catalogue.lock.read_with(options).await {
            Ok(guard) => guard,
            // A copy may not be kept without the lock, but the tables are always right.
            Err(error) if error.is_unavailable() || error.is_timed_out() => {
                filling.refused_at = Some(Instant::now());
                drop(filling);
                return Ok(Arc::new(self.load().await?));
            }
            Err(error) => return Err(error.into()),
        };
        let page = Arc::new(self.load().await?);
        *filling = Filling {
            number: filling.number + 1,
            refused_at: None,
        };
        let number = filling.number;
        let old = lock(&self.catalogue.copy).replace(Copy {
            number,
            page: Arc::clone(&page),
            guard,
        });
        let place = Arc::clone(&self.catalogue.copy);
        tokio::spawn(async move {
            put_away(old).await;
            tokio::time::sleep(KEPT).await;
            let copy = lock(&place).take_if(|copy| copy.number == number);
            put_away(copy).await;
        });
        Ok(page)
    }

    async fn load(&self) -> Result<Page, ShopError> {
        let vouchers = self.store.vouchers().await?;
        let sales: HashMap<_, _> = vouchers
            .iter()
            .filter_map(|voucher| Some((voucher.id.clone(), voucher.sale.clone()?)))
            .collect();
        self.sold_out.renew(&sales);
        Ok(Page { vouchers, sales })
    }
}

async fn put_away(copy: Option<Copy>) {
    if let Some(copy) = copy
        && let Err(error) = copy.guard.unlock().await
    {
        tracing::debug!(%error, "the catalogue's read lock ends with its lease");
    }
}

fn lock(copy: &Mutex<Option<Copy>>) -> MutexGuard<'_, Option<Copy>> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks what somebody asks for.
fn checked(asked: CreateVoucher, config: &ShopConfig, now: i64) -> Result<Voucher, ShopError> {
    let name = asked.name.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME {
        let problem = format!("expected 1 to {LONGEST_NAME} characters");
        return Err(ShopError::invalid("name", problem));
    }
    if !(0..=HIGHEST_PRICE).contains(&asked.price_cents) {
        let problem = format!("expected 0 to {HIGHEST_PRICE}");
        return Err(ShopError::invalid("price_cents", problem));
    }
    let sale = asked
        .sale
        .map(|sale| checked_sale(sale, config, now))
        .transpose()?;
    Ok(Voucher {
        id: new_id(),
        name: name.to_owned(),
        price_cents: asked.price_cents,
        sale,
    })
}

fn checked_sale(asked: NewSale, config: &ShopConfig, now: i64) -> Result<Sale, ShopError> {
    if !(0..=LARGEST_STOCK).contains(&asked.stock) {
        let problem = format!("expected 0 to {LARGEST_STOCK}");
        return Err(ShopError::invalid("sale.stock", problem));
    }
    if asked.ends_at <= asked.begins_at {
        return Err(ShopError::invalid(
            "sale.ends_at",
            "expected a time after begins_at",
        ));
    }
    if asked.ends_at <= now {
        return Err(ShopError::invalid(
            "sale.ends_at",
            "expected a time that is to come",
        ));
    }
    let lock = match asked.lock {
        Some(name) => name
            .parse::<LockKind>()
            .map_err(|problem| ShopError::invalid("sale.lock", problem))?,
        None => config.lock,
    };
    Ok(Sale {
        stock_at_start: asked.stock,
        stock: asked.stock,
        begins_at: asked.begins_at,
        ends_at: asked.ends_at,
        lock: lock.as_str().to_owned(),
        waiting_room: asked.waiting_room,
        stall_one_in: asked.stall_one_in.unwrap_or(config.stall_one_in),
    })
}
