//! The limits of what a stream may contain: RESP2 is followed byte by byte, and none of it is kept.
//!
//! The client library collects a reply until it is complete, however long it says it is, and
//! accepts all types of RESP3. So a broken server could make it collect without end.

/// Why bytes are not what a server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::connection) enum Nonsense {
    #[error("a reply that begins with the byte {0:#04x}")]
    Type(u8),
    #[error("a reply of a type of RESP3, which was not asked for: {:?}", char::from(*.0))]
    Resp3(u8),
    #[error("a number or a length that is none")]
    Number,
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
pub(super) const LONGEST_REPLY: usize = 16 * 1024 * 1024;
/// The most items of a reply, in all of its arrays together. In memory each takes some fifty bytes.
pub(super) const MOST_ITEMS: usize = 256 * 1024;
/// The most arrays within each other.
pub(super) const DEEPEST: usize = 32;
/// The longest status, error or number.
pub(super) const LONGEST_LINE: usize = 64 * 1024;
/// With a sign, and with what ends the line.
const MOST_DIGITS: usize = 22;

/// Follows the frames of a stream, one after the other.
#[derive(Debug)]
pub(super) struct Frames {
    at: At,
    /// The number of items still to come in each array, the outermost first.
    missing: Vec<usize>,
    /// Of the current frame.
    bytes: usize,
    items: usize,
    /// Pushes, maps and nulls of RESP3, which was asked for, are read too.
    pub(super) resp3: bool,
}

/// The position in an item.
#[derive(Debug, Clone, Copy)]
enum At {
    Type,
    Line(Line),
    /// The content of a string.
    Content(usize),
    /// The line end behind it; this many bytes are missing.
    LineEnd(usize),
}

/// A status, an error, a number, or the header of a string or an array.
#[derive(Debug, Clone, Copy)]
struct Line {
    kind: u8,
    len: usize,
    /// The last byte was a carriage return.
    returned: bool,
    number: Number,
}

impl Line {
    fn add(&mut self, text: &[u8]) -> Result<(), Nonsense> {
        if !matches!(self.kind, b'+' | b'-') {
            for byte in text {
                if self.returned {
                    return Err(Nonsense::Number);
                }
                match *byte {
                    b'\r' => self.returned = true,
                    byte => self.number.add(byte, self.len == 0)?,
                }
                self.len += 1;
            }
            return match self.len {
                0..=MOST_DIGITS => Ok(()),
                _ => Err(Nonsense::Number),
            };
        }
        if let Some(last) = text.last() {
            self.returned = *last == b'\r';
        }
        self.len += text.len();
        Ok(())
    }
}

/// A decimal number in progress.
#[derive(Debug, Clone, Copy, Default)]
struct Number {
    negative: bool,
    digits: bool,
    /// Negative numbers reach further, so all are kept as those.
    value: i64,
}

impl Number {
    fn add(&mut self, byte: u8, first: bool) -> Result<(), Nonsense> {
        match byte {
            b'-' if first => self.negative = true,
            b'0'..=b'9' => {
                let value = self.value.checked_mul(10);
                let value = value.and_then(|value| value.checked_sub(i64::from(byte - b'0')));
                self.value = value.ok_or(Nonsense::Number)?;
                self.digits = true;
            }
            _ => return Err(Nonsense::Number),
        }
        Ok(())
    }

    fn value(self) -> Result<i64, Nonsense> {
        let value = match self.negative {
            true => Some(self.value),
            false => self.value.checked_neg(),
        };
        value.filter(|_| self.digits).ok_or(Nonsense::Number)
    }
}

impl Frames {
    pub(super) fn new() -> Self {
        Self {
            at: At::Type,
            missing: Vec::new(),
            bytes: 0,
            items: 0,
            resp3: false,
        }
    }

    /// Follows `bytes` to the end of the current frame, or as far as they go. Returns how many
    /// belong to the frame, and whether it ended.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<(usize, bool), Nonsense> {
        // The replies of nearly all calls.
        let usual = match bytes {
            [b'+', b'O', b'K', b'\r', b'\n', ..] => 5,
            [b':', b'0'..=b'9', b'\r', b'\n', ..] => 4,
            _ => 0,
        };
        if usual > 0 && self.is_between() {
            return Ok((usual, true));
        }
        let mut used = 0;
        while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
            let (step, item_ended) = self.step(rest)?;
            used += step;
            self.bytes += step;
            if self.bytes > LONGEST_REPLY {
                return Err(Nonsense::Bytes);
            }
            if item_ended && self.item_ended() {
                self.bytes = 0;
                self.items = 0;
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    /// Whether the next byte is the first of a frame.
    fn is_between(&self) -> bool {
        matches!(self.at, At::Type) && self.bytes == 0
    }

    /// Returns the number of bytes used, at least one, and whether an item ended that is no array
    /// with items.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, bool), Nonsense> {
        let first = bytes[0];
        match self.at {
            At::Type => {
                match first {
                    b'+' | b'-' | b':' | b'$' | b'*' => {}
                    b'_' | b'%' | b'>' if self.resp3 => {}
                    b'_' | b',' | b'#' | b'!' | b'=' | b'(' | b'%' | b'|' | b'~' | b'>' => {
                        return Err(Nonsense::Resp3(first));
                    }
                    _ => return Err(Nonsense::Type(first)),
                }
                let line = Line {
                    kind: first,
                    len: 0,
                    returned: false,
                    number: Number::default(),
                };
                let (used, ended) = self.line(&bytes[1..], line)?;
                Ok((used + 1, ended))
            }
            At::Line(line) => self.line(bytes, line),
            At::Content(left) => {
                let take = left.min(bytes.len());
                if left == take && bytes[take..].starts_with(b"\r\n") {
                    self.at = At::Type;
                    return Ok((take + 2, true));
                }
                self.at = match left - take {
                    0 => At::LineEnd(2),
                    left => At::Content(left),
                };
                Ok((take, false))
            }
            At::LineEnd(left) => {
                if first != [b'\n', b'\r'][left - 1] {
                    return Err(Nonsense::LineEnd);
                }
                self.at = match left - 1 {
                    0 => At::Type,
                    left => At::LineEnd(left),
                };
                Ok((1, left == 1))
            }
        }
    }

