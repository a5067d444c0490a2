//! An `RLock`: clients of one Redis, whose calls take time, get lost and are repeated.
//!
//! A step is one thing at one place: a client sends, Redis runs a call, a client reads the reply, a
//! connection breaks, time passes. The checker tries all orders of them. Time is in ticks.

use stateright::{Model, Property};

use self::{Does::*, Phase::*, Step::*};
use crate::Bug;

pub(crate) struct RLock(pub(crate) Option<Bug>);

/// For how many holds each client asks, and for how long.
const HOLDS: [u32; 2] = [2, 1];
const LEASE: u32 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) key: Option<Key>,
    pub(crate) clients: Vec<Client>,
}

/// The lock's key in Redis: its owner, its TTL, and who has set that.
pub(crate) type Key = (Owner, u32, Owner);

/// A client, and the number of its hold. No number is used for two holds.
pub(crate) type Owner = (usize, u32);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) number: u32,
    pub(crate) phase: Phase,
    /// For how long its guard is valid; 0: it is not.
    pub(crate) left: u32,
    /// Its guard has said that it is lost.
    lost: bool,
    /// Redis has forgotten the hold: somebody has deleted the key, or a failover has lost it.
    forgotten: bool,
    /// What is on its way, there or back, at `CALL`, `RENEWAL` and `STALE`.
    pub(crate) calls: [Option<Call>; 3],
}

/// The call of the hold: it has one at a time, and repeats it until Redis answers.
pub(crate) const CALL: usize = 0;
/// A renewal has a connection of its own.
pub(crate) const RENEWAL: usize = 1;
/// What may still run although nobody waits for it: its connection broke, or its time is over.
pub(crate) const STALE: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Asks,
    Holds,
    /// Redis has to be told, until it answers.
    Ends,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) does: Does,
    number: u32,
    pub(crate) lease: u32,
    /// How long ago it was sent.
    age: u32,
    /// What Redis has replied: whether the hold is there.
    pub(crate) reply: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Does {
    Acquire,
    Release,
    Lengthen,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// The client sends an acquisition, for so long a lease.
    Ask(u32),
    /// The client sends a renewal, for so long a lease.
    Renew(u32),
    /// Redis runs a call.
    Run(usize),
    /// The client reads the reply.
    Hear(usize),
    /// The connection of a call breaks.
    Break(usize),
    /// The caller goes away while it waits for the lock.
    Cancel,
    /// The guard ends.
    End,
    /// The process dies.
    Die,
    /// Redis forgets the client's hold.
    Forget,
    /// So many ticks pass, for all.
    Pass(u32),
}

impl RLock {
    /// Does a step of a client; `None`: it is not possible now.
    pub(crate) fn step(&self, state: &mut State, at: usize, step: Step) -> Option<()> {
        let me = &mut state.clients[at];
        match (step, me.phase) {
            (Pass(ticks), _) => self.pass(state, ticks),
            (Run(place), _) => {
                let mut call = me.calls[place].take_if(|call| call.reply.is_none())?;
                if place == CALL && self.0 != Some(Bug::ConnectionIsNotKilled) {
                    // A new connection first ends the one that broke (CLIENT KILL).
                    me.calls[STALE] = None;
                }
                call.reply = Some(self.script(state, at, &call));
                state.clients[at].calls[place] = Some(call).filter(|_| place != STALE);
            }
            (Forget, _) => {
                let (owner, ..) = state.key.take_if(|key| key.0.0 == at)?;
                me.forgotten |= owner.1 == me.number;
            }
            (_, Dead) => return None,
            (Die, _) => me.begin(me.number, Dead),
            (Ask(lease), Idle) => (me.phase, me.calls[CALL]) = (Asks, me.call(Acquire, lease)),
            (Renew(lease), Holds) if me.left > 0 && me.calls[RENEWAL].is_none() => {
                me.calls[RENEWAL] = me.call(Lengthen, lease);
            }
            (Cancel, Asks) if self.0 == Some(Bug::CancelledCallIsForgotten) => {
                me.begin(me.number + 1, Idle);
            }
            // A release follows as soon as it is known that the call has taken the lock, or not known.
            (Cancel, Asks) => me.phase = Ends,
            (End, Holds) => {
                me.begin(me.number, Ends);
                me.calls[CALL] = me.call(Release, 0);
            }
            (Break(RENEWAL), _) => {
                let call = me.calls[RENEWAL].take()?;
                me.calls[STALE] = me.calls[STALE].take().or(Some(call));
                me.calls[STALE].take_if(|call| call.reply.is_some());
            }
            (Break(CALL), phase) => {
                let mut call = me.calls[CALL].take()?;
                let does = if phase == Asks { Acquire } else { Release };
                me.calls[CALL] = me.call(does, call.lease);
                call.age = call.lease;
                if call.reply.is_none() && me.calls[STALE].replace(call).is_some() {
                    return None;
                }
            }
            (Hear(place @ (CALL | RENEWAL)), _) => {
                let call = me.calls[place].take_if(|call| call.reply.is_some())?;
                self.hear(me, &call);
            }
            _ => return None,
        }
        Some(())
    }

