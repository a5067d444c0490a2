//! A `FairLock`: its queue in Redis, and waiters that ask, give up, are given the lock, fall silent and die.
//!
//! Calls run at once (`rlock` has how they get lost), but for replies that do not arrive. Nobody is woken:
//! whoever waits asks at any time, so the order does not depend on announcements.

use stateright::{Model, Property};

use self::{Phase::*, Step::*};
use crate::Bug;

pub(crate) struct Fair(pub(crate) Option<Bug>);

/// The process of each waiter.
const OF: [usize; 3] = [0, 0, 1];
const LEASE: u32 = 2;
/// For how long a process that is not heard of counts as alive.
const ALIVE: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Who has the lock, and its TTL.
    pub(crate) key: Option<(usize, u32)>,
    pub(crate) queue: Vec<usize>,
    /// For how long each process still counts as alive.
    pub(crate) heard: [u32; OF.len()],
    /// Each waiter, and for how long its guard is valid.
    pub(crate) waiters: [(Phase, u32); OF.len()],
    /// Who waits, in the order of arrival, and whether its process counted as alive all the time since.
    order: Vec<(usize, bool)>,
    /// One of these was passed by who came later.
    passed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Waits,
    Holds,
    /// Redis has to be told that it neither holds nor waits.
    Leaves,
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// `fair_acquire`, by whoever comes or waits; and whether its reply arrives.
    Ask(bool),
    /// The wait is over, or the guard ends.
    Leave,
    /// `fair_release`, for both.
    Release,
    /// `fair_beat`, for all waiters of the process.
    Beat,
    /// The process dies.
    Die,
    /// A tick passes, for all.
    Pass,
}

impl Fair {
    fn step(&self, state: &mut State, at: usize, step: Step) -> Option<()> {
        match (step, state.waiters[at].0) {
            (Pass, _) => self.pass(state),
            (_, Dead) => return None,
            (Ask(arrives), Idle | Waits) => {
                let has = self.acquire(state, at);
                state.heard[OF[at]] = if has { state.heard[OF[at]] } else { ALIVE };
                state.waiters[at] = if has && arrives {
                    (Holds, LEASE)
                } else {
                    (Waits, 0)
                };
            }
            (Leave, Waits | Holds) => state.waiters[at] = (Leaves, 0),
            (Release, Leaves) => {
                self.release(state, at);
                state.waiters[at] = (Idle, 0);
            }
            (Beat, Waits) => {
                state.heard[OF[at]] = ALIVE;
                self.drop_dead(state);
            }
            (Die, _) => {
                let process = |one: &usize| OF[*one] == OF[at];
                let all = (0..OF.len()).filter(process);
                all.for_each(|one| state.waiters[one] = (Dead, 0));
                state.order.retain(|(one, _)| !process(one));
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether the waiter has the lock. A repeat finds it there, or itself in the queue.
    fn acquire(&self, state: &mut State, at: usize) -> bool {
        if state.key.is_none() {
            self.drop_dead(state);
            let is_next = state.queue.first().is_none_or(|next| *next == at);
            if is_next || self.0 == Some(Bug::FreeLockGoesToWhoeverAsks) {
                self.give(state, at);
            }
        }
        if state.key.is_some_and(|(holder, _)| holder == at) {
            state.key = Some((at, LEASE));
            return true;
        }
        if self.0 == Some(Bug::RepeatQueuesAgain) {
            state.queue.retain(|one| *one != at);
        }
        if !state.queue.contains(&at) {
            state.queue.push(at);
            if !state.order.contains(&(at, true)) {
                state.order.retain(|(one, _)| *one != at);
                state.order.push((at, true));
            }
        }
        false
    }

    /// Afterwards the waiter neither has the lock nor waits for it.
    fn release(&self, state: &mut State, at: usize) {
        state.order.retain(|(one, _)| *one != at);
        if self.0 != Some(Bug::WhoLeavesStaysQueued) {
            state.queue.retain(|one| *one != at);
        }
        if state.key.is_some_and(|(holder, _)| holder != at)
            && self.0 != Some(Bug::ReleaseDoesNotLook)
        {
            return;
        }
        let had = state.key.take().is_some();
        // The process names its waiters, and one that is next has the lock at once.
        let named = |one: &&usize| OF[**one] == OF[at] && state.waiters[**one].0 == Waits;
        let next = match self.0 {
            Some(Bug::LockIsGivenToWhoIsNotNext) => state.queue.iter().find(named),
            _ => state.queue.first().filter(named),
        };
        if let Some(next) = next.copied().filter(|_| had) {
            self.give(state, next);
        }
    }

    fn give(&self, state: &mut State, at: usize) {
        let mut earlier = state.order.iter().take_while(|(one, _)| *one != at);
        state.passed |= earlier.any(|(_, alive)| *alive);
        state.order.retain(|(one, _)| *one != at);
        state.queue.retain(|one| *one != at);
        state.key = Some((at, LEASE));
    }

    fn drop_dead(&self, state: &mut State) {
        let counts = |one: &usize| match self.0 {
            Some(Bug::DeadStayQueued) => true,
            Some(Bug::LivingAreDropped) => false,
            _ => state.heard[OF[*one]] > 0,
        };
        let first = state.queue.iter().position(counts);
        state.queue.drain(..first.unwrap_or(state.queue.len()));
    }

    fn pass(&self, state: &mut State) {
        state.key.take_if(|(_, ttl)| *ttl == 1);
        state.key.iter_mut().for_each(|(_, ttl)| *ttl -= 1);
        let guards = state.waiters.iter_mut().map(|(_, left)| left);
        let all = guards.chain(&mut state.heard);
        all.for_each(|left| *left = left.saturating_sub(1));
        for (one, alive) in &mut state.order {
            *alive &= state.heard[OF[*one]] > 0;
        }
    }

    /// Whether all who live are served when nobody else dies, as soon as what the dead have left is over.
    fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..=LEASE.max(ALIVE) {
            for at in (0..OF.len()).cycle().take(OF.len().pow(2)) {
                for (phase, step) in [(Waits, Ask(true)), (Holds, Leave), (Leaves, Release)] {
                    if state.waiters[at].0 == phase {
                        self.step(&mut state, at, step);
                    }
                }
            }
            self.pass(&mut state);
        }
        let mut phases = state.waiters.iter().map(|(phase, _)| phase);
        state.key.is_none() && phases.all(|phase| matches!(phase, Idle | Dead))
    }
}

impl Model for Fair {
    type State = State;
    type Action = (usize, Step);

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Self::Action>) {
        for step in [Ask(true), Ask(false), Leave, Release, Beat, Die, Pass] {
            actions.extend((0..OF.len()).map(|at| (at, step)));
        }
    }

    fn next_state(&self, state: &State, (at, step): Self::Action) -> Option<State> {
        let mut state = state.clone();
        self.step(&mut state, at, step).map(|()| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one is valid", |_, state: &State| {
                state.waiters.iter().filter(|(_, left)| *left > 0).count() <= 1
            }),
            Property::always("nobody is passed by who came later", |_, state: &State| {
                !state.passed
            }),
            Property::always("all comes to rest", Self::comes_to_rest),
            Property::sometimes("one waits behind a dead one", |_, state: &State| {
                let phases: Vec<_> = state
                    .queue
                    .iter()
                    .map(|one| state.waiters[*one].0)
                    .collect();
                phases == [Dead, Waits]
            }),
        ]
    }
}
