//! Sets.

use super::super::resp::{Fail, RespReply};
use super::call::{CommandArgs, Ctx};

pub(super) fn sadd(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let set = db.set_or_new(args[1])?;
    let added = args[2..]
        .iter()
        .filter(|member| set.insert(member, ()))
        .count();
    Ok(RespReply::count(added))
}

pub(super) fn srem(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let removed = ctx.db().change_set(args[1], |set| {
        args[2..].iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(RespReply::count(removed.unwrap_or(0)))
}

pub(super) fn sismember(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(ctx
        .db()
        .set(args[1])?
        .is_some_and(|set| set.contains(args[2]))
        .into())
}

pub(super) fn smembers(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let set = ctx.db().set(args[1])?;
    let members = set.into_iter().flat_map(|set| set.iter());
    Ok(RespReply::bulks(members.map(|(member, ())| member)))
}

pub(super) fn scard(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::count(
        ctx.db().set(args[1])?.map_or(0, |set| set.len()),
    ))
}
