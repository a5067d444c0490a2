//! Commands about the connection itself.

use super::super::resp::{Blob, Fail, RespReply};
use super::super::state::DATABASES;
use super::call::{CommandArgs, Ctx, SYNTAX, c_string, int, is, wrong_arity};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";

pub(super) fn ping(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    if args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    let text = args.get(1).copied();
    if ctx.client()?.is_subscriber() {
        let text = Blob::from(text.unwrap_or_default());
        return Ok(RespReply::Array(vec![
            RespReply::Text("pong"),
            RespReply::Bulk(text),
        ]));
    }
    Ok(match text {
        Some(text) => RespReply::Bulk(text.into()),
        None => RespReply::status("PONG"),
    })
}

fn check_password(ctx: &mut Ctx<'_>, user: &[u8], password: &[u8]) -> Result<RespReply, Fail> {
    let expected = ctx.state.password.as_ref();
    if user != b"default" || expected.is_some_and(|expected| **expected != *password) {
        return Err(WRONG_PASSWORD.into());
    }
    ctx.client()?.authenticated = true;
    Ok(RespReply::Ok)
}

pub(super) fn auth(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    match args {
        [_, _] if ctx.state.password.is_none() => Err(NO_PASSWORD.into()),
        [_, password] => check_password(ctx, b"default", password),
        [_, user, password] => check_password(ctx, user, password),
        _ => Err(SYNTAX.into()),
    }
}

pub(super) fn select(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let index = i32::try_from(int(args[1])?)
        .map_err(|_| "ERR value is out of range, value must between -2147483648 and 2147483647")?;
    let index = usize::try_from(index)
        .ok()
        .filter(|index| *index < DATABASES);
    ctx.db = index.ok_or("ERR DB index is out of range")?;
    Ok(RespReply::Ok)
}

pub(super) fn id(ctx: &mut Ctx<'_>, _: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::Int(
        i64::try_from(ctx.client).unwrap_or(i64::MAX),
    ))
}

/// No command shows the name.
pub(super) fn set_name(_: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    if args[2].iter().all(u8::is_ascii_graphic) {
        return Ok(RespReply::Ok);
    }
    Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
}

/// A command of Redis 7.2, which clients send without asking for the version. No command shows the
/// values.
pub(super) fn set_info(_: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    if is(args[2], "LIB-NAME") || is(args[2], "LIB-VER") {
        return Ok(RespReply::Ok);
    }
    let mut text = b"ERR Unrecognized option '".to_vec();
    text.extend_from_slice(c_string(args[2], usize::MAX));
    text.push(b'\'');
    Err(text.into())
}

/// Only the form with an ID. As in Redis, the caller is not killed.
pub(super) fn kill(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let id = match args {
        [_, _, word, id] if is(word, "ID") => id,
        _ => return Err("ERR the embedded engine kills by ID only".into()),
    };
    let id = int(id).ok().and_then(|id| u64::try_from(id).ok());
    let id = id
        .filter(|id| *id > 0)
        .ok_or("ERR client-id should be greater than 0")?;
    let kills = id != ctx.client && ctx.state.clients.contains_key(&id);
    if kills {
        ctx.state.disconnect(id, true);
    }
    Ok(kills.into())
}
