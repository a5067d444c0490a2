//! Observation: numbers for the [`metrics`](https://docs.rs/metrics) facade (compiled only with the feature
//! `metrics`), events, and spans. `docs/observability.md` lists all.

mod event;
#[cfg(feature = "metrics")]
mod facade;
mod news;
#[cfg(not(feature = "metrics"))]
mod nothing;
mod spans;

pub use self::event::{Event, LockEvent, ServerEvent};
#[cfg(feature = "metrics")]
pub(crate) use self::facade::{
    Held, Meter, Sent, reconnected, release_failed, releases_pending, script_loaded,
};
pub use self::news::Events;
pub(crate) use self::news::News;
#[cfg(not(feature = "metrics"))]
pub(crate) use self::nothing::{
    Held, Meter, Sent, reconnected, release_failed, releases_pending, script_loaded,
};
pub(crate) use self::spans::Spanned;

/// `TimedOut` as `timed_out`, without its fields.
fn snake(name: &dyn std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let mut text = String::with_capacity(name.len() + 4);
    for char in name.chars().take_while(|char| char.is_alphanumeric()) {
        if char.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(char.to_lowercase());
    }
    text
}
