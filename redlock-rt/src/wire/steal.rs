//! A lock that is taken or freed by force, with a reason. A note tells its holder both.

use std::sync::Arc;
use std::time::Duration;

use super::keys::{self, Channel};
use super::recipe::Ask;
use super::reply::Holder;
use super::script::{Call, Script, millis, script};
use crate::error::Theft;
use crate::name::{HoldId, LockName};

script!(NOTE = "note_theft");

/// Longer reasons are refused.
const LONGEST_REASON: usize = 1024;
/// How much longer than the lease of its reader a note lives. Its reader looks before its lease is over.
const MARGIN: Duration = Duration::from_secs(10);

/// The holder from which a lock is taken, and what it is told.
#[derive(Debug)]
pub(crate) struct Steal {
    /// The holder that was seen. No other loses the lock, so a repeat takes nothing from a later one.
    pub(crate) from: Option<HoldId>,
    /// `None`: the holder has left it to the caller. The caller does not get a lock that is merely free.
    pub(crate) theft: Option<Arc<Theft>>,
}

impl Steal {
    /// The call of `script`. `token`: the key of the token, whose arguments follow.
    pub(super) fn call(
        &self,
        script: &'static Script,
        name: &LockName,
        token: Option<&str>,
        channel: Channel<'_>,
        ask: &Ask<'_>,
    ) -> Call {
        let from = self.from.as_ref().map_or("", HoldId::as_str);
        let note = self.theft.as_ref().map(|theft| theft.note());
        let call = Call::new(script).key(name.as_str());
        let call = call.key(&keys::theft(name, from));
        let call = token.into_iter().fold(call, Call::key);
        call.number(millis(ask.lease))
            .arg(ask.owner)
            .arg(from)
            .arg(note.as_deref().unwrap_or_default())
            .number(millis(MARGIN))
            .announcing(channel)
    }
}

impl Theft {
    /// Why one of the two texts of a note is refused, or `None`.
    pub(crate) fn flaw(text: &str) -> Option<&'static str> {
        match text {
            _ if text.trim().is_empty() => Some("is empty or blank"),
            _ if text.contains('\0') => Some("contains a NUL character"),
            _ if text.len() > LONGEST_REASON => Some("is longer than 1024 bytes"),
            _ => None,
        }
    }

    /// Leaves the note for a holder whose lock is freed by another call.
    pub(crate) fn leave(&self, name: &LockName, holder: &Holder) -> Call {
        Call::new(&NOTE)
            .key(&keys::theft(name, holder.owner.as_str()))
            .number(millis(holder.ttl.unwrap_or(MARGIN) + MARGIN))
            .arg(&self.note())
    }

    fn note(&self) -> String {
        format!("{}\0{}", self.by, self.why)
    }

    pub(super) fn read(note: &str) -> Option<Self> {
        let (by, why) = note.split_once('\0')?;
        Some(Self {
            by: by.to_owned(),
            why: why.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LostReason;
    use crate::wire::script::headers::assert_agrees;
    use crate::wire::{HoldReply, Reply};

    impl Steal {
        pub(in crate::wire) fn for_tests() -> Self {
            let (by, why) = ("me".to_owned(), "stuck\nworker".to_owned());
            Self {
                from: Some(HoldId::from_wire("v:1")),
                theft: Some(Arc::new(Theft { by, why })),
            }
        }
    }

    #[test]
    fn a_note_says_by_whom_and_why() {
        let Steal { from, theft } = Steal::for_tests();
        let theft = theft.unwrap();
        let holder = Holder {
            owner: from.unwrap(),
            count: 1,
            ttl: None,
        };
        let call = theft.leave(&LockName::new(None, "n").unwrap(), &holder);
        assert_agrees(&call);
        let words = call.texts();
        assert_eq!(words[..2], ["redlock_stolen:{n}:v:1", "20000"]);
        let read = HoldReply::try_from(Reply::Text(words[2].to_owned()));
        assert_eq!(read, Ok(HoldReply::Stolen(theft)));
        assert!(HoldReply::try_from(Reply::Text("nothing".to_owned())).is_err());
    }

    /// Anybody who may write the note could forge a line of a log.
    #[test]
    fn what_others_wrote_into_a_note_moved_the_cursor() {
        let theft = Theft::read("x\0\n\u{1b}[2J WARN all is lost").unwrap();
        let reason = LostReason::Stolen(Arc::new(theft));
        let shown = "stolen by x: \\n\\u{1b}[2J WARN all is lost";
        assert_eq!(reason.to_string(), shown);
        let id = HoldId::from_wire("u\n:1");
        assert_eq!(format!("{id} {id:?}"), "u\\n:1 u\\n:1");
    }

    #[test]
    fn a_reason_is_short_and_says_something() {
        assert_eq!(Theft::flaw(&"é".repeat(LONGEST_REASON / 2)), None);
        for bad in ["", " ", "a\0b", &"x".repeat(LONGEST_REASON + 1)] {
            assert!(Theft::flaw(bad).is_some(), "{bad:?}");
        }
    }
}
