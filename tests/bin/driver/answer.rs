//! Answers, and the only writer of stdout.

use std::{
    fmt::{self, Display},
    io::{self, Write},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use redlock_rt::ErrorKind;

/// The outcome of a command: the RESULT, or the text after `err`.
pub(crate) type Outcome = Result<String, Failure>;

/// `KIND: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new("usage", message)
    }

    pub(crate) fn cancelled() -> Self {
        Self::new("cancelled", "the command was dropped")
    }

    pub(crate) fn not_owner(message: impl Display) -> Self {
        Self::new("not_owner", message)
    }

    pub(crate) fn lost(message: impl Display) -> Self {
        Self::new("lost", message)
    }

    pub(crate) fn unavailable(message: impl Display) -> Self {
        Self::new("unavailable", message)
    }

    pub(crate) fn quorum(message: impl Display) -> Self {
        Self::new("quorum", message)
    }

    fn new(kind: &'static str, message: impl Display) -> Self {
        // An answer is one line.
        let message = message.to_string().replace(['\n', '\r'], " ");
        Self { kind, message }
    }
}

impl From<&redlock_rt::Error> for Failure {
    fn from(error: &redlock_rt::Error) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::new(kind(error.kind()), message)
    }
}

impl From<redlock_rt::Error> for Failure {
    fn from(error: redlock_rt::Error) -> Self {
        Self::from(&error)
    }
}

fn kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Contended => "contended",
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::OutcomeUnknown => "outcome_unknown",
        // The protocol has one word for all losses.
        ErrorKind::Lost
        | ErrorKind::LatchDeleted
        | ErrorKind::LatchExpired
        | ErrorKind::BarrierBroken
        | ErrorKind::BarrierReset => "lost",
        ErrorKind::StaleToken => "stale_token",
        ErrorKind::NotOwner => "not_owner",
        // Wrong credentials are bad input, and so is an upgrade that would wait for itself; the
        // protocol has no separate words for them.
        ErrorKind::BadInput | ErrorKind::Denied | ErrorKind::UpgradeWouldDeadlock => "bad_input",
        ErrorKind::WrongType => "wrong_type",
        ErrorKind::ShutDown => "shut_down",
        ErrorKind::Quorum => "quorum",
        // It has none for a server that is not understood either.
        _ => "unavailable",
    }
}

/// Sends answers to stdout, one line each, in the order in which they are given.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    lines: mpsc::Sender<String>,
}

impl Answers {
    /// Starts the writer in a separate thread, since a slow reader must not stop the commands. It ends
    /// when all handles are dropped.
    pub(crate) fn start(out: impl Write + Send + 'static) -> (Self, JoinHandle<io::Result<()>>) {
        let (lines, queue) = mpsc::channel();
        let writer = thread::spawn(move || write(out, &queue));
        (Self { lines }, writer)
    }

    /// `ID ok RESULT <n>ms` or `ID err KIND: message`.
    pub(crate) fn send(&self, id: &str, outcome: &Outcome, took: Duration) {
        let line = match outcome {
            Ok(result) => format!("{id} ok {result} {}ms\n", took.as_millis()),
            Err(failure) => format!("{id} err {failure}\n"),
        };
        // Fails if stdout is closed; the commands still run to their end.
        let _ = self.lines.send(line);
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

fn write(mut out: impl Write, queue: &mpsc::Receiver<String>) -> io::Result<()> {
    while let Ok(line) = queue.recv() {
        out.write_all(line.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line() {
        let (reader, writer) = io::pipe().unwrap();
        let (answers, thread) = Answers::start(writer);
        answers.send("1", &Ok("true".to_owned()), Duration::from_micros(2900));
        let failure = Failure::usage("two\r\nlines");
        answers.send("x-2", &Err(failure), Duration::ZERO);
        drop(answers);
        thread.join().unwrap().unwrap();
        let text = io::read_to_string(reader).unwrap();
        assert_eq!(text, "1 ok true 2ms\nx-2 err usage: two  lines\n");
    }
}
