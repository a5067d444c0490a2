//! What goes wrong: how a fault begins, whom it strikes, and how it ends.

use super::log::Log;
use super::net::{Item, Listening};
use super::plan::{Refusal, Trouble};
use super::run::World;
use crate::history::{Ms, Pause, Strike, Wiped};

/// A connection that leads nowhere is found by its PING at the latest.
const PING: Ms = 30_000;

/// Something that is done at its time.
pub(super) enum Due {
    Begin(Trouble),
    Open { host: usize },
    Hasten { host: usize },
    Allow(Option<usize>, Refusal),
    Boot { host: usize },
    Resume { host: usize },
    Serve,
    Go,
    EndOld,
}

/// A fault that struck a host, or all.
pub(super) struct Struck {
    host: Option<usize>,
    from: Ms,
    until: Ms,
    unheard: Ms,
    only_wipes: bool,
    /// Whether the host stood still.
    stands: bool,
}

/// Writes down, for each process, what struck its host.
pub(super) fn write_down(all: &[Struck], log: &Log) {
    let mut written = log.lock();
    let hosts = std::mem::take(&mut written.hosts);
    for struck in all {
        let (from, until) = (struck.from, struck.until);
        let processes: Vec<Option<u32>> = match struck.host {
            None => vec![None],
            Some(host) => {
                let of = hosts.iter().filter(|(_, of)| *of == host);
                of.map(|(process, _)| Some(*process)).collect()
            }
        };
        for process in processes {
            written.history.strikes.push(Strike {
                from,
                until,
                process,
                unheard: struck.unheard,
                only_wipes: struck.only_wipes,
            });
            if let Some(process) = process.filter(|_| struck.stands) {
                written.history.pauses.push(Pause {
                    process,
                    from,
                    until,
                });
            }
        }
    }
}

impl World {
    fn line(&self, text: String) {
        self.log.line(self.now, format!("## {text}"));
    }

    pub(super) fn strike(&mut self, host: Option<usize>, lasts: Ms) -> &mut Struck {
        self.struck.push(Struck {
            host,
            from: self.now,
            until: self.now + lasts,
            unheard: 0,
            only_wipes: false,
            stands: false,
        });
        self.struck.last_mut().expect("it was pushed just now")
    }

    /// A connection of the host may be dead without its knowing.
    fn strike_unheard(&mut self, host: Option<usize>, lasts: Ms) {
        let response = self.plan.terms.response;
        self.strike(host, lasts).unheard = PING + response;
    }

    fn wiped(&self, key: Option<String>, lasts: Ms) {
        let wiped = Wiped {
            at: self.now,
            until: self.now + lasts,
            key,
        };
        self.log.lock().history.wiped.push(wiped);
    }

    fn later(&mut self, lasts: Ms, due: Due) {
        self.due.push((self.now + lasts, due));
    }

    pub(super) fn act(&mut self, due: Due) {
        match due {
            Due::Begin(trouble) => {
                self.line(format!("{trouble:?}"));
                self.begin(trouble);
            }
            Due::Open { host } => {
                self.line(format!("h{host} is reached again"));
                let path = &mut self.net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (false, false);
            }
            Due::Hasten { host } => self.net.lock().paths[host].slow = 0,
            Due::Allow(host, refusal) => {
                self.line(format!("{refusal:?} is over"));
                let of = |one: &(Option<usize>, Refusal)| *one == (host, refusal);
                if let Some(place) = self.server.refusals.iter().position(of) {
                    self.server.refusals.remove(place);
                }
                if refusal == Refusal::Dial {
                    let mut net = self.net.lock();
                    for path in &mut net.paths {
                        path.refuses = false;
                    }
                }
            }
            Due::Boot { host } => {
                if !self.machines[host].is_on() {
                    self.line(format!("h{host} starts"));
                    self.net.lock().paths[host].off = false;
                    self.machines[host].start();
                }
            }
            Due::Resume { host } => {
                self.line(format!("h{host} goes on"));
                self.paused[host] = false;
            }
            Due::Serve => {
                self.line("the server is there again".to_owned());
                self.net.lock().server = Listening::Yes;
            }
            Due::EndOld => {
                self.line("the old server is gone".to_owned());
                let mut net = self.net.lock();
                for id in self.server.end_old() {
                    net.reply(id, Item::Reset);
                }
            }
            Due::Go => {
                self.line("the server goes on".to_owned());
                self.server_stands = false;
            }
        }
    }

