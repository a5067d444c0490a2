//! Replies on the wire: equal frames are equal bytes.

use std::fmt;
use std::str::FromStr;

/// One reply. `kind` is its first byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) body: Body,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Body {
    Line(Vec<u8>),
    Bulk(Vec<u8>),
    /// `$-1` or `*-1`, by the kind.
    Nil,
    Items(Vec<Frame>),
}

impl Frame {
    /// Takes a frame off the front; also returns its length. `None` while it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (kind, line) = (bytes[0], &bytes[1..end]);
        let mut at = end + 2;
        let length = || std::str::from_utf8(line).unwrap().parse::<i64>().unwrap();
        let body = match kind {
            b'$' => match usize::try_from(length()) {
                Err(_) => Body::Nil,
                Ok(len) => {
                    let text = bytes.get(at..at + len + 2)?;
                    at += len + 2;
                    Body::Bulk(text[..len].to_vec())
                }
            },
            b'*' => match usize::try_from(length()) {
                Err(_) => Body::Nil,
                Ok(len) => {
                    let mut items = Vec::new();
                    for _ in 0..len {
                        let (item, len) = Self::parse(bytes.get(at..)?)?;
                        items.push(item);
                        at += len;
                    }
                    Body::Items(items)
                }
            },
            b'-' => Body::Line(line.trim_ascii_end().to_vec()),
            _ => Body::Line(line.to_vec()),
        };
        Some((Self { kind, body }, at))
    }

    /// The same without the note that the engine adds for a missing command.
    pub(crate) fn without_note(mut self) -> Self {
        const NOTE: &str = " (the embedded engine has no '";
        let text = match &mut self.body {
            Body::Line(text) | Body::Bulk(text) => text,
            Body::Items(items) => {
                *items = items.drain(..).map(Self::without_note).collect();
                return self;
            }
            Body::Nil => return self,
        };
        let mut windows = text.windows(NOTE.len());
        if let Some(start) = windows.position(|window| window == NOTE.as_bytes()) {
            // The last `')` ends the note: the name of the command may hold others.
            let end = text.windows(2).rposition(|pair| pair == b"')").unwrap() + 2;
            text.drain(start..end);
            *text = text.trim_ascii_end().to_vec();
        }
        self
    }

    pub(crate) fn is_error(&self) -> bool {
        self.kind == b'-'
    }

    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.body {
            Body::Items(items) => Some(items),
            _ => None,
        }
    }

    /// The number in a reply of any type.
    pub(crate) fn number<T: FromStr>(&self) -> Option<T> {
        match &self.body {
            Body::Line(text) | Body::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The same with the items of collections in one fixed order, taken in groups of `group`.
    pub(crate) fn sorted(&self, group: usize) -> Self {
        let Body::Items(items) = &self.body else {
            return self.clone();
        };
        let mut groups: Vec<&[Self]> = items.chunks(group).collect();
        groups.sort();
        Self {
            kind: self.kind,
            body: Body::Items(groups.concat()),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = char::from(self.kind);
        match &self.body {
            Body::Line(text) => write!(f, "{kind}{}", text.escape_ascii()),
            Body::Bulk(text) => write!(f, "{kind}\"{}\"", text.escape_ascii()),
            Body::Nil => write!(f, "{kind}nil"),
            Body::Items(items) => {
                write!(f, "{kind}")?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &[u8]) -> Frame {
        let body = Body::Line(text.to_vec());
        Frame { kind: b'-', body }
    }

    #[test]
    fn a_note_is_taken_out_whole_where_the_name_holds_a_quote_and_a_bracket() {
        let note = b"ERR unknown command 'a')b' (the embedded engine has no 'a')b')";
        let expected = error(b"ERR unknown command 'a')b'");
        assert_eq!(error(note).without_note(), expected);
    }

    #[test]
    fn what_follows_a_note_stays() {
        let note = b"ERR unknown (the embedded engine has no 'a'), on @user_script:1.";
        let expected = error(b"ERR unknown, on @user_script:1.");
        assert_eq!(error(note).without_note(), expected);
    }
}
