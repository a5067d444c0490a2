//! What can become of a command, sorted by what may be done next.

use std::error::Error as StdError;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerError};

use crate::error::{Error, ErrorKind as Kind};

type Source = Arc<dyn StdError + Send + Sync>;

/// Why a command has no answer, or no useful one.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// There is no connection, so nothing was sent.
    Unreachable(Source),
    /// It was, or may have been, sent, and no answer came: it may have run, or run still.
    Unanswered(Source),
    /// The server refused it before it ran and may take it later (LOADING, READONLY, BUSY …).
    Refused(Source),
    /// Credentials or ACL.
    Denied(Source),
    /// The key holds a value of another type.
    WrongType(Source),
    /// Any other answer, for which a repeat is no help.
    Failed(Source),
    /// The server cannot serve a connection as the URL wants it: no such database.
    Misdirected(Source),
    /// The server did not know the script and does now; the call did not run.
    Loaded,
    /// The client was shut down: there will be no connection any more.
    Closed,
}

/// Codes of refusals that pass by themselves: the server is starting, failing over, busy, full.
const PASSING: [&str; 12] = [
    "LOADING",
    "READONLY",
    "BUSY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "UNKILLABLE",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "MOVED",
    "ASK",
];
const DENIED: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];
/// What an ACL refuses inside a script, before Redis 7.2: there is no code in it.
const DENIED_INSIDE: &str = "The user executing the script can't";

impl Fault {
    pub(super) fn io(kind: std::io::ErrorKind, what: &'static str) -> Source {
        Arc::new(std::io::Error::new(kind, what))
    }

    pub(crate) fn timed_out(what: &'static str) -> Self {
        Self::Unanswered(Self::io(std::io::ErrorKind::TimedOut, what))
    }

    /// A connection to a server that was left for another one.
    pub(super) fn outdated() -> Self {
        let why = "the address led to a server process that was left for another one";
        Self::Unreachable(Self::io(std::io::ErrorKind::Other, why))
    }

    /// Sorts an error of the client library that came instead of a reply.
    pub(super) fn from_client(error: RedisError) -> Self {
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Denied(Arc::new(error)),
            ErrorKind::Io | ErrorKind::Parse => Self::Unanswered(Arc::new(error)),
            ErrorKind::Server(_) | ErrorKind::Extension => {
                let code = error.code().unwrap_or_default().to_owned();
                let detail = error.detail().unwrap_or_default().to_owned();
                Self::sort(&code, &detail, Arc::new(error))
            }
            _ => Self::Failed(Arc::new(error)),
        }
    }

    /// Sorts an error that the server answered.
    pub(super) fn from_server(error: ServerError) -> Self {
        let code = error.code().to_owned();
        let detail = error.details().unwrap_or_default().to_owned();
        Self::sort(&code, &detail, Arc::new(RedisError::from(error)))
    }

    fn sort(code: &str, detail: &str, source: Source) -> Self {
        // Before Redis 7 an error inside a script comes as ERR with the code inside its text.
        let is = |known: &str| {
            code == known
                || (code == "ERR" && detail.split([' ', '-', ':']).any(|word| word == known))
        };
        if is("WRONGTYPE") {
            Self::WrongType(source)
        } else if DENIED.iter().any(|known| is(known)) || detail.contains(DENIED_INSIDE) {
            Self::Denied(source)
        } else if PASSING.iter().any(|known| is(known)) {
            Self::Refused(source)
        } else {
            Self::Failed(source)
        }
    }

    /// Whether another try can help.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_) | Self::Unanswered(_) | Self::Refused(_) | Self::Loaded
        )
    }

    /// Whether the command may have run although no answer came.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// The error for a caller whose call ends with this fault.
    pub(crate) fn into_error(self, action: &'static str) -> Error {
        let (kind, source) = match self {
            Self::Closed => return Error::new(Kind::ShutDown, action),
            Self::Loaded => {
                let why = "the server forgets its scripts";
                return Error::new(Kind::Unavailable, action).detail(why);
            }
            Self::Unreachable(source) | Self::Unanswered(source) | Self::Refused(source) => {
                (Kind::Unavailable, source)
            }
            Self::Denied(source) => (Kind::Denied, source),
            Self::WrongType(source) => (Kind::WrongType, source),
            Self::Failed(source) => (Kind::Protocol, source),
            Self::Misdirected(source) => (Kind::BadInput, source),
        };
        Error::new(kind, action)
            .detail(source.to_string())
            .caused_by(source)
    }
}

impl From<crate::wire::Malformed> for Fault {
    fn from(malformed: crate::wire::Malformed) -> Self {
        Self::Failed(Arc::new(malformed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(code: &str, detail: &str) -> Fault {
        Fault::sort(code, detail, Fault::io(std::io::ErrorKind::Other, "test"))
    }

    #[test]
    fn refusals_that_pass_are_told_from_those_that_do_not() {
        for code in PASSING {
            assert!(sorted(code, "").is_passing(), "{code}");
            assert!(!sorted(code, "").may_have_run(), "{code}");
        }
        assert!(matches!(sorted("NOPERM", ""), Fault::Denied(_)));
        assert!(matches!(sorted("WRONGTYPE", ""), Fault::WrongType(_)));
        assert!(matches!(sorted("ERR", "unknown command"), Fault::Failed(_)));
    }

    #[test]
    fn codes_inside_script_errors_of_old_servers_are_found() {
        let text = "Error running script (call to f_1): @user_script:12: \
                    -READONLY You can't write against a read only replica.";
        assert!(matches!(sorted("ERR", text), Fault::Refused(_)));
        let text = "Error running script (call to f_1): @user_script:3: WRONGTYPE Operation";
        assert!(matches!(sorted("ERR", text), Fault::WrongType(_)));
        let text = "Error running script (call to f_1): @user_script:3: \
                    The user executing the script can't run this command or subcommand";
        assert!(matches!(sorted("ERR", text), Fault::Denied(_)));
    }
}
