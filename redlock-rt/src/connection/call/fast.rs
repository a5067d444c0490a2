//! Calls that may go without their scripts; see [`FastPath`].
//!
//! If the plain commands change nothing, the same exchange continues with the script. A name that was
//! found taken is remembered by its hash, since the plain command would be useless for it. A refusal that
//! is permanent (an ACL, an unknown command) ends plain commands on this connection. A temporary refusal
//! is the fault of the call, as it would be the script's.

use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use foldhash::fast::FixedState;

use super::link::Link;
use crate::connection::fault::{Cause, Fault};
use crate::connection::stream::{Answer, Answers, Pending, WakeUp, encode};
use crate::wire::{Call, Carried, FastPath, Reply, ServerError, Value};

/// The number of places for names that were found taken.
const PLACES: usize = 1024;
/// After a name was found taken, it must be free this many times in a row before the fast path is tried.
const CAUTION: u8 = 8;

/// The state of the fast paths of one connection.
pub(super) struct FastPaths {
    /// The server refuses the commands for all names, or the client was made without them.
    refused: AtomicBool,
    /// Whether names were found taken lately, by hash; see [`CAUTION`]. If the fast path fails, a call
    /// takes two round trips.
    taken: [AtomicU8; PLACES],
}

impl FastPaths {
    pub(super) fn new(scripts_only: bool) -> Self {
        Self {
            refused: AtomicBool::new(scripts_only),
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

    fn place(&self, call: &Call) -> &AtomicU8 {
        let key = call.words().next().unwrap_or_default();
        let hash = FixedState::default().hash_one(key);
        &self.taken[hash as usize % PLACES]
    }

    fn is_taken(&self, call: &Call) {
        self.place(call).store(CAUTION, Ordering::Relaxed);
    }

    /// The first command was refused. Returns whether the name is taken. The error would also be the
    /// script's.
    fn refused(&self, call: &Call, error: ServerError) -> Result<bool, Fault> {
        if error.code() == "BUSYKEY" {
            self.is_taken(call);
            return Ok(true);
        }
        let is_unknown = error.code() == "ERR";
        let fault = Fault::from_server(error);
        match fault.cause {
            Cause::Denied => self.refused.store(true, Ordering::Relaxed),
            Cause::Failed if is_unknown => self.refused.store(true, Ordering::Relaxed),
            Cause::WrongType => {}
            _ => return Err(fault),
        }
        Ok(false)
    }

    /// Records the answer of a call's script.
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

/// The result of the plain commands of a call.
pub(super) enum Begun {
    Answered(Carried),
    /// They changed nothing: the script must be sent. `is_taken`: the lock is taken, perhaps by an earlier
    /// try of the same call.
    Unsettled {
        is_taken: bool,
    },
}

/// Sends the plain commands of a call.
pub(super) fn send(
    path: FastPath,
    link: &Link,
    call: &Call,
    caller: WakeUp<'_>,
) -> Result<Pending, Fault> {
    call.is_sent();
    let first = |out: &mut Vec<u8>| path.first(call, |words| encode::command(out, words));
    let second =
        |out: &mut Vec<u8>| path.second(call, link.publish(), |words| encode::command(out, words));
    match path.has_second(call) {
        true => link.send(caller, |out| [first(out), second(out)]),
        false => link.send(caller, |out| [first(out)]),
    }
}

/// The effect of the plain commands of a call, according to their replies.
pub(super) fn begun(
    path: FastPath,
    link: &Link,
    call: &Call,
    answers: Answers,
) -> Result<Begun, Fault> {
    let mut answers = answers.into_iter();
    let Some(first) = answers.next() else {
        return Ok(Begun::Unsettled { is_taken: false });
    };
    // It is meaningful only if the first command has removed the owner.
    let second = answers.next();
    let first = match link.value(first)? {
        Value::Error(error) => {
            let is_taken = link.fast_paths.refused(call, error)?;
            return Ok(Begun::Unsettled { is_taken });
        }
        first => first,
    };
    let removed = first == Value::Int(1);
    let published = match second.map(|second| link.value(second)) {
        // Not treated as a permanent refusal: the repeat announces the release.
        Some(Ok(Value::Error(error))) => match Fault::from_server(error).while_redirected() {
            fault if fault.cause != Cause::Passing => None,
            fault if removed => return Err(without_the_rest(fault)),
            fault => return Err(fault),
        },
        Some(published) if removed => Some(published.map_err(without_the_rest)?),
        _ => None,
    };
    let carried = path.carried(call, first, published);
    Ok(
        match carried.map_err(|malformed| link.misread(malformed))? {
            Some(carried) => Begun::Answered(carried),
            None => Begun::Unsettled { is_taken: false },
        },
    )
}

/// Whether the first command has removed the owner, so that the second is meaningful.
pub(super) fn is_one(first: &Answer) -> bool {
    matches!(first, Ok(Value::Int(1)))
}

/// The fault of a call whose first command ran. The call may have run, even if the second command was
/// never sent or refused temporarily.
fn without_the_rest(fault: Fault) -> Fault {
    match fault.may_have_run() {
        true => fault,
        false => {
            let why = format!("a release was not announced: {}", fault.reason());
            Fault::unanswered(io::Error::other(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its repeat finds nothing, which then is no loss.
    #[test]
    fn a_release_whose_announcement_was_never_sent_may_have_run() {
        let unsent = Fault::not_connected(io::ErrorKind::BrokenPipe, "broken");
        assert!(!unsent.may_have_run());
        assert!(without_the_rest(unsent).may_have_run());
        let lost = Fault::timed_out("lost");
        assert_eq!(without_the_rest(lost.clone()).cause, lost.cause);
    }
}
