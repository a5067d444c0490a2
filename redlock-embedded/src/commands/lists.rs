//! Lists.

use super::super::resp::{Blob, Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, int, is, position, positions, positive, wrong_arity};
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Front,
    Back,
}

fn push(ctx: &mut Ctx<'_>, args: CommandArgs<'_>, end: ListEnd) -> Result<RespReply, Fail> {
    let db = ctx.db();
    let list = db.list_or_new(args[1])?;
    for item in &args[2..] {
        match end {
            ListEnd::Front => list.push_front(Blob::from(*item)),
            ListEnd::Back => list.push_back(Blob::from(*item)),
        }
    }
    Ok(RespReply::count(list.len()))
}

pub(super) fn lpush(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    push(ctx, args, ListEnd::Front)
}

pub(super) fn rpush(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    push(ctx, args, ListEnd::Back)
}

fn pop(
    ctx: &mut Ctx<'_>,
    args: CommandArgs<'_>,
    name: &str,
    end: ListEnd,
) -> Result<RespReply, Fail> {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let count = args.get(2).map(|count| positive(count)).transpose()?;
    let take = |list: &mut VecDeque<Blob>| match end {
        ListEnd::Front => list.pop_front(),
        ListEnd::Back => list.pop_back(),
    };
    let popped = ctx.db().change_list(args[1], |list| match count {
        None => RespReply::blob_or_nil(take(list).as_ref()),
        Some(count) => {
            let items = (0..count.min(list.len())).filter_map(|_| take(list));
            RespReply::Array(items.map(RespReply::Bulk).collect())
        }
    })?;
    Ok(match (popped, count) {
        (Some(popped), _) => popped,
        (None, Some(_)) => RespReply::NilArray,
        (None, None) => RespReply::Nil,
    })
}

pub(super) fn lpop(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    pop(ctx, args, "lpop", ListEnd::Front)
}

pub(super) fn rpop(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    pop(ctx, args, "rpop", ListEnd::Back)
}

pub(super) fn llen(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::count(
        ctx.db().list(args[1])?.map_or(0, VecDeque::len),
    ))
}

pub(super) fn lindex(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let Some(list) = ctx.db().list(args[1])? else {
        return Ok(RespReply::Nil);
    };
    let at = position(int(args[2])?, list.len());
    Ok(RespReply::blob_or_nil(at.and_then(|at| list.get(at))))
}

pub(super) fn lrange(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let (start, stop) = (int(args[2])?, int(args[3])?);
    let Some(list) = ctx.db().list(args[1])? else {
        return Ok(RespReply::Array(Vec::new()));
    };
    let items = list.range(positions(start, stop, list.len()));
    Ok(RespReply::bulks(items))
}

pub(super) fn lrem(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let count = int(args[2])?;
    let item = args[3];
    let most = match count.unsigned_abs() {
        0 => usize::MAX,
        most => usize::try_from(most).unwrap_or(usize::MAX),
    };
    let removed = ctx.db().change_list(args[1], |list| {
        let matching = list.iter().filter(|known| ***known == *item).count();
        let removed = matching.min(most);
        // A negative count removes from the end, so the first matches are those kept.
        let mut keep = if count < 0 { matching - removed } else { 0 };
        let mut remove = removed;
        list.retain(|known| {
            if **known != *item || keep > 0 || remove == 0 {
                keep -= usize::from(**known == *item && keep > 0);
                return true;
            }
            remove -= 1;
            false
        });
        removed
    })?;
    Ok(RespReply::count(removed.unwrap_or(0)))
}

pub(super) fn lpos(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let (mut rank, mut count, mut most) = (1, None, 0);
    for option in args[3..].chunks(2) {
        match option {
            [word, value] if is(word, "RANK") => {
                rank = int(value)?;
                if rank == 0 {
                    return Err(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 \
                                from the second ... or use negative to start from the end of the \
                                list"
                            .into(),
                    );
                }
                // Negating the smallest number overflows in Redis: it counts as the last match.
                rank = if rank == i64::MIN { -1 } else { rank };
            }
            [word, value] if is(word, "COUNT") => {
                count = Some(positive(value).map_err(|_| "ERR COUNT can't be negative")?);
            }
            [word, value] if is(word, "MAXLEN") => {
                most = positive(value).map_err(|_| "ERR MAXLEN can't be negative")?;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let list = ctx.db().list(args[1])?;
    let Some(list) = list else {
        return Ok(if count.is_some() {
            RespReply::Array(Vec::new())
        } else {
            RespReply::Nil
        });
    };
    let skip = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let looked_at = if most == 0 { list.len() } else { most };
    let wanted = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count,
    };
    let place = |at: usize| if rank > 0 { at } else { list.len() - 1 - at };
    let places = (0..list.len()).take(looked_at).map(place);
    let matches = places.filter(|at| *list[*at] == *args[2]);
    let found: Vec<RespReply> = matches
        .skip(skip)
        .take(wanted)
        .map(RespReply::count)
        .collect();
    Ok(match count {
        None => found.into_iter().next().unwrap_or(RespReply::Nil),
        Some(_) => RespReply::Array(found),
    })
}
