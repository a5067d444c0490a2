//! Logs of the code under test, shown with the output of a failed test.

use std::sync::Once;

use tracing_subscriber::EnvFilter;

/// Sends tracing events to the test output, filtered by `RUST_LOG` (default `redlock_rt=debug`).
///
/// May be called by every test; the first call counts.
pub fn trace_init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter =
            EnvFilter::try_from_default_env().unwrap_or_else(|_| "redlock_rt=debug".into());
        // Fails only if a test has set another subscriber on purpose.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_test_writer()
            .try_init();
    });
}
