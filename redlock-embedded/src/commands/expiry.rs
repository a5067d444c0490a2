//! When keys expire.

use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx, c_string, flags, int};

/// Milliseconds in the unit of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

pub(super) fn invalid(command: &str) -> Fail {
    format!("ERR invalid expire time in '{command}' command").into()
}

/// The point in time that a number means, from a base (now, or zero for absolute times).
pub(super) fn deadline(value: i64, unit: Unit, base: i64) -> Option<i64> {
    let millis = match unit {
        Unit::Seconds => value.checked_mul(1000)?,
        Unit::Milliseconds => value,
    };
    // Only the upper end can overflow: the base is not negative.
    millis.checked_add(base)
}

fn set(
    ctx: &mut Ctx<'_>,
    args: CommandArgs<'_>,
    name: &str,
    unit: Unit,
    relative: bool,
) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let ([absent, present, later, sooner], rest) = flags(&args[3..], ["NX", "XX", "GT", "LT"]);
    if let [other, ..] = rest {
        let mut text = b"ERR Unsupported option ".to_vec();
        text.extend_from_slice(c_string(other, usize::MAX));
        return Err(text.into());
    }
    if absent && (present || later || sooner) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if later && sooner {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let base = if relative { db.now } else { 0 };
    let at = deadline(int(args[2])?, unit, base).ok_or_else(|| invalid(name))?;
    let key = args[1];
    let Some(current) = db.expiry(key) else {
        return Ok(RespReply::Int(0));
    };
    let refused = (absent && current.is_some())
        || (present && current.is_none())
        // A key without expiry lives for ever: nothing is later.
        || (later && current.is_none_or(|current| at <= current))
        || (sooner && current.is_some_and(|current| at >= current));
    if refused {
        return Ok(RespReply::Int(0));
    }
    if at <= db.now {
        db.remove(key);
    } else {
        db.expire_at(key, at);
    }
    Ok(RespReply::Int(1))
}

pub(super) fn expire(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    set(ctx, args, "expire", Unit::Seconds, true)
}

pub(super) fn pexpire(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    set(ctx, args, "pexpire", Unit::Milliseconds, true)
}

pub(super) fn pexpireat(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    set(ctx, args, "pexpireat", Unit::Milliseconds, false)
}

pub(super) fn persist(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(ctx.db().persist(args[1]).into())
}

/// -2 without the key, -1 without expiry.
fn ask(ctx: &mut Ctx<'_>, key: &[u8], unit: Unit) -> RespReply {
    let db = ctx.db();
    let now = db.now;
    RespReply::Int(match db.expiry(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let millis = at.saturating_sub(now).max(0);
            if unit == Unit::Seconds {
                millis.wrapping_add(500) / 1000
            } else {
                millis
            }
        }
    })
}

pub(super) fn ttl(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(ask(ctx, args[1], Unit::Seconds))
}

pub(super) fn pttl(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(ask(ctx, args[1], Unit::Milliseconds))
}
