//! Publish and subscribe.

use super::super::glob::{self, Matcher};
use super::super::resp::{Blob, Fail, RespReply};
use super::super::state::SubscriptionKind;
use super::call::{CommandArgs, Ctx};

fn confirm(word: &'static str, name: RespReply, count: usize) -> RespReply {
    RespReply::Array(vec![RespReply::Text(word), name, RespReply::count(count)])
}

fn subscribe_all(
    ctx: &mut Ctx<'_>,
    kind: SubscriptionKind,
    word: &'static str,
    names: CommandArgs<'_>,
) -> Result<RespReply, Fail> {
    let id = ctx.client;
    let mut confirmations = Vec::with_capacity(names.len());
    for name in names {
        let count = ctx.state.subscribe(id, kind, name)?;
        confirmations.push(confirm(word, RespReply::Bulk(Blob::from(*name)), count));
    }
    Ok(RespReply::Many(confirmations))
}

fn unsubscribe_all(
    ctx: &mut Ctx<'_>,
    kind: SubscriptionKind,
    word: &'static str,
    names: CommandArgs<'_>,
) -> Result<RespReply, Fail> {
    let id = ctx.client;
    let client = ctx.client()?;
    let names: Vec<Blob> = if names.is_empty() {
        client.subscriptions(kind).iter().map(Blob::clone).collect()
    } else {
        names.iter().map(|name| Blob::from(*name)).collect()
    };
    if names.is_empty() {
        return Ok(confirm(word, RespReply::Nil, client.subscription_count()));
    }
    let mut confirmations = Vec::with_capacity(names.len());
    for name in names {
        let count = ctx.state.unsubscribe(id, kind, &name);
        confirmations.push(confirm(word, RespReply::Bulk(name), count));
    }
    Ok(RespReply::Many(confirmations))
}

pub(super) fn subscribe(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    subscribe_all(ctx, SubscriptionKind::Channel, "subscribe", &args[1..])
}

pub(super) fn psubscribe(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    args[1..]
        .iter()
        .try_for_each(|pattern| glob::check(pattern))?;
    subscribe_all(ctx, SubscriptionKind::Pattern, "psubscribe", &args[1..])
}

pub(super) fn unsubscribe(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    unsubscribe_all(ctx, SubscriptionKind::Channel, "unsubscribe", &args[1..])
}

pub(super) fn punsubscribe(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    unsubscribe_all(ctx, SubscriptionKind::Pattern, "punsubscribe", &args[1..])
}

pub(super) fn publish(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    ctx.state.publish(args[1], args[2]).map(RespReply::count)
}

pub(super) fn channels(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    if args.len() > 3 {
        return Err(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP."
                .into(),
        );
    }
    let pattern = args.get(2);
    pattern.map_or(Ok(()), |pattern| glob::check(pattern))?;
    let names = ctx.state.subscribers[SubscriptionKind::Channel as usize].keys();
    let mut matcher = Matcher::new();
    let wanted = names.filter(|name| pattern.is_none_or(|pattern| matcher.matches(pattern, name)));
    let names = RespReply::bulks(wanted);
    matcher.end().map(|()| names)
}

pub(super) fn numsub(ctx: &mut Ctx<'_>, args: CommandArgs<'_>) -> Result<RespReply, Fail> {
    let subscribers = &ctx.state.subscribers[SubscriptionKind::Channel as usize];
    let count = |name: &&[u8]| {
        let count = subscribers.get(*name).map_or(0, Vec::len);
        [RespReply::Bulk(Blob::from(*name)), RespReply::count(count)]
    };
    Ok(RespReply::Array(args[2..].iter().flat_map(count).collect()))
}

pub(super) fn numpat(ctx: &mut Ctx<'_>, _: CommandArgs<'_>) -> Result<RespReply, Fail> {
    Ok(RespReply::count(
        ctx.state.subscribers[SubscriptionKind::Pattern as usize].len(),
    ))
}
