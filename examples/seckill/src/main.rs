//! A flash sale: many users rush for few vouchers, and each may have one.
//!
//! ```console
//! $ cargo run --release -p seckill -- rush
//! $ cargo run --release -p seckill -- rush --lock off
//! $ cargo run --release -p seckill -- serve
//! ```
//!
//! README.md tells the story, and how to run the app as several instances with a page to watch.
//!
//! The app runs as several instances that share a database and nothing else. An order looks whether
//! its user has one already, takes a voucher out of the stock and notes the order. Clients are
//! impatient: every user sends the same request three times at once, and a load balancer spreads
//! them over the instances. Each looks, none finds an order, all of them buy. One attribute makes it
//! right:
//!
//! ```text
//! #[distributed_lock(key = "order:<user_id>", wait = "1s", client = self.locks)]
//! async fn place_order(&self, user_id: i64, ..) -> Result<Placed, ShopError>
//! ```
//!
//! # Layers
//!
//! | layer | modules | knows |
//! | --- | --- | --- |
//! | programs | [`rush`], [`serve`], [`up`], [`story`] | everything below |
//! | routes | [`http`], and the page that it serves | who asks and for what; takes no lock |
//! | service | [`service`], [`payment`] | what the shop does; the only place with locks |
//! | store | [`store`] | the statements, for SQLite and PostgreSQL alike |
//!
//! Exit codes: 0 it went well, 1 the sale came out wrong, 2 it could not be held or served.

#![warn(clippy::unwrap_used)]

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use crate::cli::{Cli, Command, RushArgs};

mod cli;
mod client;
mod http;
mod locks;
mod logging;
mod payment;
mod rush;
mod serve;
mod service;
mod store;
mod story;
mod up;

/// The sale came out wrong.
const WRONG: u8 = 1;
/// The sale could not be held: wrong input, no Redis, no room on the disk.
const NOT_HELD: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Rush(args) => rush(&args.with_environment()).await,
        Command::Serve(args) => {
            logging::begin();
            ended(serve::run(&args).await)
        }
        Command::Up(args) => {
            logging::begin();
            ended(up::run(&args).await)
        }
        Command::Story(args) => match story::run(&args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("wrong: {problem}");
                ExitCode::from(WRONG)
            }
        },
        Command::Payments(args) => {
            logging::begin();
            ended(serve::payment_stub(&args).await)
        }
    }
}

fn ended(end: Result<(), String>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(NOT_HELD)
        }
    }
}

async fn rush(args: &RushArgs) -> ExitCode {
    if let Err(problem) = args.check() {
        return ended(Err(problem));
    }
    let done = if args.http.is_empty() {
        let done = rush::run(args).await;
        done.map(|summary| report(args, &summary, summary.problems()))
    } else {
        let done = rush::remote::run(args).await;
        done.map(|summary| report(args, &summary, summary.problems(args.lock)))
    };
    done.unwrap_or_else(|error| ended(Err(error.to_string())))
}

/// Prints the summary on stdout and what is wrong with it on stderr.
fn report<S: Serialize + Display>(args: &RushArgs, summary: &S, problems: Vec<String>) -> ExitCode {
    let text = if args.json {
        serde_json::to_string(summary).expect("a summary is numbers and strings") + "\n"
    } else {
        summary.to_string()
    };
    // The reader may have gone away. The exit code still tells how it went.
    let _ = io::stdout().write_all(text.as_bytes());

    for problem in &problems {
        eprintln!("wrong: {problem}");
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    }
}
