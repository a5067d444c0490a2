//! The servers to which renewals are sent. Each has its own limits, so that a server that is
//! silent, or cannot be connected to, does not delay the renewals of others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::connection::Node;

/// The number of batches in progress at once at one server.
const MOST_BATCHES: usize = 16;

/// `None`: the server of the slot is not known.
pub(super) type KnownNode = Option<Arc<Node>>;

/// The calls in progress at each server, by its number. Servers without any are not kept.
#[derive(Default)]
pub(super) struct NodeLoads(BTreeMap<Option<u64>, NodeLoad>);

#[derive(Default)]
struct NodeLoad {
    batches: usize,
    connecting: bool,
    /// The holds that wait for this.
    parked: Vec<u64>,
}

impl NodeLoads {
    /// Whether a batch may be sent there now.
    pub(super) fn has_room(&self, at: &KnownNode) -> bool {
        let lane = self.0.get(&number(at));
        lane.is_none_or(|lane| !lane.connecting && lane.batches < MOST_BATCHES)
    }

    /// A hold waits until the lane is open.
    pub(super) fn park(&mut self, at: &KnownNode, hold: u64) {
        self.lane(at).parked.push(hold);
    }

    pub(super) fn sent(&mut self, at: &KnownNode) {
        self.lane(at).batches += 1;
    }

    /// A batch has ended. Returns the holds that need not wait any more.
    pub(super) fn answered(&mut self, at: &KnownNode) -> Vec<u64> {
        let lane = self.lane(at);
        lane.batches = lane.batches.saturating_sub(1);
        self.unpark(at)
    }

    /// Returns whether it was not being connected to.
    pub(super) fn connects(&mut self, at: &KnownNode) -> bool {
        !std::mem::replace(&mut self.lane(at).connecting, true)
    }

    /// A try to connect has ended. Returns the holds that need not wait any more.
    pub(super) fn connected(&mut self, at: &KnownNode) -> Vec<u64> {
        self.lane(at).connecting = false;
        self.unpark(at)
    }

    fn unpark(&mut self, at: &KnownNode) -> Vec<u64> {
        if !self.has_room(at) {
            return Vec::new();
        }
        let parked = std::mem::take(&mut self.lane(at).parked);
        self.0.retain(|_, lane| lane.batches > 0 || lane.connecting);
        parked
    }

    fn lane(&mut self, at: &KnownNode) -> &mut NodeLoad {
        self.0.entry(number(at)).or_default()
    }
}

pub(super) fn number(at: &KnownNode) -> Option<u64> {
    at.as_ref().map(|node| node.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_wait_until_their_own_server_is_open_again() {
        let mut lanes = NodeLoads::default();
        assert!(lanes.has_room(&None));
        for _ in 0..MOST_BATCHES {
            lanes.sent(&None);
        }
        assert!(!lanes.has_room(&None));
        lanes.park(&None, 7);
        assert!(lanes.connects(&None) && !lanes.connects(&None));
        assert_eq!(lanes.answered(&None), [0; 0], "it is being connected to");
        lanes.park(&None, 8);
        assert_eq!(lanes.connected(&None), [7, 8]);
        for _ in 1..MOST_BATCHES {
            assert_eq!(lanes.answered(&None), [0; 0]);
        }
        assert!(lanes.0.is_empty());
    }
}
