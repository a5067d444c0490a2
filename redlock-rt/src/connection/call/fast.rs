//! Calls that may go without their scripts; see [`FastPath`].
//!
//! Where the plain commands change nothing, the same exchange goes on with the script. A name that was
//! found taken is remembered by its hash, since for it the plain command is a call in vain. A refusal that
//! lasts (an ACL, an unknown command) ends plain commands on this connection; one that passes is the fault
//! of the call, as it would be the script's.

use std::future::Future;
use std::hash::BuildHasher;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use foldhash::fast::FixedState;

use super::link::Link;
use crate::clock::Moment;
use crate::connection::fault::{Cause, Fault};
use crate::connection::stream::{Came, Pending, Unanswered, WakeUp, encode};
use crate::wire::{Call, Carried, FastPath, Reply, ServerError, Value};

/// The number of places for names that were found taken.
const PLACES: usize = 1024;
/// After a name was found taken, it has to be free so often in a row before the fast path is tried.
const CAUTION: u8 = 8;

/// What is known about the fast paths of one connection.
pub(super) struct FastPaths {
    /// The server refuses the commands, and not only for the name.
    refused: AtomicBool,
    /// A [`Trial`] was begun that has not failed for a passing reason.
    tried: AtomicBool,
    /// A `Delete` was carried out. Its refusal would be noticed only by a caller that waits.
    deletes: AtomicBool,
    /// Whether names were found taken lately, by hash; see [`CAUTION`]. If the fast path fails, a
    /// call takes two round trips.
    taken: [AtomicU8; PLACES],
}

impl FastPaths {
    pub(super) fn new() -> Self {
        Self {
            refused: AtomicBool::new(false),
            tried: AtomicBool::new(false),
            deletes: AtomicBool::new(false),
            taken: [const { AtomicU8::new(0) }; PLACES],
        }
    }

    /// The fast path to use for a call.
    pub(super) fn of(&self, call: &Call) -> Option<FastPath> {
        let path = call.fast_path()?;
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let free = path != FastPath::Create || self.place(call).load(Ordering::Relaxed) == 0;
        free.then_some(path)
    }

    /// As [`of`](Self::of), for a caller that may not read the reply.
    pub(super) fn of_last(&self, call: &Call) -> Option<FastPath> {
        let proven = self.deletes.load(Ordering::Relaxed);
        self.of(call).filter(|_| proven)
    }

    /// Whether it is open if the server carries out this path, which is to be known before
    /// [`of_last`](Self::of_last) returns it.
    fn is_to_be_tried(&self, call: &Call) -> bool {
        !self.deletes.load(Ordering::Relaxed)
            && self.of(call) == Some(FastPath::Delete)
            && !self.tried.swap(true, Ordering::Relaxed)
    }

    fn place(&self, call: &Call) -> &AtomicU8 {
        let key = call.words().next().unwrap_or_default();
        let hash = FixedState::default().hash_one(key);
        &self.taken[hash as usize % PLACES]
    }

    fn is_taken(&self, call: &Call) {
        self.place(call).store(CAUTION, Ordering::Relaxed);
    }

    fn worked(&self, path: FastPath) {
        if path == FastPath::Delete && !self.deletes.load(Ordering::Relaxed) {
            self.deletes.store(true, Ordering::Relaxed);
        }
    }

    /// The first command was refused. Returns whether the name is taken; the error is one with which
    /// the script would be refused too.
    fn refused(&self, call: &Call, error: ServerError) -> Result<bool, Fault> {
        let (is_taken, is_unknown) = (error.code() == "BUSYKEY", error.code() == "ERR");
        if is_taken {
            self.is_taken(call);
            return Ok(true);
        }
        let fault = Fault::from_server(error);
        match fault.cause() {
            Cause::Denied => self.refused.store(true, Ordering::Relaxed),
            Cause::Failed if is_unknown => self.refused.store(true, Ordering::Relaxed),
            Cause::WrongType => {}
            _ => return Err(fault),
        }
        Ok(false)
    }

