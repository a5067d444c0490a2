//! Options that contradict each other.

use std::time::Duration;

use proc_macro2::Span;

use super::parameters::same;
use crate::args::{Args, KeysArg, OptionSlot};
use crate::errors::Errors;
use crate::plan::{FsyncArg, LockKindArg, RenewArg, ReplicaAckArg, TimeArg, Wait};

pub(super) fn check(args: &Args, errors: &mut Errors) {
    durations(args, errors);
    waiting(args, errors);
    keys(args, errors);
    kinds(args, errors);
    bindings(args, errors);
    once(args, errors);
    servers(args, errors);
}

fn durations(args: &Args, errors: &mut Errors) {
    let lease = literal(&args.lease);
    let max_hold = literal(&args.max_hold);
    let min_hold = literal(&args.min_hold);
    let renew = args.renew.get();
    if let (Some((lease, _)), Some((max_hold, span))) = (lease, max_hold) {
        let is_renewed =
            !matches!(renew, Some(renew) if matches!(renew.value, RenewArg::Bool(false)));
        if max_hold < lease {
            errors.at(
                span,
                "`max_hold` is shorter than `lease`: the lock would outlive it; make `lease` at \
                 most `max_hold`",
            );
        } else if max_hold > lease && !is_renewed {
            errors.at(
                span,
                "`max_hold` is never reached: with `renew = false` the lock ends with its shorter \
                 `lease`; leave out `max_hold`, or `renew`",
            );
        }
    }
    if let (Some((lease, _)), Some(renew)) = (lease, renew)
        && let RenewArg::Every(every) = renew.value
        && every >= lease - margin(lease)
    {
        errors.at(
            renew.span,
            "`renew` is not shorter than `lease` without its margin: the lock would end before it \
             is renewed; leave it out for every third of the lease",
        );
    }
    if let (Some((min_hold, span)), Some((max_hold, _))) = (min_hold, max_hold)
        && min_hold > max_hold
    {
        errors.at(
            span,
            "`min_hold` is longer than `max_hold`: make it at most as long",
        );
    }
}

fn servers(args: &Args, errors: &mut Errors) {
    if let (Some(ack), Some(fsync)) = (args.replica_ack.get(), args.fsync.get())
        && matches!(ack.value, ReplicaAckArg::None)
        && matches!(fsync.value, FsyncArg::Replicas)
    {
        errors.at(
            fsync.span,
            "`fsync = replicas` waits for the replicas of `replica_ack`, which is `none`: say \
             there how many, or use `fsync = all` for the master alone",
        );
    }
}

fn literal(time: &OptionSlot<TimeArg>) -> Option<(Duration, Span)> {
    let time = time.get()?;
    match time.value {
        TimeArg::Literal(literal) => Some((literal, time.span)),
        TimeArg::Expr(_) => None,
    }
}

fn waiting(args: &Args, errors: &mut Errors) {
    if let (Some(wait), Some(on_timeout)) = (args.wait.get(), args.on_timeout.get())
        && matches!(wait.value, Wait::Forever)
    {
        errors.at(
            on_timeout.span,
            "`on_timeout` never happens with `wait = forever`: leave it out, or wait for a \
             duration",
        );
    }
}

fn keys(args: &Args, errors: &mut Errors) {
    let Some(keys) = args.keys.get() else { return };
    if !args.key.is_unset() {
        errors.at(
            keys.span,
            "`key` and `keys` are both set: one lock has a `key`, several that are taken together \
             have `keys`; write all of them into `keys`",
        );
    }
    if let KeysArg::Each(each) = &keys.value {
        for (index, key) in each.iter().enumerate() {
            let earlier = &each[..index];
            if earlier
                .iter()
                .any(|earlier| earlier.value.is_same(&key.value))
            {
                errors.at(
                    key.span,
                    "this is among the `keys` already, and a lock is taken once: leave it out",
                );
            }
        }
    }
    if let Some(kind) = args.kind.get()
        && matches!(kind.value, LockKindArg::Semaphore { .. })
    {
        errors.at(
            kind.span,
            "`keys` are locks, and permits of several semaphores cannot be taken together: use \
             one `key`, or another kind",
        );
    }
}

fn kinds(args: &Args, errors: &mut Errors) {
    let reentrant = LockKindArg::Reentrant;
    let kind = match &args.kind {
        OptionSlot::Unset => &reentrant,
        OptionSlot::Set(kind) => &kind.value,
        // The intended option may be compatible with all others.
        OptionSlot::Invalid => return,
    };
    if let (LockKindArg::Semaphore { .. }, Some(owner)) = (kind, args.owner.get()) {
        errors.at(
            owner.span,
            "`owner` does not go with a semaphore: permits belong to nobody; leave it out",
        );
    }
    if let Some(min_hold) = args.min_hold.get() {
        if matches!(kind, LockKindArg::Semaphore { .. } | LockKindArg::Read) {
            errors.at(
                min_hold.span,
                "`min_hold` needs a lock that one caller holds alone: it goes only with the kinds \
                 `reentrant`, `write`, `fair`, `fenced` and `spin`",
            );
        } else if !args.keys.is_unset() {
            errors.at(
                min_hold.span,
                "`min_hold` goes only with one `key`, not with `keys`: leave it out",
            );
        }
    }
    if let Some(token) = args.token.get() {
        if !args.keys.is_unset() {
            errors.at(
                token.span,
                "`token` goes only with one `key`: the locks of `keys` have no fencing token \
                 together; leave it out",
            );
        } else if !matches!(kind, LockKindArg::Fenced) && args.once.is_unset() {
            errors.at(
                token.span,
                "only a fenced lock has a fencing token: add `kind = fenced`",
            );
        }
    }
}

/// A function that runs once has its own lock, and its own result if it is not run.
fn once(args: &Args, errors: &mut Errors) {
    if args.once.is_unset() {
        return;
    }
    let kind = "what is done once has a lock of its own kind; leave it out";
    for (span, option, why) in [
        (args.kind.span(), "kind", kind),
        (args.keys.span(), "keys", "it has one name; use `key`"),
        (
            args.owner.span(),
            "owner",
            "nobody re-enters what is done once; leave it out",
        ),
        (
            args.min_hold.span(),
            "min_hold",
            "a fire that is done stays done; leave it out",
        ),
        (
            args.on_timeout.span(),
            "on_timeout",
            "a call that runs nothing returns `Ok(None)`; leave it out",
        ),
        (
            args.when.span(),
            "when",
            "put the condition into the caller, or into the body",
        ),
    ] {
        if let Some(span) = span {
            errors.at(
                span,
                format_args!("`{option}` does not go with `once`: {why}"),
            );
        }
    }
}

fn bindings(args: &Args, errors: &mut Errors) {
    let (guard, token) = (args.guard.get(), args.token.get());
    if let (Some(guard), Some(token)) = (guard, token)
        && same(&guard.value, &token.value)
    {
        errors.at(
            token.span,
            format_args!(
                "`guard` and `token` are both called `{}`: give them different names",
                token.value
            ),
        );
    }
    if args.when.is_unset() {
        return;
    }
    for (option, binding) in [("guard", guard), ("token", token)] {
        if let Some(binding) = binding {
            errors.at(
                binding.span,
                format_args!(
                    "`{option}` does not go with `when`: where that is false, the body runs \
                     without a lock and there is no {option}; leave one of them out"
                ),
            );
        }
    }
}

/// As in redlock-rt: a hold ends here this much earlier than in Redis.
fn margin(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2).min(lease / 10)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
