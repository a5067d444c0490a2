//! Without a runtime: threads, rayon's workers and a function that is not async, under locks.
//!
//! `cargo run -p examples --example blocking`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use redlock_rt::blocking::BlockOn as _;
use redlock_rt::embedded::Engine;
use redlock_rt::{Client, Error, Shutdown, distributed_lock};

fn main() -> Result<(), Error> {
    let redis = Engine::new();
    // The client renews its leases on a thread of its own, whatever these threads do.
    let builder = Client::builder().dedicated_thread(true);
    let builder = match std::env::var("REDIS_URL") {
        Ok(url) => builder.url(&url),
        Err(_) => builder.embedded(&redis),
    };
    let client = builder.connect().block_on()?;

    let (stock, sold) = (client.rlock("example:stock"), AtomicU32::new(0));
    thread::scope(|scope| {
        let sell = || -> Result<(), Error> {
            let guard = stock.lock().block_on()?;
            // Two steps, between which no other thread and no other process comes.
            let before = sold.load(Ordering::Relaxed);
            sold.store(before + 1, Ordering::Relaxed);
            drop(guard);
            Ok(())
        };
        let sellers: Vec<_> = (0..4).map(|_| scope.spawn(sell)).collect();
        let mut ended = sellers
            .into_iter()
            .map(|seller| seller.join().expect("no seller panics"));
        ended.try_for_each(|ended| ended)
    })?;
    println!("{} sold by four threads", sold.into_inner());

    let sums: Result<Vec<u32>, Error> = (1..=8_u32)
        .into_par_iter()
        .map(|account| settle(&client, account % 2, account))
        .collect();
    println!("settled by rayon: {:?}", sums?);

    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .block_on()
}

#[distributed_lock(key = "example:account:<account>", client = locks, blocking = true)]
fn settle(locks: &Client, account: u32, amount: u32) -> Result<u32, Error> {
    Ok(amount * 10)
}