    /// What the script of a call answered.
    pub(super) fn heard(&self, call: &Call, answer: &Result<Reply, Fault>) {
        if call.fast_path() != Some(FastPath::Create) {
            return;
        }
        match answer {
            Ok(Reply::Nil) => {
                let place = self.place(call);
                let before = place.load(Ordering::Relaxed);
                // Lost updates of other threads only cost a round trip.
                place.store(before.saturating_sub(1), Ordering::Relaxed);
            }
            Ok(_) => self.is_taken(call),
            Err(_) => {}
        }
    }
}

/// A call that was begun by plain commands.
pub(super) enum Begun {
    Answered(Carried),
    /// They changed nothing: the script is to be asked. `is_taken`: the lock is there, perhaps by an
    /// earlier try of the same call.
    Unsettled {
        is_taken: bool,
    },
}

/// The plain commands of a call.
pub(super) struct Plain {
    path: FastPath,
    sent: Sent,
}

/// What has come for a command.
type Heard = Result<Value, Unanswered>;

enum Sent {
    One(Pending),
    /// The second says something only if the first has removed the owner.
    Two(Pending<2>),
}

impl Plain {
    pub(super) fn send(
        path: FastPath,
        link: &Link,
        call: &Call,
        caller: WakeUp<'_>,
    ) -> Result<Self, Fault> {
        let first = |out: &mut Vec<u8>| path.first(call, |words| encode::command(out, words));
        let second = |out: &mut Vec<u8>| {
            path.second(call, link.publish(), |words| encode::command(out, words))
        };
        let sent = match path.has_second(call) {
            true => Sent::Two(link.send(caller, |out| [first(out), second(out)])?),
            false => Sent::One(link.send(caller, |out| [first(out)])?),
        };
        Ok(Self { path, sent })
    }

    pub(super) fn poll(
        &mut self,
        link: &Link,
        call: &Call,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Begun, Fault>> {
        let (first, second) = match &mut self.sent {
            Sent::One(sent) => {
                let [first] = ready!(Pin::new(sent).poll(cx));
                (first, None)
            }
            Sent::Two(sent) => match Pin::new(&mut *sent).poll(cx) {
                Poll::Ready([first, second]) => (first, Some(second)),
                // A server that makes no sense may not answer the second.
                Poll::Pending => match sent.take_first(|first| !is_one(first)) {
                    Some(first) => (first, None),
                    None => return Poll::Pending,
                },
            },
        };
        Poll::Ready(self.heard(link, call, first, second))
    }

    fn heard(
        &self,
        link: &Link,
        call: &Call,
        first: Heard,
        second: Option<Heard>,
    ) -> Result<Begun, Fault> {
        let first = match link.value(first)? {
            Value::Error(error) => return refused(link, call, error),
            first => first,
        };
        let removed = first == Value::Int(1);
        let published = match second.map(|second| link.value(second)) {
            // Not taken for a refusal that lasts: the repeat announces the release.
            Some(Ok(Value::Error(error))) => match Fault::from_server(error).while_redirected() {
                fault if fault.cause() != Cause::Passing => None,
                fault if removed => return Err(without_the_rest(fault)),
                fault => return Err(fault),
            },
            Some(published) if removed => Some(published.map_err(without_the_rest)?),
            _ => None,
        };
        self.concluded(link, call, first, published)
    }

    pub(super) fn came(&self) -> Came {
        match &self.sent {
            Sent::One(sent) => sent.came(),
            Sent::Two(sent) => sent.came(),
        }
    }

    /// As [`Pending::was_queued`].
    pub(super) fn was_queued(&self) -> bool {
        match &self.sent {
            Sent::One(sent) => sent.was_queued(),
            Sent::Two(sent) => sent.was_queued(),
        }
    }

    /// As [`Pending::admitted`].
    pub(super) fn admitted(&self) -> Option<Moment> {
        match &self.sent {
            Sent::One(sent) => sent.admitted(),
            Sent::Two(sent) => sent.admitted(),
        }
    }

    /// As [`Pending::recall`].
    pub(super) fn recall(&mut self) -> bool {
        match &mut self.sent {
            Sent::One(sent) => sent.recall(),
            Sent::Two(sent) => sent.recall(),
        }
    }

    fn concluded(
        &self,
        link: &Link,
        call: &Call,
        first: Value,
        published: Option<Value>,
    ) -> Result<Begun, Fault> {
        let carried = self.path.carried(call, first, published);
        let carried = carried.map_err(|malformed| link.misread(malformed))?;
        link.fast_paths().worked(self.path);
        Ok(match carried {
            Some(carried) => Begun::Answered(carried),
            None => Begun::Unsettled { is_taken: false },
        })
    }
}

/// The first command of a fast path behind the script of the same call, after which it changes nothing.
///
/// A client that only drops its guards has no caller who waits, and so no other release that shows whether
/// the server carries the command out.
pub(super) struct Trial {
    sent: Pending,
    /// That of the script.
    reply: Reply,
}

impl Trial {
    /// Returns the reply of the script if there is nothing to try.
    pub(super) fn send(
        link: &Link,
        call: &Call,
        reply: Reply,
        caller: WakeUp<'_>,
    ) -> Result<Self, Reply> {
        if !link.fast_paths().is_to_be_tried(call) {
            return Err(reply);
        }
        let command = |words: &[&[u8]]| link.send(caller, |out| [encode::command(out, words)]);
        match FastPath::Delete.first(call, command) {
            Ok(sent) => Ok(Self { sent, reply }),
            Err(_) => Err(reply),
        }
    }

