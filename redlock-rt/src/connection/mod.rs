//! Connections to Redis; the only place that names the `redis` crate.
//!
//! ```text
//! Endpoint (URL) ─▶ Dialer ─▶ reach (finds the master) ─▶ Link (one live connection, EVALSHA)
//!                                                   └──▶ Subscriber (pub/sub)
//! Framed: the byte stream under each of them, whose replies are checked first
//! Multiplexer: the commands of many callers on a Link
//! Connection: a Link or none; dials anew after a failure, with back-off
//! CurrentServer: the server process to which all of them lead
//! Node: the connections to one server
//! Nodes: one Node, or a Cluster: the node of each slot
//! ```
//!
//! `redis::aio::ConnectionManager` is not used: it cannot use our own streams, and it never dials
//! again after time-outs on a half-open link.

mod address;
mod attempt;
mod call;
mod cluster;
mod dial;
mod fault;
mod nodes;
mod one_task;
mod pubsub;
mod server;
mod slot_news;
mod spawner;
mod stream;

pub use self::call::RetryPolicy;
pub(crate) use self::call::{AckLane, Delivery, Exchange, Had, Lane, Node, Timeouts, Until};
pub(crate) use self::cluster::Cluster;
pub use self::dial::Credentials;
pub(crate) use self::dial::{
    Connector, CredentialSource, Dialer, Endpoint, NodeConnector, ServerId,
};
pub(crate) use self::fault::{Caller, Cause, Fault, Verdict};
pub(crate) use self::nodes::{Hint, Nodes, To};
pub(crate) use self::pubsub::{Announcements, Heard, Message, Subscriber};
pub(crate) use self::server::{Beside, CurrentServer, Right, listen_for_switches};
pub(crate) use self::spawner::{Home, Spawner};
pub(crate) use self::stream::Came;
