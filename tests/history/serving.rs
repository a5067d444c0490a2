use tests::history::{Acquisition, History, LatchAct, LatchCall, Mode, Ms, Outcome, Sight};

use super::{KEY, TERMS, asks, broken, client, foreigner, history, holds, sight, strike};

/// Two ways of a message, clocks that run apart for a poll interval, and 10 ms.
pub(super) const PROMPT: Ms = 2 * 5 + 40 + 10;

/// One that waits since 20 ms and is served a long time later.
fn waits() -> Acquisition {
    Acquisition {
        called: 20,
        ..holds(2, 90_000, 90_010)
    }
}

/// What Redis shows: held until 1000 ms, then free until then.
pub(super) fn free_until(at: Ms) -> History {
    let mut history = history([waits()]);
    history.sights = vec![
        sight(20, &["client-1:1"]),
        sight(1000, &[]),
        sight(at, &["client-2:1"]),
    ];
    history
}

#[test]
fn a_waiter_that_is_not_told_of_a_release_is_found() {
    assert_eq!(broken(&free_until(1000 + PROMPT)), [""; 0]);
    assert_eq!(broken(&free_until(1001 + PROMPT)), ["serving"]);
}

#[test]
fn who_has_just_come_has_the_time_to_connect() {
    let mut late = free_until(1240);
    late.acquisitions[0].called = 1110;
    assert_eq!(broken(&late), [""; 0]);
    late.acquisitions[0].called = 1109;
    assert_eq!(broken(&late), ["serving"]);
}

#[test]
fn who_is_not_told_looks_by_itself() {
    let mut spins = free_until(1000 + PROMPT + TERMS.backoff);
    spins.acquisitions[0].announced = false;
    assert_eq!(broken(&spins), [""; 0]);
    spins.sights[2].at += 1;
    assert_eq!(broken(&spins), ["serving"]);
}

#[test]
fn who_tries_only_once_does_not_wait() {
    let mut once = free_until(80_000);
    once.acquisitions[0].bound = Some(0);
    once.acquisitions[0].called = 89_000;
    assert_eq!(broken(&once), [""; 0]);
}

#[test]
fn a_fault_may_keep_a_waiter_for_a_while_and_not_for_ever() {
    // The longest lease, the waiter time-out, the poll interval, two time-outs, and a pause.
    let recovery = (1000 + 500 + 2000 + 1000 + 1000 + 1000) * 101 / 100;
    let late = |from, until, process, at| {
        let mut history = free_until(at);
        history.strikes.push(strike(process, from, until));
        broken(&history)
    };
    assert_eq!(late(900, 1100, None, 1100 + recovery), [""; 0]);
    assert_eq!(late(900, 1100, None, 1101 + recovery), ["serving"]);
    assert_eq!(late(900, 1100, Some(2), 1100 + recovery), [""; 0]);
    assert_eq!(
        late(900, 1100, Some(1), 1100),
        ["serving"],
        "another process"
    );
    // While it lasts nothing is asked for.
    assert_eq!(late(900, 50_000, None, 50_000), [""; 0]);
}

#[test]
fn permits_that_are_left_are_had() {
    let free = |number, at| {
        let mut history = free_until(at);
        history.acquisitions[0].mode = Mode::Permits { taken: 2, limit: 3 };
        for sight in &mut history.sights {
            sight.holders.clear();
            sight.number = Some(0);
        }
        history.sights[1].number = Some(number);
        broken(&history)
    };
    assert_eq!(free(2, 1000 + PROMPT), [""; 0]);
    assert_eq!(free(2, 1001 + PROMPT), ["serving"]);
    assert_eq!(free(1, 50_000), [""; 0], "too few");
}

#[test]
fn who_waits_behind_one_that_gives_up_is_served() {
    let behind = |process, at| {
        let gave_up = Acquisition {
            mode: Mode::Permits { taken: 2, limit: 2 },
            returned: Some((1500, Outcome::TimedOut)),
            ..asks(process, 10)
        };
        let mut history = free_until(at);
        history.acquisitions[0].mode = Mode::Permits { taken: 1, limit: 2 };
        history.acquisitions.push(gave_up);
        for (sight, number) in history.sights.iter_mut().zip([0, 1, 0]) {
            sight.holders.clear();
            sight.number = Some(number);
        }
        broken(&history)
    };
    assert_eq!(behind(2, 1500 + PROMPT), [""; 0]);
    assert_eq!(behind(2, 1501 + PROMPT), ["serving"]);
    assert_eq!(behind(1, 1000 + PROMPT), [""; 0], "another process's");
    assert_eq!(behind(1, 1001 + PROMPT), ["serving"]);
}

#[test]
fn a_reader_follows_other_readers() {
    let behind = |shared, at| {
        let mut history = free_until(at);
        history.acquisitions[0].mode = Mode::Shared;
        history.sights[1] = Sight {
            shared,
            ..sight(1000, &["client-1:2"])
        };
        broken(&history)
    };
    assert_eq!(behind(true, 1000 + PROMPT), [""; 0]);
    assert_eq!(behind(true, 1001 + PROMPT), ["serving"]);
    assert_eq!(behind(false, 50_000), [""; 0], "a writer has it");
}

