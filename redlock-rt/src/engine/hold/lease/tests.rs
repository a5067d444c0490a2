use super::*;
use crate::meter::LockEvent;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn terms(lease: Duration) -> Terms {
    Terms {
        lease,
        renew: Some(lease / 3),
        max_hold: None,
        ..Terms::WITHOUT_LEASE
    }
}

fn fail(lease: &mut Lease, now: Instant) {
    let retry_at = lease.retry_at(now);
    lease.renewal_failed(now, retry_at);
}

#[test]
fn the_deadline_is_counted_from_before_the_send_less_a_margin() {
    let sent = Instant::now();
    let (mut lease, id) = Lease::new(terms(30 * S), None, sent);
    let until = sent + 30 * S - Duration::from_millis(302);
    assert_eq!(lease.state(id, sent), GuardState::Held { until });
    assert_eq!(
        lease.state(id, until),
        GuardState::Lost(LostReason::Expired)
    );
}

/// The reply may come from another server than the current one.
#[test]
fn a_renewal_that_was_sent_before_the_doubt_does_not_end_it() {
    let sent = Instant::now();
    let (mut lease, _) = Lease::new(terms(30 * S), None, sent);
    lease.doubt(sent + 2 * S);
    lease.renewed(sent + S, 30 * S, sent + 3 * S);
    assert_eq!(lease.plan(sent + 3 * S), RenewalPlan::Renew(30 * S));
    lease.renewed(sent + 3 * S, 30 * S, sent + 4 * S);
    assert!(matches!(lease.plan(sent + 4 * S), RenewalPlan::Wait(_)));
}

#[test]
fn a_renewal_that_comes_too_late_revives_nothing() {
    let sent = Instant::now();
    let (mut lease, id) = Lease::new(terms(S), None, sent);
    lease.renewed(sent + S, S, sent + S);
    assert_eq!(
        lease.state(id, sent + S),
        GuardState::Lost(LostReason::Expired)
    );
    assert_eq!(lease.join(terms(S), sent + S), Err(LostReason::Expired));
}

#[test]
fn reentry_with_a_shorter_lease_shortens_nothing() {
    let sent = Instant::now();
    let (mut lease, outer) = Lease::new(terms(30 * S), None, sent);
    let before = lease.deadline();
    let inner = lease.join(terms(S), sent).unwrap();
    lease.renewed(sent, S, sent);
    assert_eq!(lease.deadline(), before);
    assert_eq!(lease.count(), 2);
    assert_eq!(lease.leave(inner), Some(Leave::Partial));
    assert_eq!(lease.leave(inner), None);
    assert_eq!(lease.leave(outer), Some(Leave::Last));
}

#[test]
fn renewal_is_due_every_third_and_never_after_the_last_guard_left() {
    let sent = Instant::now();
    let (mut lease, id) = Lease::new(terms(30 * S), None, sent);
    assert_eq!(lease.plan(sent), RenewalPlan::Wait(sent + 10 * S));
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Renew(30 * S));
    lease.leave(id);
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Done);
}

#[test]
fn short_extensions_do_not_put_off_the_renewal_until_the_lease_is_over() {
    let sent = Instant::now();
    let (mut lease, _) = Lease::new(terms(30 * S), None, sent);
    lease.renewed(sent + 9 * S, S, sent + 9 * S);
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Renew(30 * S));
    // Nor does a guard that wants less and is never renewed.
    let fixed = Terms {
        renew: None,
        ..terms(S)
    };
    let inner = lease.join(fixed, sent + 9 * S).unwrap();
    lease.renewed(sent + 9 * S, S, sent + 9 * S);
    lease.leave(inner);
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Renew(30 * S));
    lease.renewed(sent + 10 * S, 30 * S, sent + 10 * S);
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Wait(sent + 20 * S));
}

