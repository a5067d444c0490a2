//! What the keys look like in Redis, written down whenever one changes.

use super::log::Log;
use super::plan::Thing;
use super::server::Server;
use crate::history::{Ms, Sight};

/// The keys that are looked at.
pub(super) struct Sights {
    /// At which server.
    at: usize,
    /// Whether that copies from another.
    is_replica: bool,
    things: Vec<(String, Thing)>,
    last: Vec<Option<Sight>>,
    /// When each of them ends by itself.
    expires: Vec<Option<Ms>>,
}

impl Sights {
    /// `at`: at which server.
    pub(super) fn new(things: &[Thing], at: usize) -> Self {
        let all = things.iter().enumerate();
        let seen = all.filter(|(_, thing)| match thing {
            Thing::Multi | Thing::Barrier(_) => false,
            Thing::RedLock => true,
            _ => at == 0,
        });
        let things: Vec<_> = seen
            .map(|(place, thing)| (thing.key(place), *thing))
            .collect();
        Self {
            at,
            is_replica: false,
            last: vec![None; things.len()],
            expires: vec![None; things.len()],
            things,
        }
    }

    /// The same of a replica.
    pub(super) fn of_replica(things: &[Thing], at: usize) -> Self {
        let (is_replica, sights) = (true, Self::new(things, 0));
        Self {
            at,
            is_replica,
            ..sights
        }
    }

    /// The server is no replica any more.
    pub(super) fn forget(&mut self, log: &Log, now: Ms) {
        let gone = self.last.iter_mut().filter_map(Option::take);
        let gone = gone.map(|sight| Sight {
            at: now,
            key: sight.key,
            ..Sight::default()
        });
        let history = &mut log.lock().history;
        history.copies.extend(gone.map(|sight| (self.at, sight)));
        self.expires.fill(None);
    }

    /// Whether something has ended by itself since the last look.
    pub(super) fn is_due(&self, now: Ms) -> bool {
        self.expires.iter().flatten().any(|at| *at <= now)
    }

    /// `expired`: nothing was run at the server since the last look.
    pub(super) fn look(&mut self, server: &Server, log: &Log, now: Ms, expired: bool) {
        let seen = self.last.iter_mut().zip(&mut self.expires);
        for ((key, thing), (last, expires)) in self.things.iter().zip(seen) {
            // Of a cluster, each node has some.
            if !self.is_replica && !server.shows(key) {
                continue;
            }
            let (sight, lives) = sight(server, key, *thing);
            *expires = lives.map(|lives| now + lives);
            if last.as_ref() != Some(&sight) {
                *last = Some(sight.clone());
                let sight = Sight {
                    at: now,
                    expired,
                    ..sight
                };
                let history = &mut log.lock().history;
                match thing {
                    _ if self.is_replica => history.copies.push((self.at, sight)),
                    Thing::RedLock => history.server_sights.push((self.at, sight)),
                    _ => history.sights.push(sight),
                }
            }
        }
    }
}

/// A key as it is, without the time, and how long a part of it lives.
fn sight(server: &Server, key: &str, thing: Thing) -> (Sight, Option<Ms>) {
    let mut sight = Sight {
        key: key.to_owned(),
        ..Sight::default()
    };
    match thing {
        Thing::Semaphore(_) | Thing::Permits(_) => {
            sight.number = server.number(&["GET", key]);
            let set = format!("{{{key}}}:timeout");
            let over = server.number(&["ZCOUNT", &set, "-inf", &server.time().to_string()]);
            sight.number = sight.number.map(|free| free + over.unwrap_or(0));
            let first = server.list(&["ZRANGE", &set, "0", "0", "WITHSCORES"]);
            let score = first.get(1).and_then(|score| score.parse::<u64>().ok());
            let next = score.filter(|score| *score > server.time());
            (sight, next.map(|score| score - server.time()))
        }
        Thing::Latch(_) => {
            sight.number = Some(server.number(&["GET", key]).unwrap_or(0));
            (sight, None)
        }
        _ => {
            let fields = server.list(&["HGETALL", key]);
            for pair in fields.chunks_exact(2) {
                match &*pair[0] {
                    "mode" => sight.shared = pair[1] == "read",
                    owner => {
                        let owner = owner.trim_end_matches(":write").to_owned();
                        sight.holders.push((owner, pair[1].parse().unwrap_or(0)));
                    }
                }
            }
            sight.holders.sort();
            if thing == Thing::Fair {
                let queue = format!("redisson_lock_queue:{{{key}}}");
                sight.queue = server.list(&["LRANGE", &queue, "0", "-1"]);
            }
            let lives = server.number(&["PTTL", key]);
            (sight, lives)
        }
    }
}
