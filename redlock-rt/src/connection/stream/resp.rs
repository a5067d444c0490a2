//! Replies as they come from a server, in RESP2.
//!
//! The client library collects a reply of any announced length until it is complete, and accepts all
//! types of RESP3. So a broken server could make it collect without end.
//!
//! # Invariants
//!
//! 1. No byte is read twice, in however many parts a reply comes.
//! 2. Memory is allocated for received bytes, not for announced lengths.

use crate::connection::fault::Fault;
use crate::wire::{Reply, ServerError, Value};

/// Why bytes are not what a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::connection) enum Nonsense {
    #[error("a reply that begins with the byte {0:#04x}")]
    Type(u8),
    #[error("a number or a length that is none")]
    Number,
    #[error("a status or an error that is no text")]
    Text,
    #[error("a line or a string that does not end as one")]
    LineEnd,
    #[error("a line of more than {LONGEST_LINE} bytes")]
    Line,
    #[error("a reply of more than {LONGEST_REPLY} bytes")]
    Bytes,
    #[error("a reply of more than {MOST_ITEMS} items")]
    Items,
    #[error("a reply of more than {DEEPEST} arrays within each other")]
    Depth,
    #[error("a reply to nothing")]
    Unasked,
}

/// The longest reply in bytes.
const LONGEST_REPLY: usize = 16 * 1024 * 1024;
/// The most items of a reply, in all of its arrays together. In memory each takes some thirty bytes.
const MOST_ITEMS: usize = 256 * 1024;
/// The deepest nesting of arrays.
const DEEPEST: usize = 32;
/// The longest status, error or number.
const LONGEST_LINE: usize = 64 * 1024;
/// With a sign, and with the line end.
const MOST_DIGITS: usize = 22;
/// Room for this many items of an array is allocated at once.
const USUAL_ITEMS: usize = 4;

/// Reads the replies of a stream, one after the other.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The received part of the line or the string in progress.
    part: Vec<u8>,
    /// The length of the string in progress, with its line end.
    string: Option<usize>,
    /// The arrays in progress, the outermost first.
    arrays: Vec<Array>,
    /// The size of the current reply.
    bytes: usize,
    items: usize,
}

#[derive(Debug)]
struct Array {
    missing: usize,
    items: Vec<Value>,
}

impl Reader {
    /// Whether the next byte is the first of a reply.
    pub(super) fn is_between(&self) -> bool {
        self.bytes == 0
    }

