//! Orders, and the fences that refuse late writes.
//!
//! The transaction of [`buy`](Store::buy) starts with an update and not with a read: in SQLite a
//! transaction that reads first and writes later fails with "database is locked" when somebody else
//! has written in between, however long its busy time-out is.

use serde::Serialize;

use super::{Store, StoreError};

/// An order that is about to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewOrder<'a> {
    pub(crate) id: &'a str,
    pub(crate) voucher_id: &'a str,
    pub(crate) user_id: i64,
    pub(crate) placed_at: i64,
    /// The fence that was raised for this order, by name and token.
    pub(crate) fence: Option<(&'a str, i64)>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bought {
    Yes,
    /// No voucher is left.
    SoldOut,
    /// The fence was raised since.
    Stale,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Order {
    pub(crate) id: String,
    pub(crate) voucher_id: String,
    pub(crate) user_id: i64,
    /// Milliseconds since 1970.
    pub(crate) placed_at: i64,
    /// Milliseconds since 1970.
    pub(crate) paid_at: Option<i64>,
    /// Whether its owner would give it for another.
    pub(crate) offered: bool,
    pub(crate) price_cents: i64,
}

/// Two orders that change their owners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap<'a> {
    pub(crate) order: &'a str,
    pub(crate) of: i64,
    pub(crate) with_order: &'a str,
    pub(crate) with_of: i64,
}

/// What became of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swapped {
    Yes,
    /// One of the orders is not its owner's any more, is not offered, or is being paid.
    Changed,
    /// One of the users would have two orders of one voucher.
    Twice,
}

/// What the orders table says of one voucher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Books {
    /// Orders.
    pub(crate) sold: u64,
    /// Different users among them.
    pub(crate) buyers: u64,
}

impl Books {
    /// Orders beyond the first of each user.
    pub(crate) fn duplicates(&self) -> u64 {
        self.sold - self.buyers
    }

    /// Orders beyond the stock at the start.
    pub(crate) fn oversold(&self, stock: u64) -> u64 {
        self.sold.saturating_sub(stock)
    }
}

type Row = (String, String, i64, i64, Option<i64>, i64, i64);