    fn line(&mut self, bytes: &[u8], mut line: Line) -> Result<(usize, bool), Nonsense> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let text = &bytes[..end.unwrap_or(bytes.len())];
        line.add(text)?;
        if line.len > LONGEST_LINE {
            return Err(Nonsense::Line);
        }
        let Some(end) = end else {
            self.at = At::Line(line);
            return Ok((bytes.len(), false));
        };
        if !line.returned {
            return Err(Nonsense::LineEnd);
        }
        self.at = At::Type;
        let ended = match line.kind {
            b'$' => self.string(line.number.value()?)?,
            b'*' | b'>' => self.array(line.number.value()?)?,
            // Of pairs.
            b'%' => self.array(line.number.value()?.saturating_mul(2))?,
            b':' => line.number.value().map(|_| true)?,
            _ => true,
        };
        Ok((end + 1, ended))
    }

    fn string(&mut self, len: i64) -> Result<bool, Nonsense> {
        if len == -1 {
            return Ok(true);
        }
        let len = usize::try_from(len).map_err(|_| Nonsense::Number)?;
        // The header and the line end are bytes of the reply too.
        if len >= LONGEST_REPLY - self.bytes.min(LONGEST_REPLY) {
            return Err(Nonsense::Bytes);
        }
        self.at = match len {
            0 => At::LineEnd(2),
            len => At::Content(len),
        };
        Ok(false)
    }

    fn array(&mut self, len: i64) -> Result<bool, Nonsense> {
        if len == -1 || len == 0 {
            return Ok(true);
        }
        let len = usize::try_from(len).map_err(|_| Nonsense::Number)?;
        self.items = self.items.saturating_add(len);
        if self.items > MOST_ITEMS {
            return Err(Nonsense::Items);
        }
        if self.missing.len() == DEEPEST {
            return Err(Nonsense::Depth);
        }
        self.missing.push(len);
        Ok(false)
    }

    /// Returns whether the frame ended with the item.
    fn item_ended(&mut self) -> bool {
        while let Some(missing) = self.missing.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.missing.pop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lengths of the frames, read in pieces of this many bytes.
    fn in_pieces(bytes: &[u8], piece: usize) -> Result<Vec<usize>, Nonsense> {
        let mut frames = Frames::new();
        let (mut lengths, mut length) = (Vec::new(), 0);
        for mut rest in bytes.chunks(piece) {
            while !rest.is_empty() {
                let (used, ended) = frames.follow(rest)?;
                length += used;
                rest = &rest[used..];
                if ended {
                    lengths.push(std::mem::take(&mut length));
                }
            }
        }
        assert_eq!(frames.bytes, length);
        Ok(lengths)
    }

    #[track_caller]
    fn assert_frames(bytes: &[u8], expected: &Result<Vec<usize>, Nonsense>) {
        for piece in [bytes.len().max(1), 1, 2, 3] {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
            assert_eq!(&in_pieces(bytes, piece), expected, "{shown:?} by {piece}");
        }
    }

    #[test]
    fn frames_end_where_they_end() {
        let whole: [&[u8]; 14] = [
            b"+OK\r\n",
            b"+\r\n",
            b"+a\rb\r\n",
            b"-ERR no\r\n",
            b":0\r\n",
            b":-9223372036854775808\r\n",
            b":9223372036854775807\r\n",
            b"$0\r\n\r\n",
            b"$5\r\n\r\n*\r\n\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"*2\r\n*2\r\n:1\r\n$-1\r\n*0\r\n",
            b"*1\r\n*1\r\n*1\r\n+x\r\n",
        ];
        for frame in whole {
            assert_frames(frame, &Ok(vec![frame.len()]));
        }
        let lengths = whole.iter().map(|frame| frame.len()).collect();
        assert_frames(&whole.concat(), &Ok(lengths));
    }

    #[test]
    fn what_no_server_of_resp2_sends_is_nonsense() {
        use super::Nonsense::*;
        for (bytes, why) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Type(b'H')),
            (b"*1\r\n\r\n", Type(b'\r')),
            (b">2\r\n+a\r\n+b\r\n", Resp3(b'>')),
            (b"*1\r\n_\r\n", Resp3(b'_')),
            (b":\r\n", Number),
            (b":-\r\n", Number),
            (b":1.5\r\n", Number),
            (b":1 \r\n", Number),
            (b":--1\r\n", Number),
            (b":9223372036854775808\r\n", Number),
            (b":00000000000000000000000000001\r\n", Number),
            (b":1\r1\n", Number),
            (b"$-2\r\n", Number),
            (b"*-2\r\n", Number),
            (b"*x\r\n", Number),
            (b"+a\nb\r\n", LineEnd),
            (b":1\n", LineEnd),
            (b"$1\r\nab\r\n", LineEnd),
            (b"$9223372036854775807\r\n", Bytes),
            (b"*2147483647\r\n", Items),
            (b"*9223372036854775807\r\n", Items),
        ] {
            assert_frames(bytes, &Err(why));
        }
    }

    // Their numbers are promised in docs/faults.md, so they are not those of the constants here.

    #[test]
    fn arrays_are_at_most_32_deep() {
        let deep = |depth| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        assert_frames(&deep(32), &Ok(vec![deep(32).len()]));
        assert_frames(&deep(33), &Err(Nonsense::Depth));
    }

    #[test]
    fn a_reply_has_at_most_262_144_items() {
        let mut wide = b"*262144\r\n".to_vec();
        wide.extend(b":1\r\n".repeat(262_144));
        assert_eq!(in_pieces(&wide, 4096), Ok(vec![wide.len()]));
        for many in [&b"*262145\r\n"[..], b"*2\r\n*262143\r\n"] {
            assert_frames(many, &Err(Nonsense::Items));
        }
    }

    #[test]
    fn a_line_has_at_most_64_kib() {
        for kind in *b"+-" {
            // The carriage return counts.
            let line = |len: usize| [&[kind][..], &vec![b'a'; len - 1], b"\r\n"].concat();
            assert_eq!(in_pieces(&line(65_536), 4096), Ok(vec![65_538]));
            assert_eq!(in_pieces(&line(65_537), 4096), Err(Nonsense::Line));
            let endless = [kind].into_iter().chain([b'a'; 65_537]);
            assert_frames(&endless.collect::<Vec<_>>(), &Err(Nonsense::Line));
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
        assert_eq!(in_pieces(&longest, 64 * 1024), Ok(vec![whole]));
        assert_eq!(
            in_pieces(&string(whole - 12), 64 * 1024),
            Err(Nonsense::Bytes)
        );
        // By its header alone.
        assert_frames(b"$16777216\r\n", &Err(Nonsense::Bytes));
        // Strings that are short enough by themselves.
        let strings = [b"*100\r\n".to_vec(), string(1024 * 1024).repeat(17)].concat();
        assert_eq!(in_pieces(&strings, 64 * 1024), Err(Nonsense::Bytes));
        let mut lines = b"*262144\r\n".to_vec();
        lines.extend(
            format!("+{}\r\n", "a".repeat(100))
                .repeat(262_144)
                .into_bytes(),
        );
        assert_eq!(in_pieces(&lines, 64 * 1024), Err(Nonsense::Bytes));
    }

    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|n| format!(":{n}\r\n").into_bytes()),
            "[ -~]{0,20}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..30).prop_map(|bytes| {
                let header = format!("${}\r\n", bytes.len()).into_bytes();
                [header, bytes, b"\r\n".to_vec()].concat()
            }),
            Just(b"$-1\r\n".to_vec()),
        ];
        leaf.prop_recursive(5, 40, 6, |item| {
            proptest::collection::vec(item, 0..6).prop_map(|items| {
                let header = format!("*{}\r\n", items.len()).into_bytes();
                [vec![header], items].concat().concat()
            })
        })
    }

    proptest! {
        /// What passes here is what the client library reads: the same frames of the same length.
        #[test]
        fn the_client_library_finds_the_same_frames(
            replies in proptest::collection::vec(reply(), 1..4),
            piece in 1_usize..20,
        ) {
            let bytes = replies.concat();
            let lengths: Vec<usize> = replies.iter().map(Vec::len).collect();
            prop_assert_eq!(in_pieces(&bytes, piece), Ok(lengths));
            for reply in &replies {
                prop_assert!(redis::parse_redis_value(reply).is_ok());
            }
        }

        #[test]
        fn whatever_passes_is_no_nonsense_to_the_client_library(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'*'), Just(b'$'), Just(b'+'), Just(b':'), Just(b'-'),
                    Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b'2'), Just(b'a')],
                0..40),
        ) {
            let mut frames = Frames::new();
            if let Ok((used, true)) = frames.follow(&bytes) {
                prop_assert!(redis::parse_redis_value(&bytes[..used]).is_ok());
                prop_assert!(redis::parse_redis_value(&bytes[..used - 1]).is_err());
            }
        }
    }
}