#[test]
fn of_a_lease_that_ends_each_waiter_knows_but_those_behind_readers_of_redisson() {
    let ended = |foreign, at| {
        let mut history = free_until(at);
        history.sights[1].expired = true;
        history.acquisitions.push(Acquisition {
            mode: Mode::Shared,
            ..holds(3, 95_000, 95_010)
        });
        if foreign {
            history.foreign.push(foreigner(3));
        }
        broken(&history)
    };
    assert_eq!(ended(false, 1000 + PROMPT), [""; 0]);
    assert_eq!(ended(false, 1001 + PROMPT), ["serving"]);
    assert_eq!(ended(true, 1000 + PROMPT + TERMS.poll), [""; 0]);
    assert_eq!(ended(true, 1001 + PROMPT + TERMS.poll), ["serving"]);
}

#[test]
fn who_may_share_it_with_readers_of_redisson_looks_by_itself() {
    let shared = |foreign, at| {
        let mut history = free_until(at);
        history.acquisitions[0].mode = Mode::Shared;
        history.sights[1] = Sight {
            shared: true,
            ..sight(1000, &["client-3:1"])
        };
        history.acquisitions.push(Acquisition {
            mode: Mode::Shared,
            ..holds(3, 95_000, 95_010)
        });
        if foreign {
            history.foreign.push(foreigner(3));
        }
        broken(&history)
    };
    assert_eq!(shared(false, 1001 + PROMPT), ["serving"]);
    assert_eq!(shared(true, 1000 + PROMPT + TERMS.poll), [""; 0]);
    assert_eq!(shared(true, 1001 + PROMPT + TERMS.poll), ["serving"]);
}

#[test]
fn who_has_read_what_another_program_set_looks_by_itself() {
    let ended = |(set, key): (Ms, &str), at| {
        let mut history = free_until(at);
        history.sights[1].expired = true;
        history.ttls.push((set, key.to_owned()));
        broken(&history)
    };
    assert_eq!(ended((900, KEY), 1000 + PROMPT + TERMS.poll), [""; 0]);
    assert_eq!(ended((900, KEY), 1001 + PROMPT + TERMS.poll), ["serving"]);
    let later = ended((1001, KEY), 1001 + PROMPT);
    assert_eq!(later, ["serving"], "after it was free");
    assert_eq!(ended((900, "another"), 1001 + PROMPT), ["serving"]);
}

#[test]
fn who_becomes_next_by_a_script_of_redisson_learns_it_by_a_beat() {
    let queued = |foreign: bool, at| {
        let mut history = free_until(at);
        history.sights[1].queue = vec!["client-2:1".to_owned()];
        history.acquisitions.push(asks(3, 20));
        history.acquisitions[1].returned = Some((900, Outcome::TimedOut));
        history.foreign.extend(foreign.then(|| foreigner(3)));
        broken(&history)
    };
    // The one before may have left just now.
    let prompt = 1000 + PROMPT + 2 * 5;
    assert_eq!(queued(false, prompt), [""; 0]);
    assert_eq!(queued(false, prompt + 1), ["serving"]);
    assert_eq!(queued(true, prompt + TERMS.poll), [""; 0]);
    assert_eq!(queued(true, prompt + TERMS.poll + 1), ["serving"]);
}

#[test]
fn a_script_may_have_to_be_sent_again() {
    let mut forgets = free_until(1000 + PROMPT + 4 * 5);
    assert_eq!(broken(&forgets), ["serving"]);
    forgets.terms.forgets_scripts = true;
    assert_eq!(broken(&forgets), [""; 0]);
    forgets.sights[2].at += 1;
    assert_eq!(broken(&forgets), ["serving"]);
}

#[test]
fn in_a_fair_queue_the_first_is_served() {
    let queued = |first: &str, at| {
        let mut history = free_until(at);
        history.sights[1].queue = vec![first.to_owned(), "client-2:1".to_owned()];
        broken(&history)
    };
    // The one before it may have left just now.
    let longest = 1000 + PROMPT + 2 * 5;
    assert_eq!(queued("client-2:0", longest), [""; 0]);
    assert_eq!(queued("client-2:0", longest + 1), ["serving"]);
    assert_eq!(queued("client-1:1", 50_000), [""; 0], "another is first");
}

#[test]
fn nobody_was_judged_behind_a_dead_first() {
    let queued = |at| {
        let mut history = free_until(at);
        history.sights[1].queue = vec!["client-1:1".to_owned(), "client-2:1".to_owned()];
        history.clients.push((client(1), 1));
        history.crashed.push((1, 900));
        history
    };
    let recovery = (1000 + 500 + 2000 + 1000 + 1000 + 1000) * 101 / 100;
    // The one before it may have left just now.
    let longest = 1000 + recovery + PROMPT + 2 * 5;
    assert_eq!(broken(&queued(longest)), [""; 0]);
    assert_eq!(broken(&queued(longest + 1)), ["serving"]);
    let mut lives = queued(80_000);
    lives.crashed.clear();
    assert_eq!(broken(&lives), [""; 0]);
    let mut foreign = queued(80_000);
    foreign.foreign.push(foreigner(1));
    assert_eq!(broken(&foreign), ["foreign"], "by a rule of its own");
}

#[test]
fn whoever_waits_for_an_open_latch_is_told() {
    let told = |at| {
        let mut history = history([]);
        history.latches.push(LatchCall {
            process: 1,
            key: KEY.to_owned(),
            called: 20,
            act: LatchAct::Wait,
            over: Some(at),
            returned: Some((at, 0)),
        });
        let count = |at, number| Sight {
            number: Some(number),
            ..sight(at, &[])
        };
        history.sights = vec![count(10, 1), count(1000, 0)];
        broken(&history)
    };
    assert_eq!(told(1005 + PROMPT), [""; 0]);
    assert_eq!(told(1006 + PROMPT), ["serving"]);
}
