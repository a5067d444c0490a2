use tests::history::{
    Acquisition, Grant, Heard, History, LatchAct, LatchCall, Mode, Moved, Ms, Redirection,
};

use super::{KEY, LEASE, TERMS, broken, history, holds, sight, strike, with};

const NODE: usize = 1;
const FROM: Ms = 500;
const AT: Ms = 600;

/// The key has another master since then; what was written since `lost` is not there.
fn fails(lost: Option<Ms>) -> Moved {
    Moved {
        key: KEY.to_owned(),
        node: NODE,
        from: FROM,
        at: AT,
        told: AT,
        followed: AT,
        epoch: 2,
        failed: true,
        lost,
        until: AT,
    }
}

fn moves() -> Moved {
    Moved {
        failed: false,
        ..fails(None)
    }
}

/// One that is renewed, from 20 ms on.
fn renewed(until: Ms) -> Acquisition {
    with(holds(1, 20, until), |grant| grant.renewed = true)
}

/// The history of these, in which the key is seen and has another master.
fn moved(all: impl IntoIterator<Item = Acquisition>, moved: Moved) -> History {
    let mut history = history(all);
    if moved.failed {
        history.strikes.push(strike(None, moved.from, moved.at));
    }
    history.sights.push(sight(0, &[]));
    history.moves.push(moved);
    history
}

fn heard(at: Ms, node: usize, owner: &str) -> Heard {
    let words = vec![KEY.to_owned(), owner.to_owned()];
    Heard { at, node, words }
}

#[test]
fn a_hold_that_is_not_asked_about_at_the_new_master_is_found() {
    for change in [moves(), fails(None), fails(Some(450))] {
        // Long enough that it must have been renewed.
        let mut history = moved([renewed(20_000)], change);
        assert_eq!(broken(&history), ["verified"]);
        history.heard.push(heard(700, 0, "client-1:20"));
        assert_eq!(broken(&history), ["verified"], "at another node");
        history.heard[0] = heard(700, NODE, "client-1:7");
        assert_eq!(broken(&history), ["verified"], "another hold");
        history.heard[0] = heard(400, NODE, "client-1:20");
        assert_eq!(broken(&history), ["verified"], "before");
        history.heard[0] = heard(19_000, NODE, "client-1:20");
        assert_eq!(broken(&history), ["verified"], "too late");
        history.heard[0] = heard(700, NODE, "client-1:20");
        assert_eq!(broken(&history), [""; 0]);
        "another".clone_into(&mut history.heard[0].words[0]);
        assert_eq!(broken(&history), ["verified"], "another lock");
        let grant = history.acquisitions[0].grant.as_mut();
        "body 0".clone_into(&mut grant.expect("it has one").owner);
        history.heard[0] = heard(700, NODE, "client-2:20");
        assert_eq!(broken(&history), ["verified"], "another process");
        history.heard[0] = heard(700, NODE, "client-1:7");
        assert_eq!(broken(&history), [""; 0], "a body does not say its number");
    }
}

/// Its lease is long, so the next renewal is late.
#[test]
fn who_was_told_of_the_new_master_asks_at_once() {
    let asks = |at| {
        let mut history = moved([renewed(20_000)], fails(None));
        let grant = history.acquisitions[0].grant.as_mut();
        grant.expect("it has one").lease = Some(30 * LEASE);
        history.heard.push(heard(at, NODE, "client-1:20"));
        history
    };
    let mut late = asks(10_000);
    assert_eq!(broken(&late), [""; 0], "with the next renewal");
    late.layouts.push((700, 2, 2));
    late.layouts.push((700, 1, 1));
    assert_eq!(broken(&late), [""; 0], "it was not told");
    late.layouts.push((700, 1, 2));
    assert_eq!(broken(&late), ["verified"]);
    let mut soon = asks(720);
    soon.layouts.push((700, 1, 2));
    assert_eq!(broken(&soon), [""; 0]);
}

#[test]
fn a_hold_need_not_be_asked_about_where_it_cannot() {
    assert_eq!(broken(&moved([renewed(800)], moves())), [""; 0], "ended");
    let mut struck = moved([renewed(20_000)], moves());
    struck.strikes.push(strike(Some(1), 550, 560));
    assert_eq!(broken(&struck), [""; 0]);
    struck.strikes[0].process = Some(2);
    assert_eq!(broken(&struck), ["verified"], "another process");
    let key = "another".to_owned();
    let other = Moved { key, ..moves() };
    assert_eq!(broken(&moved([renewed(20_000)], other)), [""; 0]);
}

/// It is lost at this time, and its process knows the new master.
fn lost(at: Ms, change: Moved) -> History {
    let one = with(renewed(at - 1), |grant| {
        (grant.lost, grant.ended) = (Some(at), None);
    });
    let mut history = moved([one], change);
    history.heard.push(heard(AT, NODE, "client-1:20"));
    history
}

