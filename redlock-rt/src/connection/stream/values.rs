//! Replies as values.
//!
//! The parser of the client library takes 12 700 instructions for two numbers, two thirds of them to clear
//! its buffer. So what scripts and commands return as a rule is read here, and the rest there.

use std::sync::OnceLock;

use redis::{RedisResult, Value};

use crate::connection::fault::Fault;
use crate::wire::Reply;

/// Arrays within each other are read here down to this depth.
const DEPTH: usize = 3;
/// How Redis refuses to create a key that is there.
const BUSY_KEY: &[u8] = b"-BUSYKEY Target key name already exists.\r\n";

/// The value of a whole reply.
pub(in crate::connection) fn value(frame: &[u8]) -> RedisResult<Value> {
    match frame {
        // The replies to plain commands.
        b"+OK\r\n" => Ok(Value::Okay),
        [b':', digit @ b'0'..=b'9', b'\r', b'\n'] => Ok(Value::Int((digit - b'0').into())),
        BUSY_KEY => {
            static REFUSAL: OnceLock<RedisResult<Value>> = OnceLock::new();
            REFUSAL.get_or_init(|| parsed(frame)).clone()
        }
        _ => usual(frame).map_or_else(|| parsed(frame), Ok),
    }
}

/// The value that the client library reads.
fn parsed(frame: &[u8]) -> RedisResult<Value> {
    match redis::parse_redis_value(frame) {
        // Redis quotes the words of a command in an error, and cuts them anywhere.
        Err(_) if is_error(frame) => {
            redis::parse_redis_value(String::from_utf8_lossy(frame).as_bytes())
        }
        value => value,
    }
}

/// Whether a reply begins as an error does: with its code.
fn is_error(frame: &[u8]) -> bool {
    let code = frame
        .strip_prefix(b"-")
        .and_then(|text| text.split(|byte| *byte == b' ').next());
    code.is_some_and(|code| !code.is_empty() && code.iter().all(u8::is_ascii_uppercase))
}

/// The value of a reply of OK, nothing, a number, a string, or an array of these.
fn usual(frame: &[u8]) -> Option<Value> {
    let (value, rest) = item(frame, DEPTH)?;
    rest.is_empty().then_some(value)
}

/// The first item of these bytes, and what is behind it.
fn item(bytes: &[u8], depth: usize) -> Option<(Value, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    let (line, rest) = rest.split_at(end);
    let rest = rest.strip_prefix(b"\r\n")?;
    match (kind, line) {
        (b'+', b"OK") => Some((Value::Okay, rest)),
        (b':', _) => Some((Value::Int(number(line)?), rest)),
        (b'$' | b'*', b"-1") => Some((Value::Nil, rest)),
        (b'$', _) => {
            let (text, rest) = rest.split_at_checked(usize::try_from(number(line)?).ok()?)?;
            Some((
                Value::BulkString(text.to_vec()),
                rest.strip_prefix(b"\r\n")?,
            ))
        }
        (b'*', _) => {
            let (count, depth) = (usize::try_from(number(line)?).ok()?, depth.checked_sub(1)?);
            // The shortest item has three bytes.
            let mut items = Vec::with_capacity(count.min(rest.len() / 3));
            let mut rest = rest;
            for _ in 0..count {
                let (value, behind) = item(rest, depth)?;
                items.push(value);
                rest = behind;
            }
            Some((Value::Array(items), rest))
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The text of a string, or of a number.
pub(in crate::connection) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The reply of a script, or of a command in its place.
pub(in crate::connection) fn reply(value: Value) -> Result<Reply, Fault> {
    Ok(match value {
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => {
            Reply::Text(String::from_utf8(bytes).map_err(Fault::unreadable)?)
        }
        Value::SimpleString(text) => Reply::Text(text),
        Value::Okay => Reply::Text("OK".into()),
        Value::Array(values) => {
            Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::ServerError(error) => return Err(Fault::from_part(error)),
        other => {
            let why = format!("a reply of a type that no script gives: {other:?}");
            return Err(Fault::unreadable(std::io::Error::other(why)));
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn assert_same(frame: &[u8]) {
        let (ours, theirs) = (value(frame), redis::parse_redis_value(frame));
        let text = frame.escape_ascii();
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
            (Err(_), Err(_)) => {}
            (ours, theirs) => panic!("{text}: {ours:?}, not {theirs:?}"),
        }
    }

    #[test]
    fn each_reply_has_the_value_that_the_client_library_reads() {
        for frame in [
            "+OK\r\n",
            "+OKAY\r\n",
            "+\r\n",
            ":0\r\n",
            ":-1\r\n",
            ":9223372036854775807\r\n",
            ":-9223372036854775808\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "$3\r\n\u{20ac}\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n$-1\r\n$2\r\nab\r\n",
            "*2\r\n*1\r\n*1\r\n:1\r\n*0\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:5\r\n",
            "*2\r\n+OK\r\n-ERR no\r\n",
            "*2\r\n+QUEUED\r\n:7\r\n",
            "-BUSYKEY Target key name already exists.\r\n",
            "-BUSYKEY another text\r\n",
            "-NOSCRIPT No matching script.\r\n",
            "-NOPERM\r\n",
        ] {
            assert_same(frame.as_bytes());
        }
    }

    #[test]
    fn an_error_that_quotes_half_a_character_keeps_its_code() {
        let frame = b"-WRONGPASS \xe2\x82 is none\r\n";
        let Ok(Value::ServerError(error)) = value(frame) else {
            panic!("{:?}", value(frame));
        };
        assert_eq!(error.code(), "WRONGPASS");
    }

    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            Just(b"+OK\r\n".to_vec()),
            Just(b"$-1\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..30).prop_map(|text| {
                let head = format!("${}\r\n", text.len());
                [head.as_bytes(), &text, b"\r\n"].concat()
            }),
        ];
        leaf.prop_recursive(5, 24, 4, |inner| {
            prop::collection::vec(inner, 0..4).prop_map(|items| {
                let head = format!("*{}\r\n", items.len());
                [head.into_bytes(), items.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn any_reply_has_the_value_that_the_client_library_reads(frame in any_reply()) {
            assert_same(&frame);
        }

        /// A stream cut short, or with other bytes in it, is never another value.
        #[test]
        fn bytes_that_are_no_reply_are_read_by_the_client_library(
            frame in any_reply(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let at = at.index(frame.len());
            prop_assert!(usual(&frame[..at]).is_none());
            let mut other = frame;
            other[at] = byte;
            if let Some(value) = usual(&other) {
                prop_assert_eq!(value, redis::parse_redis_value(&other).unwrap());
            }
        }
    }
}
