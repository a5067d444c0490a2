//! Where the log goes: to standard error, a line an event, as much of it as `RUST_LOG` says.

use tracing_subscriber::EnvFilter;

/// The variable that says how much is logged.
pub(crate) const VARIABLE: &str = EnvFilter::DEFAULT_ENV;

/// Starts to log.
pub(crate) fn begin() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A second subscriber is a test's, which has its own.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
