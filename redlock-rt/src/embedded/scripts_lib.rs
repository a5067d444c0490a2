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
        lua.create_function(|lua, ()| Ok(script_line(lua)))?,
    )?;
    native.raw_set("redis", redis(lua)?)?;
    let libraries = lua.create_table()?;
    libraries.raw_set("cjson", super::scripts_json::library(lua)?)?;
    libraries.raw_set("bit", super::scripts_bit::library(lua)?)?;
    native.raw_set("libraries", libraries)?;
    Ok(native)
}

/// The line of the script that is being executed.
pub(super) fn script_line(lua: &Lua) -> Option<usize> {
    let mut level = 1;
    loop {
        let (ours, line) = lua.inspect_stack(level, |frame| {
            let ours = frame
                .source()
                .source
                .is_some_and(|source| source == "@user_script");
            (ours, frame.current_line())
        })?;
        if ours {
            return line;
        }
        level += 1;
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
            match args.front().and_then(Value::as_f64) {
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
    let Some(level) = args.front().and_then(Value::as_f64) else {
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
