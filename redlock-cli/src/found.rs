//! The objects in Redis, for people and for programs.

use std::time::Duration;

use redlock_rt::{FoundKind, Holding, Inspection};
use serde_json::{Value, json};

use crate::server::Server;

/// The third group of the UUIDs of clients of redlock-rt (docs/protocol.md).
const MARK: &str = "8fa1";

pub(crate) fn kind(kind: FoundKind) -> &'static str {
    match kind {
        FoundKind::Lock => "lock",
        FoundKind::FairLock => "fair",
        FoundKind::FencedLock => "fenced",
        FoundKind::ReadWriteLock => "read-write",
        FoundKind::Semaphore => "semaphore",
        FoundKind::PermitExpirableSemaphore => "permits",
        FoundKind::CountDownLatch => "latch",
        FoundKind::Number => "number",
        _ => "other",
    }
}

/// The number of waiters that Redis shows.
pub(crate) fn waiters(found: &Inspection) -> u64 {
    found.queued.max(found.listening.unwrap_or(0))
}

/// The library of a holder.
pub(crate) fn library(holding: &Holding) -> &'static str {
    match holding.id.client().split('-').nth(2) {
        Some(MARK) => "redlock-rt",
        Some(_) => "Redisson",
        None => "permit",
    }
}

pub(crate) fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The same fields for ls, show and watch.
pub(crate) fn object(server: &Server, found: &Inspection) -> Value {
    let holders = found.holders.iter().map(|holding| {
        json!({
            "id": holding.id.as_str(),
            "library": library(holding),
            "count": holding.count,
            "ttl_ms": millis(holding.ttl),
            "writer": holding.is_writer,
        })
    });
    json!({
        "key": server.full_name(&found.name),
        "kind": kind(found.kind),
        "holders": holders.collect::<Vec<_>>(),
        "ttl_ms": millis(found.ttl),
        "count": found.count,
        "token": found.token,
        "queued": found.queued,
        "listening": found.listening,
    })
}

/// A time, short.
pub(crate) fn short(time: Option<Duration>) -> String {
    match time {
        None => "-".to_owned(),
        Some(time) if time < Duration::from_secs(100) => format!("{:.1}s", time.as_secs_f64()),
        Some(time) if time < Duration::from_secs(6000) => format!("{}m", time.as_secs() / 60),
        Some(time) => format!("{}h", time.as_secs() / 3600),
    }
}

/// The holder: the first one, and how many more.
pub(crate) fn holder(found: &Inspection) -> String {
    let first = found.holders.first().map(|holding| holding.id.as_str());
    match (first, found.holders.len(), found.count) {
        (Some(first), 1, _) => first.to_owned(),
        (Some(first), number, _) => format!("{first} +{}", number - 1),
        (None, _, Some(count)) => format!("count {count}"),
        (None, _, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_keeps_it_short() {
        assert_eq!(short(None), "-");
        for (seconds, text) in [
            (0, "0.0s"),
            (99, "99.0s"),
            (100, "1m"),
            (5999, "99m"),
            (6000, "1h"),
            (7200, "2h"),
        ] {
            assert_eq!(short(Some(Duration::from_secs(seconds))), text);
        }
    }
}
