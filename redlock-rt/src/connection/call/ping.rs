//! Checks whether a server answers.

use std::time::Duration;

use super::node::Node;
use crate::clock;
use crate::connection::fault::Fault;
use crate::connection::stream::{WakeUp, encode, last};
use crate::wire::Value;

/// The answer of a server.
pub(crate) struct Pong {
    pub(crate) round_trip: Duration,
    /// As reported when the connection was made.
    pub(crate) version: Option<String>,
    pub(crate) role: Option<String>,
}

impl Node {
    /// Sends a PING on the connection for commands, and connects if there is none.
    ///
    /// # Cancel safety
    ///
    /// The reply is not read.
    pub(crate) async fn ping(&self) -> Result<Pong, Fault> {
        let link = self.main.link().await?;
        let began = clock::now();
        let sent = link.send(WakeUp::default(), |out| [encode::command(out, &[b"PING"])])?;
        match link.value(last(sent.await))? {
            Value::Error(error) => Err(link.said_here(Fault::from_server(error))),
            _ => Ok(Pong {
                round_trip: clock::now() - began,
                version: link.info.version.clone(),
                role: link.info.role.clone(),
            }),
        }
    }
}
