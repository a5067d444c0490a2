//! The keys and channels that the kinds in use need a right to.

use super::Kind;

/// Scripts need all rights to their keys.
const SCRIPT: &str = "EVALSHA 0 1 K";
const SUBSCRIBE: &str = "SUBSCRIBE C";

/// Keys, or channels.
#[derive(Debug)]
pub(super) struct Place {
    /// As a rule has it: `~` and keys, or `&` and channels.
    pub(super) pattern: String,
    /// One of them.
    pub(super) sample: String,
    /// Only names that contain `{` have something there.
    pub(super) braced: bool,
}

impl Place {
    /// What is asked for with the sample.
    pub(super) fn command(&self) -> &'static str {
        match self.pattern.starts_with('~') {
            true => SCRIPT,
            false => SUBSCRIBE,
        }
    }

    /// Whether calls are refused without it.
    pub(super) fn is_serious(&self) -> bool {
        self.pattern.starts_with('~') && !self.sample.starts_with("redlock_stolen")
    }
}

/// Of all kinds as [`derived`].
const LOCKS: &str = "~redlock_stolen &redisson_lock__channel";

/// How the keys (`~`) and channels (`&`) of a kind begin that belong to a name. Behind it the name is in braces, unless
/// it contains `{`; so the channel of a latch, which has every name in braces, is left out.
fn derived(kind: Kind) -> &'static str {
    match kind {
        Kind::Rlock => "",
        Kind::Fair => "~redisson_lock_queue ~redisson_lock_timeout ~redlock_fair",
        Kind::ReadWrite => "~redlock_rw_writers &redisson_rwlock",
        Kind::Fenced => "~redisson_lock_token ~redlock_fence",
        Kind::Once => "~redisson_lock_token ~redlock_once",
        Kind::Semaphore => "~redlock_sem ~redlock_op &redisson_sc",
        Kind::Latch => "~redlock_latch_end ~redlock_op",
        Kind::Barrier => {
            "~redlock_barrier ~redlock_barrier_parties ~redlock_double_barrier ~redlock_double_barrier_parties \
             ~redlock_op &redlock_barrier"
        }
    }
}

/// Besides the keys that begin with the namespace, where there is one.
pub(super) fn of(namespace: Option<&str>, kinds: &[Kind]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let of_kinds = kinds.iter().map(|kind| derived(*kind));
    // Last: what only they need is not serious, and a pattern is asked for once.
    let starts = of_kinds.chain([LOCKS]);
    for start in starts.flat_map(str::split_whitespace) {
        let (sign, name) = start.split_at(1);
        let all = match sign {
            "~" => "~*".to_owned(),
            _ if name.starts_with("redisson_") => "&redisson_*".to_owned(),
            _ => format!("{start}:"),
        };
        let Some(namespace) = namespace else {
            places.push(Place {
                pattern: format!("{}*", all.trim_end_matches('*')),
                sample: format!("{name}:{{redlock_probe}}"),
                braced: false,
            });
            continue;
        };
        places.push(Place {
            pattern: format!("{all}{{{namespace}:*"),
            sample: format!("{name}:{{{namespace}:redlock_probe}}"),
            braced: false,
        });
        places.push(Place {
            pattern: format!("{start}:{namespace}:*"),
            sample: format!("{name}:{namespace}:redlock_probe:{{1}}"),
            braced: true,
        });
    }
    if kinds.contains(&Kind::Fair) {
        places.push(Place {
            pattern: "&redlock_wake:*".to_owned(),
            sample: "redlock_wake:redlock_probe".to_owned(),
            braced: false,
        });
    }
    places
}
