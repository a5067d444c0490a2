//! How the program ends.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use redlock_rt::{Error, ErrorKind};

/// An exit code, of `sysexits.h` where that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const DONE: Self = Self(0);
    pub(crate) const NO: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const OTHER_DATA: Self = Self(65);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const SOFTWARE: Self = Self(70);
    pub(crate) const NOT_HAD: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const DENIED: Self = Self(77);

    /// The exit code of a shell for a process that this signal has ended.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadInput => Self::USAGE,
            ErrorKind::WrongType => Self::OTHER_DATA,
            ErrorKind::Contended | ErrorKind::TimedOut | ErrorKind::NotReplicated => Self::NOT_HAD,
            ErrorKind::Lost | ErrorKind::LatchDeleted | ErrorKind::LatchExpired => Self::LOST,
            ErrorKind::Denied => Self::DENIED,
            ErrorKind::Unavailable
            | ErrorKind::Quorum
            | ErrorKind::OutcomeUnknown
            | ErrorKind::Misconfigured
            | ErrorKind::NoScripts => Self::UNAVAILABLE,
            _ => Self::SOFTWARE,
        }
    }
}

/// Why the program ends without success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }
}

/// The message with those of its sources.
pub(crate) fn in_full(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // A String takes all that is written to it.
        let _ = write!(message, ": {cause}");
        source = cause.source();
    }
    message
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), in_full(&error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::SOFTWARE, error.to_string())
    }
}
