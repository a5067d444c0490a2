//! Holds that go from one task to another, on whichever host, by a ticket.

use std::future::Future;
use std::sync::{Arc, Mutex};

use redlock_rt::{Adoptable, Error, Fenced, Lock, LockGuard, Reentrant, Ticket};

use super::act::Host;
use super::guard::Locked;
use super::log::Entry;
use super::plan::{Ending, Meanwhile, Plan, Step, Thing, Turn};
use super::turn::{look, options};
use crate::history::{Acquisition, Adoption, Mode, Outcome};
use crate::{Random, lock};

/// How many seeds of a hundred have tickets, and what they are drawn by.
const TICKETS: usize = 15;
const ASIDE: u64 = 0x7469_636b_6574;

/// The tickets of all hosts, the last one last.
#[derive(Clone, Default)]
pub(super) struct Tickets(Arc<Mutex<Vec<Ticket>>>);

impl Tickets {
    /// Whether a ticket names this hold.
    pub(super) fn name(&self, owner: &str) -> bool {
        let all = lock(&self.0);
        all.iter().any(|ticket| ticket.owner().as_str() == owner)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

impl Host {
    /// A turn that may end with a ticket.
    pub(super) async fn leave<K: Adoptable + Send + Sync>(
        &self,
        entry: Entry,
        turn: Turn,
        acquire: impl Future<Output = Result<LockGuard<K>, Error>> + Send,
        lock: &Lock<K>,
        token: impl Fn(&LockGuard<K>) -> Option<u64> + Send + Sync,
    ) {
        let acquire = async { Ok(Locked(acquire.await?, lock.clone())) };
        let held = self.acquire(entry, turn, acquire, |held| token(&held.0));
        let Some((entry, held)) = held.await else {
            return;
        };
        if turn.end != Ending::Ticket {
            return self.keep(entry, turn, held).await;
        }
        self.sit(&entry, &held, turn.hold).await;
        look(&entry, &held);
        entry.ends("makes a ticket of");
        match held.0.into_ticket() {
            Ok(ticket) => {
                crate::lock(&self.tickets.0).push(ticket);
                entry.over("has a ticket of");
            }
            Err(refused) => {
                entry.goes_on();
                let held = Locked(refused.into_guard(), lock.clone());
                let turn = Turn { hold: 0, ..turn };
                self.keep(entry, turn, held).await;
            }
        }
    }

    /// Adopts the last ticket of a lock; another one may have done so before.
    pub(super) async fn adopt(&self, task: usize, turn: Turn) {
        let thing = self.plan.things[turn.thing];
        let key = thing.key(turn.thing);
        let last = {
            let all = lock(&self.tickets.0);
            let mut last = all.iter().rev();
            last.find(|ticket| ticket.name() == key).cloned()
        };
        let Some(ticket) = last else { return };
        let (client, process) = self.client();
        let who = format!("h{}.{task}", self.place);
        let of = Acquisition {
            process,
            key: key.clone(),
            mode: Mode::Exclusive,
            announced: true,
            called: self.clock.now(),
            bound: Some(0),
            ack: None,
            returned: None,
            grant: None,
        };
        let entry = self.log.call(&self.clock, who, of);
        self.log.lock().history.adoptions.push(Adoption {
            owner: ticket.owner().as_str().to_owned(),
            acquisition: entry.place(),
        });
        match thing {
            Thing::Fenced => {
                let call = client.adopt_with::<Fenced>(&ticket, options(turn));
                let lock = client.fenced_lock(&key);
                let token = |held: &LockGuard<Fenced>| Some(held.token());
                self.leave(entry, turn, call, &lock, token).await;
            }
            Thing::Reentrant => {
                let call = client.adopt_with::<Reentrant>(&ticket, options(turn));
                let lock = client.rlock(&key);
                self.leave(entry, turn, call, &lock, |_| None).await;
            }
            _ => entry.refused(Outcome::Failed("it has no tickets".to_owned())),
        }
    }
}

impl Plan {
    /// Some turns end with a ticket, and others begin with one. Drawn aside, so that all other seeds stay what they
    /// were.
    pub(super) fn add_tickets(&mut self) {
        let random = &mut Random::new(self.seed ^ ASIDE);
        if !random.percent(TICKETS) {
            return;
        }
        for step in self.hosts.iter_mut().flatten().flatten() {
            let Step::Turn(mut turn) = *step else {
                continue;
            };
            if !matches!(self.things[turn.thing], Thing::Reentrant | Thing::Fenced) {
                continue;
            }
            let (makes, adopts) = (random.percent(50), random.percent(50));
            if makes {
                (turn.end, turn.meanwhile) = (Ending::Ticket, Meanwhile::Nothing);
            }
            *step = match adopts {
                true => Step::Adopt(turn),
                false => Step::Turn(turn),
            };
        }
    }
}