impl Store {
    /// Whether the user has ordered already, as far as anybody has committed by now.
    pub(crate) async fn has_order(&self, voucher: &str, user: i64) -> Result<bool, StoreError> {
        let orders: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM orders WHERE voucher_id = $1 AND user_id = $2",
        )
        .bind(voucher)
        .bind(user)
        .fetch_one(&self.pool)
        .await?;
        Ok(orders > 0)
    }

    /// Takes one voucher out of the stock and notes the order, both or none.
    pub(crate) async fn buy(&self, order: &NewOrder<'_>) -> Result<Bought, StoreError> {
        let mut transaction = self.pool.begin().await?;
        if let Some((name, token)) = order.fence {
            // This changes nothing, but it locks the row: the fence is not raised before the commit.
            let mine = sqlx::query("UPDATE fences SET token = $1 WHERE name = $2 AND token = $1")
                .bind(token)
                .bind(name)
                .execute(&mut *transaction)
                .await?;
            if mine.rows_affected() == 0 {
                transaction.rollback().await?;
                return Ok(Bought::Stale);
            }
        }
        let taken =
            sqlx::query("UPDATE sales SET stock = stock - 1 WHERE voucher_id = $1 AND stock > 0")
                .bind(order.voucher_id)
                .execute(&mut *transaction)
                .await?;
        if taken.rows_affected() == 0 {
            transaction.rollback().await?;
            return Ok(Bought::SoldOut);
        }
        sqlx::query(
            "INSERT INTO orders (id, voucher_id, user_id, placed_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(order.id)
        .bind(order.voucher_id)
        .bind(order.user_id)
        .bind(order.placed_at)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Bought::Yes)
    }

    /// Raises a fence to `token`; `false` where it stands higher already.
    pub(crate) async fn raise_fence(&self, name: &str, token: i64) -> Result<bool, StoreError> {
        let raised = sqlx::query(
            "INSERT INTO fences (name, token) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET token = excluded.token \
             WHERE fences.token <= excluded.token",
        )
        .bind(name)
        .bind(token)
        .execute(&self.pool)
        .await?;
        Ok(raised.rows_affected() > 0)
    }

    /// What the orders table says of one voucher.
    pub(crate) async fn books(&self, voucher: &str) -> Result<Books, StoreError> {
        let (sold, buyers): (i64, i64) = sqlx::query_as(
            "SELECT count(*), count(DISTINCT user_id) FROM orders WHERE voucher_id = $1",
        )
        .bind(voucher)
        .fetch_one(&self.pool)
        .await?;
        Ok(Books {
            sold: sold.unsigned_abs(),
            buyers: buyers.unsigned_abs(),
        })
    }

    /// One order.
    pub(crate) async fn order(&self, id: &str) -> Result<Option<Order>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT orders.id, voucher_id, user_id, placed_at, paid_at, offered, price_cents \
             FROM orders JOIN vouchers ON vouchers.id = voucher_id WHERE orders.id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(order))
    }

    /// The newest hundred orders of a user.
    pub(crate) async fn orders_of(&self, user: i64) -> Result<Vec<Order>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT orders.id, voucher_id, user_id, placed_at, paid_at, offered, price_cents \
             FROM orders JOIN vouchers ON vouchers.id = voucher_id WHERE user_id = $1 \
             ORDER BY placed_at DESC, orders.id DESC LIMIT 100",
        )
        .bind(user)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(order).collect())
    }

    /// Notes that the payment service is about to be called for an order; `false` where it was paid
    /// before, or is not the user's.
    pub(crate) async fn paying(&self, id: &str, user: i64) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE orders SET paying = paying + 1 \
             WHERE id = $1 AND user_id = $2 AND paid_at IS NULL",
        )
        .bind(id)
        .bind(user)
        .execute(&self.pool)
        .await?;
        Ok(noted.rows_affected() > 0)
    }

    /// Notes that such a call took no money.
    pub(crate) async fn declined(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE orders SET paying = paying - 1 WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Notes that an order was paid; `false` where it was paid before, or is gone. It was offered unpaid, and is not
    /// offered any more.
    pub(crate) async fn paid(&self, id: &str, paid_at: i64) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE orders SET paid_at = $1, offered = 0 WHERE id = $2 AND paid_at IS NULL",
        )
        .bind(paid_at)
        .bind(id)
        .execute(&self.pool)
        .await?;
        Ok(noted.rows_affected() > 0)
    }

    /// Notes that the user would give this order for another; `false` where it is not the user's.
    pub(crate) async fn offer(&self, id: &str, user: i64) -> Result<bool, StoreError> {
        let noted = sqlx::query("UPDATE orders SET offered = 1 WHERE id = $1 AND user_id = $2")
            .bind(id)
            .bind(user)
            .execute(&self.pool)
            .await?;
        Ok(noted.rows_affected() > 0)
    }

    /// Gives each of two orders to the owner of the other, both or none.
    ///
    /// Right only while nobody orders or swaps for either user. An order that has raised its fence and
    /// has not bought yet is refused: it looked before it could see what the user gets here.
    pub(crate) async fn swap(&self, swap: &Swap<'_>) -> Result<Swapped, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // In one order whoever swaps with whom. A later token is greater: tokens grow with the clock.
        for user in [swap.of.min(swap.with_of), swap.of.max(swap.with_of)] {
            sqlx::query(
                "INSERT INTO fences (name, token) VALUES ($1, 0) \
                 ON CONFLICT (name) DO UPDATE SET token = fences.token + 1",
            )
            .bind(format!("order:{user}"))
            .execute(&mut *transaction)
            .await?;
        }
        let hand_over = "UPDATE orders SET user_id = $1, offered = 0 \
                         WHERE id = $2 AND user_id = $3 AND offered >= $4 \
                         AND (paying = 0 OR paid_at IS NOT NULL)";
        let mut both = [
            (swap.order, swap.of, swap.with_of, 0_i64),
            (swap.with_order, swap.with_of, swap.of, 1),
        ];
        // By their ids, as jobs take them.
        both.sort_unstable();
        for (order, from, to, offered) in both {
            let changed = sqlx::query(hand_over)
                .bind(to)
                .bind(order)
                .bind(from)
                .bind(offered)
                .execute(&mut *transaction)
                .await?;
            if changed.rows_affected() == 0 {
                transaction.rollback().await?;
                return Ok(Swapped::Changed);
            }
        }
        let twice: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM orders mine JOIN orders other \
             ON other.voucher_id = mine.voucher_id AND other.user_id = mine.user_id \
             AND other.id <> mine.id WHERE mine.id IN ($1, $2)",
        )
        .bind(swap.order)
        .bind(swap.with_order)
        .fetch_one(&mut *transaction)
        .await?;
        if twice > 0 {
            transaction.rollback().await?;
            return Ok(Swapped::Twice);
        }
        transaction.commit().await?;
        Ok(Swapped::Yes)
    }
}

fn order((id, voucher_id, user_id, placed_at, paid_at, offered, price_cents): Row) -> Order {
    Order {
        id,
        voucher_id,
        user_id,
        placed_at,
        paid_at,
        offered: offered != 0,
        price_cents,
    }
}
