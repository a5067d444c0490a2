//! Finds the end of a RESP2 or RESP3 frame, and the words of a flat frame.

use bytes::{Bytes, BytesMut};

/// The bytes are not RESP.
#[derive(Debug)]
pub(crate) struct Malformed;

/// Takes the first whole frame off the buffer; `None` if more bytes are needed.
pub(crate) fn take_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
    Ok(frame_end(buffer, 0)?.map(|end| buffer.split_to(end).freeze()))
}

/// The elements of an array or push of strings and numbers, or the words of an inline command.
///
/// Elements that are not flat are left out.
pub(crate) fn words(frame: &Bytes) -> Vec<Bytes> {
    let header = line_end(frame, 0).unwrap_or(frame.len());
    if !matches!(frame.first(), Some(b'*' | b'>')) {
        let text = &frame[..header];
        let words = text
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        return words.map(Bytes::copy_from_slice).collect();
    }
    let mut words = Vec::new();
    let mut at = header;
    while at < frame.len() {
        let Ok(Some(end)) = frame_end(frame, at) else {
            break;
        };
        let start = line_end(frame, at).unwrap_or(end);
        match frame[at] {
            b'$' if end >= start + 2 => words.push(frame.slice(start..end - 2)),
            b':' | b'+' => words.push(frame.slice(at + 1..end - 2)),
            _ => {}
        }
        at = end;
    }
    words
}

/// The end of the value that starts at `at`.
fn frame_end(buffer: &[u8], at: usize) -> Result<Option<usize>, Malformed> {
    let Some(&kind) = buffer.get(at) else {
        return Ok(None);
    };
    let Some(line) = line_end(buffer, at) else {
        return Ok(None);
    };
    let count = || number(&buffer[at + 1..line - 2]);
    match kind {
        b'$' | b'!' | b'=' => {
            // A null string has no body.
            let Ok(length) = usize::try_from(count()?) else {
                return Ok(Some(line));
            };
            let end = line + length + 2;
            Ok((buffer.len() >= end).then_some(end))
        }
        b'*' | b'~' | b'>' => values_end(buffer, line, count()?),
        b'%' => values_end(buffer, line, count()? * 2),
        // Attributes come before the value that they belong to.
        b'|' => values_end(buffer, line, count()? * 2 + 1),
        _ => Ok(Some(line)),
    }
}

fn values_end(buffer: &[u8], mut at: usize, count: i64) -> Result<Option<usize>, Malformed> {
    for _ in 0..count {
        match frame_end(buffer, at)? {
            Some(end) => at = end,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The position behind the line's CRLF.
fn line_end(buffer: &[u8], at: usize) -> Option<usize> {
    let line = buffer[at..].windows(2).position(|pair| pair == b"\r\n")?;
    Some(at + line + 2)
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-1\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123\r\n",
        b"=5\r\ntxt:x\r\n",
        b"!3\r\nERR\r\n",
        b"~1\r\n+x\r\n",
        b"%1\r\n+k\r\n:1\r\n",
        b"|1\r\n+a\r\n+b\r\n$1\r\nv\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n",
    ];

    #[test]
    fn every_kind_of_frame_ends_where_it_ends() {
        let mut stream = BytesMut::new();
        for frame in FRAMES {
            for cut in 0..frame.len() {
                let mut part = BytesMut::from(&frame[..cut]);
                assert!(
                    take_frame(&mut part).unwrap().is_none(),
                    "{frame:?} cut at {cut}"
                );
            }
            stream.extend_from_slice(frame);
        }
        for frame in FRAMES {
            assert_eq!(take_frame(&mut stream).unwrap().unwrap(), *frame);
        }
        assert!(stream.is_empty());
    }

    #[test]
    fn words_of_arrays_and_inline_commands() {
        let request = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
        assert_eq!(words(&request), [&b"SET"[..], b"", b"a\r\nb"]);
        assert_eq!(
            words(&Bytes::from_static(b"PING  x\r\n")),
            [&b"PING"[..], b"x"]
        );
        let confirmation = Bytes::from_static(b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
        assert_eq!(words(&confirmation), [&b"subscribe"[..], b"c", b"1"]);
    }

    #[test]
    fn a_length_that_is_no_number_is_malformed() {
        assert!(take_frame(&mut BytesMut::from("*x\r\n")).is_err());
    }
}
