//! At most one holds a lock, readers or one writer, at most N permits: by what guards said.
//!
//! A guard that said twice that it is held was held in between, since a loss is final. So each guard
//! has a span in which it was certainly believed, and spans must not lie on each other.
//!
//! What Redis forgot, a guard from before may go on to believe in until its next renewal is answered,
//! or where it is not renewed, or a fault struck its process, until its lease is over. From then on the
//! rule holds for it as for all others.

use super::{Acquisition, Grant, History, Mode, Ms, Verdict, Violation, Wiped, moves};

const RULE: &str = "exclusion";
/// How often a lease is renewed before it would be over.
pub(super) const RENEWALS: Ms = 3;
/// How many ways of a message until a renewal is answered, by a server that does not know the script.
pub(super) const ANSWER: Ms = 6;
const SLACK: Ms = 5;
/// How long the tasks of a client hand a lock over to each other.
const CHAIN: Ms = 10;

/// A hold that was believed in.
struct Span<'a> {
    of: &'a Acquisition,
    grant: &'a Grant,
}

pub(super) fn check(history: &History, verdict: &mut Verdict) {
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
        // One that was had and given up in the millisecond in which the next one was had came before that.
        spans.sort_by_key(|span| (span.grant.at, span.grant.believed));
        exclusive(history, key, &spans, verdict);
        counted(history, key, &spans, verdict);
    }
}

fn exclusive(history: &History, key: &str, spans: &[Span<'_>], verdict: &mut Verdict) {
    for (place, later) in spans.iter().enumerate() {
        for earlier in &spans[..place] {
            // What has rules of its own.
            let other =
                |span: &Span<'_>| matches!(span.of.mode, Mode::Permits { .. } | Mode::Majority(_));
            if other(later) || other(earlier) {
                continue;
            }
            let shared = |span: &Span<'_>| span.of.mode == Mode::Shared;
            let unasked = is_unasked(history, later);
            let own = later.grant.owner == earlier.grant.owner;
            let converted = own && (unasked || later.of.mode != earlier.of.mode);
            if shared(later) && shared(earlier) || converted {
                continue;
            }
            let together = earlier.grant.believed.min(later.grant.believed);
            let until = if unasked {
                together
            } else {
                earlier.grant.believed
            };
            if until <= later.grant.at {
                continue;
            }
            let excused = excuse(history, key, earlier, later, together);
            if excused.is_some_and(|excuse| verdict.excuses(excuse, true)) {
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
            verdict.push(Violation::new(RULE, later.grant.at, what));
        }
    }
}

/// Whether nobody asked the guard when it was had: a body has none, and one of another kind says nothing.
fn is_unasked(history: &History, span: &Span<'_>) -> bool {
    history.is_foreign(span.of.process) || span.grant.owner.starts_with("body")
}

/// Whether Redis had forgotten one of the two holds when it gave the other, and the time of that guard to
/// notice was not over.
fn excuse(
    history: &History,
    key: &str,
    first: &Span<'_>,
    next: &Span<'_>,
    until: Ms,
) -> Option<&'static str> {
    let wiped = history.wiped(key).map(|wiped| (wiped.clone(), 0));
    let failed = history.moved(key).filter_map(moves::forgotten);
    if [first, next]
        .into_iter()
        .any(|span| ends_twice(history, span))
    {
        return Some("exclusion: repeated by another kind");
    }
    let found = wiped.chain(failed).find(|(wiped, since)| {
        let since = *since;
        let is_since = |one: &Span<'_>, other: &Span<'_>| {
            since == 0 || moves::is_since(history, one.of, since, other.grant.at)
        };
        let noticed = |span| known_by(history, span, wiped).is_some_and(|by| by < until);
        let is_first =
            is_between(history, wiped, first, next) && is_since(first, next) && !noticed(first);
        // A process that stands still reads late that it had the lock, and one that hands it over to
        // another of its tasks asks nobody.
        let is_late = || {
            let mut struck = history.struck(next.of.process, next.of.called, next.grant.at);
            let handed = chain(history, next).any(|of| {
                of.grant
                    .as_ref()
                    .is_some_and(|grant| grant.at < next.grant.at)
            });
            handed || struck.any(|strike| !strike.only_wipes)
        };
        let is_next = is_between(history, wiped, next, first) && is_since(next, first) && is_late();
        is_first || is_next && !noticed(next)
    });
    found.map(|(_, since)| match since {
        0 => "exclusion: forgotten",
        _ => "exclusion: failed over",
    })
}

/// Whether a client of another kind may have ended a hold of its own with one that it had taken once more:
/// Redisson repeats a release whose reply is lost, and what it sent first may run last.
fn ends_twice(history: &History, span: &Span<'_>) -> bool {
    let mut again = span.grant.again.iter().filter_map(|again| again.ended);
    let struck = |from| {
        let mut all = history.struck(span.of.process, from, span.grant.believed);
        all.any(|strike| !strike.only_wipes)
    };
    history.is_foreign(span.of.process) && again.any(struck)
}

/// When the guard of a hold that Redis forgot knows of that; `None`: never, it has no lease.
fn known_by(history: &History, first: &Span<'_>, wiped: &Wiped) -> Option<Ms> {
    let lease = first.grant.longest()?;
    let terms = &history.terms;
    let mut struck = history.struck(first.of.process, wiped.at, wiped.until + lease);
    let renewed = first.grant.renewed && !struck.any(|strike| !strike.only_wipes);
    let longest = if renewed { lease / RENEWALS } else { lease };
    Some(wiped.until + terms.slow(longest) + terms.latency * ANSWER + SLACK)
}

/// Whether Redis may have known the first hold, and not when it gave the next one.
fn is_between(history: &History, wiped: &Wiped, first: &Span<'_>, next: &Span<'_>) -> bool {
    let called = chain(history, first).map(|of| of.called).min();
    called.unwrap_or(first.of.called) <= wiped.until && wiped.at <= next.grant.at
}

/// What this one was handed over from, and the others of the chain: Redis knows it since the first.
fn chain<'a>(history: &'a History, last: &Span<'a>) -> impl Iterator<Item = &'a Acquisition> {
    let (process, at) = (last.of.process, last.grant.at);
    let owner = &last.grant.owner;
    let all = history.of_key(&last.of.key).into_iter();
    all.filter(move |of| {
        let Some(grant) = &of.grant else { return false };
        // A body does not say under which number it runs.
        let is_body = of.process == process && grant.owner.starts_with("body");
        let before = is_body && grant.at <= at && at <= grant.believed + CHAIN;
        before || grant.owner == *owner
    })
}

fn counted(history: &History, key: &str, spans: &[Span<'_>], verdict: &mut Verdict) {
    for later in spans {
        let Mode::Permits { limit, .. } = later.of.mode else {
            continue;
        };
        let moment = later.grant.at;
        let held = spans.iter().filter(|span| {
            // The guard that is judged was asked right then.
            let asked = std::ptr::eq(*span, later) && !is_unasked(history, later);
            let until = span.believed(history) + Ms::from(asked);
            span.grant.at <= moment && moment < until
        });
        let held: Vec<&Span<'_>> = held.collect();
        let forgotten = |span: &&&Span<'_>| {
            let mut all = history.wiped(key);
            all.any(|wiped| span.of.called <= wiped.until && wiped.at <= moment)
        };
        let failed = |span: &&&Span<'_>| {
            let mut all = history.moved(key).filter_map(moves::forgotten);
            all.any(|(wiped, since)| {
                span.of.called <= wiped.until
                    && wiped.at <= moment
                    && moves::is_since(history, span.of, since, moment)
            })
        };
        let count = |holds: &dyn Fn(&&&Span<'_>) -> bool| -> u32 {
            let those = held.iter().filter(holds);
            those.map(|span| span.taken()).sum()
        };
        let known = count(&|span| !forgotten(span));
        let taken = count(&|span| !forgotten(span) && !failed(span));
        let mut excused = || {
            verdict.excuses("exclusion: forgotten", known <= limit)
                || verdict.excuses("exclusion: failed over", taken <= limit)
                || verdict.excuses(
                    "exclusion: repeated by another kind",
                    is_miscounted(history, key),
                )
                || verdict.excuses(
                    "exclusion: given back by another kind",
                    is_given_back_late(history, key, moment),
                )
                || verdict.excuses(
                    "exclusion: set by another kind",
                    is_set_anew(history, key, moment),
                )
        };
        if count(&|_| true) > limit && !excused() {
            let what = format!("{key}: {taken} of {limit} permits were held");
            verdict.push(Violation::new(RULE, moment, what));
        }
    }
}

