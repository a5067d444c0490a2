//! Requests: arrays of bulk strings, or inline commands, split off a stream of bytes.

use super::limits::{MAX_BULK_UNKNOWN, MAX_ITEMS, MAX_ITEMS_UNKNOWN, MAX_REQUEST};
use super::num;
use super::resp::Fail;
use bytes::{Buf, BytesMut};
use std::ops::Range;

const MAX_INLINE: usize = 64 * 1024;
const MAX_BULK: i64 = 512 * 1024 * 1024;

/// Finds whole requests in what arrived so far.
///
/// It remembers how far it got, so that a request arriving in many fragments is read once.
#[derive(Debug, Default)]
pub(super) struct Parser {
    buffer: BytesMut,
    /// How far the request at the front has been read.
    position: usize,
    /// Items still missing of the array at the front; none when its header was not read yet.
    missing: Option<usize>,
    /// Length of the item whose header was read already.
    item: Option<usize>,
    items: Vec<Range<usize>>,
    /// Arguments of an inline command: quoting makes them differ from their source.
    inline: Vec<Vec<u8>>,
    /// The client has not given the password yet.
    unknown: bool,
}

impl Parser {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The number of bytes that were not served yet.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the client has yet to give the password: until then less is accepted.
    pub(super) fn set_unknown(&mut self, unknown: bool) {
        self.unknown = unknown;
    }

    /// Looks for the next whole request, and returns its arguments. Call [`Parser::consume`] once it has been
    /// served.
    pub(super) fn find(&mut self) -> Result<Option<Vec<&[u8]>>, Fail> {
        loop {
            let is_whole = match self.buffer.first() {
                None => false,
                Some(b'*') => self.array()?,
                Some(_) => self.inline_command()?,
            };
            if !is_whole {
                return Ok(None);
            }
            if !(self.items.is_empty() && self.inline.is_empty()) {
                break;
            }
            // An empty array or line is skipped.
            self.consume();
        }
        // A request has one of both.
        let items = self.items.iter().map(|at| &self.buffer[at.clone()]);
        Ok(Some(
            items.chain(self.inline.iter().map(Vec::as_slice)).collect(),
        ))
    }

    /// Forgets the request that was found last.
    pub(super) fn consume(&mut self) {
        self.buffer.advance(self.position);
        self.position = 0;
        self.missing = None;
        self.items.clear();
        self.inline.clear();
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_INLINE {
            // One large request must not keep its memory for the life of the connection.
            self.buffer = BytesMut::new();
        }
    }

    /// Reads an array; false when it has not arrived completely.
    fn array(&mut self) -> Result<bool, Fail> {
        if self.missing.is_none() && !self.array_header()? {
            return Ok(false);
        }
        while self.missing != Some(0) {
            if !self.array_item()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the number of items; false when it has not arrived completely.
    fn array_header(&mut self) -> Result<bool, Fail> {
        let Some(line) = self.header("ERR Protocol error: too big mbulk count string")? else {
            return Ok(false);
        };
        let count = num::parse_int(&self.buffer[line])
            .filter(|count| *count <= MAX_ITEMS)
            .ok_or("ERR Protocol error: invalid multibulk length")?;
        if self.unknown && count > MAX_ITEMS_UNKNOWN {
            return Err("ERR Protocol error: unauthenticated multibulk length".into());
        }
        self.missing = Some(usize::try_from(count).unwrap_or(0));
        Ok(true)
    }

    /// Reads one item; false when it has not arrived completely.
    fn array_item(&mut self) -> Result<bool, Fail> {
        let len = match self.item {
            Some(len) => len,
            None => {
                match self.buffer.get(self.position) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => {
                        let mut text = b"ERR Protocol error: expected '$', got '".to_vec();
                        text.push(*other);
                        text.push(b'\'');
                        return Err(text.into());
                    }
                }
                let line = self.header("ERR Protocol error: too big bulk count string")?;
                let Some(line) = line else { return Ok(false) };
                let len = num::parse_int(&self.buffer[line])
                    .filter(|len| *len <= MAX_BULK)
                    .ok_or("ERR Protocol error: invalid bulk length")?;
                if self.unknown && len > MAX_BULK_UNKNOWN {
                    return Err("ERR Protocol error: unauthenticated bulk length".into());
                }
                let len =
                    usize::try_from(len).map_err(|_| "ERR Protocol error: invalid bulk length")?;
                if self.position.saturating_add(len) > MAX_REQUEST {
                    return Err(
                        "ERR Protocol error: the embedded engine takes no request of more \
                                than 64 MiB"
                            .into(),
                    );
                }
                self.item = Some(len);
                len
            }
        };
        let end = self.position + len;
        if self.buffer.len() < end + 2 {
            return Ok(false);
        }
        // The two bytes after an item are not looked at, as in Redis.
        self.items.push(self.position..end);
        self.position = end + 2;
        self.item = None;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// The text between the type byte at the position and the line's end.
    fn header(&mut self, too_long: &'static str) -> Result<Option<Range<usize>>, Fail> {
        let start = self.position + 1;
        let rest = &self.buffer[self.position..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
            return if rest.len() > MAX_INLINE {
                Err(too_long.into())
            } else {
                Ok(None)
            };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        let line = start..self.position + end;
        self.position += end + 2;
        Ok(Some(line))
    }

    /// Reads a line; false when it has not arrived completely.
    fn inline_command(&mut self) -> Result<bool, Fail> {
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return if self.buffer.len() > MAX_INLINE {
                Err("ERR Protocol error: too big inline request".into())
            } else {
                Ok(false)
            };
        };
        let line = &self.buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.inline = split_line(line).ok_or("ERR Protocol error: unbalanced quotes in request")?;
        self.position = end + 1;
        Ok(true)
    }
}

/// Splits a line at blanks, respecting quotes; nothing if the quotes are unbalanced.
fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c);
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(|byte| blank(*byte)).is_some() {}
        if matches!(rest.peek(), None | Some(0)) {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = rest.next_if(|byte| !blank(*byte) && *byte != 0) {
            match byte {
                b'"' | b'\'' => {
                    quoted(byte, &mut rest, &mut word)?;
                    // A closing quote must end the word.
                    if rest.peek().is_some_and(|next| !blank(*next)) {
                        return None;
                    }
                    break;
                }
                _ => word.push(byte),
            }
        }
        words.push(word);
    }
}

