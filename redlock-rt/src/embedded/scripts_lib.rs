//! The functions that scripts can call besides commands.

use super::lua::{self, raise};
use super::resp::VERSION;
use mlua::{Lua, MultiValue, Table, Value};

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

/// A number; a string that can be read as a number is none.
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