    /// Takes the bytes of the current reply, as far as they are there. After an error the stream is
    /// useless.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Value>, Nonsense> {
        while !bytes.is_empty() {
            let before = bytes.len();
            let item = match self.string {
                None => self.line(bytes)?,
                Some(len) => self.content(len, bytes)?,
            };
            self.bytes += before - bytes.len();
            if self.bytes > LONGEST_REPLY {
                return Err(Nonsense::Bytes);
            }
            if let Some(reply) = item.and_then(|item| self.ended(item)) {
                (self.bytes, self.items) = (0, 0);
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// An item, if it ends with this line.
    fn line(&mut self, bytes: &mut &[u8]) -> Result<Option<Value>, Nonsense> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.part.extend_from_slice(std::mem::take(bytes));
            return kind(&self.part).map(|_| None);
        };
        let line = &bytes[..end];
        *bytes = &bytes[end + 1..];
        if self.part.is_empty() {
            return self.whole_line(line);
        }
        let mut part = std::mem::take(&mut self.part);
        part.extend_from_slice(line);
        self.whole_line(&part)
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<Option<Value>, Nonsense> {
        let kind = kind(line)?;
        let text = line[1..].strip_suffix(b"\r").ok_or(Nonsense::LineEnd)?;
        Ok(Some(match (kind, text) {
            (b'+', b"OK") => Value::Okay,
            (b'+', _) if str::from_utf8(text).is_ok() => Value::Text(text.to_vec()),
            (b'+', _) => return Err(Nonsense::Text),
            (b'-', _) => error(text)?,
            (b':', _) => Value::Int(number(text)?),
            // The length of a string or an array.
            (_, b"-1") => Value::Nil,
            (b'$', _) => return self.string(length(text)?),
            _ => return self.array(length(text)?),
        }))
    }

    fn string(&mut self, len: usize) -> Result<Option<Value>, Nonsense> {
        // The header and the line end are bytes of the reply too.
        if len >= LONGEST_REPLY - self.bytes {
            return Err(Nonsense::Bytes);
        }
        self.string = Some(len + 2);
        Ok(None)
    }

    /// A string, if its end is there.
    fn content(&mut self, len: usize, bytes: &mut &[u8]) -> Result<Option<Value>, Nonsense> {
        let (here, behind) = bytes.split_at(bytes.len().min(len - self.part.len()));
        *bytes = behind;
        self.part.extend_from_slice(here);
        if self.part.len() < len {
            return Ok(None);
        }
        self.string = None;
        let mut text = std::mem::take(&mut self.part);
        if !text.ends_with(b"\r\n") {
            return Err(Nonsense::LineEnd);
        }
        text.truncate(len - 2);
        Ok(Some(Value::Text(text)))
    }

    fn array(&mut self, missing: usize) -> Result<Option<Value>, Nonsense> {
        self.items = self.items.saturating_add(missing);
        if self.items > MOST_ITEMS {
            return Err(Nonsense::Items);
        }
        let items = Vec::with_capacity(missing.min(USUAL_ITEMS));
        if missing == 0 {
            return Ok(Some(Value::List(items)));
        }
        if self.arrays.len() == DEEPEST {
            return Err(Nonsense::Depth);
        }
        self.arrays.push(Array { missing, items });
        Ok(None)
    }

    /// The reply, if it ends with this item.
    fn ended(&mut self, mut item: Value) -> Option<Value> {
        while let Some(array) = self.arrays.last_mut() {
            array.items.push(item);
            array.missing -= 1;
            if array.missing > 0 {
                return None;
            }
            item = Value::List(self.arrays.pop()?.items);
        }
        Some(item)
    }
}

/// The type of an item, by the start of its line.
fn kind(line: &[u8]) -> Result<u8, Nonsense> {
    let kind = *line.first().ok_or(Nonsense::Type(b'\n'))?;
    let (longest, longer) = match kind {
        b'+' | b'-' => (LONGEST_LINE, Nonsense::Line),
        b':' | b'$' | b'*' => (MOST_DIGITS, Nonsense::Number),
        _ => return Err(Nonsense::Type(kind)),
    };
    match line.len() - 1 <= longest {
        true => Ok(kind),
        false => Err(longer),
    }
}

fn number(digits: &[u8]) -> Result<i64, Nonsense> {
    let digits = str::from_utf8(digits).map_err(|_| Nonsense::Number)?;
    digits.parse().map_err(|_| Nonsense::Number)
}

fn length(digits: &[u8]) -> Result<usize, Nonsense> {
    usize::try_from(number(digits)?).map_err(|_| Nonsense::Number)
}

/// Redis quotes the words of a command in an error, and cuts them at any byte.
fn error(text: &[u8]) -> Result<Value, Nonsense> {
    let error = ServerError::new(String::from_utf8_lossy(text));
    match error.code().contains(char::REPLACEMENT_CHARACTER) {
        true => Err(Nonsense::Text),
        false => Ok(Value::Error(error)),
    }
}

/// The reply of a script, or of a command in its place.
pub(in crate::connection) fn reply(value: Value) -> Result<Reply, Fault> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Okay => Reply::Text("OK".into()),
        Value::Int(number) => Reply::Int(number),
        Value::Text(bytes) => Reply::Text(String::from_utf8(bytes).map_err(Fault::unreadable)?),
        Value::List(items) => Reply::List(items.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::Error(error) => return Err(Fault::from_part(error)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The replies, read in parts of this many bytes, and the bytes of the last that is not whole.
    fn in_parts(bytes: &[u8], part: usize) -> Result<(Vec<Value>, usize), Nonsense> {
        let mut reader = Reader::default();
        let mut replies = Vec::new();
        for mut rest in bytes.chunks(part) {
            while !rest.is_empty() {
                replies.extend(reader.read(&mut rest)?);
            }
        }
        Ok((replies, reader.bytes))
    }

    #[track_caller]
    fn assert_read(bytes: &[u8], expected: &Result<Vec<Value>, Nonsense>) {
        for part in [bytes.len(), 1, 2, 3] {
            let read = in_parts(bytes, part).map(|(replies, rest)| {
                assert_eq!(rest, 0);
                replies
            });
            let shown = bytes[..bytes.len().min(60)].escape_ascii();
            assert_eq!(&read, expected, "{shown} by {part}");
        }
    }

    /// The value of one reply.
    #[track_caller]
    fn value(bytes: &[u8]) -> Value {
        let (mut replies, rest) = in_parts(bytes, bytes.len()).unwrap();
        assert_eq!((replies.len(), rest), (1, 0), "{}", bytes.escape_ascii());
        replies.remove(0)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    /// The same value of the client library.
    fn theirs(value: redis::Value) -> Value {
        use redis::Value as Theirs;
        let all = |items: Vec<Theirs>| items.into_iter().map(theirs).collect();
        match value {
            Theirs::Nil => Value::Nil,
            Theirs::Okay => Value::Okay,
            Theirs::Int(number) => Value::Int(number),
            Theirs::BulkString(bytes) => Value::Text(bytes),
            Theirs::SimpleString(status) => text(&status),
            Theirs::Array(items) => Value::List(all(items)),
            Theirs::ServerError(error) => {
                let detail = error.details().map(|detail| format!(" {detail}"));
                let said = error.code().to_owned() + &detail.unwrap_or_default();
                Value::Error(ServerError::new(said))
            }
            other => panic!("{other:?} is not of RESP2"),
        }
    }

    #[test]
    fn replies_are_what_the_client_library_reads() {
        let frames = [
            "+OK\r\n",
            "+OKAY\r\n",
            "+\r\n",
            "+a\rb\r\n",
            ":0\r\n",
            ":-1\r\n",
            ":9223372036854775807\r\n",
            ":-9223372036854775808\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "$5\r\n\r\n*\r\n\r\n",
            "$3\r\n\u{20ac}\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n$-1\r\n$2\r\nab\r\n",
            "*2\r\n*2\r\n:1\r\n$-1\r\n*0\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:5\r\n",
            "*2\r\n+OK\r\n-ERR no\r\n",
            "*2\r\n+QUEUED\r\n:7\r\n",
            "-BUSYKEY Target key name already exists.\r\n",
            "-NOSCRIPT No matching script.\r\n",
            "-NOPERM\r\n",
            "-\r\n",
        ];
        let values =
            frames.map(|frame| theirs(redis::parse_redis_value(frame.as_bytes()).unwrap()));
        for (frame, value) in frames.iter().zip(&values) {
            assert_read(frame.as_bytes(), &Ok(vec![value.clone()]));
        }
        assert_read(frames.concat().as_bytes(), &Ok(values.into()));
    }

    #[test]
    fn what_no_server_of_resp2_sends_is_nonsense() {
        use super::Nonsense::*;
        for (bytes, why) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Type(b'H')),
            (b"*1\r\n\r\n", Type(b'\r')),
            (b"\n", Type(b'\n')),
            (b"*1\r\n_\r\n", Type(b'_')),
            (b":\r\n", Number),
            (b":-\r\n", Number),
            (b":1.5\r\n", Number),
            (b":1 \r\n", Number),
            (b":--1\r\n", Number),
            (b":9223372036854775808\r\n", Number),
            (b":00000000000000000000000000001\r\n", Number),
            (b"$-2\r\n", Number),
            (b"*-2\r\n", Number),
            (b"*x\r\n", Number),
            (b"+\xff\r\n", Text),
            (b"-\xff\xfe\r\n", Text),
            (b"+a\nb\r\n", LineEnd),
            (b":1\n", LineEnd),
            (b":1\r1\n", LineEnd),
            (b"$1\r\nab\r\n", LineEnd),
            (b"$9223372036854775807\r\n", Bytes),
            (b"*2147483647\r\n", Items),
            (b"*9223372036854775807\r\n", Items),
        ] {
            assert_read(bytes, &Err(why));
        }
    }

    #[test]
    fn an_error_that_quotes_half_a_character_keeps_its_code() {
        let Value::Error(error) = value(b"-WRONGPASS \xe2\x82 is none\r\n") else {
            panic!("it is an error");
        };
        assert_eq!(error.code(), "WRONGPASS");
    }

    // Their numbers are promised in docs/faults.md, so they are not those of the constants here.

    #[test]
    fn arrays_are_at_most_32_deep() {
        let deep = |depth| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        assert!(in_parts(&deep(32), 3).is_ok());
        assert_read(&deep(33), &Err(Nonsense::Depth));
    }

    #[test]
    fn a_reply_has_at_most_262_144_items() {
        let mut wide = b"*262144\r\n".to_vec();
        wide.extend(b":1\r\n".repeat(262_144));
        let read = in_parts(&wide, 4096);
        assert_eq!(
            read,
            Ok((vec![Value::List(vec![Value::Int(1); 262_144])], 0))
        );
        for many in [&b"*262145\r\n"[..], b"*2\r\n*262143\r\n"] {
            assert_read(many, &Err(Nonsense::Items));
        }
    }

    /// Arrays within each other may be announced often.
    #[test]
    fn items_that_are_only_announced_take_no_memory() {
        let mut reader = Reader::default();
        let announced = b"*8192\r\n".repeat(31);
        assert_eq!(reader.read(&mut &announced[..]), Ok(None));
        let room = reader.arrays.iter().map(|array| array.items.capacity());
        assert!(room.sum::<usize>() <= 31 * 4);
        let mut reader = Reader::default();
        assert_eq!(reader.read(&mut &b"$16000000\r\nx"[..]), Ok(None));
        assert!(reader.part.capacity() < 100);
    }

    #[test]
    fn a_line_has_at_most_64_kib() {
        for kind in *b"+-" {
            // The carriage return counts.
            let line = |len: usize| [&[kind][..], &vec![b'a'; len - 1], b"\r\n"].concat();
            assert!(in_parts(&line(65_536), 4096).is_ok());
            assert_eq!(in_parts(&line(65_537), 4096), Err(Nonsense::Line));
            let endless = [kind].into_iter().chain([b'a'; 65_537]);
            assert_read(&endless.collect::<Vec<_>>(), &Err(Nonsense::Line));
        }
    }

    #[test]
    fn a_reply_has_at_most_16_mib() {
        let whole = 16 * 1024 * 1024;
        let string = |len: usize| {
            let header = format!("${len}\r\n").into_bytes();
            [header, vec![b'x'; len], b"\r\n".to_vec()].concat()
        };
        // The header has eleven bytes, and the string ends in two more.
        let longest = string(whole - 13);
        assert_eq!(longest.len(), whole);
        let too_long = |bytes: &[u8]| in_parts(bytes, 64 * 1024) == Err(Nonsense::Bytes);
        assert!(in_parts(&longest, 64 * 1024).is_ok());
        assert!(too_long(&string(whole - 12)));
        // By its header alone.
        assert_read(b"$16777216\r\n", &Err(Nonsense::Bytes));
        // Strings that are short enough by themselves.
        assert!(too_long(
            &[b"*100\r\n".to_vec(), string(1024 * 1024).repeat(17)].concat()
        ));
        let line = format!("+{}\r\n", "a".repeat(100)).into_bytes();
        assert!(too_long(
            &[b"*262144\r\n".to_vec(), line.repeat(262_144)].concat()
        ));
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            "[ -~]{0,20}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            Just(b"+OK\r\n".to_vec()),
            Just(b"$-1\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..30).prop_map(|text| {
                let head = format!("${}\r\n", text.len());
                [head.as_bytes(), &text, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop::collection::vec(inner, 0..6).prop_map(|items| {
                let head = format!("*{}\r\n", items.len());
                [head.into_bytes(), items.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn any_replies_in_any_parts_are_what_the_client_library_reads(
            replies in prop::collection::vec(any_reply(), 1..4),
            part in 1_usize..20,
        ) {
            let bytes = replies.concat();
            let values = replies.iter().map(|reply| theirs(redis::parse_redis_value(reply).unwrap()));
            prop_assert_eq!(in_parts(&bytes, part), Ok((values.collect(), 0)));
        }

        /// A stream cut short, or with other bytes in it, is never another value.
        #[test]
        fn bytes_that_are_no_reply_are_none_of_the_client_library(
            reply in any_reply(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let at = at.index(reply.len());
            let cut = in_parts(&reply[..at], 7);
            prop_assert_eq!(cut, Ok((Vec::new(), at)));
            let mut other = reply;
            other[at] = byte;
            let mut rest = &other[..];
            if let Ok(Some(value)) = Reader::default().read(&mut rest) {
                let read = &other[..other.len() - rest.len()];
                prop_assert_eq!(value, theirs(redis::parse_redis_value(read).unwrap()));
            }
        }

        #[test]
        fn any_bytes_are_the_same_in_any_parts(
            bytes in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(&b"*$+:-\r\n0123a"[..]),
                    any::<u8>(),
                ],
                1..60,
            ),
            part in 1_usize..20,
        ) {
            let at_once = in_parts(&bytes, bytes.len());
            let in_parts = in_parts(&bytes, part);
            prop_assert_eq!(in_parts.is_ok(), at_once.is_ok());
            if at_once.is_ok() {
                prop_assert_eq!(in_parts, at_once);
            }
        }
    }
}
