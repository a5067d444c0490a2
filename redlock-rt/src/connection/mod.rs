//! Connections to Redis; the only place that names the `redis` crate.
//!
//! ```text
//!     nodes · attempt       the servers of a client: one, or a cluster; which of them gets a call
//!            │
//!         cluster/          which master has which slot: ask, layout, refresh (the task that asks),
//!            │              follow (calls that a node sends elsewhere)
//!            │
//!          call/            link (one live connection), ping, exchange, fast (a call on it, with its script or
//!            │              without), wait_for_replicas, tracking, needed_rights, log_in_again, reconnect, retry (a
//!            │              link, or none), delivery (a call over many links), node (all connections to
//!            │              one server)
//!            │  pubsub/     subscriber (a connection that listens), listening (what is said on it)
//!            ├────┘
//!         server/           which server it is: reach (finds it), sentinel, sentinel_events, replicated,
//!            │              gather (asks several), greeting (logs in and asks), info, current (the process
//!            │              to which all connections of a client lead), journal (log lines)
//!            ├────┐
//!          dial/  │         dialer (opens a stream), endpoint, url, url_lists, look_up (a host name), tls,
//!            │    │         credentials, misfit (failures that last), panics (of callbacks)
//!            │  stream/     framed (a byte stream), resp (reads replies), encode, multiplexer (the calls
//!            │    │         of many callers), admission, driver (polls it)
//!            ├────┘
//!     address · fault · slot_news (MOVED, ASK) · spawner (where tasks run) · one_task (tries for all)
//! ```
//!
//! A file imports from its own folder and from lower ones. One import goes up: `fault` asks `misfit` whether a
//! failure to connect is permanent.
//!
//! The `redis` crate encodes the commands that are not part of a call: logins, questions to a server, WAIT. Its
//! connections are not used: they collect a reply of any announced length. `redis::aio::ConnectionManager` cannot
//! use our own streams, and never dials again after time-outs on a half-open link.

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

#[cfg(feature = "redis-1")]
pub(crate) use redis::{Client as RedisClient, IntoConnectionInfo};

pub use self::call::RetryPolicy;
pub(crate) use self::call::{
    AckLane, Delivery, Exchange, Had, Lane, Node, Pong, Timeouts, Until, Watched,
};
pub(crate) use self::cluster::Cluster;
pub use self::dial::Credentials;
#[cfg(feature = "redis-1")]
pub(crate) use self::dial::RedisSettings;
pub(crate) use self::dial::{Connector, CredentialSource, Dialer, Endpoint, ServerId};
pub(crate) use self::fault::{Caller, Cause, Fault, Verdict};
pub(crate) use self::nodes::{Hint, Nodes, To};
pub(crate) use self::pubsub::{Heard, Message, Subscriber};
pub(crate) use self::server::{Beside, CurrentServer, Right, listen_for_switches};
pub(crate) use self::spawner::{Home, Spawner};
pub(crate) use self::stream::Came;
#[cfg(any(fuzzing, test))]
pub(crate) use self::stream::fuzz::{of_script, replies};
