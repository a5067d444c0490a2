//! Converts Lua values to Redis replies, and back.

use super::limits::{MOST_RETURNED, REPLY_LIMIT};
use super::num;
use super::resp::{Fail, Reply};
use mlua::{Lua, MultiValue, Table, Value};
use std::borrow::Cow;
use std::fmt;

/// The deepest nesting of a reply: a table may contain itself.
const MAX_DEPTH: usize = 128;
/// Fields of the tables that represent types which only RESP3 has.
const OF_RESP3: [&str; 5] = ["double", "map", "set", "big_number", "verbatim_string"];

/// An error raised by a function of ours. Lua carries it as userdata until it is caught.
#[derive(Debug)]
pub(super) struct Raised {
    pub(super) text: Cow<'static, [u8]>,
    /// The script must not catch it.
    pub(super) fatal: bool,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl std::error::Error for Raised {}

pub(super) fn raise(fail: Fail) -> mlua::Error {
    mlua::Error::external(Raised {
        text: fail.0,
        fatal: false,
    })
}

/// An error that Lua carried.
pub(super) struct Explained {
    pub(super) text: Vec<u8>,
    /// The script must not catch it.
    pub(super) fatal: bool,
    /// Of the form of an error reply, with its code in front; otherwise a plain message.
    pub(super) is_reply: bool,
}

pub(super) fn explain(error: &mlua::Error) -> Explained {
    let plain = |text: &str| Explained {
        text: first_line(text).as_bytes().to_vec(),
        fatal: false,
        is_reply: false,
    };
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            explain(cause)
        }
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => plain(text),
        other => match other.downcast_ref::<Raised>() {
            Some(raised) => Explained {
                text: raised.text.to_vec(),
                fatal: raised.fatal,
                is_reply: true,
            },
            None => plain(&other.to_string()),
        },
    }
}

/// The reply for an error of a script that its handler did not see.
pub(super) fn failure(error: &mlua::Error) -> Fail {
    let Explained {
        mut text, is_reply, ..
    } = explain(error);
    if !is_reply {
        text.splice(..0, *b"ERR ");
    }
    text.into()
}

pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The Lua value that `redis.call` returns for a reply.
pub(super) fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    let wrapped = |field: &str, text: &[u8]| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(field, string(text)?)?;
        Ok::<_, mlua::Error>(Value::Table(table))
    };
    match reply {
        Reply::Int(value) => Ok(Value::Number(*value as f64)),
        Reply::Bulk(bytes) => string(bytes),
        Reply::Bytes(bytes) => string(bytes),
        Reply::Text(text) => string(text.as_bytes()),
        Reply::Nil | Reply::NilArray => Ok(Value::Boolean(false)),
        Reply::Ok => wrapped("ok", b"OK"),
        Reply::Status(text) => wrapped("ok", text),
        Reply::Error(fail) => wrapped("err", &fail.0),
        Reply::Array(items) | Reply::Many(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (at, item) in items.iter().enumerate() {
                table.raw_set(at + 1, to_lua(lua, item)?)?;
            }
            Ok(Value::Table(table))
        }
    }
}

/// The reply for the value that a script returned.
pub(super) fn from_lua(value: Value) -> mlua::Result<Reply> {
    let mut room = Room {
        items: MOST_RETURNED,
        bytes: REPLY_LIMIT,
    };
    convert(value, 0, &mut room)
}

/// What a reply may still have: tables that are in several others make a small script return much.
struct Room {
    items: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> mlua::Result<()> {
        let left = (self.items.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(items), Some(bytes)) = left else {
            let why = "ERR the script returns more than the embedded engine sends";
            return Err(raise(why.into()));
        };
        *self = Self { items, bytes };
        Ok(())
    }
}

fn convert(value: Value, depth: usize, room: &mut Room) -> mlua::Result<Reply> {
    room.take(match &value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    })?;
    Ok(match value {
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(value) => Reply::Int(value),
        Value::Number(value) => Reply::Int(truncate(value)),
        Value::String(text) => Reply::Bytes(text.as_bytes().to_vec()),
        Value::Table(_) if depth >= MAX_DEPTH => Fail::from("ERR reached lua stack limit").into(),
        Value::Table(table) => convert_table(&table, depth, room)?,
        _ => Reply::Nil,
    })
}

fn convert_table(table: &Table, depth: usize, room: &mut Room) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Fail::from(text.as_bytes().to_vec()).into());
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(text.as_bytes().to_vec().into()));
    }
    for field in OF_RESP3 {
        if !table.raw_get::<Value>(field)?.is_nil() {
            let text = format!("ERR the embedded engine returns no table with '{field}'");
            return Ok(Fail::from(text).into());
        }
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.raw_get::<Value>(at)? {
            Value::Nil => break,
            item => items.push(convert(item, depth + 1, room)?),
        }
    }
    Ok(Reply::Array(items))
}

/// C's cast to an integer, as x86 processors do it: a value out of range becomes the smallest
/// integer.
fn truncate(value: f64) -> i64 {
    // The bounds are the exact powers of two.
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value) {
        value as i64
    } else {
        i64::MIN
    }
}

/// The arguments of `redis.call`: strings as they are, numbers as `%.17g`.
pub(super) fn arguments(values: &MultiValue) -> Result<Vec<Cow<'_, [u8]>>, Fail> {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let argument = |value: &Value| match value {
        Value::Integer(value) if value.unsigned_abs() < 100_000_000_000_000_000 => {
            Ok(Cow::Owned(num::int_bytes(*value)))
        }
        Value::Integer(value) => Ok(Cow::Owned(num::format_float(*value as f64).into_bytes())),
        Value::Number(value) => Ok(Cow::Owned(num::format_float(*value).into_bytes())),
        Value::String(text) => Ok(Cow::Owned(text.as_bytes().to_vec())),
        _ => Err(Fail::from(
            "ERR Lua redis lib command arguments must be strings or integers",
        )),
    };
    values.iter().map(argument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_the_smallest() {
        for (value, expected) in [
            (1.9, 1),
            (-1.9, -1),
            (f64::NAN, i64::MIN),
            (1e300, i64::MIN),
            (-1e300, i64::MIN),
        ] {
            assert_eq!(truncate(value), expected);
        }
        assert_eq!(truncate(-9_223_372_036_854_775_808.0), i64::MIN);
    }

    #[test]
    fn a_table_that_contains_itself_ends() {
        let lua = Lua::new();
        let value: Value = lua.load("local t = {} t[1] = t return t").eval().unwrap();
        assert!(matches!(from_lua(value), Ok(Reply::Array(_))));
    }

    /// The conversion of `t`, of 50 tables, would have taken years.
    #[test]
    fn a_small_script_returned_a_table_of_two_to_the_fiftieth_items() {
        let lua = Lua::new();
        let doubled = "local t = {} for _ = 1, 50 do t = {t, t} end return t";
        assert!(from_lua(lua.load(doubled).eval().unwrap()).is_err());
        let long = "local s = string.rep('x', 2 ^ 20) local t = {} for i = 1, 100 do t[i] = s end return t";
        assert!(from_lua(lua.load(long).eval().unwrap()).is_err());
    }
}
