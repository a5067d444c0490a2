use tests::history::{Acquisition, Again, History, Mode, Ms, Outcome, Part, Sight, Wiped};

use super::{KEY, LEASE, asks, broken, history, holds, sight, strike, with};

const SERVERS: usize = 3;
const NOBODY: &[&str] = &[];

fn red(of: Acquisition) -> Acquisition {
    Acquisition {
        mode: Mode::Majority(SERVERS),
        announced: false,
        ..of
    }
}

/// One that is renewed, had from this moment on and believed in until that one.
fn had(process: u32, from: Ms, until: Ms) -> Acquisition {
    with(red(holds(process, from, until)), |grant| {
        grant.renewed = true;
    })
}

/// A history in which these were had one after the other, with a part on each of these servers: the
/// owner is the number of the hold.
fn on(holds: impl IntoIterator<Item = (Acquisition, &'static [usize])>) -> History {
    let (all, places): (Vec<_>, Vec<_>) = holds.into_iter().unzip();
    let mut history = history(all);
    for (number, servers) in places.iter().enumerate() {
        history.parts.push(Part {
            acquisition: number,
            owner: number.to_string(),
            from: 0,
        });
        let Some(grant) = &history.acquisitions[number].grant else {
            continue;
        };
        let at = grant.at;
        for server in *servers {
            let owner = number.to_string();
            history
                .server_sights
                .push((*server, sight(at - 5, &[&owner])));
        }
    }
    history.end = 5000;
    history
}

/// A server forgets the key, and shows these from then on.
fn forgets(history: &mut History, server: usize, at: Ms, holders: &[&str]) {
    history.wiped_servers.push((
        server,
        Wiped {
            at,
            until: at,
            key: Some(KEY.to_owned()),
        },
    ));
    shows(history, server, sight(at, holders));
}

fn shows(history: &mut History, server: usize, sight: Sight) {
    history.server_sights.push((server, sight));
    history.server_sights.sort_by_key(|(_, sight)| sight.at);
}

#[test]
fn turns_one_after_the_other_break_nothing() {
    let turns = on([(had(1, 10, 50), &[0, 1][..]), (had(2, 60, 90), &[0, 1, 2])]);
    assert_eq!(broken(&turns), [""; 0]);
}

#[test]
fn who_has_and_gives_up_a_majority_in_one_millisecond_may_have_asked_last() {
    let turns = on([(had(2, 40, 90), &[0, 1][..]), (had(1, 40, 40), &[1, 2])]);
    assert_eq!(broken(&turns), [""; 0]);
}

#[test]
fn two_that_believe_at_once_are_found() {
    let both = on([(had(1, 10, 50), &[0, 1][..]), (had(2, 40, 90), &[2])]);
    assert_eq!(broken(&both), ["exclusion"]);
    let asked_once = on([(had(1, 10, 50), &[0, 1][..]), (had(2, 40, 40), &[2])]);
    assert_eq!(broken(&asked_once), ["exclusion"]);
}

/// The first has parts on some servers, of which these forget at 100 ms and are had by the second one
/// until a moment.
fn overlap(first: &'static [usize], forgetful: &[usize], until: Ms) -> History {
    let mut history = on([(had(1, 10, until), first), (had(2, 120, until + 10), &[])]);
    for server in forgetful {
        forgets(&mut history, *server, 100, &["1"]);
    }
    history
}

#[test]
fn a_majority_that_forgot_excuses_an_overlap_until_the_next_renewal() {
    // A third of 1000 ms and 1 %, six ways of a message, and 10 ms.
    let last = 100 + 333 + 4 + 30 + 10;
    assert_eq!(broken(&overlap(&[0, 1, 2], &[1, 2], last)), [""; 0]);
    assert_eq!(
        broken(&overlap(&[0, 1, 2], &[1, 2], last + 1)),
        ["exclusion"]
    );
    // Which a fault may prevent.
    let mut struck = overlap(&[0, 1, 2], &[1, 2], last + 1);
    let fault = strike(Some(1), 110, 120);
    struck.struck_servers.push((Some(1), fault));
    assert_eq!(broken(&struck), [""; 0]);
    struck.struck_servers[0].0 = Some(0);
    assert_eq!(broken(&struck), ["exclusion"], "at another server");
}

#[test]
fn a_minority_that_forgot_excuses_nothing() {
    assert_eq!(broken(&overlap(&[0, 1, 2], &[1], 200)), ["exclusion"]);
    // But of two parts one is what matters.
    assert_eq!(broken(&overlap(&[0, 1], &[1], 200)), [""; 0]);
}

#[test]
fn what_was_forgotten_and_given_back_excuses_nothing() {
    let mut back = on([(had(1, 10, 900), &[0, 1, 2][..]), (had(2, 700, 910), &[])]);
    forgets(&mut back, 1, 100, NOBODY);
    shows(&mut back, 1, sight(300, &["0"]));
    forgets(&mut back, 2, 650, &["1"]);
    assert_eq!(broken(&back), ["exclusion"]);
}

/// A hold with three parts that is seen to be lost at 500 ms.
fn lost() -> History {
    let lost = with(had(1, 10, 490), |grant| {
        grant.lost = Some(500);
        grant.ended = None;
    });
    on([(lost, &[0, 1, 2][..])])
}

#[test]
fn a_guard_that_is_lost_although_a_majority_is_there_is_found() {
    assert_eq!(broken(&lost()), ["loss"]);
    let mut one = lost();
    forgets(&mut one, 0, 480, &["9"]);
    assert_eq!(broken(&one), ["loss"]);
    forgets(&mut one, 1, 485, &["9"]);
    assert_eq!(broken(&one), [""; 0]);
}

#[test]
fn a_guard_whose_process_reaches_no_majority_may_be_lost() {
    let mut struck = lost();
    struck
        .struck_servers
        .push((Some(2), strike(Some(1), 400, 450)));
    assert_eq!(broken(&struck), ["loss"]);
    struck
        .struck_servers
        .push((Some(1), strike(None, 400, 450)));
    assert_eq!(broken(&struck), [""; 0]);
    struck.struck_servers.truncate(1);
    struck.struck_servers[0].0 = None;
    assert_eq!(broken(&struck), [""; 0], "from everywhere");
    let mut closed = lost();
    closed.shut_down.push((1, 490));
    assert_eq!(broken(&closed), [""; 0]);
    closed.shut_down[0] = (1, 510);
    assert_eq!(broken(&closed), ["loss"], "only later");
}

#[test]
fn in_a_process_they_are_had_in_the_order_of_the_calls() {
    let waits = |called, until| Acquisition {
        returned: Some((until, Outcome::TimedOut)),
        called,
        ..red(asks(1, 0))
    };
    let late = |called, until| {
        on([
            (had(1, 200, 220), &[0, 1, 2][..]),
            (waits(called, until), &[]),
        ])
    };
    assert_eq!(broken(&late(100, 300)), ["fifo"]);
    assert_eq!(broken(&late(195, 300)), [""; 0], "it came later");
    assert_eq!(broken(&late(100, 200)), [""; 0], "it had left");
    let mut tried = late(150, 240);
    assert_eq!(broken(&tried), ["fifo"]);
    tried.acquisitions[1].bound = Some(0);
    assert_eq!(broken(&tried), [""; 0], "it did not queue");
}

/// Nobody holds it on these servers from 1000 ms on, and a process waits for it since 500 ms.
fn free(servers: &[usize], until: Ms) -> History {
    let waits = Acquisition {
        returned: Some((until, Outcome::TimedOut)),
        called: 500,
        ..red(asks(1, 0))
    };
    let mut history = on([(waits, &[][..])]);
    for server in 0..SERVERS {
        shows(&mut history, server, sight(1, &["other"]));
    }
    for server in servers {
        shows(&mut history, *server, sight(1000, NOBODY));
    }
    history
}

#[test]
fn who_waits_for_a_majority_that_is_free_is_served() {
    // Two times 50 ms, the longest pause of 100 ms, six ways of a message, drift and 10 ms.
    let last = 1000 + 100 + 100 + 30 + 5 + 10;
    assert_eq!(broken(&free(&[0, 2], last)), [""; 0]);
    assert_eq!(broken(&free(&[0, 2], last + 1)), ["serving"]);
    assert_eq!(broken(&free(&[0], 4000)), [""; 0], "a minority");
    let mut struck = free(&[0, 2], 4000);
    struck
        .struck_servers
        .push((Some(2), strike(Some(1), 900, 910)));
    assert_eq!(broken(&struck), [""; 0]);
    shows(&mut struck, 1, sight(1000, NOBODY));
    assert_eq!(broken(&struck), ["serving"], "two others are free");
}

#[test]
fn a_server_that_forgot_is_given_its_part_again() {
    let gap = |until| {
        let mut history = on([(had(1, 10, 2000), &[0, 1, 2][..])]);
        forgets(&mut history, 1, 100, NOBODY);
        shows(&mut history, 1, sight(until, &["0"]));
        history
    };
    // A third of the lease and 1 %, four times 50 ms, thirty ways of a message, and 10 ms.
    let last = 100 + LEASE / 3 + 4 + 200 + 150 + 10;
    assert_eq!(broken(&gap(last)), [""; 0]);
    assert_eq!(broken(&gap(last + 1)), ["repair"]);
    let mut taken = gap(1500);
    shows(&mut taken, 1, sight(600, &["other"]));
    assert_eq!(broken(&taken), [""; 0], "somebody else has it");
    let mut plain = gap(1500);
    if let Some(grant) = &mut plain.acquisitions[0].grant {
        grant.renewed = false;
    }
    assert_eq!(broken(&plain), [""; 0], "a lease that is not renewed");
    let mut struck = gap(1500);
    struck
        .struck_servers
        .push((Some(1), strike(None, 100, 200)));
    assert_eq!(broken(&struck), [""; 0]);
}

#[test]
fn a_task_waits_for_another_of_its_process_whose_parts_were_forgotten() {
    let own = |process, until| {
        let mut history = free(&[0, 2], 4000);
        // One that is not renewed, and so not given its parts again.
        history.acquisitions.push(red(holds(process, 100, until)));
        history
    };
    // As for a lock that is free from then on.
    let last = 4000 - 245;
    assert_eq!(broken(&own(1, last)), [""; 0]);
    assert_eq!(broken(&own(1, last - 1)), ["serving"]);
    assert_eq!(broken(&own(2, last)), ["serving"], "another process");
}

/// One that is had once more from 300 to 400 ms, which these servers count from 290 ms on.
fn twice(servers: &[usize], count: u32) -> History {
    let twice = with(had(1, 10, 900), |grant| {
        grant.again.push(Again {
            called: 280,
            at: Some(300),
            ended: Some(400),
        });
    });
    let mut history = on([(twice, &[0, 1, 2][..])]);
    for server in servers {
        let mut sight = sight(290, &["0"]);
        sight.holders[0].1 = count;
        shows(&mut history, *server, sight);
    }
    history
}

#[test]
fn a_count_of_guards_that_were_not_asked_for_is_found() {
    assert_eq!(broken(&twice(&[0, 1, 2], 2)), [""; 0]);
    assert_eq!(broken(&twice(&[0, 1, 2], 3)), ["count"]);
    let mut early = on([(had(1, 10, 900), &[0, 1, 2][..])]);
    let mut sight = sight(290, &["0"]);
    sight.holders[0].1 = 2;
    shows(&mut early, 1, sight);
    assert_eq!(broken(&early), ["count"]);
}

#[test]
fn a_second_guard_that_a_minority_counts_is_found() {
    assert_eq!(broken(&twice(&[1, 2], 2)), [""; 0]);
    assert_eq!(broken(&twice(&[1], 2)), ["count"]);
    let mut struck = twice(&[1], 2);
    struck
        .struck_servers
        .push((Some(2), strike(Some(1), 200, 210)));
    assert_eq!(broken(&struck), [""; 0]);
}
