//! Whether a hold may be handed over to the next task of this client.
//!
//! # Invariant
//!
//! A hold is handed over only while three conditions are true. The acquiring command is the only one that
//! Redis was ever sent for its owner, nothing has put the hold in doubt, and half of the lease is left.
//! So the next hold of the chain counts its deadline from that command too.

use std::time::{Duration, Instant};

use super::{GuardId, HoldPhase, Lease, Terms};
use crate::clock::after;

/// Consecutive holds of this client that are one hold for Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    /// When the command was sent that acquired the lock for the first of them. Since then no command was
    /// sent for its owner number.
    pub(crate) began: Instant,
    /// The number of holds, with the present one; zero: it is not handed over.
    pub(crate) turns: u32,
}

/// The state that a hold passes to the next one of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Legacy {
    pub(crate) chain: Chain,
    lease: Duration,
    renew: Duration,
}

impl Legacy {
    /// Whether a request with these terms may take over the hold: with the same lease and the same
    /// renewal interval, apart from the random part of the interval.
    pub(crate) fn fits(&self, terms: &Terms) -> bool {
        let same = terms
            .renew
            .is_some_and(|now| self.renew.abs_diff(now) <= self.lease / 30);
        same && self.lease == terms.lease
    }
}

/// The longest chain, in time and in holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainLimit {
    pub(crate) time: Duration,
    pub(crate) turns: u32,
}

impl Lease {
    /// The next hold of a chain. Only `max_hold` starts again.
    pub(crate) fn next_of(legacy: &Legacy, terms: Terms, now: Instant) -> (Self, GuardId) {
        let Chain { began, turns } = legacy.chain;
        let (mut lease, id) = Self::new(terms, None, began);
        lease.retune(id, terms, now);
        lease.chain = Chain {
            began,
            turns: turns.saturating_add(1),
        };
        (lease, id)
    }

    /// Ends the only guard, and leaves the hold to the next one of this client. `None`: nothing changes,
    /// and the hold must be released. Upholds the invariant.
    pub(crate) fn hand_over(
        &mut self,
        id: GuardId,
        limit: ChainLimit,
        now: Instant,
    ) -> Option<Legacy> {
        self.tick(now);
        let chain = self.chain()?;
        let [tenant] = self.tenants[..] else {
            return None;
        };
        let (lease, renew) = (tenant.lease, tenant.renew?);
        let short = now < after(chain.began, limit.time) && chain.turns < limit.turns;
        let rest = self.deadline.saturating_duration_since(now);
        let free = tenant.id == id && self.min_hold().is_none() && self.phase == HoldPhase::Held;
        if !(free && short && rest >= lease / 2) {
            return None;
        }
        self.tenants.clear();
        self.enter(HoldPhase::Released);
        Some(Legacy {
            chain,
            lease,
            renew,
        })
    }

    pub(crate) fn chain(&self) -> Option<Chain> {
        (self.chain.turns > 0).then_some(self.chain)
    }

    /// When the command was sent that acquired the lock for its owner number.
    pub(crate) fn acquired(&self) -> Instant {
        self.chain.began
    }

    /// Stops hand-overs of this hold: a command is sent for its owner, or its state is not known.
    pub(crate) fn unchain(&mut self) {
        self.chain.turns = 0;
    }
}
