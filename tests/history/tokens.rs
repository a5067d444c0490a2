use tests::history::{Acquisition, Ms};

use super::{broken, history, holds, with};

fn token(process: u32, from: Ms, token: u64) -> Acquisition {
    with(holds(process, from, from + 5), |grant| {
        grant.token = Some(token)
    })
}

#[test]
fn tokens_that_fall_or_repeat_are_found() {
    assert_eq!(
        broken(&history([
            token(1, 20, 1),
            token(2, 40, 2),
            token(1, 60, 5)
        ])),
        [""; 0]
    );
    assert_eq!(
        broken(&history([token(1, 20, 2), token(2, 40, 1)])),
        ["tokens"]
    );
    assert_eq!(
        broken(&history([token(1, 20, 2), token(2, 40, 2)])),
        ["tokens"]
    );
    // Not beside each other either.
    assert_eq!(
        broken(&history([
            token(1, 20, 5),
            token(2, 40, 7),
            token(3, 60, 8),
            token(1, 80, 6)
        ])),
        ["tokens"]
    );
}

#[test]
fn calls_that_were_under_way_together_may_be_served_in_any_order() {
    let mut slow = token(2, 40, 1);
    slow.called = 15;
    assert_eq!(broken(&history([token(1, 20, 2), slow])), [""; 0]);
}
