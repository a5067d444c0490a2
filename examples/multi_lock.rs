//! Several locks as one: a transfer between accounts, in whatever order they are named.
//!
//! `cargo run -p examples --example multi_lock`, with `REDIS_URL` for a real server.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_rt::{Client, Error, Shutdown};

type Accounts = Arc<Mutex<[i64; 3]>>;

async fn transfer(client: Client, accounts: Accounts, from: usize, to: usize) -> Result<(), Error> {
    let names = [from, to].map(|account| format!("example:account:{account}"));
    // Where they go both ways at once, nobody waits in a circle: all take them in one order.
    let both = client.multi_lock(names);
    both.with(async |_guard| {
        let balance = |account: usize| accounts.lock().map(|all| all[account]).unwrap_or(0);
        let (of_from, of_to) = (balance(from), balance(to));
        // Reading and writing lie apart, as with a database.
        tokio::task::yield_now().await;
        if let Ok(mut all) = accounts.lock() {
            (all[from], all[to]) = (of_from - 1, of_to + 1);
        }
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = examples::client().await?;
    let accounts: Accounts = Arc::new(Mutex::new([100; 3]));

    let pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)];
    let transfers =
        pairs.iter().cycle().take(60).map(|&(from, to)| {
            tokio::spawn(transfer(client.clone(), Arc::clone(&accounts), from, to))
        });
    for transfer in transfers.collect::<Vec<_>>() {
        transfer.await.map_or(Ok(()), |done| done)?;
    }
    let after = accounts.lock().map(|all| *all).unwrap_or_default();
    println!("after 60 transfers: {after:?}");
    assert_eq!(after, [100; 3]);

    // All or nothing: where one is held, none is taken.
    let held = client.rlock("example:account:1").lock().await?;
    let names = ["example:account:0", "example:account:1"];
    assert!(client.multi_lock(names).try_lock().await?.is_none());
    assert!(!client.rlock(names[0]).is_locked().await?);
    drop(held);
    // Nothing that was dropped is left behind when the process ends.
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await
}
