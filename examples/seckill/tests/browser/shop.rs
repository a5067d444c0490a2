//! The shop that is looked at: two instances and a front, each a process, and their database.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, query_as};
use tempfile::TempDir;
use tests::ChildProcess;

/// A shop of its own for a test.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) url: String,
    _process: ChildProcess,
    directory: TempDir,
}

/// What the orders table says of a sale.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) sold: i64,
    /// Orders beyond the first of each user.
    pub(crate) duplicates: i64,
    pub(crate) oversold: i64,
    /// What the sale says is left.
    pub(crate) stock: i64,
}

impl Shop {
    /// Opens a shop with two instances.
    pub(crate) fn open(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("shop.db").display().to_string();
        let own = [
            "up",
            "--instances",
            "2",
            "--port",
            "0",
            "--database",
            &database,
        ];
        let arguments = [&own, flags].concat();
        let mut process =
            ChildProcess::spawn(env!("CARGO_BIN_EXE_seckill"), arguments, |command| {
                command.env("RUST_LOG", "error").stdout(Stdio::piped());
            })
            .unwrap();
        let said = BufReader::new(process.take_stdout().unwrap())
            .lines()
            .map_while(Result::ok);
        let url = said
            .filter_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .next();
        Self {
            url: url.expect("the shop opens"),
            _process: process,
            directory,
        }
    }

    /// What the database says of the sale of this name.
    pub(crate) async fn books(&self, sale: &str) -> Books {
        let file = SqliteConnectOptions::new()
            .filename(self.directory.path().join("shop.db"))
            .read_only(true);
        let mut database = SqliteConnection::connect_with(&file).await.unwrap();
        let (sold, buyers, at_start, stock): (i64, i64, i64, i64) = query_as(
            "SELECT count(orders.id), count(DISTINCT orders.user_id), \
                    sales.stock_at_start, sales.stock \
             FROM vouchers JOIN sales ON sales.voucher_id = vouchers.id \
             LEFT JOIN orders ON orders.voucher_id = vouchers.id \
             WHERE vouchers.name = $1 GROUP BY vouchers.id",
        )
        .bind(sale)
        .fetch_one(&mut database)
        .await
        .unwrap();
        Books {
            sold,
            duplicates: sold - buyers,
            oversold: (sold - at_start).max(0),
            stock,
        }
    }
}
