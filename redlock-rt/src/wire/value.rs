//! The reply of a server to any command.

use crate::name::Shown;

/// A reply in the types of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    /// The status `OK`, which takes no memory.
    Okay,
    Int(i64),
    /// A string, or another status.
    Text(Vec<u8>),
    List(Vec<Self>),
    Error(ServerError),
}

/// An error reply: a code, followed by a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", Shown(.0))]
pub(crate) struct ServerError(String);

impl Value {
    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// The text of a string, or of a number.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Text(bytes) => String::from_utf8(bytes.clone()).ok(),
            Self::Int(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

impl ServerError {
    /// Redis quotes the words of a command that it does not know: of `AUTH`, the password.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(
            text.find(", with args beginning with")
                .unwrap_or(text.len()),
        );
        Self(text)
    }

    pub(crate) fn code(&self) -> &str {
        self.split().0
    }

    pub(crate) fn detail(&self) -> &str {
        self.split().1
    }

    /// The code of the real error. Before Redis 7, an error inside a script has the code ERR, and its own
    /// code follows the position: `… @user_script: 12: -READONLY You can't …`.
    pub(crate) fn true_code(&self) -> &str {
        let (code, detail) = self.split();
        let inside = match detail.rsplit_once("@user_script") {
            Some((_, inside)) if code == "ERR" => inside,
            _ => return code,
        };
        let place = |c: char| c == ':' || c == ' ' || c.is_ascii_digit();
        let text = inside.trim_start_matches(place);
        let word = text.strip_prefix('-').unwrap_or(text).split(' ').next();
        let is_code = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
        word.filter(is_code).unwrap_or(code)
    }

    fn split(&self) -> (&str, &str) {
        self.0.split_once(' ').unwrap_or((&self.0, ""))
    }
}