    fn begin(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Partition {
                host,
                up,
                down,
                lasts,
            } => {
                self.strike(Some(host), lasts);
                let path = &mut self.net.lock().paths[host];
                (path.up_blocked, path.down_blocked) = (up, down);
            }
            Trouble::Slow { host, more, .. } => {
                self.net.lock().paths[host].slow = more;
            }
            Trouble::Cut { host, after, place } => {
                self.net.lock().paths[host].cuts.push((after.max(1), place));
            }
            Trouble::Silence { host } => {
                // A connection for subscriptions is asked for a sign of life every 30 s.
                self.strike_unheard(Some(host), 0);
                let mut net = self.net.lock();
                for id in net.of(Some(host)) {
                    net.silence(id);
                }
            }
            Trouble::Stray { host, lasts } => self.net.lock().paths[host].stray = Some(lasts),
            Trouble::Refuse { host, with, lasts } => {
                self.strike(host, lasts);
                self.server.refusals.push((host, with));
                if with == Refusal::Dial {
                    let mut net = self.net.lock();
                    for (place, path) in net.paths.iter_mut().enumerate() {
                        path.refuses |= host.is_none_or(|host| host == place);
                    }
                }
            }
            Trouble::CrashHost {
                host,
                silent,
                lasts,
            } => self.crash(host, silent, lasts),
            Trouble::PauseHost { host, lasts } => {
                self.strike(Some(host), lasts).stands = true;
                self.paused[host] = true;
            }
            Trouble::EndRuntime { host } => {
                self.strike(Some(host), 0);
                if self.machines[host].is_on() && !self.paused[host] {
                    self.machines[host].stop();
                    self.machines[host].start();
                }
            }
            Trouble::CrashServer {
                keeps,
                silent,
                lasts,
            } => self.crash_server(keeps, silent, lasts),
            Trouble::PauseServer { lasts } => {
                self.strike(None, lasts);
                self.server_stands = true;
            }
            Trouble::Replace { lasts } => {
                self.strike(None, lasts);
                self.wiped(None, lasts);
                self.server.replace();
            }
            Trouble::SetClock { by } => {
                self.strike(None, 0);
                // Forward: leases are over before their holders think so.
                self.wiped(None, 0);
                self.server.set_clock(by);
            }
            Trouble::Flush => {
                self.strike(None, 0).only_wipes = true;
                self.wiped(None, 0);
                self.server.ask(&["FLUSHALL"]);
                self.server.changed = true;
            }
            Trouble::ForgetScripts => {
                self.server.ask(&["SCRIPT", "FLUSH"]);
            }
            Trouble::Evict { thing } => {
                let key = self.plan.things[thing].key(thing);
                self.strike(None, 0).only_wipes = true;
                self.wiped(Some(key.clone()), 0);
                self.server.ask(&["DEL", &key]);
                self.server.changed = true;
            }
        }
        self.follow(trouble);
    }

    /// Has a trouble end when it should.
    fn follow(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Partition { host, lasts, .. } => self.later(lasts, Due::Open { host }),
            Trouble::Slow { host, lasts, .. } => {
                self.strike(Some(host), lasts);
                self.later(lasts, Due::Hasten { host });
            }
            Trouble::Refuse { host, with, lasts } => self.later(lasts, Due::Allow(host, with)),
            Trouble::CrashHost { host, lasts, .. } => self.later(lasts, Due::Boot { host }),
            Trouble::PauseHost { host, lasts } => self.later(lasts, Due::Resume { host }),
            Trouble::CrashServer { lasts, .. } => self.later(lasts, Due::Serve),
            Trouble::PauseServer { lasts } => self.later(lasts, Due::Go),
            Trouble::Replace { lasts } => self.later(lasts, Due::EndOld),
            _ => {}
        }
    }

    fn crash(&mut self, host: usize, silent: bool, lasts: Ms) {
        if !self.machines[host].is_on() || self.paused[host] {
            return;
        }
        self.strike(Some(host), lasts);
        if let Some(process) = self.machines[host].process() {
            self.log.crashed(process, self.now);
        }
        {
            let mut net = self.net.lock();
            net.paths[host].off = true;
            for id in net.of(Some(host)) {
                net.silence(id);
                if !silent {
                    self.server.disconnect(id);
                    net.links.remove(&id);
                }
            }
        }
        self.machines[host].forget_client();
        self.machines[host].stop();
    }

    fn crash_server(&mut self, keeps: bool, silent: bool, lasts: Ms) {
        match silent {
            true => self.strike_unheard(None, lasts),
            false => {
                self.strike(None, lasts);
            }
        }
        if !keeps {
            self.wiped(None, 0);
        }
        self.server.crash(keeps);
        self.server.changed = true;
        let mut net = self.net.lock();
        net.server = if silent {
            Listening::Silent
        } else {
            Listening::Refuses
        };
        for id in net.of(None) {
            match silent {
                true => net.silence(id),
                false => net.reply(id, Item::Reset),
            }
        }
    }
}
