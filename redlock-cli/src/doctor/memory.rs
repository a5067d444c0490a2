//! Eviction of keys and of scripts.

use super::facts::Facts;
use super::{Said, error, note, ok, warning};

/// With this many scripts, some client makes a new one for each call.
const MANY_SCRIPTS: u64 = 1000;

pub(super) fn check(facts: &Facts) -> Vec<Said> {
    let Some(policy) = facts
        .info("maxmemory_policy")
        .or_else(|| facts.config("maxmemory-policy"))
    else {
        return vec![note("not known: INFO is not allowed")];
    };
    let most: u64 = facts.number("maxmemory").unwrap_or(0);
    let used: u64 = facts.number("used_memory").unwrap_or(0);
    let evicted: u64 = facts.number("evicted_keys").unwrap_or(0);
    let is_full = most > 0 && used > most / 10 * 9;
    let mut said = vec![match policy {
        "noeviction" if is_full => error(
            format!("{used} of {most} bytes are in use: beyond that each acquisition is refused"),
            "give it more memory, or a Redis of its own for locks",
        ),
        "noeviction" => ok("maxmemory-policy is noeviction"),
        _ if policy.starts_with("allkeys") => error(
            format!(
                "maxmemory-policy is {policy}: a Redis that is full evicts locks, while their holders go on"
            ),
            "CONFIG SET maxmemory-policy noeviction, or a Redis of its own for locks",
        ),
        _ => warning(
            format!(
                "maxmemory-policy is {policy}: locks have a TTL, so a Redis that is full evicts them"
            ),
            "CONFIG SET maxmemory-policy noeviction, or see that there is always room",
        ),
    }];
    if evicted > 0 && policy != "noeviction" {
        let message =
            format!("{evicted} keys were evicted since the start, which may have been locks");
        said.push(error(
            message,
            "give it more memory, or a Redis of its own for locks",
        ));
    }
    said
}

pub(super) fn scripts(facts: &Facts) -> Vec<Said> {
    let cached: Option<u64> = facts.number("number_of_cached_scripts");
    let evicted: u64 = facts.number("evicted_scripts").unwrap_or(0);
    vec![match cached {
        None => note("not known: INFO is not allowed"),
        Some(cached) if cached > MANY_SCRIPTS || evicted > 0 => warning(
            format!(
                "{cached} scripts are cached, and {evicted} were evicted: somebody makes a new one for each call"
            ),
            "give the values to scripts as arguments (EVALSHA); SCRIPT FLUSH frees the memory",
        ),
        Some(cached) => ok(format!("{cached} scripts are cached")),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn memory_is_full_when_a_tenth_is_left() {
        for (most, used, severity) in [
            (1000, 900, Severity::Ok),
            (1000, 901, Severity::Error),
            (0, 901, Severity::Ok),
        ] {
            let info = format!("maxmemory_policy:noeviction\nmaxmemory:{most}\nused_memory:{used}");
            let said = check(&Facts::with_info(&info));
            assert_eq!(said[0].severity, severity, "{info}");
        }
    }
}
