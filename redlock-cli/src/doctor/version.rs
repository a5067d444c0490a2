//! The version.

use super::facts::Facts;
use super::{Said, error, note, ok, warning};

type Version = (u32, u32, u32);

fn version(text: &str) -> Option<Version> {
    let mut parts = text.split(['.', '-']).map(|part| part.parse().ok());
    Some((
        parts.next()??,
        parts.next()??,
        parts.next().flatten().unwrap_or(0),
    ))
}

fn shown((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

/// The first version of each branch of Redis in which RESTORE of any crafted value is safe (SECURITY.md).
const MENDED: [Version; 6] = [
    (6, 2, 23),
    (7, 4, 10),
    (8, 2, 8),
    (8, 4, 5),
    (8, 6, 5),
    NEWEST_MENDED,
];
const NEWEST_MENDED: Version = (8, 8, 1);
const MENDED_IN_VALKEY: Version = (7, 2, 13);

fn restore_is_flawed(version: Version) -> bool {
    let mut branches = MENDED.into_iter();
    let branch = branches.find(|mended| (mended.0, mended.1) == (version.0, version.1));
    version < branch.unwrap_or(NEWEST_MENDED)
}

/// `may_restore` is `None` if the rights are not known.
pub(super) fn check(facts: &Facts, may_restore: Option<bool>) -> Vec<Said> {
    if let Some(text) = facts.info("valkey_version") {
        return vec![match version(text) {
            Some(version) if version < (7, 2, 0) => old(text, "Valkey 7.2"),
            Some(version) if version < MENDED_IN_VALKEY && may_restore == Some(true) => {
                flawed(&format!("Valkey {text}"), &shown(MENDED_IN_VALKEY))
            }
            _ => ok(format!("Valkey {text}")),
        }];
    }
    let Some(text) = facts.info("redis_version") else {
        return vec![note("not known: INFO is not allowed")];
    };
    match version(text) {
        None => vec![note(format!("not understood: {text}"))],
        Some(version) if version < (6, 2, 0) => vec![old(text, "Redis 6.2")],
        Some(version) if restore_is_flawed(version) && may_restore == Some(true) => {
            let [older @ .., newest] = MENDED.map(shown);
            let mended = format!("{} and {newest}", older.join(", "));
            vec![flawed(&format!("Redis {text}"), &mended)]
        }
        Some(_) => vec![ok(format!("Redis {text}"))],
    }
}

fn flawed(server: &str, mended: &str) -> Said {
    warning(
        format!(
            "{server}: the user may RESTORE, by which a crafted value does harm before {mended}"
        ),
        "upgrade (distributions mend older versions, too), or take the right away (-restore): a free RLock \
         then takes a script, for three times the server's time",
    )
}

fn old(text: &str, oldest: &str) -> Said {
    error(
        format!("{text} is older than {oldest}"),
        "upgrade: what locks need is missing there",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn known_bad_versions() {
        for (info, may_restore, severity) in [
            ("redis_version:6.0.16", Some(false), Severity::Error),
            ("redis_version:6.2.14", Some(false), Severity::Ok),
            ("redis_version:6.2.22", Some(true), Severity::Warning),
            ("redis_version:6.2.23", Some(true), Severity::Ok),
            ("redis_version:7.2.9", Some(true), Severity::Warning),
            ("redis_version:8.2.8", Some(true), Severity::Ok),
            ("redis_version:8.6.4", Some(true), Severity::Warning),
            ("redis_version:8.7.1", Some(true), Severity::Warning),
            ("redis_version:8.8.0", Some(true), Severity::Warning),
            ("redis_version:8.8.1", Some(true), Severity::Ok),
            ("redis_version:8.6.2", None, Severity::Ok),
            (
                "redis_version:7.2.4\nvalkey_version:7.2.12",
                Some(true),
                Severity::Warning,
            ),
            (
                "redis_version:7.2.4\nvalkey_version:9.0.0",
                Some(true),
                Severity::Ok,
            ),
            (
                "redis_version:7.2.4\nvalkey_version:7.1.0",
                Some(true),
                Severity::Error,
            ),
            ("", None, Severity::Note),
        ] {
            let said = check(&Facts::with_info(info), may_restore);
            assert_eq!(said[0].severity, severity, "{info} {said:?}");
        }
    }

    /// The text was another list than the table that decides.
    #[test]
    fn the_versions_to_upgrade_to_are_those_that_are_taken_for_mended() {
        let said = check(&Facts::with_info("redis_version:8.8.0"), Some(true));
        let mut text = &*said[0].message;
        for mended in MENDED.map(shown) {
            text = text.split_once(&mended).expect(&mended).1;
        }
        assert_eq!(text, "");
    }
}