/// Whether a client of another kind may have given out more permits than there are: Redisson repeats a
/// release whose reply is lost, and judges leases by its own wall clock.
fn is_miscounted(history: &History, key: &str) -> bool {
    history.had_by_foreign(key).any(|one| {
        let leased = one
            .grant
            .as_ref()
            .is_some_and(|grant| grant.lease.is_some());
        match leased {
            true => history.clocks_differ.is_some(),
            false => history.was_struck(one.process),
        }
    })
}

/// Whether Redis forgot the number of permits while a client of another kind held some: when it gives
/// them back, Redisson adds them to the new number.
fn is_given_back_late(history: &History, key: &str, moment: Ms) -> bool {
    let before = |wiped: &Wiped| wiped.at <= moment;
    history
        .wiped(key)
        .filter(|wiped| before(wiped))
        .any(|wiped| {
            history.had_by_foreign(key).any(|one| {
                let held = |grant: &Grant| wiped.at <= grant.believed;
                one.called <= wiped.until && one.grant.as_ref().is_some_and(held)
            })
        })
}

/// Whether the number of permits was forgotten without their leases, and a client of another kind set it
/// again: Redisson then does not count those that are held, and their ends add to the number.
fn is_set_anew(history: &History, key: &str, moment: Ms) -> bool {
    let theirs = || history.had_by_foreign(key);
    let mut alone = history.wiped(key).filter(|wiped| wiped.key.is_some());
    alone.any(|wiped| {
        let set = theirs().any(|one| {
            let at = one.grant.as_ref().map_or(one.called, |grant| grant.at);
            one.called <= moment && wiped.at <= at
        });
        let all = history.of_key(key);
        let held = all.iter().any(|one| {
            let leased = |grant: &&Grant| grant.lease.is_some() && wiped.at <= grant.believed;
            one.called <= wiped.until && one.grant.as_ref().filter(leased).is_some()
        });
        set && held
    })
}

impl Span<'_> {
    /// Permits without leases have guards that do not know of the end of their client.
    fn believed(&self, history: &History) -> Ms {
        let ends = history.shut_down.iter();
        let ends =
            ends.filter(|(process, _)| *process == self.of.process && self.grant.lease.is_none());
        ends.map(|(_, at)| *at).fold(self.grant.believed, Ms::min)
    }

    fn taken(&self) -> u32 {
        match self.of.mode {
            Mode::Permits { taken, .. } => taken,
            Mode::Exclusive | Mode::Shared | Mode::Majority(_) => 0,
        }
    }
}