/// A fault at all nodes would excuse it by itself.
#[test]
fn a_hold_that_the_new_master_knows_is_not_lost() {
    assert_eq!(broken(&lost(650, fails(None))), ["kept"]);
    assert_eq!(broken(&lost(650, fails(Some(450)))), [""; 0], "it does not");
    assert_eq!(broken(&lost(650, moves())), ["loss", "kept"]);
    // The last renewal was a third of the lease before.
    assert_eq!(broken(&lost(FROM + LEASE, fails(None))), [""; 0]);
    let mut wiped = lost(650, fails(None));
    wiped.wiped.push(tests::history::Wiped {
        at: 640,
        until: 640,
        key: Some(KEY.to_owned()),
    });
    assert_eq!(broken(&wiped), [""; 0]);
    wiped.wiped[0].key = Some("another".to_owned());
    assert_eq!(broken(&wiped), ["kept"]);
}

/// A long lease is renewed in time by whoever comes to the new master at once.
#[test]
fn a_long_lease_outlasts_the_change() {
    let long = |change: Moved| {
        let mut history = lost(AT + 7000, change);
        let grant = history.acquisitions[0].grant.as_mut();
        grant.expect("it has one").lease = Some(30 * LEASE);
        history
    };
    assert_eq!(broken(&long(fails(None))), ["kept"]);
    assert_eq!(broken(&long(fails(Some(450)))), [""; 0]);
}

/// The permits' leases are another key, which may be elsewhere while a slot moves.
#[test]
fn what_needs_several_keys_may_be_lost_while_they_are_apart() {
    let shared = |at| {
        let mut history = lost(at, moves());
        history.moves[0].at = FROM + LEASE;
        history.acquisitions[0].mode = Mode::Shared;
        history
    };
    assert_eq!(broken(&shared(FROM + LEASE)), [""; 0]);
    assert_eq!(broken(&shared(FROM + 100)), ["kept"], "too early");
    let mut exclusive = shared(FROM + LEASE);
    exclusive.acquisitions[0].mode = Mode::Exclusive;
    assert_eq!(broken(&exclusive), ["loss"]);
}

/// The second has it while the first believes in it.
fn two(first: Acquisition, from: Ms, change: Moved) -> History {
    let mut history = moved([first, holds(2, from, from + 50)], change);
    history.heard.push(heard(AT, NODE, "client-1"));
    history
}

fn since(from: Ms) -> impl Fn(&mut Grant) {
    move |grant| grant.lease = Some(LEASE + from)
}

#[test]
fn a_slot_that_moves_is_no_excuse_for_two_holders() {
    assert_eq!(broken(&two(renewed(700), 650, moves())), ["exclusion"]);
    assert_eq!(broken(&two(renewed(700), 650, fails(None))), ["exclusion"]);
}

#[test]
fn what_a_master_wrote_last_may_be_had_by_another() {
    let short = |from| with(holds(1, from, 700), since(0));
    assert_eq!(broken(&two(short(480), 650, fails(Some(450)))), [""; 0]);
    // Copied before.
    assert_eq!(
        broken(&two(short(440), 650, fails(Some(450)))),
        ["exclusion"]
    );
    assert_eq!(broken(&two(short(480), 650, fails(None))), ["exclusion"]);
    // The old master gave it to both.
    assert_eq!(
        broken(&two(short(480), 590, fails(Some(450)))),
        ["exclusion"]
    );
    // And not for ever.
    let long = with(holds(1, 480, 9000), since(0));
    assert_eq!(broken(&two(long, 8000, fails(Some(450)))), ["exclusion"]);
}

/// The new master knows an older end of the lease.
#[test]
fn a_renewal_that_is_lost_may_end_a_lease_early() {
    let one = |until| renewed(until);
    let least = 450 + LEASE * 2 / 3 - 100;
    assert_eq!(broken(&two(one(1300), 1200, fails(Some(450)))), [""; 0]);
    assert_eq!(
        broken(&two(one(1300), least, fails(Some(450)))),
        ["exclusion"]
    );
    assert_eq!(broken(&two(one(1300), 1200, fails(None))), ["exclusion"]);
}

/// Sentinels name another master while the old one is well.
#[test]
fn who_is_not_told_may_ask_the_old_master_for_as_long_as_that_is_one() {
    let switch = || Moved {
        told: 900,
        followed: 9000,
        until: 9000,
        ..fails(Some(AT))
    };
    let mut history = moved([renewed(20_000)], switch());
    assert_eq!(broken(&history), ["verified"]);
    history.acquisitions = vec![renewed(8000)];
    assert_eq!(broken(&history), [""; 0], "it cannot know yet");
    history.layouts.push((800, 1, 2));
    assert_eq!(broken(&history), [""; 0], "most others do not know yet");
    history.layouts[0].0 = 900;
    assert_eq!(broken(&history), ["verified"]);
    history.heard.push(heard(950, NODE, "client-1:20"));
    assert_eq!(broken(&history), [""; 0]);
}