    /// The scripts `rlock_acquire`, `rlock_release` and `renew`.
    fn script(&self, state: &mut State, client: usize, call: &Call) -> bool {
        let owner = (client, call.number);
        let made = Some((owner, call.lease, owner));
        let is_mine = state.key.is_some_and(|key| key.0 == owner);
        match (call.does, &mut state.key) {
            // Also if it is there already: then the first reply was lost.
            (Acquire, key) if is_mine || key.is_none() => {
                (*key, state.clients[client].forgotten) = (made, false);
                return true;
            }
            (Release, key) if is_mine || self.0 == Some(Bug::ReleaseDoesNotLook) => *key = None,
            (Lengthen, Some((_, ttl, by)))
                if is_mine || self.0 == Some(Bug::RenewalDoesNotLook) =>
            {
                (*ttl, *by) = (call.lease.max(*ttl), owner);
            }
            (Lengthen, key @ None) if self.0 == Some(Bug::RenewalRecreates) => *key = made,
            _ => {}
        }
        is_mine
    }

    fn hear(&self, me: &mut Client, call: &Call) {
        let from_reply = self.0 == Some(Bug::LeaseCountsFromReply);
        let left = call.lease - if from_reply { 0 } else { call.age };
        match (call.does, me.phase, call.reply) {
            (Acquire, Asks, Some(true)) => (me.phase, me.left, me.lost) = (Holds, left, left == 0),
            (Acquire, _, Some(true)) => me.calls[CALL] = me.call(Release, 0),
            // Another has the lock. The client may ask again.
            (Acquire, ..) => me.phase = Idle,
            (Release, ..) => me.begin(me.number + 1, Idle),
            // Of an earlier hold.
            (Lengthen, ..) if call.number != me.number => {}
            (_, Holds, Some(false)) => {
                me.lost = true;
                me.left *= u32::from(self.0 == Some(Bug::LossIsNotTold));
            }
            (_, Holds, _) if me.left > 0 || self.0 == Some(Bug::LossIsNotFinal) => {
                me.left = left.max(me.left);
            }
            _ => {}
        }
    }

    fn pass(&self, state: &mut State, ticks: u32) {
        if self.0 != Some(Bug::KeyHasNoLease) {
            // It is still there with no time left, as in Redis.
            state.key.take_if(|key| key.1 < ticks);
            state.key.iter_mut().for_each(|key| key.1 -= ticks);
        }
        for me in &mut state.clients {
            me.lost |= (1..=ticks).contains(&me.left);
            me.left = me.left.saturating_sub(ticks);
            for call in me.calls.iter_mut().flatten() {
                call.age = (call.age + ticks).min(call.lease);
            }
        }
    }

    /// Whether all ends when nothing more goes wrong, and nobody asks for more.
    fn comes_to_rest(&self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..=LEASE {
            for at in 0..state.clients.len() {
                for step in [[End, Run(CALL), Hear(CALL)]; 3].as_flattened() {
                    self.step(&mut state, at, *step);
                }
            }
            self.pass(&mut state, 1);
        }
        let mut phases = state.clients.iter().map(|me| me.phase);
        state.key.is_none() && phases.all(|phase| matches!(phase, Idle | Dead))
    }
}

impl Client {
    fn call(&self, does: Does, lease: u32) -> Option<Call> {
        let number = self.number;
        Some(Call {
            does,
            number,
            lease,
            age: 0,
            reply: None,
        })
    }

    /// All is as before its first hold, but for what has not arrived at Redis yet.
    fn begin(&mut self, number: u32, phase: Phase) {
        let calls = std::mem::take(&mut self.calls);
        *self = Self::default();
        self.calls = calls.map(|call| call.filter(|call| call.reply.is_none()));
        (self.number, self.phase) = (number, phase);
    }
}

impl Model for RLock {
    type State = State;
    type Action = (usize, Step);

    fn init_states(&self) -> Vec<State> {
        let mut state = State::default();
        state.clients.resize(HOLDS.len(), Client::default());
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Self::Action>) {
        let of = |place| [Run(place), Hear(place), Break(place)];
        let calls = [CALL, RENEWAL, STALE].map(of);
        for (at, holds) in HOLDS.iter().enumerate() {
            let asks = (state.clients[at].number < *holds).then_some(Ask(LEASE));
            let steps = [Cancel, End, Die, Forget, Renew(LEASE)].into_iter();
            let steps = steps.chain(calls.into_iter().flatten()).chain(asks);
            actions.extend(steps.map(|step| (at, step)));
        }
        actions.push((0, Pass(1)));
    }

    fn next_state(&self, state: &State, (at, step): Self::Action) -> Option<State> {
        let mut state = state.clone();
        self.step(&mut state, at, step).map(|()| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one is valid", |_, state: &State| {
                let of = |me: &&Client| me.left > 0 && !me.forgotten;
                state.clients.iter().filter(of).count() <= 1
            }),
            Property::always("a loss is final", |_, state: &State| {
                !state.clients.iter().any(|me| me.lost && me.left > 0)
            }),
            Property::always("only its owner lengthens it", |_, state: &State| {
                state.key.is_none_or(|(owner, _, by)| owner == by)
            }),
            Property::always("nothing is left of what has ended", |_, state: &State| {
                let of = |(at, number): Owner| (&state.clients[at], number);
                let owner = state.key.map(|key| of(key.0));
                owner.is_none_or(|(me, number)| me.number == number && me.phase != Idle)
            }),
            Property::always("all comes to rest", Self::comes_to_rest),
            Property::sometimes("another has it next", |_, state: &State| {
                state.clients[0].number > 0 && state.clients[1].left > 0
            }),
            Property::sometimes(
                "two are valid where Redis forgot one",
                |_, state: &State| state.clients.iter().all(|me| me.left > 0),
            ),
        ]
    }
}
