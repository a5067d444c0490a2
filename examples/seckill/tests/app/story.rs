//! The story on the command line: each step shows what it is there to show.

use std::process::Command;

/// What a step has counted.
#[derive(Debug)]
struct Told {
    second_orders: u64,
    locked_out: Option<u64>,
}

/// Runs the steps of a kind of lock. The program itself checks those that are to hold.
#[track_caller]
fn story(lock: &str) -> Vec<Told> {
    // Nobody listens there: a story has a Redis of its own.
    let output = Command::new(env!("CARGO_BIN_EXE_seckill"))
        .args(["story", "--lock", lock])
        .env("SECKILL_REDIS", "redis://127.0.0.1:1")
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    // What is broken is broken on purpose: no word of it between the lines.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let count = |step: &str, what: &str| {
        let line = step.lines().find_map(|line| line.trim().strip_prefix(what));
        line.map(|count| count.trim().parse::<u64>().unwrap())
    };
    let steps: Vec<_> = said
        .split(&format!("--lock {lock}: "))
        .skip(1)
        .map(|step| Told {
            second_orders: count(step, "second orders of a user").expect(step),
            locked_out: count(step, "users locked out for good"),
        })
        .collect();
    assert!(!steps.is_empty(), "{said}");
    steps
}

#[test]
fn without_a_lock_users_have_two() {
    let told = story("off");
    assert!(told[0].second_orders > 0, "{told:?}");
}

#[test]
fn a_key_without_a_time_to_live_locks_users_out_for_good() {
    let told = story("setnx");
    assert!(told[0].locked_out > Some(0), "{told:?}");
}

#[test]
fn a_key_that_expires_under_a_slow_order_lets_the_next_one_in() {
    let told = story("setnx-ttl");
    assert!(told[0].second_orders > 0, "{told:?}");
}

#[test]
fn a_token_does_not_keep_a_slow_order_alone() {
    let told = story("token");
    assert!(told[0].second_orders > 0, "{told:?}");
}

#[test]
fn a_renewed_lock_holds_when_an_instance_is_killed_and_when_redis_stands_still() {
    let told = story("rlock");
    assert_eq!(told.len(), 3, "{told:?}");
    for step in &told[..2] {
        assert_eq!(
            (step.second_orders, step.locked_out),
            (0, Some(0)),
            "{told:?}"
        );
    }
    // A Redis that has lost its data may have given locks twice, but locks nobody out.
    assert_eq!(told[2].locked_out, Some(0), "{told:?}");
}

#[test]
fn a_fence_holds_when_redis_loses_its_data() {
    let told = story("fenced");
    assert_eq!(
        (told[0].second_orders, told[0].locked_out),
        (0, Some(0)),
        "{told:?}"
    );
}
