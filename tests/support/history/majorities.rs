//! The rules of locks on a majority of servers.
//!
//! Judged by what guards said, and by what each server showed:
//!
//! * `exclusion`: two guards are valid together only where servers forgot the one's parts, so that
//!   none of the two has a majority in Redis, and until that guard had to notice.
//! * `loss`: a guard is not lost while a majority of its parts is there, on servers that no fault
//!   keeps from its process.
//! * `fifo`: in one process they are had in the order of the calls.
//! * `serving`: who waits while a majority is free has it after the longest pause and a round.
//! * `count`: no server counts more guards of a hold than were asked for, and a majority counts a
//!   second one that was had, where nothing strikes and nothing is forgotten.
//! * `repair`: a guard that is renewed has a part on each server that is free for longer than its
//!   repair takes.

use super::exclusion::{ANSWER, RENEWALS};
use super::losses::is_early;
use super::serving::SETUP;
use super::{Acquisition, Grant, History, Mode, Ms, Sight, Verdict, Violation, Wiped};

/// The longest pause between two rounds.
const PAUSE: Ms = 100;
/// A round that began before lasts as long as a server may take, and so does giving it back.
pub(super) const ROUND: Ms = 2;
/// A repair asks for what is missing, and then all others whether they are still there; another one
/// may be under way.
const REPAIR: Ms = 4;
/// What whole milliseconds and the order of tasks add.
const SLACK: Ms = 10;

pub(super) fn check(history: &History, verdict: &mut Verdict) {
    for name in history.keys() {
        let all = history.acquisitions.iter().enumerate();
        let all: Vec<(usize, &Acquisition)> = all.filter(|(_, one)| one.key == name).collect();
        let mode = all.first().map(|(_, one)| one.mode);
        let Some(Mode::Majority(servers)) = mode else {
            continue;
        };
        let key = Key {
            history,
            name,
            states: (0..servers).map(|at| states(history, name, at)).collect(),
            all,
        };
        key.exclusive(verdict);
        key.losses(verdict);
        key.turns(verdict);
        key.served(verdict);
        key.counted(verdict);
        key.repaired(verdict);
    }
}

/// What a key looked like on one server, each sight with the time of the next one.
fn states<'a>(history: &'a History, name: &str, server: usize) -> Vec<(&'a Sight, Ms)> {
    let sights = history.server_sights.iter();
    let of = sights.filter(|(at, sight)| *at == server && sight.key == name);
    history.until_next(of.map(|(_, sight)| sight).collect())
}

