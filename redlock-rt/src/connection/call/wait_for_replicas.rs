//! Waits after a write: WAIT and WAITAOF.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::Cmd;

use super::link::{Link, load_command};
use crate::connection::fault::{Cause, Fault};
use crate::connection::server::Info;
use crate::connection::stream::{Pending, WakeUp, encode, last};
use crate::wire::{Call, Reply, ServerError};

/// The number of ways to wait that have their own connection at each server.
pub(crate) const LANES: usize = 21;

/// Which servers must have a write, and until when.
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
    /// The highest number counts, not the present one.
    pub(crate) most: bool,
    /// The calls are in a slot that may be on its way to the server.
    pub(crate) asking: bool,
}

/// The servers that have the write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Had {
    pub(crate) replicas: u32,
    /// Whether the master has it in memory or on disk, as required.
    pub(crate) local: bool,
}

/// The known state of a server's replicas.
pub(super) struct KnownReplicas {
    /// The number of replicas, or the maximum since the client connected; -1: unknown.
    count: AtomicI64,
    /// Why the server cannot wait for them: with WAIT, and with WAITAOF.
    pub(super) cannot_wait: [OnceLock<Fault>; 2],
}

impl KnownReplicas {
    pub(super) fn new(info: &Info) -> Self {
        Self {
            count: AtomicI64::new(info.replicas.map_or(-1, i64::from)),
            cannot_wait: Default::default(),
        }
    }

    /// The number of replicas, or the maximum ([`Until::most`]); `None`: unknown.
    pub(super) fn count(&self) -> Option<u32> {
        u32::try_from(self.count.load(Ordering::Relaxed)).ok()
    }

    /// Why WAIT was refused after calls that were not; `disk`: WAITAOF.
    fn did_not_wait(&self, error: ServerError, disk: bool) -> Fault {
        if was_interrupted(&error) {
            Fault::unanswered(std::io::Error::other(error))
        } else if error.detail().contains("appendonly is disabled") {
            Fault::without_aof(error)
        } else if is_refused_for_good(&error) {
            let known = &self.cannot_wait[usize::from(disk)];
            let fault = known.get_or_init(|| Fault::cannot_wait(error, disk));
            fault.clone()
        } else {
            // A wait for the next lock may succeed.
            Fault::from_server(error)
        }
    }
}

impl Link {
    /// Sends writing calls of one script, and waits until enough servers have the writes: WAIT counts
    /// for the connection. Only for such calls, because the server reads nothing from it meanwhile.
    /// Returns the reply to each call.
    pub(super) async fn call_and_wait(
        &self,
        calls: &[Call],
        until: Until,
    ) -> Result<(Vec<Result<Reply, Fault>>, Had), Fault> {
        let left = |words: &[&[u8]]| {
            let encoded = |out: &mut Vec<u8>| [encode::command(out, words)];
            self.leave(WakeUp::default(), encoded)
        };
        let counted = match until.count {
            true => Some(left(&[b"INFO", b"replication"])?),
            false => None,
        };
        if let Some(call) = calls.first() {
            left(&load_command(call.script()))?;
        }
        let called = calls.iter().map(|call| {
            let script = |out: &mut Vec<u8>| encode::evalsha(out, call, self.publish());
            match until.asking {
                true => self.leave(WakeUp::default(), |out| {
                    [encode::command(out, &[b"ASKING"]), script(out)]
                }),
                false => self.leave(WakeUp::default(), |out| [script(out)]),
            }
        });
        let called: Vec<Pending> = called.collect::<Result<_, _>>()?;
        let waited = self.send(WakeUp::default(), |out| {
            until.command().write_packed_command(out);
            [out.len()]
        })?;
        let replicas = &self.replicas;
        if let Some(counted) = counted
            && let Ok(count) = last(counted.await)
            && let Some(now) = Info::of(&[count]).replicas
        {
            let least = replicas.count().filter(|_| until.most).unwrap_or(0);
            replicas
                .count
                .store(now.max(least).into(), Ordering::Relaxed);
        }
        // The first reply shows that the connection works, also to a caller that gives up the last one:
        // after a connection that never answered there is a pause.
        let mut replies = Vec::with_capacity(called.len());
        for reply in called {
            let reply = self.heard(last(reply.await))?.map_err(Fault::from_server);
            replies.push(reply.map_err(|fault| self.said_here(fault)));
        }
        match self.heard(last(waited.await))? {
            Ok(waited) => Ok((replies, until.had(&waited).ok_or_else(Fault::not_redis)?)),
            Err(error) => Err(match replies.into_iter().find_map(Result::err) {
                Some(fault) => fault,
                None => replicas.did_not_wait(error, until.disk),
            }),
        }
    }
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

/// Whether it is unknown which servers have the write: the master was demoted before or meanwhile, a
/// client sent CLIENT UNBLOCK, or the server is temporarily busy.
fn was_interrupted(error: &ServerError) -> bool {
    error.code() == "UNBLOCKED"
        || error
            .detail()
            .contains("cannot be used with replica instances")
        || Fault::from_server(error.clone()).cause == Cause::Passing
}

/// Whether the server refuses the command itself, and will refuse it again.
fn is_refused_for_good(error: &ServerError) -> bool {
    error.detail().starts_with("unknown command") || Fault::from_server(error.clone()).is_denied()
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
            asking: false,
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
