//! The shop's books: SQLite or PostgreSQL, by one set of statements.
//!
//! The database by itself does NOT keep a user from ordering twice. [`has_order`](Store::has_order)
//! is a statement of its own and [`buy`](Store::buy) a transaction after it. Two requests of one
//! user that both look before either has bought, both buy; the order's lock is what keeps them
//! apart. A unique index on `(voucher, user)` would hide that, so there is none.
//!
//! | file | has |
//! | --- | --- |
//! | `url` | what `--database` may be |
//! | `error` | a database that is away, told apart from all else that may go wrong |
//! | `vouchers`, `orders`, `settlements`, `rushes` | the statements, a table or two each |

use std::borrow::Cow;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{
    AnyConnection, AnyPool, AssertSqlSafe, ConnectOptions, Connection, Executor, SqlSafeStr,
};

mod error;
mod orders;
mod rushes;
mod settlements;
#[cfg(test)]
mod tests;
mod url;
mod vouchers;

pub(crate) use self::error::StoreError;
pub(crate) use self::orders::{Books, Bought, NewOrder, Order, Swap, Swapped};
pub(crate) use self::rushes::{Part, Rush, Share};
pub(crate) use self::settlements::Settlement;
pub(crate) use self::url::DatabaseUrl;
pub(crate) use self::vouchers::{Sale, Voucher};

/// Connections of one instance to SQLite: more would only queue for its single write lock.
const SQLITE_CONNECTIONS: u32 = 3;

/// Connections of one instance to PostgreSQL, which refuses more than 100 in all by default.
const POSTGRES_CONNECTIONS: u32 = 12;

/// What each connection to SQLite is told. The time-out comes first: the next one needs it.
const SQLITE_SETTINGS: &str = "
    PRAGMA busy_timeout = 5000;
    PRAGMA synchronous = NORMAL;
";

/// What each connection to PostgreSQL is told: a statement that hangs would keep its connection, and
/// whoever waits for it the locks under which it runs.
const POSTGRES_SETTINGS: &str = "SET statement_timeout = '7s'";

/// What makes a file of SQLite a server's database; the file keeps it. It is part of the
/// migrations, and so under their lock: of two connections that change the journal at once, one
/// fails with "database is locked" without regard to its time-out.
const SQLITE_JOURNAL: &str = "PRAGMA journal_mode = WAL";

const MIGRATIONS: [(i64, &str, &str); 4] = [
    (1, "shop", include_str!("../../migrations/0001_shop.sql")),
    (
        2,
        "rushes",
        include_str!("../../migrations/0002_rushes.sql"),
    ),
    (
        3,
        "slow_orders",
        include_str!("../../migrations/0003_slow_orders.sql"),
    ),
    (
        4,
        "payments",
        include_str!("../../migrations/0004_payments.sql"),
    ),
];

/// One instance's pool of connections to the shop's database.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: AnyPool,
}

impl Store {
    /// Connects to the database, whose tables are there or are made by [`migrate`](Self::migrate).
    /// Connecting has this time, and so has a statement that waits for a connection.
    ///
    /// # Errors
    ///
    /// No database answers at the URL, or none of that name.
    pub(crate) async fn open(url: &DatabaseUrl, timeout: Duration) -> Result<Self, StoreError> {
        sqlx::any::install_drivers(&[sqlx::sqlite::any::DRIVER, sqlx::postgres::any::DRIVER]).ok();
        let connections = if url.is_sqlite() {
            SQLITE_CONNECTIONS
        } else {
            POSTGRES_CONNECTIONS
        };
        let options: AnyConnectOptions = url.as_str().parse()?;
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(timeout)
            .after_connect(|connection, _| Box::pin(set_up(connection)))
            .after_release(|connection, _| Box::pin(leave_transaction(connection)))
            // A pool tries again and again to connect; the first time, the first answer counts.
            .connect_lazy_with(options.clone().disable_statement_logging());
        let first = async {
            let mut connection = options.connect().await?;
            set_up(&mut connection).await?;
            connection.close().await
        };
        let first = tokio::time::timeout(timeout, first).await;
        first.map_err(|_| sqlx::Error::PoolTimedOut)??;
        Ok(Self { pool })
    }

    /// Brings the tables up to date. One process at a time may do so: the caller sees to that.
    ///
    /// # Errors
    ///
    /// The database is away, or its tables are not what this program left there.
    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        if is_sqlite(&connection) {
            connection.execute(SQLITE_JOURNAL).await?;
        }
        drop(connection);
        let migrations = MIGRATIONS.map(|(version, what, statements)| {
            let up = MigrationType::Simple;
            Migration::new(
                version,
                Cow::Borrowed(what),
                up,
                statements.into_sql_str(),
                false,
            )
        });
        Migrator::with_migrations(migrations.to_vec())
            .run(&self.pool)
            .await?;
        Ok(())
    }

    /// Whether the database answers.
    ///
    /// # Errors
    ///
    /// It does not.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// Closes every connection.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// What a new connection is told before its first statement.
async fn set_up(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let settings = if is_sqlite(connection) {
        SQLITE_SETTINGS
    } else {
        POSTGRES_SETTINGS
    };
    connection.execute(settings).await?;
    Ok(())
}

/// A request that is dropped during BEGIN leaves its connection to PostgreSQL inside a transaction of which sqlx 0.9.0
/// does not know: what others do there is undone. BEGIN comes first, since a ROLLBACK outside of one is a warning.
async fn leave_transaction(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    if !is_sqlite(connection) {
        connection.execute("BEGIN; ROLLBACK").await?;
    }
    Ok(true)
}

/// A statement about many orders that locks them in the order of their ids, or two of them might wait for each
/// other's rows. SQLite has one writer.
fn in_order(
    connection: &AnyConnection,
    change: &'static str,
    which: &'static str,
) -> AssertSqlSafe<String> {
    let lock = if is_sqlite(connection) {
        ""
    } else {
        "FOR UPDATE"
    };
    AssertSqlSafe(format!(
        "{change} WHERE id IN (SELECT id FROM orders WHERE {which} ORDER BY id {lock})"
    ))
}

fn is_sqlite(connection: &AnyConnection) -> bool {
    connection.backend_name() == "SQLite"
}
