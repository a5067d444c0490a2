use tests::history::{Acquisition, Again, End, History, Mode, Ms, Outcome, Sight, Wiped};

use super::{KEY, LEASE, TERMS, asks, broken, client, foreigner, history, holds, strike, with};

/// A waiter of another kind is next for a free lock until then, and one of ours waits behind it.
fn next_until(at: Ms) -> History {
    let (next, behind) = (format!("{}:1", client(2)), format!("{}:1", client(1)));
    let sight = |at, queue: &[&String]| Sight {
        at,
        key: KEY.to_owned(),
        queue: queue.iter().map(|owner| (*owner).clone()).collect(),
        ..Sight::default()
    };
    let mut history = history([
        asks(1, 1000),
        Acquisition {
            returned: Some((900, Outcome::Died)),
            ..asks(2, 500)
        },
        // Its lease is the longest.
        holds(3, 10, 50),
    ]);
    history.foreign.push(foreigner(2));
    history.sights = vec![
        sight(600, &[&next]),
        // Still the same one.
        sight(1010, &[&next, &behind]),
        sight(at, &[&behind]),
    ];
    history.end = at + 5;
    history
}

/// Its own wait and 5 s, then what a fault may leave; 1 %.
fn due() -> Ms {
    let recovery = LEASE + TERMS.waiter_timeout + TERMS.poll + 2 * 1000 + 1000;
    1000 + 10_000 + 100 + recovery + recovery.div_ceil(100)
}

#[test]
fn a_dead_waiter_of_another_kind_that_stays_is_found() {
    assert_eq!(broken(&next_until(due())), [""; 0]);
    assert_eq!(broken(&next_until(due() + 1)), ["foreign"]);

    let mut unclear = next_until(due() + 1);
    unclear.clocks_differ = Some(3000);
    assert_eq!(broken(&unclear), [""; 0], "its own clock says until when");
    unclear.clocks_differ = Some(due() + 2);
    assert_eq!(broken(&unclear), ["foreign"], "only later");
    let mut struck = next_until(due() + 1);
    struck.strikes.push(strike(Some(2), 2000, 2100));
    assert_eq!(broken(&struck), ["foreign"]);
    struck.strikes.push(strike(Some(1), 2000, 2100));
    assert_eq!(
        broken(&struck),
        [""; 0],
        "one of ours may have been dropped"
    );
    let mut alone = next_until(due() + 1);
    alone.acquisitions[0].returned = Some((due(), Outcome::TimedOut));
    assert_eq!(broken(&alone), [""; 0], "nobody of ours waits");
}

#[test]
fn a_script_of_another_kind_that_fails_is_found() {
    let failed = |what: &str, foreign: bool| {
        let returned = Some((30, Outcome::Failed(what.to_owned())));
        let mut history = history([Acquisition {
            returned,
            ..asks(2, 20)
        }]);
        history.foreign.extend(foreign.then(|| foreigner(2)));
        broken(&history)
    };
    let script = "Server(ResponseError) Error running script: nil";
    assert_eq!(failed(script, true), ["foreign"]);
    assert_eq!(failed(script, false), [""; 0]);
    assert_eq!(failed("Io", true), [""; 0]);
    assert_eq!(
        failed("Server(ResponseError) max number of clients", true),
        [""; 0]
    );
}

#[test]
fn bounds_and_counts_of_another_kind_are_its_own() {
    let mut late = history([Acquisition {
        bound: Some(20),
        returned: Some((5000, Outcome::TimedOut)),
        ..asks(2, 20)
    }]);
    assert_eq!(broken(&late), ["bound"]);
    late.foreign.push(foreigner(2));
    assert_eq!(broken(&late), [""; 0]);

    let mut twice = history([holds(2, 20, 90)]);
    twice.sights.push(Sight {
        holders: vec![(format!("{}:20", client(2)), 2)],
        ..super::sight(19, &[])
    });
    assert_eq!(broken(&twice), ["count"]);
    twice.foreign.push(foreigner(2));
    assert_eq!(broken(&twice), [""; 0]);
}

#[test]
fn another_kind_excludes_and_is_excluded() {
    let mut both = history([holds(1, 20, 60), holds(2, 40, 90)]);
    both.foreign.push(foreigner(2));
    assert_eq!(broken(&both), ["exclusion"]);
}

