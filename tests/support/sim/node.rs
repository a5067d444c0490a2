//! One server, with the network to it.
//!
//! Most plans have one. Where a `RedLock` occurs there are several, each with an address and faults
//! of its own; what is no `RedLock` is on the first. Where one may take the place of another, `cluster.rs`
//! says which does what.

use super::net::{Net, Shared};
use super::plan::{Fault, Plan, Trouble};
use super::server::Server;
use super::sights::Sights;
use crate::history::Ms;

/// See the module.
pub(super) struct Node {
    pub(super) net: Shared,
    pub(super) server: Server,
    /// It stands still.
    pub(super) stands: bool,
    /// How long it takes for a message, and until when it is busy with the last one.
    pub(super) each: Ms,
    pub(super) busy: Ms,
    pub(super) sights: Sights,
}

impl Node {
    /// All servers of a plan.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        (0..plan.servers()).map(|at| Self::new(plan, at)).collect()
    }

    fn new(plan: &Plan, at: usize) -> Self {
        // The first one's are those of a plan with one server.
        let seed = plan.seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let latency = plan.terms.latency;
        // A lease ends on the same clock at whichever node it is, where one may take the place of another.
        let clock = if plan.masters().is_some() { 0 } else { at };
        let skew = plan.terms.skew[(2 + clock) % 3];
        let mut server = Server::new(seed, skew);
        // The other half of the plans are for the plain commands.
        server.only_scripts = plan.seed % 2 == 1;
        let delays = |fault: &Fault| {
            use Trouble::{Overload, Partition, PauseServer, Slow, Stray};
            matches!(
                fault.what,
                Overload { .. }
                    | PauseServer { .. }
                    | Partition { .. }
                    | Slow { .. }
                    | Stray { .. }
            )
        };
        if !plan.faults.iter().any(delays) {
            server.may_ask = 4 * latency.1;
        }
        let net = Net::shared(plan.hosts.len(), latency, seed ^ 0x6e65_7477);
        net.lock().flood = plan.flood;
        Self {
            net,
            server,
            stands: false,
            each: 0,
            busy: 0,
            // Of a flood there are too many to look at each after each command.
            sights: Sights::new(
                if plan.flood.is_some() {
                    &[]
                } else {
                    &plan.things
                },
                at,
            ),
        }
    }
}