fn quoted(
    quote: u8,
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>,
    word: &mut Vec<u8>,
) -> Option<()> {
    loop {
        match rest.next()? {
            byte if byte == quote => return Some(()),
            b'\\' if quote == b'"' => word.push(escaped(rest)?),
            b'\\' if rest.peek() == Some(&b'\'') => word.extend(rest.next()),
            byte => word.push(byte),
        }
    }
}

fn escaped(rest: &mut std::iter::Peekable<impl Iterator<Item = u8> + Clone>) -> Option<u8> {
    let byte = rest.next()?;
    if byte == b'x' {
        let mut ahead = rest.clone();
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        if let (Some(high), Some(low)) = (digit(ahead.next()), digit(ahead.next())) {
            rest.next();
            rest.next();
            return u8::try_from(high * 16 + low).ok();
        }
    }
    Some(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(parser: &mut Parser) -> Result<Vec<Vec<Vec<u8>>>, Fail> {
        let mut requests = Vec::new();
        while let Some(found) = parser.find()? {
            requests.push(found.into_iter().map(<[u8]>::to_vec).collect());
            parser.consume();
        }
        Ok(requests)
    }

    fn parse(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, Fail> {
        let mut parser = Parser::default();
        parser.push(bytes);
        all(&mut parser)
    }

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn arrays_and_inline_commands() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\r\nPING\r\n*0\r\n*1\r\n$0\r\n\r\n";
        assert_eq!(
            parse(bytes).unwrap(),
            vec![words(&["GET", "k"]), words(&["PING"]), words(&[""])]
        );
        let quoted = b"SET \"a\\x41\\n\" 'it\\'s'\r\n";
        assert_eq!(
            parse(quoted).unwrap(),
            vec![words(&["SET", "aA\n", "it's"])]
        );
    }

    #[test]
    fn malformed_requests_are_refused() {
        for (bytes, text) in [
            (
                &b"*x\r\n"[..],
                "ERR Protocol error: invalid multibulk length",
            ),
            (b"*1\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "ERR Protocol error: invalid bulk length"),
            (
                b"*1\r\n$536870913\r\n",
                "ERR Protocol error: invalid bulk length",
            ),
            (
                b"*1048577\r\n",
                "ERR Protocol error: invalid multibulk length",
            ),
            (
                b"*2\r\n$1\r\na\r\n$67108864\r\n",
                "ERR Protocol error: the embedded engine takes no request of more than 64 MiB",
            ),
            (
                b"GET \"k\r\n",
                "ERR Protocol error: unbalanced quotes in request",
            ),
        ] {
            assert_eq!(
                parse(bytes),
                Err(text.into()),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
        let mut unknown = Parser::default();
        unknown.set_unknown(true);
        unknown.push(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n");
        let refusal = "ERR Protocol error: unauthenticated bulk length";
        assert_eq!(unknown.find(), Err(refusal.into()));
        assert!(parse(&vec![b'a'; MAX_INLINE + 1]).is_err());
        assert!(parse(&[b"*".to_vec(), b"1".repeat(MAX_INLINE + 1)].concat()).is_err());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_requests(
            requests in proptest::collection::vec(
                proptest::collection::vec(any::<Vec<u8>>(), 1..5), 0..5),
            cuts in proptest::collection::vec(0_usize..64, 0..20),
        ) {
            let mut bytes = Vec::new();
            for request in &requests {
                bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
                for item in request {
                    bytes.extend_from_slice(format!("${}\r\n", item.len()).as_bytes());
                    bytes.extend_from_slice(item);
                    bytes.extend_from_slice(b"\r\n");
                }
            }
            let mut parser = Parser::default();
            let mut got = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                parser.push(head);
                got.extend(all(&mut parser).unwrap());
                rest = tail;
            }
            parser.push(rest);
            got.extend(all(&mut parser).unwrap());
            prop_assert_eq!(got, requests);
        }

        #[test]
        fn any_bytes_in_any_split_are_survived(
            chunks in proptest::collection::vec(
                proptest::collection::vec(
                    prop_oneof![any::<u8>(), Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'),
                        Just(b'1'), Just(b'"')],
                    0..40),
                0..10),
        ) {
            let whole = parse(&chunks.concat());
            let mut parser = Parser::default();
            let mut got = Ok(Vec::new());
            for chunk in &chunks {
                parser.push(chunk);
                match (all(&mut parser), &mut got) {
                    (Ok(more), Ok(requests)) => requests.extend(more),
                    (Err(fail), _) => { got = Err(fail); break }
                    _ => {}
                }
            }
            prop_assert_eq!(got, whole);
        }
    }
}
