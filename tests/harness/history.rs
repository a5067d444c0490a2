//! The history checker.

use std::time::Duration;

use tests::{History, Turn, Turns, monotonic};

fn turn(owner: &str, enter: u64, leave: u64) -> Turn {
    let (enter, leave) = (Duration::from_nanos(enter), Duration::from_nanos(leave));
    Turn {
        process: "1".to_owned(),
        owner: owner.to_owned(),
        enter,
        leave,
    }
}

#[test]
fn turns_one_after_the_other_are_exclusive() {
    let turns = Turns::new([turn("b", 20, 30), turn("a", 10, 20), turn("a", 31, 40)]);
    turns.check_exclusive().unwrap();
    assert_eq!(turns.per_owner()[&("1".to_owned(), "a".to_owned())], 2);
    assert_eq!(turns.per_process()["1"], 3);
}

#[test]
fn an_overlap_is_caught() {
    let turns = Turns::new([turn("c", 40, 50), turn("a", 10, 21), turn("b", 20, 30)]);
    let overlap = turns.check_exclusive().unwrap_err();
    assert_eq!(
        (overlap.first.owner.as_str(), overlap.second.owner.as_str()),
        ("a", "b")
    );
    assert!(
        overlap.to_string().contains("two holders for 1ns"),
        "{overlap}"
    );
}

#[test]
fn a_turn_within_a_long_one_is_caught() {
    let turns = Turns::new([
        turn("long", 10, 100),
        turn("short", 90, 95),
        turn("after", 100, 110),
    ]);
    let overlap = turns.check_exclusive().unwrap_err();
    assert_eq!(
        (overlap.first.owner.as_str(), overlap.second.owner.as_str()),
        ("long", "short")
    );
}

#[test]
fn several_writers_share_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let history = History::open(&path).unwrap();
            scope.spawn(move || {
                for _ in 0..250 {
                    let now = monotonic();
                    history.turn(&format!("w{writer}"), now, now).unwrap();
                }
            });
        }
    });
    let turns = Turns::read(&path).unwrap();
    assert_eq!(turns.all().len(), 1000);
    assert_eq!(turns.per_process()[&std::process::id().to_string()], 1000);
    assert!(turns.per_owner().values().all(|&count| count == 250));
}
