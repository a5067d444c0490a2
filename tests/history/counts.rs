use tests::history::{Again, Grant, History, Ms, Sight};

use super::{broken, history, holds, sight, strike, with};

const OWNER: &str = "client-1:20";

/// A hold from 20 to 200 ms, taken once more from 50 to 100 ms, and what Redis counts.
fn counted(counts: &[(Ms, u32)]) -> Vec<String> {
    let broken = tests::history::check(&taken_twice(counts));
    broken.iter().map(ToString::to_string).collect()
}

fn taken_twice(counts: &[(Ms, u32)]) -> History {
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
    History {
        sights: sights.chain([sight(205, &[])]).collect(),
        ..history([with(holds(1, 20, 200), again)])
    }
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

#[test]
fn what_a_lost_connection_sent_may_count_anew_where_nobody_may_end_it() {
    let mut late = taken_twice(&[(15, 1), (45, 2), (90, 1)]);
    late.strikes.push(strike(Some(1), 40, 60));
    assert_eq!(broken(&late), ["count"]);
    late.terms.keeps_lost_connections = true;
    assert_eq!(broken(&late), [""; 0]);
    late.strikes[0].process = Some(2);
    assert_eq!(broken(&late), ["count"], "another process");
}
