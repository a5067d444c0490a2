//! Vouchers and the sales of them.

use serde::Serialize;

use super::{Store, StoreError, in_order};

/// What is sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Voucher {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) price_cents: i64,
    /// The flash sale, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sale: Option<Sale>,
}

/// A flash sale of one voucher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sale {
    pub(crate) stock_at_start: i64,
    pub(crate) stock: i64,
    /// Milliseconds since 1970.
    pub(crate) begins_at: i64,
    /// Milliseconds since 1970.
    pub(crate) ends_at: i64,
    /// What an order of this sale is placed under.
    pub(crate) lock: String,
    /// Whether only those who went through the waiting room may order.
    pub(crate) waiting_room: bool,
    /// One order in so many takes longer than locks without renewal live; none for zero.
    pub(crate) stall_one_in: u32,
}

/// How many vouchers are listed.
const LISTED: i64 = 200;

type Row = (
    String,
    String,
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<String>,
    Option<i64>,
    Option<i64>,
);

impl Store {
    /// Adds a voucher with its sale, both or none; `false` where one of that name is there.
    pub(crate) async fn create_voucher(
        &self,
        new: &Voucher,
        created_at: i64,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let made = sqlx::query(
            "INSERT INTO vouchers (id, name, price_cents, created_at) VALUES ($1, $2, $3, $4)",
        )
        .bind(&new.id)
        .bind(&new.name)
        .bind(new.price_cents)
        .bind(created_at)
        .execute(&mut *transaction)
        .await
        .map_err(StoreError::from);
        match made {
            Err(error) if error.is_taken() => return Ok(false),
            made => made?,
        };
        if let Some(sale) = &new.sale {
            sqlx::query(
                "INSERT INTO sales (voucher_id, stock_at_start, stock, begins_at, ends_at, \
                 lock_kind, waiting_room, stall_one_in) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .bind(&new.id)
            .bind(sale.stock_at_start)
            .bind(sale.stock)
            .bind(sale.begins_at)
            .bind(sale.ends_at)
            .bind(&sale.lock)
            .bind(i64::from(sale.waiting_room))
            .bind(i64::from(sale.stall_one_in))
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// The vouchers, newest first.
    pub(crate) async fn vouchers(&self) -> Result<Vec<Voucher>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT id, name, price_cents, stock_at_start, stock, begins_at, ends_at, lock_kind, \
             waiting_room, stall_one_in FROM vouchers LEFT JOIN sales ON voucher_id = id \
             ORDER BY created_at DESC, id DESC LIMIT $1",
        )
        .bind(LISTED)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(voucher).collect())
    }

    /// One voucher as it is at this moment.
    pub(crate) async fn voucher(&self, id: &str) -> Result<Option<Voucher>, StoreError> {
        let row: Option<Row> = sqlx::query_as(
            "SELECT id, name, price_cents, stock_at_start, stock, begins_at, ends_at, lock_kind, \
             waiting_room, stall_one_in FROM vouchers LEFT JOIN sales ON voucher_id = id WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(voucher))
    }

    /// Ends the sales that were over before `ended_before`: removes them with the orders of them
    /// that nobody has paid or is paying. Returns the number of sales and of orders.
    pub(crate) async fn prune(&self, ended_before: i64) -> Result<(u64, u64), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let orders = in_order(
            &transaction,
            "DELETE FROM orders",
            // And of sales that went while an order was being paid, which then was not.
            "paid_at IS NULL AND paying = 0 AND voucher_id NOT IN \
             (SELECT voucher_id FROM sales WHERE ends_at >= $1)",
        );
        let orders = sqlx::query(orders)
            .bind(ended_before)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        let sales = sqlx::query("DELETE FROM sales WHERE ends_at < $1")
            .bind(ended_before)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        transaction.commit().await?;
        Ok((sales, orders))
    }
}

fn voucher(row: Row) -> Voucher {
    let (id, name, price_cents, at_start, stock, begins_at, ends_at, lock, room, stall) = row;
    let sale = match (at_start, stock, begins_at, ends_at, lock, room, stall) {
        (
            Some(stock_at_start),
            Some(stock),
            Some(begins_at),
            Some(ends_at),
            Some(lock),
            Some(room),
            Some(stall),
        ) => Some(Sale {
            stock_at_start,
            stock,
            begins_at,
            ends_at,
            lock,
            waiting_room: room != 0,
            stall_one_in: u32::try_from(stall).unwrap_or_default(),
        }),
        _ => None,
    };
    Voucher {
        id,
        name,
        price_cents,
        sale,
    }
}
