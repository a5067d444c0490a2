//! The shop's books: a real database, which by itself does NOT keep a user from ordering twice.
//!
//! [`has_order`](Database::has_order) is a statement of its own and
//! [`buy`](Database::buy) a transaction after it. Two requests of one user that both look before
//! either has bought, both buy; the order's lock is what keeps them apart. A unique index on
//! `(voucher, user)` would hide that, so there is none.
//!
//! The transaction's first statement is the stock update and not a read: in SQLite a transaction
//! that reads first and writes later fails with "database is locked" when somebody else has written
//! in between, however long its busy time-out is.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

/// The one voucher that is on sale.
const VOUCHER: i64 = 1;

/// Connections of one instance. More of them would only queue for SQLite's single write lock.
const CONNECTIONS: u32 = 3;

/// How long a connection waits for SQLite's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE vouchers (
        id    INTEGER PRIMARY KEY,
        stock INTEGER NOT NULL
    );
    CREATE TABLE orders (
        id         INTEGER PRIMARY KEY,
        voucher_id INTEGER NOT NULL REFERENCES vouchers (id),
        user_id    INTEGER NOT NULL
    );
    CREATE INDEX orders_by_user ON orders (voucher_id, user_id);
";

/// One instance's pool of connections to the shop's database.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    pool: SqlitePool,
}

impl Database {
    /// Makes the database file and puts `stock` vouchers on sale.
    pub(crate) async fn create(file: &Path, stock: u32) -> Result<Self, sqlx::Error> {
        let database = Self::connect(options(file).create_if_missing(true)).await?;
        sqlx::raw_sql(SCHEMA).execute(&database.pool).await?;
        sqlx::query("INSERT INTO vouchers (id, stock) VALUES (?, ?)")
            .bind(VOUCHER)
            .bind(stock)
            .execute(&database.pool)
            .await?;
        Ok(database)
    }

    /// Opens the database file that [`create`](Self::create) made.
    pub(crate) async fn open(file: &Path) -> Result<Self, sqlx::Error> {
        Self::connect(options(file)).await
    }

    async fn connect(options: SqliteConnectOptions) -> Result<Self, sqlx::Error> {
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect_with(options)
            .await?;
        Ok(Self { pool })
    }

    /// Whether the user has ordered already, as far as anybody has committed by now.
    pub(crate) async fn has_order(&self, user: i64) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM orders WHERE voucher_id = ? AND user_id = ?)",
        )
        .bind(VOUCHER)
        .bind(user)
        .fetch_one(&self.pool)
        .await
    }

    /// Takes one voucher out of the stock and notes the order; `false` when none is left.
    pub(crate) async fn buy(&self, user: i64) -> Result<bool, sqlx::Error> {
        let mut transaction = self.pool.begin().await?;
        let taken = sqlx::query("UPDATE vouchers SET stock = stock - 1 WHERE id = ? AND stock > 0")
            .bind(VOUCHER)
            .execute(&mut *transaction)
            .await?;
        if taken.rows_affected() == 0 {
            transaction.rollback().await?;
            return Ok(false);
        }
        sqlx::query("INSERT INTO orders (voucher_id, user_id) VALUES (?, ?)")
            .bind(VOUCHER)
            .bind(user)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// What the tables say once the rush is over.
    pub(crate) async fn books(&self) -> Result<Books, sqlx::Error> {
        let (sold, buyers): (i64, i64) = sqlx::query_as(
            "SELECT count(*), count(DISTINCT user_id) FROM orders WHERE voucher_id = ?",
        )
        .bind(VOUCHER)
        .fetch_one(&self.pool)
        .await?;
        Ok(Books {
            sold: sold.unsigned_abs(),
            buyers: buyers.unsigned_abs(),
        })
    }

    /// Closes every connection.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// What the orders table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Books {
    /// Orders.
    pub(crate) sold: u64,
    /// Different users among them.
    pub(crate) buyers: u64,
}

fn options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sells_no_more_than_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shop.db");
        let shop = Database::create(&file, 2).await.unwrap();
        let other = Database::open(&file).await.unwrap();

        assert!(!shop.has_order(7).await.unwrap());
        assert!(shop.buy(7).await.unwrap());
        assert!(other.has_order(7).await.unwrap());
        assert!(other.buy(8).await.unwrap());
        assert!(!shop.buy(9).await.unwrap());
        assert!(!shop.has_order(9).await.unwrap());
        assert_eq!(shop.books().await.unwrap(), Books { sold: 2, buyers: 2 });
        shop.close().await;
        other.close().await;
    }

    #[tokio::test]
    async fn nothing_but_the_lock_keeps_a_user_from_ordering_twice() {
        let dir = tempfile::tempdir().unwrap();
        let shop = Database::create(&dir.path().join("shop.db"), 5)
            .await
            .unwrap();

        let (first, second) = (
            shop.has_order(7).await.unwrap(),
            shop.has_order(7).await.unwrap(),
        );
        assert!(!first && !second);
        assert!(shop.buy(7).await.unwrap());
        assert!(shop.buy(7).await.unwrap());
        assert_eq!(shop.books().await.unwrap(), Books { sold: 2, buyers: 1 });
        shop.close().await;
    }

    #[tokio::test]
    async fn settings_are_those_of_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let shop = Database::create(&dir.path().join("shop.db"), 1)
            .await
            .unwrap();
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&shop.pool)
            .await
            .unwrap();
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous")
            .fetch_one(&shop.pool)
            .await
            .unwrap();
        let busy: i64 = sqlx::query_scalar("PRAGMA busy_timeout")
            .fetch_one(&shop.pool)
            .await
            .unwrap();
        assert_eq!((journal.as_str(), synchronous, busy), ("wal", 1, 10_000));
        shop.close().await;
    }
}
