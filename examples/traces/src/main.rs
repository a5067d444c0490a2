//! Traces of locks by OpenTelemetry, on standard output.
//!
//! ```text
//! REDIS_URL=redis://localhost cargo run -p traces
//! ```
//!
//! A service exports to its collector by `opentelemetry-otlp` in place of `opentelemetry-stdout`.

use std::env;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use redlock_rt::{Client, Error, LockOptions, Shutdown};
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

async fn order(client: &Client, user: u64) -> Result<(), Error> {
    let lock = client.rlock(format!("order:{user}"));
    let guard = lock.lock_with(LockOptions::new()).await?;
    guard.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("orders"));
    tracing_subscriber::registry()
        .with(traces.with_filter(LevelFilter::INFO))
        .init();
    let client = match env::var("REDIS_URL") {
        Ok(url) => Client::connect(&url).await?,
        Err(_) => Client::embedded(),
    };
    order(&client, 7).instrument(info_span!("order")).await?;
    client.shutdown(Shutdown::ReleaseAll).await?;
    provider.shutdown()?;
    Ok(())
}
