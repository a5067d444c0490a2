//! Prints what the renewals of a thousand held locks cost the server, without tracking and with it: its
//! processor time. Rounds of both alternate on one server.
//!
//! ```text
//! cargo run --release -p benches --bin tracking
//! ```

use std::{fs, io::Write, time::Duration};

use futures::future::try_join_all;
use redlock_rt::{Client, Error, LockOptions, RLockGuard};
use tests::RedisServer;

const LOCKS: usize = 1000;
const INTERVAL: Duration = Duration::from_millis(50);
/// Until the keys are watched, and renewals are full calls.
const SETTLES: Duration = Duration::from_millis(1500);
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 9;

async fn hold(client: &Client) -> Result<Vec<RLockGuard>, Error> {
    let options = LockOptions::new().renew(INTERVAL);
    let locks = (0..LOCKS).map(async |at| {
        let lock = client.rlock(format!("orders:lock:{at}"));
        lock.lock_with(options.clone()).await
    });
    try_join_all(locks).await
}

/// A number in the INFO of a server.
async fn info(server: &RedisServer, section: &str, field: &str) -> f64 {
    let info: String = server.ask(&["INFO", section]).await;
    let mut lines = info.lines().filter_map(|line| line.strip_prefix(field));
    let value = lines.next().and_then(|rest| rest.split(',').next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// The calls that renewed, and the processor time of the server's thread in nanoseconds.
async fn spent(server: &RedisServer) -> (f64, f64) {
    let pid = server.pid();
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"));
    let stat = stat.expect("a Linux with schedstat");
    let time = stat.split(' ').next().and_then(|time| time.parse().ok());
    let calls = info(server, "commandstats", "cmdstat_evalsha:calls=").await;
    (calls, time.expect("a number"))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start();
    let build = |tracking| {
        Client::builder()
            .url(&server.url())
            .tracking(tracking)
            .build()
    };
    let clients = [build(false)?, build(true)?];
    let (mut figures, mut watched) = ([vec![], vec![]], [0.0; 2]);
    for round in 0..2 * ROUNDS {
        // In turn, and each first as often as the other.
        let side = (round + round / 2) % 2;
        let guards = hold(&clients[side]).await?;
        tokio::time::sleep(SETTLES).await;
        let before = spent(&server).await;
        tokio::time::sleep(ROUND).await;
        let after = spent(&server).await;
        figures[side].push((after.1 - before.1) / (after.0 - before.0) / 1000.0);
        watched[side] = info(&server, "stats", "tracking_total_keys:").await;
        assert!(guards.iter().all(RLockGuard::is_valid));
        for guard in guards {
            guard.unlock().await?;
        }
    }
    let [plain, tracked] = figures.map(median);
    writeln!(
        std::io::stdout(),
        "{LOCKS} locks held, {watched:?} keys watched; a call that renews 100 takes {plain:.0} us of the \
         server, with tracking {tracked:.0} us: {:.1} % more",
        (tracked / plain - 1.0) * 100.0
    )?;
    Ok(())
}
