//! Publish and subscribe.

use super::super::glob::{self, Matcher};
use super::super::resp::{Blob, Fail, Reply};
use super::super::state::Kind;
use super::call::{Args, Ctx};

fn confirm(word: &'static str, name: Reply, count: usize) -> Reply {
    Reply::Array(vec![Reply::Text(word), name, Reply::count(count)])
}

fn subscribe_all(
    ctx: &mut Ctx<'_>,
    kind: Kind,
    word: &'static str,
    names: Args<'_>,
) -> Result<Reply, Fail> {
    let id = ctx.client;
    let mut confirmations = Vec::with_capacity(names.len());
    for name in names {
        let count = ctx.state.subscribe(id, kind, name)?;
        confirmations.push(confirm(word, Reply::Bulk(Blob::from(*name)), count));
    }
    Ok(Reply::Many(confirmations))
}

fn unsubscribe_all(
    ctx: &mut Ctx<'_>,
    kind: Kind,
    word: &'static str,
    names: Args<'_>,
) -> Result<Reply, Fail> {
    let id = ctx.client;
    let client = ctx.client()?;
    let names: Vec<Blob> = if names.is_empty() {
        client.subscriptions(kind).iter().map(Blob::clone).collect()
    } else {
        names.iter().map(|name| Blob::from(*name)).collect()
    };
    if names.is_empty() {
        return Ok(confirm(word, Reply::Nil, client.subscription_count()));
    }
    let mut confirmations = Vec::with_capacity(names.len());
    for name in names {
        let count = ctx.state.unsubscribe(id, kind, &name);
        confirmations.push(confirm(word, Reply::Bulk(name), count));
    }
    Ok(Reply::Many(confirmations))
}

pub(super) fn subscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    subscribe_all(ctx, Kind::Channel, "subscribe", &args[1..])
}

pub(super) fn psubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    args[1..]
        .iter()
        .try_for_each(|pattern| glob::check(pattern))?;
    subscribe_all(ctx, Kind::Pattern, "psubscribe", &args[1..])
}

pub(super) fn unsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    unsubscribe_all(ctx, Kind::Channel, "unsubscribe", &args[1..])
}

pub(super) fn punsubscribe(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    unsubscribe_all(ctx, Kind::Pattern, "punsubscribe", &args[1..])
}

pub(super) fn publish(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    ctx.state.publish(args[1], args[2]).map(Reply::count)
}

pub(super) fn channels(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    if args.len() > 3 {
        return Err(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP."
                .into(),
        );
    }
    let pattern = args.get(2);
    pattern.map_or(Ok(()), |pattern| glob::check(pattern))?;
    let names = ctx.state.subscribers[Kind::Channel as usize].keys();
    let mut matcher = Matcher::new();
    let wanted = names.filter(|name| pattern.is_none_or(|pattern| matcher.matches(pattern, name)));
    let names = wanted.map(|name| Reply::Bulk(Blob::clone(name))).collect();
    matcher.end().map(|()| Reply::Array(names))
}

pub(super) fn numsub(ctx: &mut Ctx<'_>, args: Args<'_>) -> Result<Reply, Fail> {
    let subscribers = &ctx.state.subscribers[Kind::Channel as usize];
    let count = |name: &&[u8]| {
        let count = subscribers.get(*name).map_or(0, Vec::len);
        [Reply::Bulk(Blob::from(*name)), Reply::count(count)]
    };
    Ok(Reply::Array(args[2..].iter().flat_map(count).collect()))
}

pub(super) fn numpat(ctx: &mut Ctx<'_>, _: Args<'_>) -> Result<Reply, Fail> {
    Ok(Reply::count(
        ctx.state.subscribers[Kind::Pattern as usize].len(),
    ))
}
