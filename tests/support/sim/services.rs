//! What the instances of a service do: they campaign for one leadership, and start what is to be done once.

use std::future::ready;
use std::time::{Duration, UNIX_EPOCH};

use redlock_rt::{Client, Error, Fire, FireGuard, GuardState, Leadership, Unlocked};

use super::act::{Host, told};
use super::generate::{one_of, up_to};
use super::guard::Hold;
use super::log::Entry;
use super::plan::{Cut, Ending, Meanwhile, Plan, Step, Thing, Turn};
use super::turn::{cut, look};
use crate::Random;
use crate::history::{Acquisition, LatchAct, Ms, Outcome, Started};

/// For a stream of its own, so that what else a seed means stays the same.
const SERVICE: u64 = 0x73_6572_7669_6365;
/// In so many of a hundred plans.
const ADDED: usize = 30;

impl Plan {
    /// Adds an election and some fires, and instances that want to lead and to run them.
    pub(super) fn add_service(&mut self) {
        let random = &mut Random::new(self.seed ^ SERVICE);
        if !random.percent(ADDED) || !self.java.is_empty() {
            return;
        }
        let first = self.things.len();
        self.things.push(Thing::Leader);
        for _ in 0..2 + random.below(4) {
            let attempts = u32::try_from(random.below(4)).unwrap_or(0);
            self.things.push(Thing::Fire(attempts));
        }
        for task in 0..2 + random.below(4) {
            let count = self.things.len() - first;
            let steps = (0..3 + random.below(8)).map(|_| match random.percent(40) {
                true => service_turn(random, first),
                false => {
                    let fire = first + 1 + random.below(count - 1);
                    service_turn(random, fire)
                }
            });
            let host = task % self.hosts.len();
            self.hosts[host].push(steps.collect());
        }
    }
}

fn service_turn(random: &mut Random, thing: usize) -> Step {
    let lease = random.percent(50).then(|| 300 + up_to(random, 1500));
    let long = one_of(random, &[1, 30, 600]) as Ms;
    let polls = u32::try_from(random.below(6)).unwrap_or(0);
    Step::Turn(Turn {
        thing,
        after: up_to(random, 300),
        strong: random.percent(50),
        wait: [None, Some(0), Some(1 + up_to(random, 3000))][random.below(3)],
        lease,
        renew: true,
        cut: match random.below(8) {
            0 => Some(Cut::Polls(polls)),
            1 => Some(Cut::After(up_to(random, 60))),
            _ => None,
        },
        hold: up_to(random, long),
        meanwhile: Meanwhile::Nothing,
        end: match random.below(10) {
            0..6 => Ending::Unlock,
            6..9 => Ending::Drop,
            _ => Ending::Cut(polls),
        },
        ack: None,
    })
}

impl Host {
    /// A term, and if its leader resigned, another one of the same handle.
    pub(super) async fn lead(&self, entry: Entry, turn: Turn, client: &Client, again: Acquisition) {
        let (who, first) = (entry.who().to_owned(), entry.place());
        let mut election = client.leader_election(&again.key);
        if let Some(lease) = turn.lease {
            election = election.lease(Duration::from_millis(lease));
        }
        let term = |held: &Leadership| Some(held.term());
        let held = self.acquire(entry, turn, election.campaign(), term).await;
        let Some((entry, held)) = held else { return };
        self.keep(entry, turn, held).await;
        if turn.end != Ending::Unlock || !turn.strong {
            return;
        }
        let called = self.clock.now();
        let of = Acquisition { called, ..again };
        let entry = self.log.call(&self.clock, who, of);
        let campaigns = (first, entry.place());
        self.log.lock().history.resigned.push(campaigns);
        self.hold(entry, turn, election.campaign(), term).await;
    }

    /// Starts a fire.
    pub(super) async fn fire(
        &self,
        entry: Entry,
        turn: Turn,
        client: &Client,
        (key, attempts): (&str, u32),
    ) {
        let at = UNIX_EPOCH + Duration::from_millis(turn.thing as Ms);
        let mut fire = client
            .once("fire", at)
            .attempts(Some(attempts).filter(|most| *most > 0));
        if let Some(lease) = turn.lease {
            fire = fire.lease(Duration::from_millis(lease));
        }
        let fire = fire.wait(turn.wait.map(Duration::from_millis));
        let act = LatchAct::Start {
            most: attempts,
            lease: turn.lease.unwrap_or_else(|| self.terms().lease),
        };
        let start = self.latch_call(entry.process, key, act);
        let outcome = match cut(turn.cut, fire.start()).await {
            Some(Ok(Fire::Run(guard))) => {
                start.returned(Some(Started::Begun as u64));
                return self.run_once(entry, turn, guard, key).await;
            }
            Some(Ok(Fire::Done(_))) => {
                start.returned(Some(Started::Done as u64));
                Outcome::Failed("done".to_owned())
            }
            Some(Ok(Fire::Running(_))) => {
                start.returned(Some(Started::Running as u64));
                Outcome::Refused
            }
            Some(Ok(_)) => {
                start.returned(Some(Started::Failed as u64));
                Outcome::Failed("begun too often".to_owned())
            }
            Some(Err(error)) => Outcome::Failed(told(&error)),
            None => Outcome::Cancelled,
        };
        entry.refused(outcome);
    }

    async fn run_once(&self, entry: Entry, turn: Turn, guard: FireGuard, key: &str) {
        let begun = Turn { cut: None, ..turn };
        let token = |held: &FireGuard| Some(held.token());
        let held = self.acquire(entry, begun, ready(Ok(guard)), token).await;
        let Some((entry, held)) = held else { return };
        let polls = match turn.end {
            Ending::Cut(polls) => Some(Cut::Polls(polls)),
            Ending::Unlock => None,
            Ending::Drop | Ending::Ticket => return self.keep(entry, turn, held).await,
        };
        self.sit(&entry, &held, turn.hold).await;
        look(&entry, &held);
        entry.ends("marks");
        let mark = self.latch_call(entry.process, key, LatchAct::Mark);
        let response = self.terms().response;
        let done = self.timed(entry.process, "done", response, held.done());
        let done = cut(polls, done)
            .await
            .map(|done| done.map_err(|error| told(&error)));
        mark.returned(matches!(done, Some(Ok(()))).then_some(0));
        entry.over(&format!("has marked ({done:?})"));
    }
}

impl Hold for Leadership {
    type Again = ();

    fn state(&self) -> Option<GuardState> {
        None
    }

    fn is_valid(&self) -> bool {
        self.is_leader()
    }

    /// A leadership tells its hold to people only.
    fn owner(&self) -> String {
        let told = format!("{self:?}");
        let id = told
            .split_once(" id: ")
            .and_then(|(_, id)| id.split_once(','));
        id.map(|(id, _)| id.to_owned()).unwrap_or_default()
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.resign().await
    }
}

impl Hold for FireGuard {
    type Again = ();

    fn state(&self) -> Option<GuardState> {
        Some(self.state())
    }

    fn owner(&self) -> String {
        self.hold_id().as_str().to_owned()
    }

    async fn end(self) -> Result<Unlocked, Error> {
        self.unlock().await
    }
}
