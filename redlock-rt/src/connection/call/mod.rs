//! Calls. A link is one live connection, an exchange one call on it, and a delivery one call over as many
//! links as it takes. A node has all connections to one server, except those that listen.

mod delivery;
mod exchange;
mod fast;
mod link;
mod log_in_again;
mod needed_rights;
mod node;
mod ping;
mod reconnect;
mod retry;
mod tracking;
mod wait_for_replicas;

pub(crate) use self::delivery::Delivery;
pub(crate) use self::exchange::Exchange;
pub(super) use self::exchange::Prelude;
pub(super) use self::link::OnDoubt;
pub(crate) use self::node::{AckLane, Lane, Node};
pub(crate) use self::ping::Pong;
pub(crate) use self::reconnect::Timeouts;
pub(super) use self::reconnect::{Common, Connection};
pub use self::retry::RetryPolicy;
pub(crate) use self::tracking::Watched;
pub(crate) use self::wait_for_replicas::{Had, Until};
