//! The state of a client and its servers.

use std::sync::Arc;

use futures::future::join_all;

use super::engine::ClientEngine;
use crate::clock;
use crate::connection::{Fault, Node, Pong};
use crate::error::Error;

const ACTION: &str = "check the server";

impl ClientEngine {
    /// Sends a PING to each server that has locks, all at once. Each has the response time-out. Returns the
    /// names of the servers with their answers.
    pub(crate) async fn ping(self: &Arc<Self>) -> Vec<(Arc<str>, Result<Pong, Error>)> {
        let place = Arc::clone(self.nodes.place());
        if self.is_closing() {
            return vec![(place, Err(Fault::closed().into_error(ACTION)))];
        }
        self.ensure_tasks();
        let until = self.patience(clock::now());
        let silent = || Err(Fault::timed_out("no answer to PING"));
        let nodes = clock::before(Some(until), self.nodes.all()).await;
        let nodes = match nodes.unwrap_or_else(|| Err(Fault::timed_out("the layout is unknown"))) {
            Ok(nodes) => nodes,
            Err(fault) => return vec![(place, Err(fault.into_error(ACTION)))],
        };
        let pings = nodes.into_iter().map(async |node: Arc<Node>| {
            let pong = clock::before(Some(until), node.ping()).await;
            let place = Arc::clone(&node.common.current.place);
            let pong = pong.unwrap_or_else(silent);
            let pong = pong.map_err(|fault| fault.at(&place).into_error(ACTION));
            (place, pong)
        });
        join_all(pings).await
    }

    /// Whether Redis reports a lock that others delete or take, as far as is known.
    pub(crate) fn is_told_of_losses(&self) -> bool {
        let refused = || self.nodes.current().refuses_to_tell();
        let tracking = self.tracking.as_ref();
        tracking.is_some_and(|tracking| tracking.hears() && !refused())
    }
}
