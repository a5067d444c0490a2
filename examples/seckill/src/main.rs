//! A flash sale: many users rush for few vouchers, and each may have one.
//!
//! ```console
//! $ cargo run --release -p seckill -- rush
//! $ cargo run --release -p seckill -- rush --lock off
//! ```
//!
//! The app runs as several instances that share a database and nothing else. An order looks whether
//! its user has one already, takes a voucher out of the stock and notes the order. Clients are
//! impatient: every user sends the same request three times at once, and a load balancer spreads
//! them over the instances. Each looks, none finds an order, all of them buy:
//!
//! ```text
//! instance 1   has user 7 ordered? no ·············· buy
//! instance 2     has user 7 ordered? no ·············· buy      a second voucher
//! instance 3       has user 7 ordered? no ·············· buy    a third
//! ```
//!
//! That is `--lock off`. With the lock, which is the default, one attribute makes it right:
//!
//! ```text
//! #[distributed_lock(key = "order:<user_id>", wait = "1s", client = self.locks)]
//! async fn place_order(&self, user_id: i64, ..) -> Result<Placed, OrderError>
//! ```
//!
//! ```text
//! instance 1   [ has user 7 ordered? no ····· buy ]
//! instance 2     waiting                           [ has user 7 ordered? yes ]
//! instance 3       waiting                                                    [ … yes ]
//! ```
//!
//! Different users do not wait for each other, as their locks have different names. Who has not got
//! the lock after a second is turned away as busy.
//!
//! What the lock is not there for: the stock never goes below zero with or without it, because that
//! is one conditional update (`… SET stock = stock - 1 … WHERE stock > 0`). What one statement can
//! do should not take a lock.
//!
//! The locks are kept in an engine inside the process, or with `--redis redis://…` on a server, under
//! a namespace of this run. The program checks its books in the end: each request ended in one way
//! (ordered, already, sold out, busy, failed), and the orders table says what was sold. Exit codes:
//! 0 the sale came out right (or `--lock off`), 1 it did not, 2 it could not be held.
//!
//! Where to look: [`instance`] has the function under the attribute, [`locks`] makes the clients,
//! [`db`] is the shop, [`rush`] the crowd and [`summary`] what has to be true afterwards.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, RushArgs};
use crate::summary::Summary;

mod cli;
mod db;
mod instance;
mod locks;
mod rush;
mod summary;

/// The sale came out wrong.
const WRONG: u8 = 1;
/// The sale could not be held: wrong input, no Redis, no room on the disk.
const NOT_HELD: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli {
        command: Command::Rush(args),
    } = Cli::parse();
    if let Err(problem) = args.check() {
        eprintln!("error: {problem}");
        return ExitCode::from(NOT_HELD);
    }
    match rush::run(&args).await {
        Ok(summary) => report(&args, &summary),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(NOT_HELD)
        }
    }
}

/// Prints the summary on stdout and what is wrong with it on stderr.
fn report(args: &RushArgs, summary: &Summary) -> ExitCode {
    let text = if args.json {
        serde_json::to_string(summary).expect("a summary is numbers and strings") + "\n"
    } else {
        summary.to_string()
    };
    // Whoever reads may have gone away; the exit code is still theirs to have.
    let _ = io::stdout().write_all(text.as_bytes());

    let problems = summary.problems();
    for problem in &problems {
        eprintln!("wrong: {problem}");
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    }
}
