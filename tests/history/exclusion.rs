use tests::history::{Mode, Ms, Wiped};

use super::{KEY, LEASE, broken, history, holds, with};

const RULE: [&str; 1] = ["exclusion"];

fn mode(of: tests::history::Acquisition, mode: Mode) -> tests::history::Acquisition {
    tests::history::Acquisition { mode, ..of }
}

#[test]
fn two_that_believe_at_once_are_found() {
    assert_eq!(broken(&history([holds(1, 10, 50), holds(2, 40, 90)])), RULE);
    // However far apart they began, and whoever is written down first.
    assert_eq!(
        broken(&history([
            holds(2, 40, 90),
            holds(3, 60, 65),
            holds(1, 10, 41)
        ])),
        RULE
    );
}

#[test]
fn readers_go_together_and_not_with_a_writer() {
    let reader = |process, from, until| mode(holds(process, from, until), Mode::Shared);
    assert_eq!(
        broken(&history([reader(1, 10, 50), reader(2, 20, 90)])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([reader(1, 10, 50), holds(2, 40, 90)])),
        RULE
    );
    assert_eq!(
        broken(&history([holds(1, 10, 50), reader(2, 40, 90)])),
        RULE
    );
}

#[test]
fn more_permits_than_there_are_are_found() {
    let takes = |process, taken, from, until| {
        mode(
            holds(process, from, until),
            Mode::Permits { taken, limit: 3 },
        )
    };
    assert_eq!(
        broken(&history([takes(1, 2, 10, 50), takes(2, 1, 20, 90)])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([takes(1, 2, 10, 50), takes(2, 2, 20, 90)])),
        RULE
    );
}

#[test]
fn what_redis_forgot_excuses_an_overlap_for_as_long_as_a_lease() {
    let overlap = |wiped: Ms, until: Ms| {
        let mut history = history([
            with(holds(1, 10, until), |grant| grant.ended = None),
            holds(2, 200, until + 10),
        ]);
        history.wiped.push(Wiped {
            at: wiped,
            until: wiped,
            key: Some(KEY.to_owned()),
        });
        broken(&history)
    };
    assert_eq!(overlap(100, 100 + LEASE), [""; 0]);
    assert_eq!(
        overlap(100, 100 + LEASE * 11 / 10),
        RULE,
        "believed for too long"
    );
    assert_eq!(overlap(250, 300), RULE, "forgotten only afterwards");
}
