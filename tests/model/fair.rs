//! A `FairLock`: its queue in Redis, and waiters that ask, give up, are given the lock, fall silent and die.
//!
//! Calls run at once (`rlock` has how they get lost), but for replies that do not arrive. Nobody is woken:
//! whoever waits asks at any time, so the order does not depend on announcements.

use stateright::{Model, Property};

use self::{Phase::*, Step::*};
use crate::Bug;

pub(crate) struct Fair {
    /// The process of each waiter.
    pub(crate) of: Vec<usize>,
    bug: Option<Bug>,
}

const LEASE: u32 = 2;
/// For how long a process that is not heard of counts as alive.
const ALIVE: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Who has the lock, and its TTL.
    pub(crate) key: Option<(usize, u32)>,
    pub(crate) queue: Vec<usize>,
    /// For how long each process still counts as alive.
    pub(crate) heard: Vec<u32>,
    /// Each waiter, and for how long its guard is valid.
    waiters: Vec<(Phase, u32)>,
    /// Who waits, in the order of arrival, and whether its process counted as alive all the time since.
    order: Vec<(usize, bool)>,
    /// One of these was passed by who came later.
    pub(crate) passed: bool,
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
    /// Three waiters of two processes.
    pub(crate) fn new(bug: Option<Bug>) -> Self {
        Self {
            of: vec![0, 0, 1],
            bug,
        }
    }

    fn step(&self, state: &mut State, at: usize, step: Step) -> Option<()> {
        let process = |one: &usize| self.of[*one] == self.of[at];
        match (step, state.waiters[at].0) {
            (Pass, _) => self.pass(state, 1),
            (_, Dead) => return None,
            (Ask(arrives), Idle | Waits) => {
                let has = self.acquire(state, at, LEASE, ALIVE);
                state.waiters[at] = if has && arrives {
                    (Holds, LEASE)
                } else {
                    (Waits, 0)
                };
            }
            (Leave, Waits | Holds) => state.waiters[at] = (Leaves, 0),
            (Release, Leaves) => {
                // The process names its waiters.
                let waits = |one: &usize| process(one) && state.waiters[*one].0 == Waits;
                let named: Vec<_> = self.all().filter(waits).map(|one| (one, LEASE)).collect();
                self.release(state, at, &named);
                state.waiters[at] = (Idle, 0);
            }
            (Beat, Waits) => self.beat(state, self.of[at], ALIVE, &[]),
            (Die, _) => {
                let all = self.all().filter(process);
                all.for_each(|one| state.waiters[one] = (Dead, 0));
                state.order.retain(|(one, _)| !process(one));
            }
            _ => return None,
        }
        Some(())
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.of.len()
    }

    /// `fair_acquire`: whether the waiter has the lock. A repeat finds it there, or itself in the queue. Whoever
    /// does not wait (`alive` is zero) does not queue.
    pub(crate) fn acquire(&self, state: &mut State, at: usize, lease: u32, alive: u32) -> bool {
        let is_repeat = |state: &State| state.key.is_some_and(|(holder, _)| holder == at);
        let heard = state.heard[self.of[at]];
        // Nobody looks at the queue behind whose end the waiter of a process goes that was heard of lately.
        let is_usual = state.key.is_some() && !state.queue.is_empty() && !state.queue.contains(&at);
        let is_usual = is_usual && alive > 0 && 10 * heard >= 6 * alive;
        if !is_repeat(state) && !is_usual {
            self.drop_dead(state);
        }
        let is_next = state.queue.first().is_none_or(|next| *next == at);
        if state.key.is_none() && (is_next || self.bug == Some(Bug::FreeLockGoesToWhoeverAsks)) {
            self.give(state, at, lease);
            return true;
        }
        if is_repeat(state) {
            lengthen(state, at, lease);
            return true;
        }
        if self.bug == Some(Bug::RepeatQueuesAgain) {
            state.queue.retain(|one| *one != at);
        }
        if alive > 0 {
            state.heard[self.of[at]] = if is_usual { heard } else { alive };
            self.queue_up(state, at);
        }
        false
    }

    fn queue_up(&self, state: &mut State, at: usize) {
        if state.queue.contains(&at) {
            return;
        }
        state.queue.push(at);
        if !state.order.contains(&(at, true)) {
            state.order.retain(|(one, _)| *one != at);
            state.order.push((at, true));
        }
    }

    /// `fair_release`: afterwards the waiter neither has the lock nor waits for it. A waiter that is named, with
    /// its lease, and that is next, has the lock at once.
    pub(crate) fn release(&self, state: &mut State, at: usize, named: &[(usize, u32)]) {
        self.leave(state, at);
        let holder = state.key.map(|(holder, _)| holder);
        if holder == Some(at) || holder.is_some() && self.bug == Some(Bug::ReleaseDoesNotLook) {
            state.key = None;
            let mut queue = state.queue.iter().copied();
            let next = match self.bug {
                Some(Bug::LockIsGivenToWhoIsNotNext) => {
                    queue.find(|one| named.iter().any(|(named, _)| named == one))
                }
                _ => queue.next(),
            };
            let mut named = named.iter();
            if let Some((next, lease)) = named.find(|(named, _)| Some(*named) == next) {
                return self.give(state, *next, *lease);
            }
        }
        // An earlier try has given it.
        if !named.iter().any(|(named, _)| holder == Some(*named)) {
            self.drop_dead(state);
        }
    }

    /// `fair_beat`: the process is alive, and these of its waiters wait no more.
    pub(crate) fn beat(&self, state: &mut State, process: usize, alive: u32, gone: &[usize]) {
        if !state.queue.is_empty() {
            state.heard[process] = alive;
        }
        gone.iter().for_each(|one| self.leave(state, *one));
        self.drop_dead(state);
    }

    fn leave(&self, state: &mut State, at: usize) {
        state.order.retain(|(one, _)| *one != at);
        if self.bug != Some(Bug::WhoLeavesStaysQueued) {
            state.queue.retain(|one| *one != at);
        }
        forget_all(state);
    }

    fn give(&self, state: &mut State, at: usize, lease: u32) {
        let mut earlier = state.order.iter().take_while(|(one, _)| *one != at);
        state.passed |= earlier.any(|(_, alive)| *alive);
        state.order.retain(|(one, _)| *one != at);
        state.queue.retain(|one| *one != at);
        state.key = Some((at, lease));
        forget_all(state);
    }

    fn drop_dead(&self, state: &mut State) {
        let counts = |one: &usize| match self.bug {
            Some(Bug::DeadStayQueued) => true,
            Some(Bug::LivingAreDropped) => false,
            _ => state.heard[self.of[*one]] > 0,
        };
        let first = state.queue.iter().position(counts);
        state.queue.drain(..first.unwrap_or(state.queue.len()));
        forget_all(state);
    }

    pub(crate) fn pass(&self, state: &mut State, ticks: u32) {
        // It is still there with no time left, as in Redis.
        state.key.take_if(|(_, ttl)| *ttl < ticks);
        state.key.iter_mut().for_each(|(_, ttl)| *ttl -= ticks);
        let guards = state.waiters.iter_mut().map(|(_, left)| left);
        let all = guards.chain(&mut state.heard);
        all.for_each(|left| *left = left.saturating_sub(ticks));
        for (one, alive) in &mut state.order {
            *alive &= state.heard[self.of[*one]] > 0;
        }
    }

    /// Whether all who live are served when nobody else dies, as soon as what the dead have left is over.
    fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..=LEASE.max(ALIVE) + 1 {
            for at in self.all().cycle().take(self.of.len().pow(2)) {
                for (phase, step) in [(Waits, Ask(true)), (Holds, Leave), (Leaves, Release)] {
                    if state.waiters[at].0 == phase {
                        self.step(&mut state, at, step);
                    }
                }
            }
            self.pass(&mut state, 1);
        }
        let mut phases = state.waiters.iter().map(|(phase, _)| phase);
        state.key.is_none() && phases.all(|phase| matches!(phase, Idle | Dead))
    }
}

/// `renew` and `rlock_update`.
pub(crate) fn lengthen(state: &mut State, at: usize, lease: u32) {
    let held = state.key.as_mut().filter(|(holder, _)| *holder == at);
    held.into_iter().for_each(|(_, ttl)| *ttl = lease.max(*ttl));
}

/// What is noted of processes ends with the queue.
fn forget_all(state: &mut State) {
    if state.queue.is_empty() {
        state.heard.fill(0);
    }
}

impl Model for Fair {
    type State = State;
    type Action = (usize, Step);

    fn init_states(&self) -> Vec<State> {
        vec![State {
            heard: vec![0; 2],
            waiters: vec![Default::default(); self.of.len()],
            ..State::default()
        }]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Self::Action>) {
        for step in [Ask(true), Ask(false), Leave, Release, Beat, Die, Pass] {
            actions.extend(self.all().map(|at| (at, step)));
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
                let phase = |one: &usize| state.waiters[*one].0;
                state.queue.iter().map(phase).eq([Dead, Waits])
            }),
        ]
    }
}
