//! Sorted sets, by range of ranks, of scores or of members.

use super::super::collections::SortedSet;
use super::super::num;
use super::super::resp::{Blob, Fail, Reply};
use super::{Args, Ctx, SYNTAX, int, is, positions};
use std::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// One end of a range of scores.
#[derive(Clone, Copy)]
struct ScoreBound {
    value: f64,
    exclusive: bool,
}

fn score_bound(arg: &[u8]) -> Result<ScoreBound, Fail> {
    let (exclusive, text) = match arg {
        [b'(', text @ ..] => (true, text),
        _ => (false, arg),
    };
    let value = num::parse_bound(text).ok_or("ERR min or max is not a float")?;
    Ok(ScoreBound { value, exclusive })
}

/// One end of a range of members.
#[derive(Clone, Copy)]
enum LexBound<'a> {
    Lowest,
    Highest,
    Member { member: &'a [u8], exclusive: bool },
}

fn lex_bound(arg: &[u8]) -> Result<LexBound<'_>, Fail> {
    match arg {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'(', member @ ..] => Ok(LexBound::Member {
            member,
            exclusive: true,
        }),
        [b'[', member @ ..] => Ok(LexBound::Member {
            member,
            exclusive: false,
        }),
        _ => Err("ERR min or max not valid string range item".into()),
    }
}

#[derive(Clone, Copy)]
enum Wanted<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(LexBound<'a>, LexBound<'a>),
}

impl<'a> Wanted<'a> {
    fn parse(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Self, Fail> {
        Ok(match by {
            By::Rank => Self::Ranks(int(min)?, int(max)?),
            By::Score => Self::Scores(score_bound(min)?, score_bound(max)?),
            By::Lex => Self::Members(lex_bound(min)?, lex_bound(max)?),
        })
    }

    /// The ranks of the members in range, lowest first.
    fn ranks(self, zset: &SortedSet) -> Range<usize> {
        let (start, end) = match self {
            Self::Ranks(start, stop) => return positions(start, stop, zset.len()),
            Self::Scores(min, max) => (
                zset.prefix(|score, _| {
                    if min.exclusive {
                        score <= min.value
                    } else {
                        score < min.value
                    }
                }),
                zset.prefix(|score, _| {
                    if max.exclusive {
                        score < max.value
                    } else {
                        score <= max.value
                    }
                }),
            ),
            Self::Members(min, max) => (
                zset.prefix(|_, known| match min {
                    LexBound::Lowest => false,
                    LexBound::Highest => true,
                    LexBound::Member {
                        member,
                        exclusive: true,
                    } => known <= member,
                    LexBound::Member {
                        member,
                        exclusive: false,
                    } => known < member,
                }),
                zset.prefix(|_, known| match max {
                    LexBound::Lowest => false,
                    LexBound::Highest => true,
                    LexBound::Member {
                        member,
                        exclusive: true,
                    } => known < member,
                    LexBound::Member {
                        member,
                        exclusive: false,
                    } => known <= member,
                }),
            ),
        };
        start..end.max(start)
    }
}

/// What a command's name settles; options may settle the rest, once.
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
}

fn range(ctx: &mut Ctx<'_>, args: Args<'_>, form: &Form) -> Result<Reply, Fail> {
    let (mut by, mut reverse) = (form.by, form.reverse);
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
        } else if reverse.is_none() && is(word, "REV") {
            reverse = Some(true);
        } else if by.is_none() && is(word, "BYSCORE") {
            by = Some(By::Score);
        } else if by.is_none() && is(word, "BYLEX") {
            by = Some(By::Lex);
        } else {
            return Err(SYNTAX.into());
        }
    }
    let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
    if by == By::Rank && limit.is_some_and(|(_, count)| count != -1) {
        return Err(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE \
                    or BYLEX"
                .into(),
        );
    }
    if by == By::Lex && with_scores {
        return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
    }
    let (min, max) = if reverse && by != By::Rank {
        (args[3], args[2])
    } else {
        (args[2], args[3])
    };
    let wanted = Wanted::parse(by, min, max)?;
    let Some(zset) = ctx.db().zset(args[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let mut ranks = wanted.ranks(zset);
    if reverse && by == By::Rank {
        ranks = zset.len() - ranks.end..zset.len() - ranks.start;
    }
    if by != By::Rank
        && let Some((offset, count)) = limit
    {
        ranks = limited(ranks, offset, count, reverse);
    }
    let ordered: Vec<usize> = if reverse {
        ranks.rev().collect()
    } else {
        ranks.collect()
    };
    let members = ordered.into_iter().filter_map(|rank| zset.nth(rank));
    let bulk = |member: &Blob| Reply::Bulk(Blob::clone(member));
    Ok(if with_scores {
        Reply::Pairs(
            members
                .map(|(score, member)| (bulk(member), Reply::Double(score)))
                .collect(),
        )
    } else {
        Reply::Array(members.map(|(_, member)| bulk(member)).collect())
    })
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

const fn form(by: By, reverse: bool) -> Form {
    Form {
        by: Some(by),
        reverse: Some(reverse),
    }
}

pub(super) fn zrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(
        ctx,
        args,
        &Form {
            by: None,
            reverse: None,
        },
    )
}

pub(super) fn zrevrange(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(ctx, args, &form(By::Rank, true))
}

pub(super) fn zrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(ctx, args, &form(By::Score, false))
}

pub(super) fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(ctx, args, &form(By::Score, true))
}

pub(super) fn zrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(ctx, args, &form(By::Lex, false))
}

pub(super) fn zrevrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    range(ctx, args, &form(By::Lex, true))
}

fn count(ctx: &mut Ctx<'_>, args: Args<'_>, by: By) -> Result<Reply, Fail> {
    let wanted = Wanted::parse(by, args[2], args[3])?;
    let zset = ctx.db().zset(args[1])?;
    Ok(Reply::count(
        zset.map_or(0, |zset| wanted.ranks(zset).len()),
    ))
}

pub(super) fn zcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    count(ctx, args, By::Score)
}

pub(super) fn zlexcount(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    count(ctx, args, By::Lex)
}

fn remove(ctx: &mut Ctx<'_>, args: Args<'_>, by: By) -> Result<Reply, Fail> {
    let wanted = Wanted::parse(by, args[2], args[3])?;
    let db = ctx.db();
    let Some(zset) = db.zset_mut(args[1])? else {
        return Ok(Reply::Int(0));
    };
    let ranks = wanted.ranks(zset);
    let removed = zset.remove_ranks(ranks);
    if removed > 0 {
        db.prune(args[1]);
        db.modified(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn zremrangebyscore(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    remove(ctx, args, By::Score)
}

pub(super) fn zremrangebyrank(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    remove(ctx, args, By::Rank)
}

pub(super) fn zremrangebylex(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    remove(ctx, args, By::Lex)
}
