//! `#[distributed_lock]`: one order per user at a time, transfers that cannot deadlock, at most two
//! calls to a bank, and a job that one of many machines runs.
//!
//! `cargo run -p examples --example attribute`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use redlock_rt::{Error, Shutdown, distributed_lock, set_default_client};

/// How many are inside, and the most that there were.
struct Room {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Room {
    const fn new() -> Self {
        Self {
            inside: AtomicU32::new(0),
            most: AtomicU32::new(0),
        }
    }

    async fn visit(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}

static SHOP: Room = Room::new();
static BANK: Room = Room::new();

#[distributed_lock(key = "example:order:<user_id>", wait = "5s")]
async fn place_order(user_id: u64) -> Result<(), Error> {
    SHOP.visit().await;
    Ok(())
}

/// Both accounts or none, in one order whatever the direction.
#[distributed_lock(keys = ["example:account:<from>", "example:account:<to>"], wait = "5s")]
async fn transfer(from: u32, to: u32) -> Result<(), Error> {
    call_bank().await
}

/// A permit of a process that dies is free after its lease.
#[distributed_lock(key = "example:bank", kind = semaphore(limit = 2), wait = "5s")]
async fn call_bank() -> Result<(), Error> {
    BANK.visit().await;
    Ok(())
}

/// Whoever is late finds it done: the lock stays for as long as clocks may differ.
#[distributed_lock(key = "example:report:<day>", wait = "0s", min_hold = "2s", on_timeout = skip)]
async fn nightly_report(day: u32) -> Result<bool, Error> {
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    set_default_client(client.clone());

    try_join_all((0..20).map(|_| place_order(7))).await?;
    println!("20 orders of user 7, {} at a time", SHOP.most());
    assert_eq!(SHOP.most(), 1);

    try_join_all((0..10).flat_map(|n| [transfer(2 * n, 2 * n + 1), transfer(2 * n + 1, 2 * n)]))
        .await?;
    println!("20 transfers, at most {} at the bank", BANK.most());
    assert!(BANK.most() <= 2);

    let day = std::process::id();
    let reports = join_all((0..10).map(|_| nightly_report(day))).await;
    let written = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    let written = written.iter().filter(|written| **written).count();
    println!("10 machines, {written} report");
    assert_eq!(written, 1);
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
