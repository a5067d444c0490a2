//! The library's ACL rule for the kinds in use, and the keys and channels that they need rights to.

use redlock_rt::{AclKind, Client, Error};

use super::Kind;
use super::facts::Facts;

/// Scripts need all rights to their keys.
const SCRIPT: &str = "EVALSHA 0 1 K";
const SUBSCRIBE: &str = "SUBSCRIBE C";
/// The notes of thefts.
const STOLEN: &str = "~redlock_stolen";
/// The leases of readers and of permits.
const LEASES: &str = "~{";
/// The channels of latches have every name in braces.
const LATCHES: &str = "&redisson_countdownlatch__channel__{";
/// The channels of fair locks.
const WAKE: &str = "&redlock_wake:*";

/// Keys, or channels.
#[derive(Debug)]
pub(super) struct Place {
    /// As in a rule: `~` and keys, or `&` and channels.
    pub(super) pattern: String,
    /// One such key or channel.
    pub(super) sample: String,
    /// Only names that contain `{` have keys or channels there.
    pub(super) braced: bool,
}

impl Place {
    /// The command that is checked with the sample.
    pub(super) fn command(&self) -> &'static str {
        match self.pattern.starts_with('~') {
            true => SCRIPT,
            false => SUBSCRIBE,
        }
    }

    /// Whether calls are refused without it.
    pub(super) fn is_serious(&self) -> bool {
        self.pattern.starts_with('~') && !self.sample.starts_with(&STOLEN[1..])
    }
}

/// The kinds of the library for one of ours; an RLock is in each rule.
fn in_rules(kind: Kind) -> &'static [AclKind] {
    match kind {
        Kind::Rlock => &[],
        Kind::Fair => &[AclKind::FairLock],
        Kind::ReadWrite => &[AclKind::ReadWriteLock],
        Kind::Fenced => &[AclKind::FencedLock],
        Kind::Once => &[AclKind::Once],
        Kind::Semaphore => &[AclKind::Semaphore, AclKind::PermitExpirableSemaphore],
        Kind::Latch => &[AclKind::CountDownLatch],
        Kind::Barrier => &[AclKind::Barrier],
    }
}

/// The library's rule for any namespace, for a server like this one.
pub(super) fn rule(kinds: &[Kind], facts: &Facts) -> Result<String, Error> {
    let url = match facts.info("cluster_enabled") {
        Some("1") => "redis+cluster://localhost",
        _ => "redis://localhost",
    };
    let client = Client::builder().url(url).namespace("any").build()?;
    let kinds = kinds.iter().flat_map(|kind| in_rules(*kind)).copied();
    Ok(client.acl_rule(kinds))
}

/// The prefixes of the keys (`~`) and channels (`&`) of a rule that belong to a name. After the prefix the name
/// is in braces, unless it contains `{`.
fn starts(rule: &str) -> Vec<&str> {
    let words = rule.split(' ');
    let mut starts: Vec<_> = words
        .filter_map(|word| word.strip_suffix(":any:*"))
        .collect();
    // Last: a right that only this key needs is not serious, and each pattern is checked once.
    starts.sort_by_key(|start| *start == STOLEN);
    starts
}

/// The places besides the keys that begin with the namespace, if there is one.
pub(super) fn of(namespace: Option<&str>, rule: &str) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for start in starts(rule) {
        let (sign, name) = start.split_at(1);
        let Some(namespace) = namespace else {
            let pattern = match sign {
                "~" => "~*".to_owned(),
                _ if name.starts_with("redisson_") => "&redisson_*".to_owned(),
                _ => format!("{start}:*"),
            };
            places.push(Place {
                pattern,
                sample: format!("{name}:{{redlock_probe}}"),
                braced: false,
            });
            continue;
        };
        places.push(Place {
            pattern: format!("{start}:{{{namespace}:*"),
            sample: format!("{name}:{{{namespace}:redlock_probe}}"),
            braced: false,
        });
        places.push(Place {
            pattern: format!("{start}:{namespace}:*"),
            sample: format!("{name}:{namespace}:redlock_probe:{{1}}"),
            braced: true,
        });
    }
    for start in [LEASES, LATCHES] {
        if let Some(namespace) = namespace
            && rule.contains(&format!("{start}any:"))
        {
            places.push(Place {
                pattern: format!("{start}{namespace}:*"),
                sample: format!("{}{namespace}:redlock_probe}}:1", &start[1..]),
                braced: false,
            });
        }
    }
    if rule.contains(WAKE) {
        places.push(Place {
            pattern: WAKE.to_owned(),
            sample: "redlock_wake:redlock_probe".to_owned(),
            braced: false,
        });
    }
    places
}
