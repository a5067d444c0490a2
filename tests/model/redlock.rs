//! A `RedLock`: three servers, each of which may restart and forget, and guards that are valid while a
//! majority of their parts is.
//!
//! Each part is an ordinary lock: how its calls get lost is in `rlock`. Here they run at once.

use stateright::{Model, Property};

use self::Step::*;
use crate::Bug;

pub(crate) struct RedLock {
    /// For how long a server that has restarted answers nobody.
    pub(crate) silence: u32,
    /// How many restarts there are at most.
    pub(crate) restarts: u32,
    pub(crate) bug: Option<Bug>,
}

pub(crate) const LEASE: u32 = 2;
const CLIENTS: usize = 2;
const SERVERS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    servers: [Server; SERVERS],
    clients: [Client; CLIENTS],
    /// Who was given the lock last.
    last: usize,
    restarts: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    /// Who has its part, and the TTL of that.
    key: Option<(usize, u32)>,
    silence: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    holds: bool,
    /// For how long it has the part of each server, by its own clock.
    parts: [u32; SERVERS],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Asks a server for its part; who holds the lock already does so to repair it.
    Ask(usize),
    /// Asks a server for another lease.
    Renew(usize),
    /// Gives a part back, after a round that came to nothing, or when the guard has ended.
    Release(usize),
    /// A round is over: whoever has a majority has the lock.
    Win,
    /// The guard ends.
    End,
    /// A server restarts without its data.
    Restart(usize),
    /// A tick passes, for all.
    Pass,
}

impl RedLock {
    fn has_majority(&self, me: &Client) -> bool {
        let parts = me.parts.iter().filter(|left| **left > 0).count();
        parts > SERVERS / 2 - usize::from(self.bug == Some(Bug::MajorityIsOneLess))
    }

    fn step(&self, state: &mut State, at: usize, step: Step) -> Option<()> {
        let me = &mut state.clients[at];
        let is_held = self.has_majority(me);
        match step {
            // A part is repaired while a majority of others is there, and a majority never.
            Ask(server) if !me.holds || me.parts[server] == 0 => {
                let key = state.servers[server].answers()?;
                if key.get_or_insert((at, 0)).0 == at {
                    (*key, me.parts[server]) = (Some((at, LEASE)), LEASE);
                }
            }
            Renew(server) if me.parts[server] > 0 => {
                let key = state.servers[server].answers()?;
                *key = key.map(|(owner, left)| (owner, if owner == at { LEASE } else { left }));
                let is_there = key.is_some_and(|(owner, _)| owner == at);
                me.parts[server] = if is_there { LEASE } else { 0 };
            }
            Release(server) if !me.holds => {
                state.servers[server]
                    .answers()?
                    .take_if(|(owner, _)| *owner == at)?;
                me.parts[server] = 0;
            }
            Win if !me.holds && is_held => (me.holds, state.last) = (true, at),
            End if me.holds => me.holds = false,
            Restart(server) if state.restarts < self.restarts => {
                state.restarts += 1;
                (state.servers[server].key, state.servers[server].silence) = (None, self.silence);
            }
            Pass => self.pass(state),
            _ => return None,
        }
        for me in &mut state.clients {
            // Lost for good.
            me.holds &= self.has_majority(me) || self.bug == Some(Bug::MajorityIsRestored);
        }
        Some(())
    }

    fn pass(&self, state: &mut State) {
        for server in &mut state.servers {
            server.key.take_if(|(_, ttl)| *ttl == 0);
            server.key.iter_mut().for_each(|(_, ttl)| *ttl -= 1);
            server.silence = server.silence.saturating_sub(1);
        }
        let parts = state.clients.iter_mut().flat_map(|me| &mut me.parts);
        parts.for_each(|left| *left = left.saturating_sub(1));
    }
}

impl Server {
    fn answers(&mut self) -> Option<&mut Option<(usize, u32)>> {
        (self.silence == 0).then_some(&mut self.key)
    }
}

impl Model for RedLock {
    type State = State;
    type Action = (usize, Step);

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Self::Action>) {
        let of = |server| [Ask, Renew, Release, Restart].map(|step| step(server));
        for step in (0..SERVERS).flat_map(of).chain([Win, End, Pass]) {
            actions.extend((0..CLIENTS).map(|at| (at, step)));
        }
    }

    fn next_state(&self, state: &State, (at, step): Self::Action) -> Option<State> {
        let mut state = state.clone();
        self.step(&mut state, at, step).map(|()| state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            // So no two are valid, and nobody is who was not all the time since it won.
            Property::always(
                "who is valid has won last",
                |model: &Self, state: &State| {
                    let mut all = state.clients.iter().enumerate();
                    all.all(|(at, me)| at == state.last || !(me.holds && model.has_majority(me)))
                },
            ),
            Property::sometimes("a part is had again", |_, state: &State| {
                let whole = |me: &Client| me.holds && !me.parts.contains(&0);
                state.restarts > 0 && state.clients.iter().any(whole)
            }),
        ]
    }
}
