//! What scripts can call apart from commands.

use super::lua::{self, raise};
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
    let libraries = lua.create_table()?;
    libraries.raw_set("cjson", super::scripts_json::library(lua)?)?;
    libraries.raw_set("bit", super::scripts_bit::library(lua)?)?;
    native.raw_set("libraries", libraries)?;
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

/// What Lua's own libraries put in front of an error: the place of the call, if Lua code made it.
pub(super) fn caller(lua: &Lua) -> String {
    let place = lua.inspect_stack(1, |frame| {
        let line = frame.current_line()?;
        Some(format!("{}:{line}: ", frame.source().short_src?))
    });
    place.flatten().unwrap_or_default()
}

/// A number, unlike a string that reads as one.
fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        _ => None,
    }
}

/// `redis.setresp`: gives whether the version asked for is 3.
pub(super) fn wants_resp3(args: &MultiValue) -> mlua::Result<bool> {
    if args.len() != 1 {
        return Err(raise("ERR redis.setresp() requires one argument.".into()));
    }
    match number(args.front()) {
        Some(2.0) => Ok(false),
        Some(3.0) => Ok(true),
        _ => Err(raise("ERR RESP version must be 2 or 3.".into())),
    }
}

fn redis(lua: &Lua) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    redis.raw_set("REDIS_VERSION", super::commands::VERSION)?;
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
    redis.raw_set(
        "set_repl",
        lua.create_function(|_, args: MultiValue| {
            if args.len() != 1 {
                return Err(raise("ERR redis.set_repl() requires two arguments.".into()));
            }
            // There are no replicas; the flags are only checked.
            match number(args.front()) {
            Some(0.0..4.0) => Ok(()),
            _ => Err(raise(
                "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
                    .into(),
            )),
        }
        })?,
    )?;
    redis.raw_set(
        "acl_check_cmd",
        lua.create_function(|_, args: MultiValue| {
            if args.is_empty() {
                return Err(raise(
                    "ERR Please specify at least one argument for this redis.acl_check_cmd() call"
                        .into(),
                ));
            }
            Ok(true)
        })?,
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