    pub(super) fn came(&self) -> Came {
        self.sent.came()
    }

    /// Returns the reply of the script.
    pub(super) fn poll(&mut self, link: &Link, call: &Call, cx: &mut Context<'_>) -> Poll<Reply> {
        let [heard] = ready!(Pin::new(&mut self.sent).poll(cx));
        match link.value(heard) {
            Ok(Value::Error(error)) => {
                let paths = link.fast_paths();
                let _ = paths.refused(call, error);
                paths.tried.store(false, Ordering::Relaxed);
            }
            Ok(_) => link.fast_paths().worked(FastPath::Delete),
            // The next call notices that the connection has ended.
            Err(_) => {}
        }
        Poll::Ready(std::mem::replace(&mut self.reply, Reply::Nil))
    }
}

/// The first command was refused.
fn refused(link: &Link, call: &Call, error: ServerError) -> Result<Begun, Fault> {
    let is_taken = link.fast_paths().refused(call, error)?;
    Ok(Begun::Unsettled { is_taken })
}

/// Whether the first command has removed the owner, so that the second says something.
fn is_one(first: &Heard) -> bool {
    matches!(first, Ok(Value::Int(1)))
}

/// The fault of a call whose first command ran: also if the second one was never sent, or refused for
/// the moment, the call may have run.
fn without_the_rest(fault: Fault) -> Fault {
    match fault.may_have_run() {
        true => fault,
        false => {
            let why = format!("a release was not announced: {}", fault.reason());
            Fault::unanswered(io::Error::other(why))
        }
    }
}

#[cfg(all(test, not(redlock_loom)))]
mod tests {
    use super::*;

    /// Its repeat finds nothing, which then is no loss.
    #[test]
    fn a_release_whose_announcement_was_never_sent_may_have_run() {
        let unsent = Fault::not_connected(io::ErrorKind::BrokenPipe, "broken");
        assert!(!unsent.may_have_run());
        assert!(without_the_rest(unsent).may_have_run());
        let lost = Fault::timed_out("lost");
        assert_eq!(without_the_rest(lost.clone()).cause(), lost.cause());
    }
}
