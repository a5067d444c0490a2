//! The wire: replies and how they are encoded.

use super::num;
use bytes::BytesMut;
use std::borrow::Cow;
use std::sync::Arc;

/// The release of Redis whose behaviour is implemented.
pub(super) const VERSION: &str = "7.0.15";

/// About how many bytes a text or an item takes besides its content.
pub(super) const HEADER: usize = 16;

/// Bytes that a key, a value and a reply in flight may share.
pub(super) type Blob = Arc<[u8]>;

/// The text of an error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fail(pub(super) Cow<'static, [u8]>);

impl Fail {
    /// The text as it is sent: on one line.
    pub(super) fn on_one_line(self) -> Self {
        let text = trim_line_ends(&self.0);
        if text.len() == self.0.len() && !text.iter().any(is_line_end) {
            return self;
        }
        Self(Cow::Owned(blank_line_ends(text)))
    }
}

impl From<&'static str> for Fail {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Fail {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for Fail {
    fn from(text: Vec<u8>) -> Self {
        Self(Cow::Owned(text))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum RespReply {
    Ok,
    Status(Cow<'static, [u8]>),
    Error(Fail),
    Int(i64),
    Bulk(Blob),
    Bytes(Vec<u8>),
    Text(&'static str),
    Nil,
    /// Absent array, unlike an absent string.
    NilArray,
    Array(Vec<Self>),
    /// Several replies to one command, as `SUBSCRIBE a b` gives.
    Many(Vec<Self>),
}

impl From<Fail> for RespReply {
    fn from(fail: Fail) -> Self {
        Self::Error(fail)
    }
}

impl From<bool> for RespReply {
    fn from(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }
}

impl RespReply {
    /// A length or a count. Collections in memory are far below `i64::MAX`.
    pub(super) fn count(n: usize) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub(super) fn status(text: &'static str) -> Self {
        Self::Status(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn double(value: f64) -> Self {
        Self::Bytes(num::format_float(value).into_bytes())
    }

    pub(super) fn blob_or_nil(value: Option<&Blob>) -> Self {
        value.map_or(Self::Nil, |blob| Self::Bulk(Arc::clone(blob)))
    }

    pub(super) fn bulks<'a>(items: impl Iterator<Item = &'a Blob>) -> Self {
        Self::Array(items.map(|item| Self::Bulk(Arc::clone(item))).collect())
    }

    /// About how many bytes it has when it is encoded.
    pub(super) fn size(&self) -> usize {
        let content = match self {
            Self::Status(text) => text.len(),
            Self::Error(fail) => fail.0.len(),
            Self::Bulk(bytes) => bytes.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            Self::Array(items) | Self::Many(items) => items.iter().map(Self::size).sum(),
            Self::Ok | Self::Int(_) | Self::Nil | Self::NilArray => 0,
        };
        HEADER + content
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Ok => out.extend_from_slice(b"+OK\r\n"),
            Self::Status(text) => put_line(out, b'+', text),
            Self::Error(fail) => put_line(out, b'-', trim_line_ends(&fail.0)),
            Self::Int(value) => put_int(out, b':', *value),
            Self::Bulk(bytes) => put_bulk(out, bytes),
            Self::Bytes(bytes) => put_bulk(out, bytes),
            Self::Text(text) => put_bulk(out, text.as_bytes()),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(items) => {
                put_len(out, b'*', items.len());
                items.iter().for_each(|item| item.encode(out));
            }
            Self::Many(replies) => replies.iter().for_each(|reply| reply.encode(out)),
        }
    }
}

fn put_bulk(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn put_len(out: &mut BytesMut, kind: u8, len: usize) {
    put_int(out, kind, i64::try_from(len).unwrap_or(i64::MAX));
}

fn put_int(out: &mut BytesMut, kind: u8, value: i64) {
    out.reserve(24);
    out.extend_from_slice(&[kind]);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One line: a line end inside it would desynchronise the client.
fn put_line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.extend_from_slice(&[kind]);
    if text.iter().any(is_line_end) {
        out.extend_from_slice(&blank_line_ends(text));
    } else {
        out.extend_from_slice(text);
    }
    out.extend_from_slice(b"\r\n");
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn blank_line_ends(text: &[u8]) -> Vec<u8> {
    text.iter()
        .map(|byte| if is_line_end(byte) { b' ' } else { *byte })
        .collect()
}

fn trim_line_ends(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(reply: &RespReply) -> String {
        let mut out = BytesMut::new();
        reply.encode(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn line_ends_never_leave_a_line_reply() {
        assert_eq!(
            encoded(&Fail::from("ERR a\r\nb\r\n").into()),
            "-ERR a  b\r\n"
        );
        assert_eq!(encoded(&RespReply::status("a\nb")), "+a b\r\n");
    }
}
