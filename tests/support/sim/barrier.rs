//! What a task does at a barrier.

use std::time::Duration;

use super::act::Host;
use super::generate::up_to;
use super::plan::{Plan, Step, Thing};
use crate::Random;
use crate::history::{LatchAct, Ms};

/// For a stream of its own, so that what else a seed means stays the same.
const BARRIER: u64 = 0xba_44;
/// In so many of a hundred plans.
const ADDED: usize = 30;
const LEASE: Ms = 700;

impl Plan {
    /// Adds a barrier, and tasks that meet there.
    pub(super) fn add_barrier(&mut self) {
        let random = &mut Random::new(self.seed ^ BARRIER);
        if !random.percent(ADDED) || !self.java.is_empty() {
            return;
        }
        let parties = 2 + random.below(3);
        let thing = self.things.len();
        self.things
            .push(Thing::Barrier(u32::try_from(parties).unwrap_or(2)));
        for task in 0..parties + random.below(2) {
            let steps = (0..3 + random.below(8)).map(|_| Step::Arrive {
                thing,
                after: up_to(random, 300),
                wait: 100 + up_to(random, 5000),
            });
            let host = task % self.hosts.len();
            self.hosts[host].push(steps.collect());
        }
    }
}

impl Host {
    pub(super) async fn arrive(&self, thing: usize, wait: Ms) {
        let Thing::Barrier(parties) = self.plan.things[thing] else {
            return;
        };
        let key = self.plan.things[thing].key(thing);
        let (client, process) = self.client();
        let barrier = client.cyclic_barrier(&key, parties);
        let barrier = barrier.lease(Duration::from_millis(LEASE));
        let act = LatchAct::Arrive {
            parties: parties.into(),
            lease: LEASE,
        };
        let call = self.latch_call(process, &key, act);
        let waiting = barrier.wait_with(Duration::from_millis(wait));
        // One more call to leave.
        let response = self.terms().response;
        let bound = (wait, response);
        let waited = self.waiting(process, "wait at a barrier", bound, waiting);
        let outcome = waited.await;
        call.returned(outcome.as_ref().ok().map(|arrival| arrival.generation));
        if outcome.is_err_and(|error| error.is_barrier_broken()) {
            let resetting = barrier.reset();
            let _ = self
                .timed(process, "reset a barrier", response, resetting)
                .await;
        }
    }
}