/// A lock on several servers.
struct Key<'a> {
    history: &'a History,
    name: &'a str,
    /// All acquisitions, with their places in the history.
    all: Vec<(usize, &'a Acquisition)>,
    /// Of each server.
    states: Vec<Vec<(&'a Sight, Ms)>>,
}

impl<'a> Key<'a> {
    fn servers(&self) -> usize {
        self.states.len()
    }

    fn need(&self) -> usize {
        self.servers() / 2 + 1
    }

    fn holds(&self) -> impl Iterator<Item = (usize, &'a Acquisition, &'a Grant)> {
        let all = self.all.iter();
        all.filter_map(|(place, one)| Some((*place, *one, one.grant.as_ref()?)))
    }

    /// Whether a part of this hold is on that server then.
    fn is_on(&self, place: usize, server: usize, moment: Ms) -> bool {
        let parts = self.history.parts.iter();
        let mut mine = parts.filter(|part| part.acquisition == place);
        let mut states = self.states[server].iter();
        let then = states.rfind(|(sight, _)| sight.at <= moment);
        then.is_some_and(|(sight, _)| {
            mine.any(|part| sight.holders.iter().any(|(owner, _)| *owner == part.owner))
        })
    }

    /// When a server forgot it.
    fn wiped(&self, server: usize) -> impl Iterator<Item = &'a Wiped> {
        let all = self.history.wiped_servers.iter();
        let of_key = |wiped: &Wiped| wiped.key.as_deref().is_none_or(|of| of == self.name);
        let here = all.filter(move |(at, wiped)| *at == server && of_key(wiped));
        here.map(|(_, wiped)| wiped)
    }

    /// Whether no fault keeps this process from that server in that time.
    fn is_calm(&self, process: u32, server: usize, from: Ms, until: Ms) -> bool {
        let recovery = self.history.recovery();
        let mut all = self.history.struck_servers.iter();
        !all.any(|(at, strike)| {
            at.is_none_or(|at| at == server)
                && strike.process.is_none_or(|struck| struck == process)
                && !strike.only_wipes
                && strike.from <= until
                && from <= strike.until + strike.unheard + recovery
        })
    }

    fn tell(&self, verdict: &mut Verdict, rule: &'static str, at: Ms, what: &str) {
        verdict.push(Violation::new(rule, at, format!("{}: {what}", self.name)));
    }

    fn exclusive(&self, verdict: &mut Verdict) {
        let mut holds: Vec<_> = self.holds().collect();
        holds.sort_by_key(|(.., grant)| (grant.at, grant.believed));
        for (nth, later) in holds.iter().enumerate() {
            for earlier in &holds[..nth] {
                let from = later.2.at;
                if earlier.2.believed <= from {
                    continue;
                }
                let until = earlier.2.believed.min(later.2.believed);
                let mut both = [earlier, later].into_iter();
                let forgot = both.any(|(place, of, _)| self.forgot(*place, of, from, until));
                if verdict.excuses("majority: forgotten", forgot) {
                    continue;
                }
                let what = format!(
                    "{} (process {}) believed in its hold until {} ms, {} (process {}) had it from \
                     {from} ms",
                    earlier.2.owner,
                    earlier.1.process,
                    earlier.2.believed,
                    later.2.owner,
                    later.1.process,
                );
                self.tell(verdict, "exclusion", from, &what);
            }
        }
    }

    /// Whether servers forgot so much of a hold that it had no majority at that moment, and its guard
    /// need not know of that until then.
    fn forgot(&self, place: usize, of: &Acquisition, moment: Ms, until: Ms) -> bool {
        let servers = 0..self.servers();
        let there = servers.filter(|server| self.is_on(place, *server, moment));
        if there.count() >= self.need() {
            return false;
        }
        (0..self.servers()).any(|server| {
            self.wiped(server).any(|wiped| {
                of.called <= wiped.until
                    && wiped.at <= moment
                    && until <= self.known_by(of, server, wiped)
            })
        })
    }

    /// When the guard of a hold of which a server forgot a part knows of that.
    fn known_by(&self, of: &Acquisition, server: usize, wiped: &Wiped) -> Ms {
        let terms = &self.history.terms;
        let grant = of.grant.as_ref();
        let lease = grant.and_then(Grant::longest).unwrap_or(0);
        let renewed = grant.is_some_and(|grant| grant.renewed);
        let calm = self.is_calm(of.process, server, wiped.at, wiped.until + lease);
        let longest = if renewed && calm {
            lease / RENEWALS
        } else {
            lease
        };
        wiped.until + terms.slow(longest) + terms.latency * ANSWER + SLACK
    }

    fn losses(&self, verdict: &mut Verdict) {
        for (place, one, grant) in self.holds() {
            let (Some(lost), Some(lease)) = (grant.lost, grant.lease) else {
                continue;
            };
            let ended = self.ended(one.process).is_some_and(|at| at <= lost);
            let stood = self.history.stood_until(one.process, one.called, lost);
            let servers = 0..self.servers();
            let there = servers.filter(|server| self.is_on(place, *server, grant.believed));
            let mut there: Vec<usize> = there.collect();
            let early = is_early(self.history, grant, one.called, lost, lease);
            if !early || there.len() < self.need() {
                continue;
            }
            // What is forgotten is seen to be gone a moment later.
            there.retain(|server| {
                let mut wiped = self.wiped(*server);
                !wiped.any(|wiped| grant.believed <= wiped.until + SLACK && wiped.at <= lost)
            });
            let forgotten = there.len() < self.need();
            there.retain(|server| self.is_calm(one.process, *server, one.called, lost));
            let struck = stood.is_some() || there.len() < self.need();
            let there = there.len();
            let excused = verdict.excuses("majority: shut down", ended)
                || verdict.excuses("majority: forgotten", forgotten)
                || verdict.excuses("majority: struck", struck);
            if !excused {
                let what = format!(
                    "{} (process {}) had it from {} ms, with {there} parts at {} ms, and lost it",
                    grant.owner, one.process, grant.at, grant.believed
                );
                self.tell(verdict, "loss", lost, &what);
            }
        }
    }

    /// When this process began to shut its clients down.
    fn ended(&self, process: u32) -> Option<Ms> {
        let all = self.history.shut_down.iter();
        let of = all.filter(|(ended, _)| *ended == process);
        of.map(|(_, at)| *at).min()
    }

    /// Those that wait, rather than ask once.
    fn waiters(&self) -> impl Iterator<Item = &'a Acquisition> {
        let all = self.all.iter().map(|(_, one)| *one);
        all.filter(|one| one.bound != Some(0))
    }

    fn left(&self, one: &Acquisition) -> Ms {
        let end = self.history.end;
        one.returned.as_ref().map_or(end, |(at, _)| *at)
    }

    fn turns(&self, verdict: &mut Verdict) {
        for one in self.waiters() {
            let Some(grant) = &one.grant else { continue };
            let ahead = self.waiters().find(|other| {
                other.process == one.process
                    && other.called < one.called
                    && self.left(other) > grant.at
            });
            if let Some(ahead) = ahead {
                let what = format!(
                    "process {} asked at {} and at {} ms, and the second call had it first",
                    one.process, ahead.called, one.called
                );
                self.tell(verdict, "fifo", grant.at, &what);
            }
        }
    }

    /// When which server had nobody hold it.
    fn free(&self, server: usize) -> Vec<(Ms, Ms)> {
        let mut spans: Vec<(Ms, Ms)> = Vec::new();
        let states = self.states[server].iter();
        for (sight, until) in states.filter(|(sight, _)| sight.holders.is_empty()) {
            match spans.last_mut() {
                Some((_, end)) if *end == sight.at => *end = *until,
                _ => spans.push((sight.at, *until)),
            }
        }
        spans
    }

    fn served(&self, verdict: &mut Verdict) {
        let terms = &self.history.terms;
        let free: Vec<_> = (0..self.servers()).map(|at| self.free(at)).collect();
        let longest = ROUND * terms.server + PAUSE + ANSWER * terms.latency;
        let longest = longest + terms.drift(longest) + SLACK;
        for one in self.waiters() {
            let left = self.left(one);
            // It asks once all that called before have left.
            let before = self
                .waiters()
                .filter(|other| other.process == one.process && other.called < one.called);
            let first = before.map(|other| self.left(other)).max().unwrap_or(0);
            let ready = first.max(one.called + SETUP * terms.latency);
            // Tasks of one process wait for each other: also where servers forgot what one of them has.
            let own = self.holds().filter(|(_, of, _)| of.process == one.process);
            let own: Vec<_> = own.map(|(.., grant)| (grant.at, over(grant))).collect();
            let starts = free.iter().flatten().map(|(from, _)| *from);
            let starts = starts.chain(own.iter().map(|(_, end)| *end));
            let late = starts.map(|from| from.max(ready)).filter_map(|from| {
                let until = from + longest;
                if own.iter().any(|(at, end)| *at <= until && from < *end) {
                    return None;
                }
                let there = (0..self.servers()).filter(|&server| {
                    let mut spans = free[server].iter();
                    spans.any(|(begin, end)| *begin <= from && until < *end)
                });
                let mut there: Vec<usize> = there.collect();
                let late = until < left && there.len() >= self.need();
                there.retain(|server| {
                    self.is_calm(one.process, *server, one.called.min(from), until)
                });
                late.then_some((there.len() < self.need(), from))
            });
            // That of which a fault is no reason, if there is one.
            if let Some((struck, from)) = late.min()
                && !verdict.excuses("majority: struck", struck)
            {
                let what = format!(
                    "a majority was free for {longest} ms from {from} ms on, while process {} \
                     waited since {} ms",
                    one.process, one.called
                );
                self.tell(verdict, "serving", from + longest, &what);
            }
        }
    }

    /// The hold of which somebody is a part: its place in the history.
    fn hold_of(&self, owner: &str) -> Option<(usize, &'a Grant)> {
        let mut parts = self.history.parts.iter();
        let part = parts.find(|part| part.owner == owner)?;
        let one = &self.history.acquisitions[part.acquisition];
        Some((part.acquisition, one.grant.as_ref()?))
    }

    fn counted(&self, verdict: &mut Verdict) {
        for (server, states) in self.states.iter().enumerate() {
            for (sight, until) in states {
                for (owner, count) in sight.holders.iter().filter(|(_, count)| *count > 1) {
                    let Some((_, grant)) = self.hold_of(owner) else {
                        continue;
                    };
                    let asked = grant.again.iter().filter(|again| again.called <= *until);
                    let most = 1 + asked.count();
                    if *count as usize > most {
                        let what = format!(
                            "server {server} counts {count} for {owner} until {until} ms, and it \
                             had {most} guards at most"
                        );
                        self.tell(verdict, "count", sight.at, &what);
                    }
                }
            }
        }
        for (place, one, grant) in self.holds() {
            for at in grant.again.iter().filter_map(|again| again.at) {
                let calm = (0..self.servers())
                    .all(|server| self.is_calm(one.process, server, one.called, at));
                let forgotten = (0..self.servers())
                    .any(|server| self.wiped(server).any(|wiped| wiped.at <= at));
                let two = (0..self.servers()).filter(|server| self.counts_two(place, *server, at));
                let two = two.count();
                let mut excused = || {
                    verdict.excuses("majority: struck", !calm)
                        || verdict.excuses("majority: forgotten", forgotten)
                };
                if two < self.need() && !excused() {
                    let what = format!(
                        "{} (process {}) was had once more at {at} ms, and {two} servers count that",
                        grant.owner, one.process
                    );
                    self.tell(verdict, "count", at, &what);
                }
            }
        }
    }

    /// Whether a server counts two guards of this hold at that moment.
    fn counts_two(&self, place: usize, server: usize, moment: Ms) -> bool {
        let mut states = self.states[server].iter();
        let then = states.rfind(|(sight, _)| sight.at <= moment);
        let mut holders = then.into_iter().flat_map(|(sight, _)| &sight.holders);
        holders.any(|(owner, count)| {
            *count >= 2 && self.hold_of(owner).is_some_and(|(of, _)| of == place)
        })
    }

    fn repaired(&self, verdict: &mut Verdict) {
        let terms = &self.history.terms;
        for (_, one, grant) in self.holds().filter(|(.., grant)| grant.renewed) {
            let lease = grant.longest().unwrap_or(0);
            let ways = (ANSWER + SETUP) * terms.latency;
            let longest = terms.slow(lease / RENEWALS) + REPAIR * terms.server + ways + SLACK;
            let over = grant.ended.map_or(grant.believed, |(at, _)| at);
            let over = over.min(grant.believed);
            let over = self.ended(one.process).map_or(over, |at| over.min(at));
            for server in 0..self.servers() {
                for (from, until) in self.free(server) {
                    let (from, until) = (from.max(grant.at), until.min(over));
                    let calm = || self.is_calm(one.process, server, one.called, until);
                    if from + longest < until && !verdict.excuses("majority: struck", !calm()) {
                        let what = format!(
                            "{} (process {}) had it from {} ms, and server {server} has had no \
                             part of it since {from} ms",
                            grant.owner, one.process, grant.at
                        );
                        self.tell(verdict, "repair", from + longest, &what);
                    }
                }
            }
        }
    }
}

/// When the guard of a hold has ended, or knows that it is lost.
fn over(grant: &Grant) -> Ms {
    let ended = grant.ended.map(|(at, _)| at);
    let all = ended.into_iter().chain(grant.lost);
    all.fold(grant.believed, Ms::max)
}
