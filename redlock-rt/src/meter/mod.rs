//! What happens, for those who want to know: numbers for the [`metrics`](https://docs.rs/metrics) facade, of
//! which there is nothing at all without the feature `metrics`, and events. `docs/observability.md` lists both.

mod event;
#[cfg(feature = "metrics")]
mod facade;
mod news;
#[cfg(not(feature = "metrics"))]
mod nothing;

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