#[test]
fn a_fixed_lease_is_only_watched() {
    let sent = Instant::now();
    let fixed = Terms {
        renew: None,
        ..terms(S)
    };
    let (mut lease, id) = Lease::new(fixed, None, sent);
    assert_eq!(lease.plan(sent), RenewalPlan::Wait(lease.deadline()));
    lease.doubt(sent);
    assert_eq!(lease.plan(sent), RenewalPlan::Renew(Duration::ZERO));
    lease.renewed(sent, Duration::ZERO, sent);
    assert_eq!(lease.plan(sent + S), RenewalPlan::Done);
    assert_eq!(
        lease.state(id, sent + S),
        GuardState::Lost(LostReason::Expired)
    );
}

#[test]
fn only_what_is_held_and_renewed_is_renewed_early() {
    let sent = Instant::now();
    let (mut lease, id) = Lease::new(terms(30 * S), None, sent);
    assert_eq!(lease.slack(sent), S);
    assert_eq!(lease.plan_early(sent + 9 * S), Some(30 * S));
    fail(&mut lease, sent + 10 * S);
    assert_eq!(lease.plan_early(sent + 10 * S), None);
    lease.renewed(sent + 11 * S, 30 * S, sent + 11 * S);
    assert_eq!(lease.plan_early(sent + 20 * S), Some(30 * S));
    lease.leave(id);
    assert_eq!(lease.plan_early(sent + 20 * S), None);
    let (renew, max_hold) = (None, Some(40 * S));
    let (mut fixed, _) = Lease::new(
        Terms {
            renew,
            ..terms(30 * S)
        },
        None,
        sent,
    );
    assert_eq!(fixed.plan_early(sent), None);
    let (mut stuck, _) = Lease::new(
        Terms {
            max_hold,
            ..terms(30 * S)
        },
        None,
        sent,
    );
    assert_eq!(stuck.plan_early(sent + 9 * S), Some(30 * S));
    assert_eq!(stuck.plan_early(sent + 19 * S), Some(21 * S));
}

#[test]
fn a_lease_that_others_may_shorten_is_verified_repeatedly() {
    let sent = Instant::now();
    let fixed = Terms {
        renew: None,
        ..terms(60 * S)
    };
    let (mut lease, id) = Lease::new(fixed, Some(2 * S), sent);
    assert_eq!(lease.slack(sent), S / 5);
    assert_eq!(lease.plan(sent), RenewalPlan::Wait(sent + 2 * S));
    assert_eq!(lease.plan_early(sent + S), Some(Duration::ZERO));
    for look in 1..5 {
        let now = sent + look * 2 * S;
        assert_eq!(lease.plan(now), RenewalPlan::Renew(Duration::ZERO));
        lease.renewed(now, Duration::ZERO, now);
        assert_eq!(lease.plan(now), RenewalPlan::Wait(now + 2 * S));
    }
    // Nor does it end with a failure.
    fail(&mut lease, sent + 10 * S);
    assert!(matches!(lease.plan(sent + 10 * S), RenewalPlan::Wait(at) if at <= sent + 11 * S));
    lease.leave(id);
    assert_eq!(lease.plan(sent + 12 * S), RenewalPlan::Done);
}

#[test]
fn max_hold_ends_the_last_lease() {
    let sent = Instant::now();
    let stuck = Terms {
        max_hold: Some(35 * S),
        ..terms(30 * S)
    };
    let (mut lease, id) = Lease::new(stuck, None, sent);
    assert_eq!(lease.plan(sent + 10 * S), RenewalPlan::Renew(25 * S));
    lease.renewed(sent + 10 * S, 25 * S, sent + 10 * S);
    assert!(lease.deadline() < sent + 35 * S);
    assert_eq!(
        lease.state(id, sent + 35 * S),
        GuardState::Lost(LostReason::MaxHold)
    );
}

/// It was reported as expired.
#[test]
fn a_guard_that_ends_after_its_max_hold_tells_why() {
    let sent = Instant::now();
    let stuck = Terms {
        max_hold: Some(30 * S),
        ..terms(30 * S)
    };
    let (mut lease, id) = Lease::new(stuck, None, sent);
    let left = lease.leave_at(id, sent + 31 * S).unwrap();
    assert_eq!(left.leave, Leave::Last);
    assert!(lease.untold);
    assert_eq!(lease.event(), LockEvent::Lost(LostReason::MaxHold));
}

