//! Prints how many locks and unlocks a second one task makes under executors other than Tokio's, and on a thread
//! without one: with a client that has a thread of its own. Rounds of all alternate on one server.
//!
//! ```text
//! cargo run --release -p benches --bin executors
//! ```

use std::io::Write;
use std::pin::Pin;
use std::time::{Duration, Instant};

use redlock_rt::blocking::BlockOn as _;
use redlock_rt::{Client, Error};
use tests::RedisServer;
use tokio::runtime::Builder;

const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 15;

type Work = Pin<Box<dyn Future<Output = Result<u32, Error>> + Send>>;
type Execute = fn(Work) -> Result<u32, Error>;

const EXECUTORS: [(&str, Execute); 4] = [
    ("tokio, one thread", |work| {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(work)
    }),
    ("smol", |work| smol::block_on(smol::spawn(work))),
    ("futures::executor", futures_executor::block_on),
    ("blocking", |work| work.block_on()),
];

/// The pairs of one round.
async fn pairs(client: Client) -> Result<u32, Error> {
    let (lock, began, mut pairs) = (client.rlock("pairs"), Instant::now(), 0);
    while began.elapsed() < ROUND {
        lock.lock().await?.unlock().await?;
        pairs += 1;
    }
    Ok(pairs)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start();
    let builder = Client::builder().url(&server.url()).dedicated_thread(true);
    let client = builder.connect().block_on()?;
    let mut rates = EXECUTORS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, execute), rates) in EXECUTORS.iter().zip(&mut rates) {
            let pairs = execute(Box::pin(pairs(client.clone())))?;
            rates.push(f64::from(pairs) / ROUND.as_secs_f64());
        }
    }
    let mut out = std::io::stdout();
    for ((name, _), mut rates) in EXECUTORS.iter().zip(rates) {
        rates.sort_unstable_by(f64::total_cmp);
        writeln!(out, "{name}: {:.0} pairs/s", rates[ROUNDS / 2])?;
    }
    Ok(())
}
