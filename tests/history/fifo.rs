use tests::history::{History, Ms, Sight};

use super::{KEY, asks, broken, history, strike};

/// Three that wait in this order, and then who has the lock and who is left.
fn queue(holder: &str, left: &[&str]) -> History {
    let sight = |at: Ms, queue: &[&str], holder: Option<&str>| Sight {
        at,
        key: KEY.to_owned(),
        queue: queue.iter().map(|owner| (*owner).to_owned()).collect(),
        holders: holder
            .iter()
            .map(|owner| ((*owner).to_owned(), 1))
            .collect(),
        ..Sight::default()
    };
    let mut history = history([asks(1, 10), asks(2, 20), asks(3, 30)]);
    history.end = 120;
    let all = ["client-1:1", "client-2:1", "client-3:1"];
    history.sights = vec![sight(40, &all, None), sight(100, left, Some(holder))];
    history
}

#[test]
fn the_first_in_the_queue_is_next() {
    assert_eq!(
        broken(&queue("client-1:1", &["client-2:1", "client-3:1"])),
        [""; 0]
    );
    assert_eq!(
        broken(&queue("client-2:1", &["client-1:1", "client-3:1"])),
        ["fifo"]
    );
}

#[test]
fn who_was_not_queued_overtakes_nobody() {
    let all = ["client-1:1", "client-2:1", "client-3:1"];
    assert_eq!(broken(&queue("client-9:1", &all)), ["fifo"]);
}

#[test]
fn who_has_left_is_not_overtaken() {
    assert_eq!(broken(&queue("client-2:1", &["client-3:1"])), [""; 0]);
}

#[test]
fn who_was_not_heard_may_be_overtaken() {
    let mut history = queue("client-2:1", &["client-1:1", "client-3:1"]);
    history.strikes.push(strike(Some(1), 50, 60));
    assert_eq!(broken(&history), [""; 0]);
    history.strikes[0].process = Some(3);
    assert_eq!(broken(&history), ["fifo"]);
}
