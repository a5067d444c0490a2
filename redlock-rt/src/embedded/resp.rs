//! The wire: replies and how they are encoded in RESP2 and RESP3.

use super::num;
use bytes::BytesMut;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes that a key, a value and a reply in flight may share.
pub(super) type Blob = Arc<[u8]>;

/// The text of an error reply, without the leading `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fail(pub(super) Cow<'static, [u8]>);

impl Fail {
    /// The text as it goes out: on one line.
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

/// A reply, before the client's protocol version decides how it looks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Ok,
    Status(Cow<'static, [u8]>),
    Error(Fail),
    Int(i64),
    Bulk(Blob),
    Bytes(Vec<u8>),
    Text(&'static str),
    Nil,
    /// Absent array: RESP2 tells it from an absent string.
    NilArray,
    Double(f64),
    Bool(bool),
    BigNumber(Vec<u8>),
    Verbatim(Vec<u8>, Vec<u8>),
    Array(Vec<Self>),
    Set(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// A flat array in RESP2, an array of pairs in RESP3 (members with their scores).
    Pairs(Vec<(Self, Self)>),
    Push(Vec<Self>),
    /// Several replies to one command, as `SUBSCRIBE a b` gives.
    Many(Vec<Self>),
}

impl From<Fail> for Reply {
    fn from(fail: Fail) -> Self {
        Self::Error(fail)
    }
}

impl From<bool> for Reply {
    fn from(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }
}

impl Reply {
    /// A length or a count. Collections in memory are far below `i64::MAX`.
    pub(super) fn count(n: usize) -> Self {
        Self::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }

    pub(super) fn status(text: &'static str) -> Self {
        Self::Status(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn blob_or_nil(value: Option<&Blob>) -> Self {
        value.map_or(Self::Nil, |blob| Self::Bulk(Arc::clone(blob)))
    }
}

/// Encodes replies for one protocol version.
pub(super) struct Encoder<'a> {
    pub(super) out: &'a mut BytesMut,
    pub(super) resp3: bool,
}

impl Encoder<'_> {
    pub(super) fn reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Ok => self.put(b"+OK\r\n"),
            Reply::Status(text) => self.line(b'+', text),
            Reply::Error(fail) => self.line(b'-', trim_line_ends(&fail.0)),
            Reply::Int(value) => self.int(b':', *value),
            Reply::Bulk(bytes) => self.bulk(bytes),
            Reply::Bytes(bytes) => self.bulk(bytes),
            Reply::Text(text) => self.bulk(text.as_bytes()),
            Reply::Nil => self.put(if self.resp3 { b"_\r\n" } else { b"$-1\r\n" }),
            Reply::NilArray => self.put(if self.resp3 { b"_\r\n" } else { b"*-1\r\n" }),
            Reply::Double(value) if self.resp3 => {
                self.line(b',', num::format_float(*value).as_bytes());
            }
            Reply::Double(value) => self.bulk(num::format_float(*value).as_bytes()),
            Reply::Bool(yes) if self.resp3 => self.put(if *yes { b"#t\r\n" } else { b"#f\r\n" }),
            Reply::Bool(yes) => self.int(b':', i64::from(*yes)),
            Reply::BigNumber(digits) if self.resp3 => self.line(b'(', digits),
            Reply::BigNumber(digits) => self.bulk(digits),
            Reply::Verbatim(format, text) if self.resp3 => {
                self.int(b'=', Reply::len(text.len() + 4));
                let format = [0, 1, 2].map(|i| format.get(i).copied().unwrap_or(b' '));
                self.put(&format);
                self.put(b":");
                self.put(text);
                self.put(b"\r\n");
            }
            Reply::Verbatim(_, text) => self.bulk(text),
            Reply::Array(items) => self.items(b'*', items),
            Reply::Set(items) => self.items(if self.resp3 { b'~' } else { b'*' }, items),
            Reply::Push(items) => self.items(if self.resp3 { b'>' } else { b'*' }, items),
            Reply::Map(pairs) if self.resp3 => {
                self.int(b'%', Reply::len(pairs.len()));
                self.flat(pairs);
            }
            Reply::Pairs(pairs) if self.resp3 => {
                self.int(b'*', Reply::len(pairs.len()));
                for (key, value) in pairs {
                    self.put(b"*2\r\n");
                    self.reply(key);
                    self.reply(value);
                }
            }
            Reply::Map(pairs) | Reply::Pairs(pairs) => {
                self.int(b'*', Reply::len(pairs.len() * 2));
                self.flat(pairs);
            }
            Reply::Many(replies) => replies.iter().for_each(|reply| self.reply(reply)),
        }
    }

    pub(super) fn array_header(&mut self, kind: u8, len: usize) {
        self.int(kind, Reply::len(len));
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.int(b'$', Reply::len(bytes.len()));
        self.put(bytes);
        self.put(b"\r\n");
    }

    fn items(&mut self, kind: u8, items: &[Reply]) {
        self.array_header(kind, items.len());
        items.iter().for_each(|item| self.reply(item));
    }

    fn flat(&mut self, pairs: &[(Reply, Reply)]) {
        for (key, value) in pairs {
            self.reply(key);
            self.reply(value);
        }
    }

    fn int(&mut self, kind: u8, value: i64) {
        let mut text = Vec::with_capacity(24);
        text.push(kind);
        num::push_int(&mut text, value);
        text.extend_from_slice(b"\r\n");
        self.put(&text);
    }

    /// One line: a line end inside it would desynchronise the client.
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.put(&[kind]);
        if text.iter().any(is_line_end) {
            self.put(&blank_line_ends(text));
        } else {
            self.put(text);
        }
        self.put(b"\r\n");
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

impl Reply {
    fn len(n: usize) -> i64 {
        i64::try_from(n).unwrap_or(i64::MAX)
    }
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

    fn encoded(reply: &Reply, resp3: bool) -> String {
        let mut out = BytesMut::new();
        Encoder {
            out: &mut out,
            resp3,
        }
        .reply(reply);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn one_reply_two_protocols() {
        let pair = || vec![(Reply::Text("a"), Reply::Double(1.5))];
        for (reply, two, three) in [
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::NilArray, "*-1\r\n", "_\r\n"),
            (Reply::Bool(true), ":1\r\n", "#t\r\n"),
            (Reply::Double(0.5), "$3\r\n0.5\r\n", ",0.5\r\n"),
            (
                Reply::Map(pair()),
                "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n",
                "%1\r\n$1\r\na\r\n,1.5\r\n",
            ),
            (
                Reply::Pairs(pair()),
                "*2\r\n$1\r\na\r\n$3\r\n1.5\r\n",
                "*1\r\n*2\r\n$1\r\na\r\n,1.5\r\n",
            ),
            (
                Reply::Push(vec![Reply::Int(-7)]),
                "*1\r\n:-7\r\n",
                ">1\r\n:-7\r\n",
            ),
            (
                Reply::Verbatim(b"txt".to_vec(), b"hi".to_vec()),
                "$2\r\nhi\r\n",
                "=6\r\ntxt:hi\r\n",
            ),
        ] {
            assert_eq!(encoded(&reply, false), two);
            assert_eq!(encoded(&reply, true), three);
        }
    }

    #[test]
    fn line_ends_never_leave_a_line_reply() {
        assert_eq!(
            encoded(&Fail::from("ERR a\r\nb\r\n").into(), false),
            "-ERR a  b\r\n"
        );
        assert_eq!(encoded(&Reply::status("a\nb"), false), "+a b\r\n");
    }
}
