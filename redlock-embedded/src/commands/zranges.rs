//! Sorted sets, by range of ranks or of scores.

use super::super::collections::SortedSet;
use super::super::num;
use super::super::resp::{Blob, Fail, RespReply};
use super::call::{CommandArgs, Ctx, SYNTAX, int, is, positions};
use std::ops::Range;

/// One end of a range of scores.
#[derive(Clone, Copy)]
struct Bound {
    value: f64,
    exclusive: bool,
}

fn bound(arg: &[u8]) -> Result<Bound, Fail> {
    let (exclusive, text) = match arg {
        [b'(', text @ ..] => (true, text),
        _ => (false, arg),
    };
    let value = num::parse_bound(text).ok_or("ERR min or max is not a float")?;
    Ok(Bound { value, exclusive })
}

#[derive(Clone, Copy)]
enum ZrangeBounds {
    Ranks(i64, i64),
    Scores(Bound, Bound),
}

impl ZrangeBounds {
    fn scores(min: &[u8], max: &[u8]) -> Result<Self, Fail> {
        Ok(Self::Scores(bound(min)?, bound(max)?))
    }

    /// The ranks of the members in range, lowest first.
    fn ranks(self, zset: &SortedSet) -> Range<usize> {
        let (min, max) = match self {
            Self::Ranks(start, stop) => return positions(start, stop, zset.len()),
            Self::Scores(min, max) => (min, max),
        };
        let start = zset.prefix(|score| score < min.value || min.exclusive && score == min.value);
        let end = zset.prefix(|score| score < max.value || !max.exclusive && score == max.value);
        start..end.max(start)
    }
}

/// ZRANGE, or ZRANGEBYSCORE (`fixed`), which has no options for the kind and the direction of the
/// range.
fn range(ctx: &mut Ctx<'_>, args: CommandArgs<'_>, fixed: bool) -> Result<RespReply, Fail> {
    let (mut by_score, mut reverse) = (fixed, false);
    let (mut with_scores, mut limit) = (false, None);
    let mut rest = &args[4..];
    while let [word, more @ ..] = rest {
        rest = more;
        if is(word, "WITHSCORES") {
            with_scores = true;
        } else if is(word, "LIMIT")
            && let [offset, count, more @ ..] = rest
        {
            limit = Some((int(offset)?, int(count)?));
            rest = more;
        } else if !fixed && !reverse && is(word, "REV") {
            reverse = true;
        } else if !fixed && !by_score && is(word, "BYSCORE") {
            by_score = true;
        } else if !fixed && is(word, "BYLEX") {
            return Err("ERR syntax error, the embedded engine has no BYLEX".into());
        } else {
            return Err(SYNTAX.into());
        }
    }
    if !by_score && limit.is_some_and(|(_, count)| count != -1) {
        return Err(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE \
                    or BYLEX"
                .into(),
        );
    }
    let wanted = match (by_score, reverse) {
        (true, false) => ZrangeBounds::scores(args[2], args[3])?,
        (true, true) => ZrangeBounds::scores(args[3], args[2])?,
        (false, _) => ZrangeBounds::Ranks(int(args[2])?, int(args[3])?),
    };
    let Some(zset) = ctx.db().zset(args[1])? else {
        return Ok(RespReply::Array(Vec::new()));
    };
    let mut ranks = wanted.ranks(zset);
    if reverse && !by_score {
        ranks = zset.len() - ranks.end..zset.len() - ranks.start;
    }
    if by_score && let Some((offset, count)) = limit {
        ranks = limited(ranks, offset, count, reverse);
    }
    let ordered: Vec<usize> = if reverse {
        ranks.rev().collect()
    } else {
        ranks.collect()
    };
    let mut replies = Vec::new();
    for (score, member) in ordered.into_iter().filter_map(|rank| zset.nth(rank)) {
        replies.push(RespReply::Bulk(Blob::clone(member)));
        replies.extend(with_scores.then(|| RespReply::double(score)));
    }
    Ok(RespReply::Array(replies))
}

/// Skips and takes, counted from the end at which the range starts. A negative offset leaves
/// nothing, a negative count takes all.
fn limited(ranks: Range<usize>, offset: i64, count: i64, reverse: bool) -> Range<usize> {
    let Ok(offset) = usize::try_from(offset) else {
        return 0..0;
    };
    let left = ranks.len().saturating_sub(offset);
    let taken = usize::try_from(count).map_or(left, |count| left.min(count));
    if taken == 0 {
        return 0..0;
    }
    if reverse {
        let end = ranks.end - offset;
        end - taken..end
    } else {
        let start = ranks.start + offset;
        start..start + taken
    }
}

pub(super) fn zrange(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    range(ctx, args, false)
}

pub(super) fn zrangebyscore(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    range(ctx, args, true)
}

pub(super) fn zcount(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let wanted = ZrangeBounds::scores(args[2], args[3])?;
    let zset = ctx.db().zset(args[1])?;
    Ok(RespReply::count(
        zset.map_or(0, |zset| wanted.ranks(zset).len()),
    ))
}

pub(super) fn zremrangebyscore(
    ctx: &mut Ctx<'_>,
    args: CommandArgs<'_>,
) -> Result<RespReply, Fail> {
    let wanted = ZrangeBounds::scores(args[2], args[3])?;
    let removed = ctx.db().change_zset(args[1], |zset| {
        let ranks = wanted.ranks(zset);
        zset.remove_ranks(ranks)
    })?;
    Ok(RespReply::count(removed.unwrap_or(0)))
}
