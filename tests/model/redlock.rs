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
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    /// Who was given the lock last.
    last: usize,
    restarts: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// Who has its part, and the TTL of that.
    pub(crate) key: Option<(usize, u32)>,
    silence: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) holds: bool,
    /// For how long it has the part of each server, by its own clock.
    parts: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Asks a server for its part, for so long; who holds the lock already does so to repair it.
    Ask(usize, u32),
    /// Asks a server for another lease, of so long.
    Renew(usize, u32),
    /// Counts a part no longer: it hears that it is gone, or hears nothing.
    Doubt(usize),
    /// Gives a part back that does not count, after a round that came to nothing, or when the guard has ended.
    Release(usize),
    /// A round is over: whoever has a majority has the lock.
    Win,
    /// The guard ends.
    End,
    /// A server restarts without its data.
    Restart(usize),
    /// So many ticks pass, for all.
    Pass(u32),
}

impl RedLock {
    fn has_majority(&self, me: &Client) -> bool {
        let parts = me.parts.iter().filter(|left| **left > 0).count();
        parts > me.parts.len() / 2 - usize::from(self.bug == Some(Bug::MajorityIsOneLess))
    }

    /// Does a step of a client; `None`: it is not possible now.
    pub(crate) fn step(&self, state: &mut State, at: usize, step: Step) -> Option<()> {
        let me = &mut state.clients[at];
        let is_held = self.has_majority(me);
        match step {
            // A part is repaired while a majority of others is there, and a majority never.
            Ask(server, lease) if !me.holds || me.parts[server] == 0 => {
                let key = state.servers[server].answers()?;
                if key.get_or_insert((at, 0)).0 == at {
                    (*key, me.parts[server]) = (Some((at, lease)), lease);
                }
            }
            Renew(server, lease) => {
                let key = state.servers[server].answers()?.as_mut();
                if let Some((_, ttl)) = key.filter(|(owner, _)| *owner == at) {
                    *ttl = lease.max(*ttl);
                    me.parts[server] = *ttl;
                }
            }
            Doubt(server) => me.parts[server] = 0,
            Release(server) if !me.holds || me.parts[server] == 0 => {
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
            Pass(ticks) => pass(state, ticks),
            _ => return None,
        }
        for me in &mut state.clients {
            // Lost for good.
            me.holds &= self.has_majority(me) || self.bug == Some(Bug::MajorityIsRestored);
        }
        Some(())
    }
}

fn pass(state: &mut State, ticks: u32) {
    for server in &mut state.servers {
        // It is still there with no time left, as in Redis.
        server.key.take_if(|(_, ttl)| *ttl < ticks);
        server.key.iter_mut().for_each(|(_, ttl)| *ttl -= ticks);
        server.silence = server.silence.saturating_sub(ticks);
    }
    let parts = state.clients.iter_mut().flat_map(|me| &mut me.parts);
    parts.for_each(|left| *left = left.saturating_sub(ticks));
}

impl State {
    pub(crate) fn new(servers: usize, clients: usize) -> Self {
        let mut state = Self::default();
        state.servers.resize(servers, Server::default());
        (0..clients).for_each(|_| state.join());
        state
    }

    /// One client more.
    pub(crate) fn join(&mut self) {
        let parts = vec![0; self.servers.len()];
        self.clients.push(Client {
            parts,
            holds: false,
        });
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
        vec![State::new(SERVERS, CLIENTS)]
    }

    fn actions(&self, _: &State, actions: &mut Vec<Self::Action>) {
        let of = |server| {
            let steps = [Doubt, Release, Restart].map(|step| step(server));
            steps
                .into_iter()
                .chain([Ask, Renew].map(|step| step(server, LEASE)))
        };
        for step in (0..SERVERS).flat_map(of).chain([Win, End, Pass(1)]) {
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