#[test]
fn a_failed_verification_is_not_repeated_without_a_pause() {
    let sent = Instant::now();
    let (mut lease, _) = Lease::new(terms(3 * S), None, sent);
    lease.doubt(sent);
    assert!(matches!(lease.plan(sent), RenewalPlan::Renew(_)));
    fail(&mut lease, sent);
    assert!(matches!(lease.plan(sent), RenewalPlan::Wait(at) if at > sent));
}

/// It stayed in doubt to its end after one failed call, since no later check was due.
#[test]
fn a_lock_that_is_not_renewed_is_verified_again_after_a_call_that_failed() {
    let sent = Instant::now();
    let never = Terms {
        renew: None,
        ..terms(30 * S)
    };
    let (mut lease, _) = Lease::new(never, None, sent);
    lease.watch_at(sent + S);
    assert!(matches!(lease.plan(sent + S), RenewalPlan::Renew(_)));
    assert!(lease.watches(sent + S));
    fail(&mut lease, sent + S);
    let retry_at = lease.retry_at(sent + S);
    assert!(matches!(lease.plan(retry_at), RenewalPlan::Renew(_)));
}

#[test]
fn a_failing_renewal_is_suspect_then_lost() {
    let sent = Instant::now();
    let (mut lease, id) = Lease::new(terms(3 * S), None, sent);
    fail(&mut lease, sent + S);
    assert!(matches!(
        lease.state(id, sent + S),
        GuardState::Suspect { .. }
    ));
    assert!(matches!(lease.plan(sent + S), RenewalPlan::Wait(at) if at < sent + 2 * S));
    assert_eq!(
        lease.state(id, sent + 3 * S),
        GuardState::Lost(LostReason::Expired)
    );
}

#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Join(u64, bool, Option<u64>),
    Leave(usize),
    Renewed(u64),
    Failed,
    Lost,
    Doubt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_000u64).prop_map(Step::Pass),
        (
            1..9_000u64,
            any::<bool>(),
            proptest::option::of(9_000..20_000u64)
        )
            .prop_map(|(lease, renew, max)| Step::Join(lease, renew, max)),
        (0..4usize).prop_map(Step::Leave),
        (0..9_000u64).prop_map(Step::Renewed),
        Just(Step::Failed),
        Just(Step::Lost),
        Just(Step::Doubt),
    ]
}

proptest! {
    /// Invariants 1 to 4 over any history.
    #[test]
    fn invariants_hold(steps in proptest::collection::vec(step(), 1..60)) {
        let ms = Duration::from_millis;
        let mut now = Instant::now();
        let (mut lease, first) = Lease::new(terms(3 * S), None, now);
        let mut guards = vec![first];
        let mut dead = false;
        for step in steps {
            let before = lease.deadline();
            match step {
                Step::Pass(span) => now += ms(span),
                Step::Join(span, renew, max) => {
                    let renew = renew.then(|| ms(span) / 3);
                    let terms = Terms { lease: ms(span), renew, max_hold: max.map(ms), ..Terms::WITHOUT_LEASE };
                    match lease.join(terms, now) {
                        Ok(id) => guards.push(id),
                        Err(_) => prop_assert!(dead || now >= before),
                    }
                }
                Step::Leave(at) if at < guards.len() => {
                    let last = guards.len() == 1;
                    let left = lease.leave(guards.swap_remove(at));
                    prop_assert_eq!(left, Some(if last { Leave::Last } else { Leave::Partial }));
                }
                Step::Leave(_) => {}
                Step::Renewed(ttl) => lease.renewed(now, ms(ttl), now),
                Step::Failed => fail(&mut lease, now),
                Step::Lost => { lease.lost(LostReason::Deleted, now); }
                Step::Doubt => lease.doubt(now),
            }
            prop_assert!(lease.deadline() >= before, "invariant 3");
            let valid = lease.is_valid(now);
            prop_assert!(!valid || now < lease.deadline(), "invariant 1");
            prop_assert!(!(dead && valid), "invariant 2");
            dead |= !valid;
            for &guard in &guards {
                prop_assert!(valid || !lease.state(guard, now).is_valid());
            }
            if guards.is_empty() {
                prop_assert_eq!(lease.plan(now), RenewalPlan::Done, "invariant 4");
            }
        }
    }
}

