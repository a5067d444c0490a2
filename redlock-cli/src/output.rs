//! Output: lines for people, or objects for programs.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use crate::exit::Failure;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints the names of columns, for people.
    pub(crate) fn head(self, text: &str) -> io::Result<()> {
        match self.json {
            true => Ok(()),
            false => writeln!(io::stdout(), "{text}"),
        }
    }

    /// Prints the object, or the line with the same content for people.
    pub(crate) fn say(self, object: &impl Serialize, line: impl AsRef<str>) -> io::Result<()> {
        self.say_lines(object, plain(line.as_ref()))
    }

    /// The same with several lines, or with colours. Foreign text in them must be [`plain`].
    pub(crate) fn say_lines(
        self,
        object: &impl Serialize,
        lines: impl AsRef<str>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.json {
            true => serde_json::to_writer(&mut out, object)?,
            false => out.write_all(lines.as_ref().as_bytes())?,
        }
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Prints to standard error why the program ends.
    pub(crate) fn failure(self, failure: &Failure) {
        let line = match self.json {
            true => json!({ "error": failure.message, "exit": failure.code.0 }).to_string(),
            false => format!("redlock: {}", plain(&failure.message)),
        };
        // If standard error is closed, no one can be told.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Names and holders come from Redis, so they may contain anything, such as codes for the terminal.
pub(crate) fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        // These characters change the direction of the text that follows.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            c.escape_default().to_string()
        }
        _ if c.is_control() => c.escape_default().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Prints a line to standard error, so that programs that read the output do not see it.
pub(crate) fn warn(line: &str) {
    let _ = writeln!(io::stderr(), "redlock: {}", plain(line));
}
