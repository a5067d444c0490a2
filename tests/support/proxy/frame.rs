//! Frames that pass the proxy, and predicates on them.

use std::{fmt, sync::Arc};

use bytes::Bytes;

/// In place of the name of a command: every call of the library, by a script or by a plain command.
pub const CALL: &str = "CALL";
/// Their commands. The `PUBLISH` behind an `HDEL` is not one.
pub(crate) const CALLS: [&str; 4] = ["EVALSHA", "EVAL", "RESTORE", "HDEL"];

/// A request frame, or a message pushed to a subscriber (`message CHANNEL PAYLOAD`).
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The connection that it passes on; the first one of a proxy has number 1.
    pub connection: u64,
    /// The command, or kind of push, and its arguments.
    pub args: Vec<Bytes>,
}

impl Frame {
    /// The command's name in upper case. The EVALSHA without keys, by which a first connection asks whether
    /// it can renew, has a name of its own: it is no call.
    pub fn command(&self) -> String {
        let name = self.text(0).to_ascii_uppercase();
        match name == "EVALSHA" && self.text(2) == "0" {
            true => "EVALSHA 0".into(),
            false => name,
        }
    }

    /// Argument `index` as text, empty when there is none; 0 is the command.
    pub fn text(&self, index: usize) -> String {
        String::from_utf8_lossy(self.args.get(index).map_or(&[], |arg| arg)).into_owned()
    }

    /// Whether the library called the server: by a script, or by the plain command in place of one.
    pub fn is_call(&self) -> bool {
        CALLS.contains(&&*self.command())
    }

    /// Whether one of the arguments contains `text`.
    pub fn mentions(&self, text: &str) -> bool {
        (1..self.args.len()).any(|index| self.text(index).contains(text))
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.connection)?;
        (0..self.args.len()).try_for_each(|index| write!(f, " {}", self.text(index)))
    }
}

/// The connections to which an operation applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// All connections, also later ones.
    All,
    /// Connections that have sent SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE.
    Subscribers,
    /// Connections that have sent a [`CALL`].
    Scripts,
    /// The connection with this number.
    Connection(u64),
}

/// A predicate on frames.
///
/// The name of a command is a predicate too: `proxy.swallow_reply("EVALSHA", 1)`, and so is
/// [`CALL`].
#[derive(Clone)]
pub struct Matcher {
    test: Arc<dyn Fn(&Frame) -> bool + Send + Sync>,
    name: String,
    which: Which,
}

impl Matcher {
    /// Every frame.
    pub fn any() -> Self {
        Self::when(|_| true)
    }

    /// Frames of this command (or `message`, `smessage`, `pmessage` for pushes).
    pub fn command(name: &str) -> Self {
        let upper = name.to_ascii_uppercase();
        let name = upper.clone();
        Self {
            name,
            ..match &*upper {
                CALL => Self::when(Frame::is_call),
                _ => Self::when(move |frame| frame.command() == upper),
            }
        }
    }

    /// Frames for which the predicate holds.
    pub fn when(test: impl Fn(&Frame) -> bool + Send + Sync + 'static) -> Self {
        Self {
            test: Arc::new(test),
            name: "a predicate".to_owned(),
            which: Which::All,
        }
    }

    /// Narrows this to frames for which the predicate holds as well.
    #[must_use]
    pub fn and(self, test: impl Fn(&Frame) -> bool + Send + Sync + 'static) -> Self {
        let first = self.test;
        Self {
            test: Arc::new(move |frame| first(frame) && test(frame)),
            ..self
        }
    }

    /// Narrows this to frames with an argument that contains `text`.
    #[must_use]
    pub fn mentioning(self, text: impl Into<String>) -> Self {
        let text = text.into();
        let name = format!("{} mentioning {text}", self.name);
        Self {
            name,
            ..self.and(move |frame| frame.mentions(&text))
        }
    }

    /// Narrows this to some of the connections.
    #[must_use]
    pub fn on(self, which: Which) -> Self {
        Self { which, ..self }
    }

    /// Whether it holds for this frame.
    pub fn matches(&self, frame: &Frame) -> bool {
        (self.test)(frame)
    }

    pub(super) fn which(&self) -> Which {
        self.which
    }
}

impl From<&str> for Matcher {
    fn from(command: &str) -> Self {
        Self::command(command)
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {:?}", self.name, self.which)
    }
}