mod chains {
    use super::*;

    const LIMIT: ChainLimit = ChainLimit {
        time: Duration::from_millis(10),
        turns: 3,
    };
    const MS: Duration = Duration::from_millis(1);

    fn renewed(lease: Duration) -> (Lease, GuardId, Instant) {
        let sent = Instant::now();
        let (lease, id) = Lease::new(terms(lease), None, sent);
        (lease, id, sent)
    }

    #[test]
    fn the_deadline_of_a_chain_counts_from_the_command_that_acquired_the_lock() {
        let (mut lease, mut id, sent) = renewed(30 * S);
        let deadline = lease.deadline();
        let first = lease.plan(sent);
        for turn in 1..3 {
            let now = sent + turn * 3 * MS;
            let legacy = lease.hand_over(id, LIMIT, now).unwrap();
            assert_eq!(lease.state(id, now), GuardState::Released);
            assert!(!lease.is_valid(now) && legacy.fits(&terms(30 * S)));
            assert!(!legacy.fits(&terms(29 * S)));
            let fixed = Terms {
                renew: None,
                ..terms(30 * S)
            };
            assert!(!legacy.fits(&fixed));
            let own = Terms {
                max_hold: Some(S),
                ..terms(30 * S)
            };
            (lease, id) = Lease::next_of(&legacy, own, now);
            assert_eq!(lease.deadline(), deadline);
            assert_eq!(lease.plan(now), first, "the renewal is due as it was");
            assert_eq!(
                lease.state(id, now + S),
                GuardState::Lost(LostReason::MaxHold)
            );
        }
        assert_eq!(
            lease.hand_over(id, LIMIT, sent + 9 * MS),
            None,
            "three turns"
        );
    }

    #[test]
    fn what_redis_may_not_have_is_not_handed_over() {
        type Step = fn(&mut Lease, GuardId, Instant);
        let steps: [(&str, Step); 9] = [
            ("a re-entry", |lease, _, now| {
                let inner = lease.join(terms(30 * S), now).unwrap();
                lease.leave(inner);
            }),
            ("another guard", |lease, _, now| {
                lease.join(terms(30 * S), now).unwrap();
            }),
            ("other terms", |lease, id, now| {
                lease.retune(id, terms(S), now);
            }),
            ("a renewal", |lease, _, now| lease.renewed(now, 30 * S, now)),
            ("a failure", |lease, _, now| fail(lease, now)),
            ("a doubt", |lease, _, now| lease.doubt(now)),
            ("a doubt that is over", |lease, _, now| {
                lease.doubt(now);
                lease.renewed(now, Duration::ZERO, now);
            }),
            ("a loss", |lease, _, now| {
                lease.lost(LostReason::Deleted, now);
            }),
            ("a shortest hold", |lease, _, now| {
                lease.set_min_hold(now + S)
            }),
        ];
        for (what, step) in steps {
            let (mut lease, id, sent) = renewed(30 * S);
            step(&mut lease, id, sent + MS);
            let left = lease.hand_over(id, LIMIT, sent + 2 * MS);
            assert_eq!(left, None, "{what}");
        }
        let (mut lease, id, sent) = renewed(30 * S);
        let late = sent + LIMIT.time;
        assert_eq!(lease.hand_over(id, LIMIT, late), None, "the chain is over");
        assert!(lease.hand_over(id, LIMIT, late - MS).is_some());
        let (mut lease, id, sent) = renewed(12 * MS);
        let half = sent + 6 * MS;
        assert_eq!(lease.hand_over(id, LIMIT, half), None, "half of the lease");
        let plain = Terms {
            renew: None,
            ..terms(30 * S)
        };
        let (mut lease, id) = Lease::new(plain, None, sent);
        assert_eq!(lease.hand_over(id, LIMIT, sent), None, "not renewed");
    }
}