#[test]
fn another_kind_counts_tokens_from_one_where_they_were_forgotten() {
    let token =
        |process, from, token| with(holds(process, from, from + 5), |of| of.token = Some(token));
    let mut anew = history([token(1, 20, 7), token(2, 60, 1)]);
    anew.foreign.push(foreigner(2));
    assert_eq!(broken(&anew), ["tokens"]);
    anew.wiped.push(Wiped {
        at: 40,
        until: 40,
        key: None,
    });
    assert_eq!(broken(&anew), [""; 0]);
    anew.foreign[0] = foreigner(1);
    assert_eq!(broken(&anew), ["tokens"], "one of ours does not");
}

#[test]
fn another_kind_ends_its_hold_with_one_that_it_took_once_more() {
    let taken = |ended, struck, foreign| {
        let again = Again {
            called: 22,
            at: Some(25),
            ended,
        };
        let twice = with(holds(2, 20, 90), |of| of.again.push(again));
        let mut history = history([twice, holds(1, 40, 60)]);
        history.foreign.push(foreigner(foreign));
        history.strikes.push(strike(Some(struck), 30, 35));
        broken(&history)
    };
    assert_eq!(taken(Some(30), 2, 2), [""; 0]);
    assert_eq!(taken(Some(30), 2, 3), ["exclusion"], "one of ours does not");
    assert_eq!(taken(Some(30), 1, 2), ["exclusion"], "its replies arrived");
    assert_eq!(taken(None, 2, 2), ["exclusion"], "no release was sent");
}

/// Two of ours have all permits, and one more of another kind has one too.
fn too_many(lease: Option<Ms>) -> History {
    let takes = |process, taken, from| {
        let of = with(holds(process, from, from + 100), |grant| {
            grant.lease = lease
        });
        Acquisition {
            mode: Mode::Permits { taken, limit: 2 },
            ..of
        }
    };
    let mut history = history([takes(1, 2, 40), takes(2, 1, 20)]);
    history.foreign.push(foreigner(2));
    history
}

#[test]
fn another_kind_gives_back_permits_twice_where_a_fault_struck_it() {
    let mut history = too_many(None);
    assert_eq!(broken(&history), ["exclusion"]);
    history.strikes.push(strike(Some(1), 10, 20));
    assert_eq!(broken(&history), ["exclusion"]);
    history.strikes.push(strike(Some(2), 10, 20));
    assert_eq!(broken(&history), [""; 0]);
}

#[test]
fn another_kind_judges_leases_of_permits_by_its_own_clock() {
    let mut history = too_many(Some(LEASE));
    history.strikes.push(strike(Some(2), 10, 20));
    assert_eq!(broken(&history), ["exclusion"]);
    history.clocks_differ = Some(5);
    assert_eq!(broken(&history), [""; 0]);
}

/// Three have two permits at 200 ms, of which one was had before their number was forgotten at 100 ms.
fn set_anew(after: Ms) -> History {
    let takes = |process, from, until| Acquisition {
        mode: Mode::Permits { taken: 1, limit: 2 },
        ..holds(process, from, until)
    };
    let early = takes(1, 40, 120);
    let late = [(2, after), (3, 190), (4, 200)].map(|(process, from)| takes(process, from, 300));
    let mut history = history([early].into_iter().chain(late));
    history.foreign.push(foreigner(2));
    history.wiped.push(Wiped {
        at: 100,
        until: 100,
        key: Some(KEY.to_owned()),
    });
    history
}

#[test]
fn another_kind_sets_a_number_of_permits_that_was_forgotten_without_their_leases() {
    assert_eq!(broken(&set_anew(150)), [""; 0]);
    let mut ours = set_anew(150);
    ours.foreign[0].process = 9;
    assert_eq!(
        broken(&ours),
        ["exclusion"],
        "ours counts those that are held"
    );
    let mut all = set_anew(150);
    all.wiped[0].key = None;
    assert_eq!(broken(&all), ["exclusion"], "the leases were forgotten too");
    let mut nobody = set_anew(150);
    nobody.acquisitions.remove(0);
    assert_eq!(broken(&nobody), ["exclusion"], "nobody had one");
    let mut later = set_anew(150);
    later.wiped[0].at = 210;
    later.wiped[0].until = 210;
    assert_eq!(broken(&later), ["exclusion"], "only later");
}

#[test]
fn another_kind_adds_what_it_had_to_a_number_that_was_forgotten_since() {
    let given_back = |held_until: Ms| {
        let mut history = set_anew(150);
        // The one from before is of the other kind, and ours set the number.
        history.foreign[0].process = 1;
        if let Some(grant) = &mut history.acquisitions[0].grant {
            grant.believed = held_until;
            grant.ended = Some((held_until, End::Released));
        }
        history
    };
    assert_eq!(broken(&given_back(120)), [""; 0]);
    assert_eq!(
        broken(&given_back(99)),
        ["exclusion"],
        "it had none by then"
    );
}
