//! Sets.

use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx, SYNTAX, positive};

pub(super) fn sadd(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let set = db.set_or_new(args[1])?;
    let added = args[2..]
        .iter()
        .filter(|member| set.insert(member, ()))
        .count();
    if added > 0 {
        db.modified(args[1]);
    }
    Ok(Reply::count(added))
}

pub(super) fn srem(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let db = ctx.db();
    let Some(set) = db.set_mut(args[1])? else {
        return Ok(Reply::Int(0));
    };
    let removed = args[2..].iter().filter(|member| set.remove(member)).count();
    if removed > 0 {
        db.prune(args[1]);
        db.modified(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn sismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(ctx
        .db()
        .set(args[1])?
        .is_some_and(|set| set.contains(args[2]))
        .into())
}

pub(super) fn smismember(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let set = ctx.db().set(args[1])?;
    let known = |member: &&[u8]| Reply::from(set.is_some_and(|set| set.contains(member)));
    Ok(Reply::Array(args[2..].iter().map(known).collect()))
}

pub(super) fn smembers(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let set = ctx.db().set(args[1])?;
    let members = set.into_iter().flat_map(|set| set.iter());
    Ok(Reply::Set(
        members
            .map(|(member, ())| Reply::Bulk(Blob::clone(member)))
            .collect(),
    ))
}

pub(super) fn scard(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.db().set(args[1])?.map_or(0, |set| set.len()),
    ))
}

pub(super) fn spop(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let count = match args {
        [_, _] => None,
        [_, _, count] => Some(positive(count)?),
        _ => return Err(SYNTAX.into()),
    };
    let len = ctx.db().set(args[1])?.map_or(0, |set| set.len());
    let mut popped = Vec::new();
    for left in (0..len).rev().take(count.unwrap_or(1)) {
        let at = ctx.state.random(left + 1);
        let db = ctx.db();
        let Some(set) = db.set_mut(args[1])? else {
            break;
        };
        let Some(member) = set.nth(at).map(Blob::clone) else {
            break;
        };
        set.remove(&member);
        popped.push(Reply::Bulk(member));
    }
    if !popped.is_empty() {
        let db = ctx.db();
        db.prune(args[1]);
        db.modified(args[1]);
    }
    Ok(match count {
        None => popped.pop().unwrap_or(Reply::Nil),
        Some(_) => Reply::Set(popped),
    })
}
