//! An order: look whether the user has one, think, buy. One request of a user at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use redlock_rt::distributed_lock;

use super::live::Visit;
use super::{LockKind, Shop, ShopError, new_id, now};
use crate::store::{Bought, NewOrder, Order, Sale, StoreError};

/// What a slow request takes: longer than the time to live of the locks that are not renewed.
const STALL: Duration = Duration::from_millis(450);

/// How a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The user has the voucher now, by the order of this id.
    Ordered(String),
    /// The user had ordered before.
    Already,
    /// No voucher is left.
    SoldOut,
    /// A request that locked later has raised the fence.
    Overtaken,
}

/// An answer, and how long the request waited for its lock, if it asked for one.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) answer: Answer,
    pub(crate) waited: Option<Duration>,
}

/// The sales of which this instance knows that nothing is left. No sale is ever stocked up.
#[derive(Debug, Default)]
pub(super) struct SoldOut(RwLock<HashSet<String>>);

impl SoldOut {
    fn contains(&self, voucher: &str) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(voucher)
    }

    fn insert(&self, voucher: &str) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(voucher.to_owned());
    }

    /// Learns which sales there are, and of which nothing is left.
    pub(super) fn renew(&self, sales: &HashMap<String, Sale>) {
        let mut sold_out = self.0.write().unwrap_or_else(PoisonError::into_inner);
        sold_out.retain(|voucher| sales.contains_key(voucher));
        let nothing_left = sales.iter().filter(|(_, sale)| sale.stock == 0);
        sold_out.extend(nothing_left.map(|(voucher, _)| voucher.clone()));
    }
}

impl Shop {
    /// Handles one request of a user for a voucher.
    ///
    /// A sale of which nothing is left is answered without a lock and without the database.
    pub(crate) async fn order(
        &self,
        user_id: i64,
        voucher_id: &str,
        has_pass: bool,
    ) -> Result<Placed, ShopError> {
        let sale = self.sale(voucher_id).await?;
        open_at(&sale, now())?;
        if sale.waiting_room && !has_pass {
            return Err(ShopError::NoPass);
        }
        if self.sold_out.contains(voucher_id) {
            return Ok(Placed {
                answer: Answer::SoldOut,
                waited: None,
            });
        }
        let kind = sale.lock.parse().unwrap_or(self.config.lock);
        let span = tracing::Span::current();
        match kind {
            LockKind::Off => {}
            kind if kind.is_raw() => _ = span.record("lock", format!("raw-order:{user_id}")),
            _ => _ = span.record("lock", format!("order:{user_id}")),
        }
        let turn = Turn {
            voucher_id,
            stall_one_in: sale.stall_one_in,
            asked: (kind != LockKind::Off).then(Instant::now),
            visit: self.live.wait(voucher_id, user_id),
        };
        match kind {
            LockKind::Rlock => self.place_order(user_id, turn).await,
            LockKind::Fenced => self.place_fenced(user_id, turn).await,
            LockKind::Off => self.look_think_buy(user_id, turn, None).await,
            LockKind::Setnx | LockKind::SetnxTtl | LockKind::Token => {
                let held = self.raw.lock(kind, &format!("raw-order:{user_id}")).await?;
                let placed = self.look_think_buy(user_id, turn, None).await;
                self.raw.unlock(held).await?;
                placed
            }
        }
    }

    /// Places an order while no other request of this user is in here, on any instance.
    #[distributed_lock(key = "order:<user_id>", wait = "1s", client = self.locks)]
    async fn place_order(&self, user_id: i64, turn: Turn<'_>) -> Result<Placed, ShopError> {
        self.look_think_buy(user_id, turn, None).await
    }

