//! The functions that scripts can call besides commands.

use super::limits::LUA_MEMORY;
use super::lua::{self, raise};
use super::resp::VERSION;
use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

/// The functions that the prelude builds the globals from.
pub(super) fn native(lua: &Lua) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    native.raw_set(
        "explain",
        lua.create_function(|lua, error: mlua::Error| {
            let explained = lua::explain(&error);
            let text = lua.create_string(explained.text)?;
            Ok((text, explained.fatal, explained.is_reply))
        })?,
    )?;
    native.raw_set(
        "where",
        lua.create_function(|lua, ()| Ok(script_place(lua).unzip()))?,
    )?;
    native.raw_set("rep", lua.create_function(|lua, args| rep(lua, &args))?)?;
    native.raw_set("checked", lua.create_function(checked)?)?;
    native.raw_set("redis", redis(lua)?)?;
    Ok(native)
}

/// The source and line of the Lua code that is being executed, the prelude left out.
fn script_place(lua: &Lua) -> Option<(String, usize)> {
    let mut level = 1;
    loop {
        let place = lua.inspect_stack(level, |frame| {
            let line = frame.current_line()?;
            let source = frame.source().source?;
            (source != "=prelude").then(|| (source.into_owned(), line))
        })?;
        if place.is_some() {
            return place;
        }
        level += 1;
    }
}

/// An error that begins with the place in the script, as C functions make it.
fn placed(lua: &Lua, text: &str) -> mlua::Error {
    mlua::Error::RuntimeError(match script_place(lua) {
        Some((source, line)) => format!("{}:{line}: {text}", source.trim_start_matches('@')),
        None => text.into(),
    })
}

/// Makes a function that calls `raw`, a C function, after `check`. For scripts it is itself a C
/// function: unlike a Lua function it keeps the place of a script that returns its result.
fn checked(
    lua: &Lua,
    (name, check, raw): (LuaString, Function, Function),
) -> mlua::Result<Function> {
    lua.create_function(move |lua, args: MultiValue| {
        let mut named = args.clone();
        named.push_front(Value::String(name.clone()));
        check.call::<()>(named)?;
        raw.call::<MultiValue>(args).map_err(|error| match error {
            mlua::Error::RuntimeError(text) => placed(lua, lua::first_line(&text)),
            other => other,
        })
    })
}

/// `string.rep`. The one of Lua 5.1 repeats an empty string as often as requested.
fn rep(lua: &Lua, args: &MultiValue) -> mlua::Result<LuaString> {
    let bad = |at: usize, expected: &str| {
        let got = args.get(at - 1).map_or("no value", Value::type_name);
        let text = format!("bad argument #{at} to 'rep' ({expected} expected, got {got})");
        placed(lua, &text)
    };
    let text = match args.front() {
        Some(text) => lua.coerce_string(text.clone())?,
        None => None,
    };
    let text = text.ok_or_else(|| bad(1, "string"))?;
    let times = match args.get(1) {
        Some(times) => lua.coerce_number(times.clone())?,
        None => None,
    };
    let times = times.ok_or_else(|| bad(2, "number"))?;
    let bytes = text.as_bytes();
    // As much as the longest string that fits, or more.
    let times = match bytes.is_empty() {
        true => 0,
        false => times.clamp(0.0, LUA_MEMORY as f64) as usize,
    };
    if bytes.len().saturating_mul(times) > LUA_MEMORY {
        return Err(mlua::Error::MemoryError("not enough memory".into()));
    }
    lua.create_string(bytes.repeat(times))
}

/// A number; a string that can be read as a number does not count.
fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        _ => None,
    }
}

fn redis(lua: &Lua) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    redis.raw_set("REDIS_VERSION", VERSION)?;
    redis.raw_set("REDIS_VERSION_NUM", 0x0007_000f)?;
    redis.raw_set(
        "sha1hex",
        lua.create_function(|lua, args: MultiValue| {
            let text = match (args.len(), args.front()) {
                (1, Some(value)) => lua.coerce_string(value.clone())?,
                _ => return Err(raise("ERR wrong number of arguments".into())),
            };
            let bytes = text
                .map(|text| text.as_bytes().to_vec())
                .unwrap_or_default();
            Ok(sha1_smol::Sha1::from(bytes).digest().to_string())
        })?,
    )?;
    redis.raw_set(
        "log",
        lua.create_function(|lua, args: MultiValue| log(lua, &args))?,
    )?;
    Ok(redis)
}

fn log(lua: &Lua, args: &MultiValue) -> mlua::Result<()> {
    if args.len() < 2 {
        return Err(raise(
            "ERR redis.log() requires two arguments or more.".into(),
        ));
    }
    let Some(level) = number(args.front()) else {
        return Err(raise(
            "ERR First argument must be a number (log level).".into(),
        ));
    };
    if !(0.0..4.0).contains(&level) {
        return Err(raise("ERR Invalid debug level.".into()));
    }
    let mut words = Vec::new();
    for value in args.iter().skip(1) {
        if let Some(word) = lua.coerce_string(value.clone())? {
            words.push(word.to_string_lossy());
        }
    }
    let message = words.join(" ");
    if level < 2.0 {
        tracing::debug!(%message, "script");
    } else {
        tracing::info!(%message, "script");
    }
    Ok(())
}
