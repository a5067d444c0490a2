use tests::history::{Acquisition, Flood, History, Ms, Outcome};

use super::{asks, broken, history, holds};

/// A server that could serve ten in this time, and so many that asked for it and had it.
fn flood(wanted: Ms, served: Ms) -> History {
    let one = |at: Ms| {
        let one = match at < served {
            true => holds(1, 1010 + 10 * at, 1011 + 10 * at),
            false => Acquisition {
                returned: Some((1100 + 10 * at, Outcome::TimedOut)),
                ..asks(1, 1000 + 10 * at)
            },
        };
        let key = format!("k:{at}");
        Acquisition { key, ..one }
    };
    let mut history = history((0..wanted).map(one));
    history.terms.flood = Some(Flood {
        from: 1000,
        until: 2000,
        turn: 100,
    });
    history
}

#[test]
fn a_server_that_works_for_those_that_have_gone_is_found() {
    assert_eq!(broken(&flood(16, 5)), [""; 0]);
    assert_eq!(broken(&flood(16, 4)), ["goodput"]);
    assert_eq!(broken(&flood(8, 4)), [""; 0], "no more are wanted");
    assert_eq!(broken(&flood(8, 3)), ["goodput"]);
}

#[test]
fn what_comes_before_and_after_is_not_counted() {
    let mut early = flood(16, 5);
    for at in [999, 2000] {
        let grant = early.acquisitions[0].grant.as_mut();
        grant.expect("it was granted").at = at;
        assert_eq!(broken(&early), ["goodput"]);
    }
}

#[test]
fn more_in_flight_than_there_is_room_for_is_found() {
    let most = |commands| {
        let mut history = history([]);
        history.in_flight = commands;
        broken(&history)
    };
    assert_eq!(most(3104), [""; 0]);
    assert_eq!(most(3105), ["in flight"]);
}
