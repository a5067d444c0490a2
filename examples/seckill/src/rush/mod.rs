//! The load generator: lets the users loose on the instances.
//!
//! Here they are in this process and called directly. [`crowd`] is the same over HTTP, and [`share`]
//! the part of it that a serving instance drives.

use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::{JoinError, JoinSet};

use self::summary::Summary;
use self::tally::Tally;
use crate::cli::RushArgs;
use crate::locks::{Locks, namespace};
use crate::service::{self, CreateVoucher, NewSale, Placed, Shop, ShopConfig, ShopError};
use crate::store::{DatabaseUrl, Store};

mod crowd;
mod problems;
pub(crate) mod remote;
pub(crate) mod share;
mod summary;
mod tally;

/// The database is a file of this process's own.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(30);

/// A sale in this process ends with the process, in milliseconds.
const LONGEST_SALE: i64 = 24 * 3600 * 1000;

/// Opens the sale in a database of its own, lets the users rush, and reads the books.
///
/// # Errors
///
/// The sale could not be held: the locks cannot be reached, or there is no room for the database.
pub(crate) async fn run(args: &RushArgs) -> Result<Summary, Box<dyn Error>> {
    let dir = tempfile::Builder::new().prefix("seckill-").tempdir()?;
    let shop = open(args, &dir.path().join("shop.db")).await?;

    let started = Instant::now();
    let tally = rush(args, &shop).await;
    let took = started.elapsed();

    if let Some(error) = tally.first_error() {
        eprintln!("the first request that failed said: {error}");
    }
    let books = shop.instances[0].books(&shop.voucher).await?;
    join_all(shop.instances.iter().map(|instance| instance.close())).await;
    dir.close()?;
    Ok(Summary::new(args, &tally, books, took))
}

/// An open shop: its instances, the voucher on sale, and where the locks are.
struct Open {
    instances: Vec<Arc<Shop>>,
    voucher: Arc<str>,
    /// Ends after the instances.
    _locks: Locks,
}

/// Starts the instances: each has its own lock client and its own pool, all share one database.
async fn open(args: &RushArgs, file: &Path) -> Result<Open, Box<dyn Error>> {
    let mut locks = match &args.redis {
        Some(url) => Locks::connect(url, &namespace(), args.instances).await?,
        None => Locks::embedded(args.instances, args.lock.is_raw()).await?,
    };
    let config = ShopConfig {
        think: args.think,
        stall_one_in: args.stall_one_in.unwrap_or_default(),
        lock: args.lock,
        ..ShopConfig::default()
    };
    let database = DatabaseUrl::file(file)?;
    let mut instances = Vec::new();
    for client in std::mem::take(&mut locks.clients) {
        let store = Store::open(&database, DATABASE_TIMEOUT).await?;
        let redis = locks.redis.clone();
        instances.push(Arc::new(Shop::new(
            client,
            redis,
            store,
            None,
            config.clone(),
        )));
    }
    instances[0].migrate().await?;
    let begins_at = service::now();
    let voucher = CreateVoucher {
        name: "Flash sale".to_owned(),
        price_cents: 1000,
        sale: Some(NewSale {
            stock: i64::from(args.stock),
            begins_at,
            ends_at: begins_at + LONGEST_SALE,
            lock: None,
            waiting_room: false,
            stall_one_in: None,
        }),
    };
    let voucher = instances[0].create_voucher(voucher).await?;
    Ok(Open {
        instances,
        voucher: voucher.id.into(),
        _locks: locks,
    })
}

/// Runs every request of every user, at most `--concurrency` of them at a time.
async fn rush(args: &RushArgs, shop: &Open) -> Tally {
    let in_flight = Arc::new(Semaphore::new(args.concurrency as usize));
    let progress = progress(args.requests());
    let mut tally = Tally::new();
    let mut requests = JoinSet::new();

    for user in 0..args.users {
        // A user comes with all requests or not yet, so that they really do start together.
        let mut places = Arc::clone(&in_flight)
            .acquire_many_owned(args.requests_per_user)
            .await
            .expect("the semaphore is never closed");
        let start = Arc::new(Barrier::new(args.requests_per_user as usize));
        for request in 0..args.requests_per_user {
            let place = places.split(1);
            let start = Arc::clone(&start);
            let at = (user as usize + request as usize) % shop.instances.len();
            let instance = Arc::clone(&shop.instances[at]);
            let voucher = Arc::clone(&shop.voucher);
            requests.spawn(async move {
                start.wait().await;
                let end = instance.order(i64::from(user), &voucher, false).await;
                drop(place);
                end
            });
        }
        while let Some(end) = requests.try_join_next() {
            count(&mut tally, &progress, end);
        }
    }
    while let Some(end) = requests.join_next().await {
        count(&mut tally, &progress, end);
    }
    progress.finish_and_clear();
    tally
}

fn count(
    tally: &mut Tally,
    progress: &ProgressBar,
    end: Result<Result<Placed, ShopError>, JoinError>,
) {
    match end {
        Ok(end) => tally.add(end),
        Err(panicked) => tally.fail(&panicked),
    }
    progress.inc(1);
}

/// A bar on a terminal, and nothing in a pipe or a log.
fn progress(requests: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{wide_bar} {human_pos}/{human_len} requests, {per_sec}, {eta} left",
    )
    .expect("the template is a constant");
    ProgressBar::with_draw_target(Some(requests), ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style)
}
