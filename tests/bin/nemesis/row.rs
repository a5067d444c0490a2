//! A counter in a row of PostgreSQL, which has the greatest token that it was read with.

use sqlx::{Connection, PgConnection, query, query_scalar};

use super::Failure;

pub(crate) struct Row(PgConnection);

impl Row {
    pub(crate) async fn open(url: &str) -> Result<Self, Failure> {
        Ok(Self(PgConnection::connect(url).await?))
    }

    pub(crate) async fn create(&mut self) -> Result<(), Failure> {
        let row = "CREATE TABLE counter AS SELECT 0::BIGINT AS value, 0::BIGINT AS token";
        query(row).execute(&mut self.0).await?;
        Ok(())
    }

    /// `None`: a newer token was seen.
    pub(crate) async fn read(&mut self, token: u64) -> Result<Option<u64>, Failure> {
        let read = "UPDATE counter SET token = $1 WHERE token <= $1 RETURNING value";
        let read = query_scalar::<_, i64>(read).bind(token.cast_signed());
        Ok(read
            .fetch_optional(&mut self.0)
            .await?
            .map(i64::cast_unsigned))
    }

    /// Whether it was written.
    pub(crate) async fn write(&mut self, value: u64, token: u64) -> Result<bool, Failure> {
        let write = "UPDATE counter SET value = $1, token = $2 WHERE token <= $2";
        let write = query(write)
            .bind(value.cast_signed())
            .bind(token.cast_signed());
        Ok(write.execute(&mut self.0).await?.rows_affected() == 1)
    }
}
