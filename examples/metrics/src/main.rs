//! A service that shows its locks to Prometheus.
//!
//! ```text
//! REDIS_URL=redis://localhost cargo run -p orders -- 127.0.0.1:9000
//! curl -X POST http://127.0.0.1:9000/orders/7
//! curl http://127.0.0.1:9000/metrics
//! ```
//!
//! `docs/alerts.yml` has alerts on these numbers, and `docs/grafana.json` a dashboard.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::env;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusBuilder;
use redlock_rt::{Client, Error, ErrorKind, LockOptions, PermitOptions, Shutdown};
use tokio::net::TcpListener;
use tokio::signal::ctrl_c;
use tokio::time::sleep;

/// The bounds of the histograms, in seconds. Without them the exporter makes summaries, of which the numbers
/// of several instances cannot be put together.
const BOUNDS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0,
];
/// How often samples are put together.
const UPKEEP: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_millis(500);

/// Takes an order, which takes so many milliseconds; one order at a time for each user.
async fn order(client: &Client, user: u64, millis: u64) -> Result<(), Error> {
    let options = LockOptions::new()
        .label("orders")
        .wait(PATIENCE)
        .lease(Duration::from_secs(3));
    let lock = client.rlock(format!("order:{user}"));
    let guard = lock.lock_with(options).await?;
    // The drop of the guard releases: an outage makes no error of an order that is done.
    guard.run(sleep(Duration::from_millis(millis))).await
}

/// Writes a report; two at a time, in all instances together.
async fn report(client: &Client) -> Result<(), Error> {
    let options = PermitOptions::new().label("reports").wait(PATIENCE);
    let reports = client.permit_expirable_semaphore("reports").limit(2);
    let permit = reports.acquire_with(options).await?;
    permit.run(sleep(Duration::from_millis(10))).await
}

fn status(outcome: Result<(), Error>) -> StatusCode {
    match outcome.map_err(|error| error.kind()) {
        Ok(()) => StatusCode::NO_CONTENT,
        Err(ErrorKind::TimedOut | ErrorKind::Lost) => StatusCode::CONFLICT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Before the first lock is taken.
    let numbers = PrometheusBuilder::new()
        .set_buckets(&BOUNDS)?
        .install_recorder()?;
    // Between two scrapes the exporter keeps each sample, until it is told to put them together.
    let kept = numbers.clone();
    tokio::spawn(async move {
        loop {
            sleep(UPKEEP).await;
            kept.run_upkeep();
        }
    });
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::connect(&url).await?,
        Err(_) => Client::embedded(),
    };
    let mut events = client.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            println!("{event:?}");
        }
    });
    let app = Router::new()
        .route("/metrics", get(async move || numbers.render()))
        .route(
            "/orders/{user}",
            post(
                async |State(client): State<Client>, Path(user): Path<u64>| {
                    status(order(&client, user, 20).await)
                },
            ),
        )
        .route(
            "/orders/{user}/{millis}",
            post(
                async |State(client): State<Client>, Path((user, millis)): Path<(u64, u64)>| {
                    status(order(&client, user, millis).await)
                },
            ),
        )
        .route(
            "/reports",
            post(async |State(client): State<Client>| status(report(&client).await)),
        )
        .with_state(client.clone());
    let at = env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("127.0.0.1:9000")).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await?;
    client
        .shutdown(Shutdown::Drain(Duration::from_secs(5)))
        .await?;
    Ok(())
}
