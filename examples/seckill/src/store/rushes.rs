//! Who serves at present, and the rushes that the instances drive together.

use super::{Store, StoreError};

/// A rush, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Rush {
    pub(crate) voucher_id: String,
    pub(crate) users: i64,
    pub(crate) requests_per_user: i64,
    pub(crate) concurrency: i64,
    /// Milliseconds since 1970.
    pub(crate) begun_at: i64,
}

/// The part of a rush that an instance is to drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) rush_id: String,
    pub(crate) part: i64,
    pub(crate) parts: i64,
}

/// How far the part of one instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) instance_id: String,
    pub(crate) done: bool,
    /// What the instance said last: a JSON object, or nothing yet.
    pub(crate) report: String,
    /// When: milliseconds since 1970.
    pub(crate) reported_at: i64,
}

impl Store {
    /// Notes that an instance serves at a URL.
    pub(crate) async fn beat(&self, id: &str, url: &str, now: i64) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO instances (id, url, seen_at) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET url = excluded.url, seen_at = excluded.seen_at",
        )
        .bind(id)
        .bind(url)
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Notes that an instance serves no more.
    pub(crate) async fn leave(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM instances WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The instances that were seen since, as id and URL.
    pub(crate) async fn instances(
        &self,
        seen_since: i64,
    ) -> Result<Vec<(String, String)>, StoreError> {
        Ok(
            sqlx::query_as("SELECT id, url FROM instances WHERE seen_at >= $1 ORDER BY id")
                .bind(seen_since)
                .fetch_all(&self.pool)
                .await?,
        )
    }

    /// Notes a rush with a share for each of the instances.
    pub(crate) async fn begin_rush(
        &self,
        id: &str,
        rush: &Rush,
        instances: &[String],
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(
            "INSERT INTO rushes (id, voucher_id, users, requests_per_user, concurrency, begun_at) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id)
        .bind(&rush.voucher_id)
        .bind(rush.users)
        .bind(rush.requests_per_user)
        .bind(rush.concurrency)
        .bind(rush.begun_at)
        .execute(&mut *transaction)
        .await?;
        for (part, instance) in (0_i64..).zip(instances) {
            sqlx::query(
                "INSERT INTO rush_shares (rush_id, instance_id, part, parts) \
                 VALUES ($1, $2, $3, $4)",
            )
            .bind(id)
            .bind(instance)
            .bind(part)
            .bind(i64::try_from(instances.len()).unwrap_or(i64::MAX))
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// A rush.
    pub(crate) async fn rush(&self, id: &str) -> Result<Option<Rush>, StoreError> {
        let row: Option<(String, i64, i64, i64, i64)> = sqlx::query_as(
            "SELECT voucher_id, users, requests_per_user, concurrency, begun_at FROM rushes \
             WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(
            |(voucher_id, users, requests_per_user, concurrency, begun_at)| Rush {
                voucher_id,
                users,
                requests_per_user,
                concurrency,
                begun_at,
            },
        ))
    }

    /// The share of a rush that this instance has not begun yet. It is begun with this.
    pub(crate) async fn take_share(&self, instance: &str) -> Result<Option<Share>, StoreError> {
        let row: Option<(String, i64, i64)> = sqlx::query_as(
            "UPDATE rush_shares SET taken = 1 WHERE instance_id = $1 AND taken = 0 AND rush_id = \
             (SELECT rush_id FROM rush_shares WHERE instance_id = $1 AND taken = 0 \
             ORDER BY rush_id LIMIT 1) RETURNING rush_id, part, parts",
        )
        .bind(instance)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|(rush_id, part, parts)| Share {
            rush_id,
            part,
            parts,
        }))
    }

    /// Notes how far an instance's share is. A report that was given up may come behind the last one: it counts no more.
    pub(crate) async fn report(
        &self,
        rush: &str,
        instance: &str,
        report: &str,
        done: bool,
        now: i64,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE rush_shares SET report = $1, done = $2, reported_at = $3 \
             WHERE rush_id = $4 AND instance_id = $5 AND done = 0",
        )
        .bind(report)
        .bind(i64::from(done))
        .bind(now)
        .bind(rush)
        .bind(instance)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// How far all shares of a rush are.
    pub(crate) async fn parts(&self, rush: &str) -> Result<Vec<Part>, StoreError> {
        let rows: Vec<(String, i64, String, i64)> = sqlx::query_as(
            "SELECT instance_id, done, report, reported_at FROM rush_shares \
             WHERE rush_id = $1 ORDER BY part",
        )
        .bind(rush)
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|(instance_id, done, report, reported_at)| Part {
                instance_id,
                done: done != 0,
                report,
                reported_at,
            })
            .collect())
    }
}
