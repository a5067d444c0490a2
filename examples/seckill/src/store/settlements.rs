//! What is paid out: the work of a job that one instance does at a time.

use serde::Serialize;

use super::{Store, StoreError, in_order};

/// The fence of the job.
const FENCE: &str = "settlement";

/// The paid orders of some seconds, added up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Settlement {
    pub(crate) id: String,
    pub(crate) orders: i64,
    pub(crate) amount_cents: i64,
    /// The fencing token under which it was written.
    pub(crate) token: i64,
    /// Milliseconds since 1970.
    pub(crate) settled_at: i64,
}

impl Store {
    /// Settles every order that was paid and not yet settled, under this id.
    ///
    /// Returns `None` where a settlement with a greater token came first: then nothing is changed.
    pub(crate) async fn settle(
        &self,
        id: &str,
        token: i64,
        settled_at: i64,
    ) -> Result<Option<Settlement>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let raised = sqlx::query(
            "INSERT INTO fences (name, token) VALUES ($1, $2) \
             ON CONFLICT (name) DO UPDATE SET token = excluded.token \
             WHERE fences.token <= excluded.token",
        )
        .bind(FENCE)
        .bind(token)
        .execute(&mut *transaction)
        .await?;
        if raised.rows_affected() == 0 {
            transaction.rollback().await?;
            return Ok(None);
        }
        sqlx::query(
            "INSERT INTO settlements (id, orders, amount_cents, token, settled_at) \
             VALUES ($1, 0, 0, $2, $3)",
        )
        .bind(id)
        .bind(token)
        .bind(settled_at)
        .execute(&mut *transaction)
        .await?;
        let orders = in_order(
            &transaction,
            "UPDATE orders SET settlement_id = $1",
            "paid_at IS NOT NULL AND settlement_id IS NULL",
        );
        let orders = sqlx::query(orders)
            .bind(id)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        if orders == 0 {
            transaction.rollback().await?;
            return Ok(Some(Settlement {
                id: id.to_owned(),
                orders: 0,
                amount_cents: 0,
                token,
                settled_at,
            }));
        }
        let (orders, amount_cents): (i64, i64) = sqlx::query_as(
            "SELECT count(*), CAST(sum(price_cents) AS BIGINT) FROM orders \
             JOIN vouchers ON vouchers.id = voucher_id WHERE settlement_id = $1",
        )
        .bind(id)
        .fetch_one(&mut *transaction)
        .await?;
        sqlx::query("UPDATE settlements SET orders = $1, amount_cents = $2 WHERE id = $3")
            .bind(orders)
            .bind(amount_cents)
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Some(Settlement {
            id: id.to_owned(),
            orders,
            amount_cents,
            token,
            settled_at,
        }))
    }

    /// The newest settlements.
    pub(crate) async fn settlements(&self) -> Result<Vec<Settlement>, StoreError> {
        let rows: Vec<(String, i64, i64, i64, i64)> = sqlx::query_as(
            "SELECT id, orders, amount_cents, token, settled_at FROM settlements \
             ORDER BY settled_at DESC, id DESC LIMIT 20",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|(id, orders, amount_cents, token, settled_at)| Settlement {
                id,
                orders,
                amount_cents,
                token,
                settled_at,
            })
            .collect())
    }
}
