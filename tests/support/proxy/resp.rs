//! Finds the end of a RESP2 or RESP3 frame, and the words of a flat frame.

use bytes::{Bytes, BytesMut};

/// The bytes are not RESP.
#[derive(Debug)]
pub struct Malformed;

/// Takes the first whole frame off the buffer; `None` if more bytes are needed.
///
/// # Errors
/// If a length is no number.
pub fn take_frame(buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
    Ok(frame_end(buffer, 0)?.map(|end| buffer.split_to(end).freeze()))
}

/// The elements of an array or push of strings and numbers, or the words of an inline command.
///
/// Elements that are not flat are left out.
pub fn words(frame: &Bytes) -> Vec<Bytes> {
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