    /// The same with a token for the database, which refuses a request that has lost its lock.
    #[distributed_lock(
        key = "order:<user_id>",
        kind = fenced,
        token = token,
        wait = "1s",
        client = self.locks
    )]
    async fn place_fenced(&self, user_id: i64, turn: Turn<'_>) -> Result<Placed, ShopError> {
        let fence = Fence {
            name: format!("order:{user_id}"),
            token: i64::try_from(token).unwrap_or(i64::MAX),
        };
        self.look_think_buy(user_id, turn, Some(fence)).await
    }

    /// One order per user: look, think, buy. Right only while no other request of the user does so.
    ///
    /// With a fence it is right in any case. The fence is raised before the look and compared in the
    /// transaction. So whoever raises it later either comes before the transaction of the earlier
    /// one, which is then refused, or comes after it and sees the order.
    async fn look_think_buy(
        &self,
        user_id: i64,
        turn: Turn<'_>,
        fence: Option<Fence>,
    ) -> Result<Placed, ShopError> {
        let waited = turn.asked.map(|asked| asked.elapsed());
        let stood = waited.unwrap_or_default();
        let _inside = turn.visit.begins(stood);
        tracing::Span::current().record("lock_wait_ms", stood.as_secs_f64() * 1000.0);

        let answer = self
            .answer(user_id, turn.voucher_id, turn.stall_one_in, fence.as_ref())
            .await?;
        if answer == Answer::SoldOut {
            self.sold_out.insert(turn.voucher_id);
        }
        Ok(Placed { answer, waited })
    }

    async fn answer(
        &self,
        user_id: i64,
        voucher_id: &str,
        stall_one_in: u32,
        fence: Option<&Fence>,
    ) -> Result<Answer, StoreError> {
        if let Some(fence) = fence
            && !self.store.raise_fence(&fence.name, fence.token).await?
        {
            return Ok(Answer::Overtaken);
        }
        if self.store.has_order(voucher_id, user_id).await? {
            return Ok(Answer::Already);
        }
        self.think(stall_one_in).await;
        let id = new_id();
        let order = NewOrder {
            id: &id,
            voucher_id,
            user_id,
            placed_at: now(),
            fence: fence.map(|fence| (fence.name.as_str(), fence.token)),
        };
        Ok(match self.store.buy(&order).await? {
            Bought::Yes => Answer::Ordered(id),
            Bought::SoldOut => Answer::SoldOut,
            Bought::Stale => Answer::Overtaken,
        })
    }

    /// What lies between the check and the transaction: prices, fraud checks, a slow disk.
    async fn think(&self, stall_one_in: u32) {
        let time = if stall_one_in > 0 && fastrand::u32(0..stall_one_in) == 0 {
            STALL
        } else {
            self.config.think
        };
        if !time.is_zero() {
            tracing::debug!(
                time_ms = time.as_secs_f64() * 1000.0,
                "thinking about an order"
            );
            tokio::time::sleep(time).await;
        }
    }

    /// The newest orders of a user.
    pub(crate) async fn orders_of(&self, user_id: i64) -> Result<Vec<Order>, ShopError> {
        Ok(self.store.orders_of(user_id).await?)
    }
}

/// A request in front of its lock.
struct Turn<'a> {
    voucher_id: &'a str,
    stall_one_in: u32,
    /// When it asked for its lock, if it takes one.
    asked: Option<Instant>,
    visit: Visit<'a>,
}

/// A fence in the database and the token that is to pass it.
struct Fence {
    name: String,
    token: i64,
}

impl Placed {
    /// The id of the new order.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn into_order(self) -> Result<String, ShopError> {
        match self.answer {
            Answer::Ordered(id) => Ok(id),
            Answer::Already => Err(ShopError::AlreadyOrdered),
            Answer::SoldOut => Err(ShopError::SoldOut),
            Answer::Overtaken => Err(ShopError::Overtaken),
        }
    }
}

fn open_at(sale: &Sale, now: i64) -> Result<(), ShopError> {
    if now < sale.begins_at {
        return Err(ShopError::NotBegun {
            begins_at: sale.begins_at,
        });
    }
    if now >= sale.ends_at {
        return Err(ShopError::Over);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::tests::shop_with_sale;

    #[test]
    fn a_sale_is_open_from_its_begin_until_before_its_end() {
        let sale = Sale {
            stock_at_start: 1,
            stock: 1,
            begins_at: 1000,
            ends_at: 2000,
            lock: "rlock".to_owned(),
            waiting_room: false,
            stall_one_in: 0,
        };
        assert!(matches!(
            open_at(&sale, 999),
            Err(ShopError::NotBegun { begins_at: 1000 })
        ));
        assert!(open_at(&sale, 1000).is_ok());
        assert!(open_at(&sale, 1999).is_ok());
        assert!(matches!(open_at(&sale, 2000), Err(ShopError::Over)));
    }

    #[tokio::test]
    async fn what_is_sold_out_counted_as_a_lock_that_was_free() {
        let (shop, voucher, _directory) = shop_with_sale(1).await;
        let waited = async |user| shop.order(user, &voucher, false).await.unwrap().waited;
        assert!(waited(7).await.is_some());
        // This one learns it under its lock, and no later one takes a lock.
        assert!(waited(8).await.is_some());
        assert_eq!(waited(9).await, None);
    }
}
