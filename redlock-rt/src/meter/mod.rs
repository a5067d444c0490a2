//! Numbers for the [`metrics`](https://docs.rs/metrics) facade; nothing at all without the feature `metrics`.
//! `docs/observability.md` lists their names.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(not(feature = "metrics"))]
mod nothing;

#[cfg(feature = "metrics")]
pub(crate) use self::facade::{Held, Meter, reconnected, release_failed};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::nothing::{Held, Meter, reconnected, release_failed};
