//! Numbers for the [`metrics`](https://docs.rs/metrics) facade; nothing at all without the feature `metrics`.
//! `docs/observability.md` lists their names.

mod event;
#[cfg(feature = "metrics")]
mod facade;
#[cfg(not(feature = "metrics"))]
mod nothing;

pub(crate) use self::event::LockEvent;
#[cfg(feature = "metrics")]
pub(crate) use self::facade::{
    Held, Meter, Sent, reconnected, release_failed, releases_pending, script_loaded,
};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::nothing::{
    Held, Meter, Sent, reconnected, release_failed, releases_pending, script_loaded,
};
