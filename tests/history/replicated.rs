use tests::history::{Ack, Acquisition, History, Ms, Outcome, Sight, Wiped};

use super::{KEY, TERMS, broken, history, holds, sight, strike};

/// The time within which enough replicas are noticed: twice a turn with its end, and setting up.
const ENOUGH: Ms = 800 + 24 * TERMS.latency;

/// Two replicas, each of which shows this key so from then on.
fn seen(one: Acquisition, copies: Vec<(usize, Sight)>) -> History {
    let mut history = history([one]);
    history.replicas = vec![(0, 2)];
    history.copies = copies;
    history
}

/// One that had it at 100 ms, and asked for so many at 90 ms.
fn has(ack: Ack) -> (Acquisition, String) {
    let mut one = holds(1, 100, 200);
    one.ack = Some(ack);
    let owner = one.grant.as_ref().map(|grant| grant.owner.clone());
    (one, owner.unwrap_or_default())
}

/// One that was told at this time that too few have it.
fn refused(returned: Ms) -> Acquisition {
    let not = Outcome::NotReplicated { wanted: 2, got: 1 };
    Acquisition {
        ack: Some(Ack::AtLeast(2)),
        returned: Some((returned, not)),
        grant: None,
        ..holds(1, 100, 200)
    }
}

#[test]
fn a_lock_that_too_few_replicas_had_is_found() {
    let given = |ack, first, second| {
        let (one, owner) = has(ack);
        let copies = vec![(1, sight(first, &[&owner])), (2, sight(second, &[&owner]))];
        broken(&seen(one, copies))
    };
    for ack in [Ack::All, Ack::AtLeast(2)] {
        assert_eq!(given(ack, 93, 100), [""; 0]);
        assert_eq!(given(ack, 93, 101), ["replicated"]);
    }
    assert_eq!(given(Ack::Majority, 100, 101), [""; 0]);
    assert_eq!(given(Ack::AtLeast(3), 93, 94), ["replicated"]);
}

#[test]
fn what_another_owner_has_does_not_count() {
    let (one, owner) = has(Ack::All);
    let copies = vec![(1, sight(93, &[&owner])), (2, sight(93, &["client-1:7"]))];
    assert_eq!(broken(&seen(one, copies)), ["replicated"]);
}

#[test]
fn a_replica_may_have_lost_it_since_it_was_asked() {
    let given = |lost, struck: bool| {
        let (one, owner) = has(Ack::All);
        let copies = [(91, &*owner), (lost, "")].map(|(at, owner)| (1, sight(at, &[owner])));
        let other = (2, sight(90, &[&owner]));
        let mut history = seen(one, [vec![other], copies.to_vec()].concat());
        history.strikes.extend(struck.then(|| strike(None, 95, 96)));
        broken(&history)
    };
    // Two ways of a message before.
    assert_eq!(given(92, false), [""; 0]);
    let (mut one, owner) = has(Ack::All);
    one.called = 10;
    let gone = |struck: bool, forgotten: Option<Ms>| {
        let all = [(11, &*owner), (60, "")].map(|(at, owner)| (1, sight(at, &[owner])));
        let other = (2, sight(10, &[&owner]));
        let mut history = seen(one.clone(), [vec![other], all.to_vec()].concat());
        history.strikes.extend(struck.then(|| strike(None, 59, 60)));
        history.wiped.extend(forgotten.map(|at| Wiped {
            at,
            until: at,
            key: Some(KEY.to_owned()),
        }));
        broken(&history)
    };
    assert_eq!(gone(false, None), ["replicated"]);
    assert_eq!(gone(true, None), [""; 0], "another master had its place");
    assert_eq!(gone(false, Some(60)), [""; 0], "it was evicted");
    assert_eq!(gone(false, Some(5)), ["replicated"], "it was not there");
    assert_eq!(gone(false, Some(101)), ["replicated"], "only later");
}

#[test]
fn a_refusal_that_is_not_true_is_found() {
    let told = |second, returned| {
        let copies = [(1, 100), (2, second)].map(|(at, since)| (at, sight(since, &["client-1:9"])));
        seen(refused(returned), copies.to_vec())
    };
    assert_eq!(broken(&told(200, 200 + ENOUGH)), [""; 0]);
    assert_eq!(broken(&told(200, 201 + ENOUGH)), ["replicated"]);
    let mut struck = told(200, 201 + ENOUGH);
    struck.strikes.push(strike(Some(1), 150, 160));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0] = strike(Some(2), 150, 160);
    assert_eq!(broken(&struck), ["replicated"], "another process");
}

#[test]
fn a_replica_that_stands_still_says_nothing() {
    let stands = |replica, from, until| {
        let copies = [1, 2].map(|at| (at, sight(100, &["client-1:9"])));
        let mut history = seen(refused(200 + ENOUGH), copies.to_vec());
        history.standing.push((replica, from, until));
        broken(&history)
    };
    assert_eq!(stands(2, 198, 300), [""; 0]);
    assert_eq!(stands(2, 300, 3000), [""; 0]);
    assert_eq!(
        stands(2, 50, 199),
        ["replicated"],
        "for long enough after that"
    );
    assert_eq!(stands(3, 198, 300), ["replicated"], "another one");
}

#[test]
fn more_replicas_missed_than_were_asked_for_are_found() {
    let missed = |asked| {
        let mut one = refused(300);
        one.ack = Some(asked);
        broken(&seen(one, vec![(1, sight(100, &["client-1:9"]))]))
    };
    assert_eq!(missed(Ack::All), [""; 0]);
    assert_eq!(missed(Ack::AtLeast(1)), ["replicated"]);
    assert_eq!(missed(Ack::Majority), ["replicated"]);
}
