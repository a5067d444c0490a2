use tests::history::{Again, Grant, History, Ms, Sight};

use super::{history, holds, sight, with};

const OWNER: &str = "client-1:20";

/// A hold from 20 to 200 ms, taken once more from 50 to 100 ms, and what Redis counts.
fn counted(counts: &[(Ms, u32)]) -> Vec<String> {
    let again = |grant: &mut Grant| {
        grant.again.push(Again {
            called: 40,
            at: Some(50),
            ended: Some(100),
        });
    };
    let sights = counts.iter().map(|(at, count)| Sight {
        holders: vec![(OWNER.to_owned(), *count)],
        ..sight(*at, &[])
    });
    let history = History {
        sights: sights.chain([sight(205, &[])]).collect(),
        ..history([with(holds(1, 20, 200), again)])
    };
    let broken = tests::history::check(&history);
    broken.iter().map(ToString::to_string).collect()
}

#[test]
fn a_count_that_follows_the_guards_breaks_nothing() {
    assert_eq!(counted(&[(15, 1), (45, 2), (105, 1)]), [""; 0]);
}

#[test]
fn a_guard_that_redis_does_not_count_is_found() {
    let broken = counted(&[(15, 1)]);
    assert!(broken[0].starts_with("count at 15 ms"), "{broken:?}");
    let broken = counted(&[(15, 1), (45, 2), (90, 1)]);
    assert!(broken[0].starts_with("count at 90 ms"), "{broken:?}");
}

#[test]
fn a_guard_that_nobody_has_is_found() {
    assert_eq!(counted(&[(15, 2)]), [""; 0], "it is asked for soon");
    let broken = counted(&[(15, 1), (45, 3)]);
    assert!(broken[0].starts_with("count at 45 ms"), "{broken:?}");
}
