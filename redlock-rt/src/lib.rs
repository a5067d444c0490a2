//! Distributed locks and synchronisers on Redis for async Rust.

mod clock;
mod connection;
mod error;
mod name;
mod shim;
mod wire;

pub use error::{Error, ErrorKind};
pub use name::OwnerId;