/// A master that stands still answers when it goes on, and forgets that.
#[test]
fn what_the_old_master_does_late_is_not_known_to_the_new_one() {
    let late = |until| Moved {
        until,
        ..fails(Some(FROM))
    };
    let asked = |process, from| with(holds(process, from, from + 100), |_| {});
    assert_eq!(broken(&two(asked(1, 700), 750, late(720))), [""; 0]);
    assert_eq!(broken(&two(asked(1, 800), 850, late(720))), ["exclusion"]);
}

#[test]
fn permits_that_a_master_gave_last_may_be_given_again() {
    let permits = |from, change| {
        let mut history = two(holds(1, from, 700), 650, change);
        for one in &mut history.acquisitions {
            one.mode = Mode::Permits { taken: 1, limit: 1 };
        }
        history
    };
    assert_eq!(broken(&permits(480, fails(Some(450)))), [""; 0]);
    assert_eq!(broken(&permits(440, fails(Some(450)))), ["exclusion"]);
    assert_eq!(broken(&permits(480, moves())), ["exclusion"]);
}

fn redirection(at: Ms) -> Redirection {
    Redirection {
        at,
        process: 1,
        node: 0,
        slot: 7,
        epoch: 2,
    }
}

#[test]
fn a_redirection_that_nobody_waits_for_is_not_kept() {
    let cancelled = |process, over, returned| {
        let mut history = history([]);
        history.redirections = vec![redirection(500), redirection(700)];
        history.latches.push(LatchCall {
            process,
            key: KEY.to_owned(),
            called: 450,
            act: LatchAct::Wait,
            over: Some(over),
            returned,
        });
        history
    };
    let arrives = 500 + TERMS.latency;
    let mut unread = cancelled(1, arrives, None);
    assert_eq!(broken(&unread), [""; 0]);
    let late = 700 + 2 * TERMS.latency + 11;
    unread.redirections.push(redirection(late));
    assert_eq!(broken(&unread), ["redirected"], "the second one was read");
    assert_eq!(broken(&cancelled(1, arrives + 1, None)), ["redirected"]);
    assert_eq!(broken(&cancelled(1, 499, None)), ["redirected"]);
    assert_eq!(broken(&cancelled(2, arrives, None)), ["redirected"]);
    let returned = Some((arrives, 0));
    assert_eq!(broken(&cancelled(1, arrives, returned)), ["redirected"]);
}

#[test]
fn a_redirection_is_kept() {
    let mut history = history([]);
    let soon = 500 + 2 * TERMS.latency;
    history.redirections = vec![redirection(500), redirection(soon)];
    assert_eq!(broken(&history), [""; 0]);
    history.redirections.push(redirection(700));
    assert_eq!(broken(&history), ["redirected"]);
    let mut other = history.clone();
    other.redirections[2].epoch = 3;
    assert_eq!(broken(&other), [""; 0], "it had the slot meanwhile");
    let mut told = history.clone();
    told.layouts.push((690, 1, 2));
    assert_eq!(broken(&told), ["redirected"]);
    told.layouts[0] = (690, 2, 1);
    assert_eq!(broken(&told), ["redirected"], "another process");
    told.layouts[0] = (690, 1, 1);
    assert_eq!(broken(&told), [""; 0], "by a node that did not know yet");
    let mut struck = history.clone();
    struck.strikes.push(strike(Some(1), 550, 560));
    assert_eq!(broken(&struck), [""; 0], "it may be on its way for longer");
    struck.strikes[0].process = Some(2);
    assert_eq!(broken(&struck), ["redirected"]);
    let last = 500 - TERMS.latency;
    struck.strikes[0] = strike(Some(1), 400, last);
    assert_eq!(broken(&struck), [""; 0], "its answer may be unread");
    struck.strikes[0] = strike(Some(1), 400, last - 1);
    assert_eq!(broken(&struck), ["redirected"]);
    let mut hasty = history.clone();
    let ends = 500 + 4 * TERMS.latency;
    let ending = |at: Ms| {
        let one = holds(1, 300, 310);
        let lease = Some(at - one.called);
        with(one, |grant| grant.lease = lease)
    };
    hasty.acquisitions.push(ending(ends));
    let unread = "its renewal does not wait for the answer";
    assert_eq!(broken(&hasty), [""; 0], "{unread}");
    hasty.acquisitions[0] = ending(ends + 1);
    assert_eq!(broken(&hasty), ["redirected"]);
    hasty.acquisitions[0] = ending(400);
    assert_eq!(broken(&hasty), ["redirected"], "its lease was over before");
}
