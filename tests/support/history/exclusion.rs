//! At most one holds a lock, readers or one writer, at most N permits: by what guards said.
//!
//! A guard that said twice that it is held was held in between, since a loss is final. So each guard
//! has a span in which it was certainly believed, and spans must not lie on each other.
//!
//! What Redis forgot, a guard from before may go on to believe in until its lease is over, and not
//! longer: from then on the rule holds for it as for all others.

use super::{Acquisition, Grant, History, Mode, Ms, Violation, Wiped};

const RULE: &str = "exclusion";

/// A hold that was believed in.
struct Span<'a> {
    of: &'a Acquisition,
    grant: &'a Grant,
}

pub(super) fn check(history: &History, broken: &mut Vec<Violation>) {
    for key in history.keys() {
        let all = history.of_key(key);
        let mut spans: Vec<Span<'_>> = all
            .into_iter()
            .filter_map(|of| {
                Some(Span {
                    of,
                    grant: of.grant.as_ref()?,
                })
            })
            .collect();
        spans.sort_by_key(|span| span.grant.at);
        exclusive(history, key, &spans, broken);
        counted(history, key, &spans, broken);
    }
}

fn exclusive(history: &History, key: &str, spans: &[Span<'_>], broken: &mut Vec<Violation>) {
    for (place, later) in spans.iter().enumerate() {
        for earlier in &spans[..place] {
            let permits = |span: &Span<'_>| matches!(span.of.mode, Mode::Permits { .. });
            if permits(later) || permits(earlier) {
                continue;
            }
            let shared = |span: &Span<'_>| span.of.mode == Mode::Shared;
            if shared(later) && shared(earlier) || later.grant.owner == earlier.grant.owner {
                continue;
            }
            let together = earlier.grant.believed.min(later.grant.believed);
            if together <= later.grant.at || is_excused(history, key, earlier, later, together) {
                continue;
            }
            let what = format!(
                "{key}: {} (process {}) believed in its hold until {} ms, {} (process {}) had it from \
                 {} ms",
                earlier.grant.owner,
                earlier.of.process,
                earlier.grant.believed,
                later.grant.owner,
                later.of.process,
                later.grant.at,
            );
            broken.push(Violation::new(RULE, later.grant.at, what));
        }
    }
}

/// Whether Redis had forgotten the first of the two holds, and its guard's time to notice was not over.
fn is_excused(history: &History, key: &str, first: &Span<'_>, next: &Span<'_>, until: Ms) -> bool {
    let Some(lease) = first.grant.lease else {
        return history
            .wiped(key)
            .any(|wiped| is_between(wiped, first, next));
    };
    let slack = lease * history.terms.skew_percent / 100 + history.terms.latency;
    let mut wiped = history.wiped(key);
    wiped.any(|wiped| is_between(wiped, first, next) && until <= wiped.until + lease + slack)
}

/// Whether Redis may have known the first hold, and not when it gave the next one.
fn is_between(wiped: &Wiped, first: &Span<'_>, next: &Span<'_>) -> bool {
    first.of.called <= wiped.until && wiped.at <= next.grant.at
}

fn counted(history: &History, key: &str, spans: &[Span<'_>], broken: &mut Vec<Violation>) {
    for later in spans {
        let Mode::Permits { limit, .. } = later.of.mode else {
            continue;
        };
        let moment = later.grant.at;
        let held = spans.iter().filter(|span| {
            span.grant.at <= moment
                && moment < span.grant.believed
                && !history
                    .wiped(key)
                    .any(|wiped| span.of.called <= wiped.until && wiped.at <= moment)
        });
        let taken: u32 = held.map(|span| span.taken()).sum();
        if taken > limit {
            let what = format!("{key}: {taken} of {limit} permits were held");
            broken.push(Violation::new(RULE, moment, what));
        }
    }
}

impl Span<'_> {
    fn taken(&self) -> u32 {
        match self.of.mode {
            Mode::Permits { taken, .. } => taken,
            Mode::Exclusive | Mode::Shared => 0,
        }
    }
}
