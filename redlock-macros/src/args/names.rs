//! The names of options, here and in other libraries.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;

use crate::messages::{did_you_mean, listed, nearest};

/// Every option with an example of its value, in the order in which messages list them.
pub(super) const OPTIONS: [(&str, &str); 23] = [
    ("key", "\"order:<user_id>\""),
    ("keys", "[\"account:<from>\", \"account:<to>\"]"),
    ("kind", "fair"),
    ("once", "fire_time"),
    ("wait", "\"1s\""),
    ("lease", "\"30s\""),
    ("renew", "true"),
    ("max_hold", "\"5m\""),
    ("min_hold", "\"10s\""),
    ("replica_ack", "majority"),
    ("fsync", "all"),
    ("client", "self.locks"),
    ("owner", "self.owner"),
    ("on_timeout", "skip"),
    ("on_unavailable", "error"),
    ("on_lost", "finish"),
    ("map_err", "AppError::Lock"),
    ("when", "amount > 0"),
    ("guard", "held"),
    ("token", "number"),
    ("name", "\"place-order\""),
    ("blocking", "true"),
    ("crate", "::redlock_rt"),
];

/// The names of our options in other libraries. For hints only: none of them is accepted.
pub(super) const FOREIGN: [(&str, &str); 85] = [
    ("lock_key", "key"),
    ("lockKey", "key"),
    ("lock_name", "key"),
    ("lockName", "key"),
    ("resource", "key"),
    ("expression", "key"),
    ("lock_keys", "keys"),
    ("lockKeys", "keys"),
    ("resources", "keys"),
    ("lock_type", "kind"),
    ("lockType", "kind"),
    ("type", "kind"),
    ("fair", "kind = fair"),
    ("read", "kind = read"),
    ("write", "kind = write"),
    ("fenced", "kind = fenced"),
    ("spin", "kind = spin"),
    ("reentrant", "kind = reentrant"),
    ("semaphore", "kind = semaphore(limit = ..)"),
    ("permits", "kind = semaphore(limit = ..)"),
    ("limit", "kind = semaphore(limit = ..)"),
    ("max_permits", "kind = semaphore(limit = ..)"),
    ("acquire_timeout", "wait"),
    ("acquireTimeout", "wait"),
    ("timeout", "wait"),
    ("retry", "wait"),
    ("retries", "wait"),
    ("attempts", "wait"),
    ("max_retries", "wait"),
    ("wait_time", "wait"),
    ("waitTime", "wait"),
    ("wait_timeout", "wait"),
    ("expire", "lease"),
    ("expiration", "lease"),
    ("expiry", "lease"),
    ("lease_time", "lease"),
    ("leaseTime", "lease"),
    ("ttl", "lease"),
    ("at_most", "max_hold"),
    ("lock_at_most_for", "max_hold"),
    ("lockAtMostFor", "max_hold"),
    ("at_least", "min_hold"),
    ("lock_at_least_for", "min_hold"),
    ("lockAtLeastFor", "min_hold"),
    ("replicas", "replica_ack"),
    ("wait_replicas", "replica_ack"),
    ("wait_for_replicas", "replica_ack"),
    ("sync_replicas", "replica_ack"),
    ("check_lock_synced_slaves", "replica_ack"),
    ("checkLockSyncedSlaves", "replica_ack"),
    ("quorum", "replica_ack"),
    ("acks", "replica_ack"),
    ("on_disk", "fsync"),
    ("durable", "fsync"),
    ("aof", "fsync"),
    ("waitaof", "fsync"),
    ("auto_renew", "renew"),
    ("autoRenew", "renew"),
    ("auto_renewal", "renew"),
    ("refresh", "renew"),
    ("watchdog", "renew"),
    ("store", "client"),
    ("transport", "client"),
    ("redis", "client"),
    ("condition", "when"),
    ("if", "when"),
    ("fail_strategy", "on_timeout"),
    ("failStrategy", "on_timeout"),
    ("lock_timeout_strategy", "on_timeout"),
    ("lockTimeoutStrategy", "on_timeout"),
    ("on_fail", "on_timeout"),
    ("on_contended", "on_timeout"),
    ("on_skip", "on_timeout"),
    ("skip_handler", "on_timeout"),
    ("skipHandler", "on_timeout"),
    ("fallback", "on_timeout"),
    ("on_error", "on_unavailable"),
    ("release_timeout_strategy", "on_lost"),
    ("releaseTimeoutStrategy", "on_lost"),
    ("on_lease_expired", "on_lost"),
    ("onLeaseExpired", "on_lost"),
    ("exception", "map_err"),
    ("error", "map_err"),
    ("fencing_token", "token"),
    ("label", "name"),
];

pub(super) fn unknown(name: &Ident) -> syn::Error {
    let text = name.unraw().to_string();
    let names = OPTIONS.map(|(option, _)| option);
    let foreign = FOREIGN
        .iter()
        .find(|(foreign, _)| *foreign == text)
        .map(|(_, ours)| *ours);
    let hint = did_you_mean(foreign.or_else(|| nearest(&text, names)));
    syn::Error::new(
        name.span(),
        format_args!(
            "unknown option `{text}`; {hint}the options are {}",
            listed(&names)
        ),
    )
}

pub(super) fn without_value(name: &Ident) -> syn::Error {
    syn::Error::new(
        name.span(),
        format_args!("`{name}` needs a value: {}", Example(name)),
    )
}

/// The mistake that the value of `name` is not an expression; `error` has the reason.
pub(super) fn unreadable(name: &Ident, error: &syn::Error) -> syn::Error {
    let text = error.to_string();
    // An error without a place is reported at all tokens between the parentheses.
    let span = if text.starts_with("unexpected end") {
        name.span()
    } else {
        error.span()
    };
    let message = if name == "kind" {
        format!("`kind`: {text}; write it as in `kind = semaphore(limit = 10)`")
    } else {
        format!("`{name}`: {text}; write it as in {}", Example(name))
    };
    syn::Error::new(span, message)
}

/// `wait = "1s"`, as code.
pub(super) struct Example<'a>(pub(super) &'a Ident);

impl std::fmt::Display for Example<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(name) = self;
        let text = name.unraw().to_string();
        let option = OPTIONS.iter().find(|(option, _)| *option == text);
        let value = option.map_or("..", |(_, value)| value);
        write!(f, "`{text} = {value}`")
    }
}
