//! `#[distributed_lock]`: one order per user at a time.
//!
//! `cargo run -p examples --example attribute`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::sync::atomic::{AtomicU32, Ordering};

use redlock_rt::{Error, distributed_lock, set_default_client};

static INSIDE: AtomicU32 = AtomicU32::new(0);

#[distributed_lock(key = "example:order:<user_id>", wait = "5s")]
async fn place_order(user_id: u64) -> Result<u32, Error> {
    let inside = INSIDE.fetch_add(1, Ordering::SeqCst) + 1;
    tokio::task::yield_now().await;
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    Ok(inside)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    set_default_client(examples::client().await?);
    let orders: Vec<_> = (0..20).map(|_| tokio::spawn(place_order(7))).collect();
    for order in orders {
        let inside = order.await.map_err(std::io::Error::other);
        assert!(matches!(inside, Ok(Ok(1))), "{inside:?}");
    }
    println!("20 orders of user 7, one at a time");
    Ok(())
}
