//! The wall clocks: that of the server, and those of the hosts, which only Redisson's clients read.

use super::log::Written;
use super::run::World;
use crate::history::{Ahead, Ms};

/// A clock was set.
pub(super) struct Jump {
    /// On which host; `None`: at the server.
    host: Option<usize>,
    at: Ms,
    /// Forward, or back.
    by: i64,
}

impl World {
    /// The clock of this host, or that of the server, is set.
    pub(super) fn jumps(&mut self, host: Option<usize>, by: i64) {
        let at = self.now;
        self.jumps.push(Jump { host, at, by });
    }
}

/// Writes down when the clock of which Redisson client was ahead of the server's.
pub(super) fn write_down(all: &[Jump], written: &mut Written) {
    let history = &mut written.history;
    let theirs = history.foreign.iter().map(|one| one.process);
    let ahead = theirs.flat_map(|process| {
        let on = written.hosts.iter().find(|(of, _)| *of == process);
        let host = on.map(|(_, host)| *host);
        let spans = host.map(|host| ahead(all, host)).unwrap_or_default();
        spans.into_iter().map(move |(from, until)| Ahead {
            process,
            from,
            until,
        })
    });
    history.ahead = ahead.collect();
}

/// In which times the clock of this host was ahead.
fn ahead(all: &[Jump], host: usize) -> Vec<(Ms, Ms)> {
    let (mut ahead, mut since, mut spans) = (0, None, Vec::new());
    for jump in all
        .iter()
        .filter(|jump| jump.host.is_none_or(|of| of == host))
    {
        ahead += match jump.host {
            Some(_) => jump.by,
            None => -jump.by,
        };
        match since {
            None if ahead > 0 => since = Some(jump.at),
            Some(from) if ahead <= 0 => {
                spans.push((from, jump.at));
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from| (from, Ms::MAX)));
    spans
}
