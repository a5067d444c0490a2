//! What is waited for behind a write: WAIT and WAITAOF.

use std::time::Duration;

use redis::Cmd;

use crate::connection::fault::{Cause, Fault};
use crate::wire::{Reply, ServerError};

/// So many ways to wait have a connection of their own at each server.
pub(crate) const LANES: usize = 21;

/// Which servers must have what was written, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Until {
    pub(crate) replicas: u32,
    /// On disk, and not only in memory.
    pub(crate) disk: bool,
    /// The master too.
    pub(crate) local: bool,
    pub(crate) patience: Duration,
    /// Also asks how many replicas are in step.
    pub(crate) count: bool,
    /// The highest number counts, and not the present one.
    pub(crate) most: bool,
}

/// The servers that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Had {
    pub(crate) replicas: u32,
    /// Whether the master has it where it must.
    pub(crate) local: bool,
}

impl Until {
    pub(super) fn command(self) -> Cmd {
        let mut command = redis::cmd(if self.disk { "WAITAOF" } else { "WAIT" });
        if self.disk {
            command.arg(u8::from(self.local));
        }
        let millis = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        command.arg(self.replicas).arg(millis);
        command
    }

    /// Reads the reply.
    pub(super) fn had(self, reply: &Reply) -> Option<Had> {
        let (replicas, local) = match reply {
            Reply::Int(got) if !self.disk => (got, true),
            Reply::List(both) if self.disk => match both.as_slice() {
                [Reply::Int(local), Reply::Int(got)] => (got, *local > 0 || !self.local),
                _ => return None,
            },
            _ => return None,
        };
        let replicas = u32::try_from(*replicas).unwrap_or(0);
        Some(Had { replicas, local })
    }
}

/// Whether it is unknown who has what was written: the master was demoted before or meanwhile,
/// somebody sent CLIENT UNBLOCK, or the server has something else to do for a while.
pub(super) fn was_interrupted(error: &ServerError) -> bool {
    error.code() == "UNBLOCKED"
        || error
            .detail()
            .contains("cannot be used with replica instances")
        || Fault::from_server(error.clone()).cause() == Cause::Passing
}

/// Whether the server refuses the command itself, which it will do again.
pub(super) fn is_refused_for_good(error: &ServerError) -> bool {
    error.detail().starts_with("unknown command") || Fault::from_server(error.clone()).is_denied()
}

/// Whether the master keeps no append-only file, of which WAITAOF could tell.
pub(super) fn is_without_aof(error: &ServerError) -> bool {
    error.detail().contains("appendonly is disabled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_counts_where_it_is_asked_for() {
        let until = |disk, local| Until {
            replicas: 2,
            disk,
            local,
            patience: Duration::from_millis(7),
            count: false,
            most: false,
        };
        let words = |until: Until| {
            let packed = until.command().get_packed_command();
            let text = String::from_utf8(packed).unwrap();
            let words = text
                .split("\r\n")
                .filter(|word| !word.starts_with(['*', '$']));
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(until(false, false)), "WAIT 2 7 ");
        assert_eq!(words(until(true, false)), "WAITAOF 0 2 7 ");
        assert_eq!(words(until(true, true)), "WAITAOF 1 2 7 ");
        let had = |replicas, local| Some(Had { replicas, local });
        let both = |local, got| Reply::List(vec![Reply::Int(local), Reply::Int(got)]);
        assert_eq!(until(false, false).had(&Reply::Int(1)), had(1, true));
        assert_eq!(until(true, true).had(&both(0, 2)), had(2, false));
        assert_eq!(until(true, true).had(&both(1, 2)), had(2, true));
        assert_eq!(until(true, false).had(&both(0, 1)), had(1, true));
        assert_eq!(until(true, false).had(&Reply::Int(1)), None);
        assert_eq!(until(false, false).had(&both(1, 1)), None);
    }
}
