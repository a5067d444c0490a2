//! Converts Lua values to Redis replies, and back.
//!
//! # Why Lua 5.1 of mlua
//!
//! On Redis the scripts run in Lua 5.1: the texts of its errors, its format of numbers, and its keywords
//! are compared with a real server. Lua 5.1 is no longer maintained, so its faults are handled before it is
//! called, in `prelude.lua`. Luau is maintained, but prints numbers differently, has other texts and
//! keywords, and needs a C++ compiler. LuaJIT is maintained, but mlua cannot limit its memory, and its
//! compiled loops do not check the time. Redis' own copy is not a crate, and a system's Lua would differ
//! from machine to machine.
//!
//! Of the faults that Redis fixed in its copy these are handled: the overflow of `unpack` (CVE-2025-46817),
//! by checks of every function that takes a list and positions; a name that is freed while a reader is
//! called (CVE-2025-49844), since no reader of C is used; metatables of basic types (CVE-2025-46818), since
//! that of strings is read-only and scripts cannot set others. The level of a long bracket (CVE-2025-46819)
//! overflows after 2 GiB, and a request has 64 MiB. `bit`, `struct` and `cmsgpack` do not exist. The tests'
//! build optimises Lua as users' builds do, since optimisers make overflows into faults.

use super::limits::{LUA_MEMORY, MOST_RETURNED, REPLY_LIMIT};
use super::num;
use super::resp::{Fail, RespReply};
use mlua::{BorrowedBytes, Either, IntoLua, Lua, MultiValue, Table, Value};
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
    /// Has the format of an error reply, with its code first; otherwise a plain message.
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

/// Texts up to this size together are handed to Lua without a protected call for each.
const LITTLE: usize = 64 * 1024;

/// Runs code that passes texts of this size to Lua. While Lua's memory is limited, mlua makes a protected
/// call and two closures for each text and each table, which takes longer than most scripts. So if there is
/// certainly room, the limit is off meanwhile.
pub(super) fn quickly<T>(
    lua: &Lua,
    size: usize,
    hand_over: impl FnOnce() -> mlua::Result<T>,
) -> mlua::Result<T> {
    // In memory a text takes several times its size.
    if size > LITTLE || lua.used_memory() > LUA_MEMORY - 16 * LITTLE {
        return hand_over();
    }
    lua.set_memory_limit(0)?;
    let handed = hand_over();
    lua.set_memory_limit(LUA_MEMORY)?;
    handed
}

/// A text for Lua. UTF-8 takes a shorter path.
pub(super) fn word(text: &[u8]) -> Either<&str, Bytes<'_>> {
    match std::str::from_utf8(text) {
        Ok(text) => Either::Left(text),
        Err(_) => Either::Right(Bytes(text)),
    }
}

/// Bytes that are copied into Lua's memory and nowhere else.
pub(super) struct Bytes<'a>(&'a [u8]);

impl IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

/// The Lua value that `redis.call` returns for a reply.
pub(super) fn to_lua(lua: &Lua, reply: &RespReply) -> mlua::Result<Value> {
    match reply {
        RespReply::Int(value) => Ok(Value::Number(*value as f64)),
        RespReply::Nil | RespReply::NilArray => Ok(Value::Boolean(false)),
        reply => quickly(lua, reply.size(), || make(lua, reply)),
    }
}

fn make(lua: &Lua, reply: &RespReply) -> mlua::Result<Value> {
    let string = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
    let wrapped = |field: &str, text: &[u8]| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(field, string(text)?)?;
        Ok::<_, mlua::Error>(Value::Table(table))
    };
    match reply {
        RespReply::Int(value) => Ok(Value::Number(*value as f64)),
        RespReply::Bulk(bytes) => string(bytes),
        RespReply::Bytes(bytes) => string(bytes),
        RespReply::Text(text) => string(text.as_bytes()),
        RespReply::Nil | RespReply::NilArray => Ok(Value::Boolean(false)),
        RespReply::Ok => wrapped("ok", b"OK"),
        RespReply::Status(text) => wrapped("ok", text),
        RespReply::Error(fail) => wrapped("err", &fail.0),
        RespReply::Array(items) | RespReply::Many(items) => {
            let mut failed = Ok(());
            let values = items.iter().map(|item| match item {
                RespReply::Bulk(text) => Either::Left(word(text)),
                item => Either::Right(make(lua, item).unwrap_or_else(|error| {
                    failed = Err(error);
                    Value::Nil
                })),
            });
            let table = lua.create_sequence_from(values)?;
            failed.map(|()| Value::Table(table))
        }
    }
}

/// The reply for the value that a script returned.
pub(super) fn from_lua(value: Value) -> mlua::Result<RespReply> {
    convert(value, 0, &mut ReplyRoom::whole())
}

/// The reply for a list. These are the first items; up to the first nil, they are all.
pub(super) fn from_list(items: [Value; 3]) -> mlua::Result<RespReply> {
    let mut room = ReplyRoom::whole();
    room.take(0)?;
    let items = items.into_iter().take_while(|item| !item.is_nil());
    let items = items.map(|item| convert(item, 1, &mut room));
    items.collect::<mlua::Result<_>>().map(RespReply::Array)
}

/// The remaining size of a reply: with shared tables a small script could return very much.
struct ReplyRoom {
    items: usize,
    bytes: usize,
}

impl ReplyRoom {
    fn whole() -> Self {
        Self {
            items: MOST_RETURNED,
            bytes: REPLY_LIMIT,
        }
    }

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

fn convert(value: Value, depth: usize, room: &mut ReplyRoom) -> mlua::Result<RespReply> {
    room.take(match &value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    })?;
    Ok(match value {
        Value::Boolean(true) => RespReply::Int(1),
        Value::Integer(value) => RespReply::Int(value),
        Value::Number(value) => RespReply::Int(truncate(value)),
        Value::String(text) => RespReply::Bytes(text.as_bytes().to_vec()),
        Value::Table(_) if depth >= MAX_DEPTH => Fail::from("ERR reached lua stack limit").into(),
        Value::Table(table) => convert_table(&table, depth, room)?,
        _ => RespReply::Nil,
    })
}

fn convert_table(table: &Table, depth: usize, room: &mut ReplyRoom) -> mlua::Result<RespReply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Fail::from(text.as_bytes().to_vec()).into());
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(RespReply::Status(text.as_bytes().to_vec().into()));
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
    Ok(RespReply::Array(items))
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

/// An argument of `redis.call`: a borrowed Lua text, or the digits of a number.
pub(super) type Argument = Either<BorrowedBytes, Vec<u8>>;

/// The arguments of `redis.call`: strings as they are, numbers as `%.17g`.
pub(super) fn arguments(values: &MultiValue) -> Result<Vec<Argument>, Fail> {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let argument = |value: &Value| {
        Ok(match value {
            Value::String(text) => Either::Left(text.as_bytes()),
            Value::Integer(value) if value.unsigned_abs() < 100_000_000_000_000_000 => {
                Either::Right(num::int_bytes(*value))
            }
            Value::Integer(value) => Either::Right(num::format_float(*value as f64).into_bytes()),
            Value::Number(value) => Either::Right(num::format_float(*value).into_bytes()),
            _ => {
                let why = "ERR Lua redis lib command arguments must be strings or integers";
                return Err(Fail::from(why));
            }
        })
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
        assert!(matches!(from_lua(value), Ok(RespReply::Array(_))));
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
