//! The load generator: lets the users loose on the instances.

use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::{JoinError, JoinSet};

use crate::cli::RushArgs;
use crate::db::Database;
use crate::instance::{Instance, OrderError, Placed};
use crate::locks;
use crate::summary::{Summary, Tally};

/// Opens the sale in a database of its own, lets the users rush, and reads the books.
///
/// # Errors
///
/// The sale could not be held: the locks cannot be reached, or there is no room for the database.
pub(crate) async fn run(args: &RushArgs) -> Result<Summary, Box<dyn Error>> {
    let dir = tempfile::Builder::new().prefix("seckill-").tempdir()?;
    let instances = open(args, &dir.path().join("shop.db")).await?;

    let started = Instant::now();
    let tally = rush(args, &instances).await;
    let took = started.elapsed();

    if let Some(error) = tally.first_error() {
        eprintln!("the first request that failed said: {error}");
    }
    let books = instances[0].books().await?;
    join_all(instances.iter().map(|instance| instance.close())).await;
    dir.close()?;
    Ok(Summary::new(args, &tally, books, took))
}

/// Starts the instances: each has its own lock client and its own pool, all share one database.
async fn open(args: &RushArgs, file: &Path) -> Result<Vec<Arc<Instance>>, Box<dyn Error>> {
    let clients = locks::clients(args.redis.as_deref(), args.instances)
        .await
        .map_err(|error| match &args.redis {
            Some(_) => format!("--redis: {error}"),
            None => error.to_string(),
        })?;
    Database::create(file, args.stock).await?.close().await;
    let mut instances = Vec::new();
    for locks in clients {
        let shop = Database::open(file).await?;
        instances.push(Arc::new(Instance::new(locks, shop, args.think, args.lock)));
    }
    Ok(instances)
}

/// Runs every request of every user, at most `--concurrency` of them at a time.
async fn rush(args: &RushArgs, instances: &[Arc<Instance>]) -> Tally {
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
            let at = (user as usize + request as usize) % instances.len();
            let instance = Arc::clone(&instances[at]);
            requests.spawn(async move {
                start.wait().await;
                let end = instance.order(i64::from(user)).await;
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
    end: Result<Result<Placed, OrderError>, JoinError>,
) {
    match end {
        Ok(end) => tally.add(end),
        Err(panicked) => tally.fail(&panicked),
    }
    progress.inc(1);
}

/// A bar for whoever watches, and nothing at all in a pipe or a log.
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
