//! Runs the program as a user does and checks its books.

use std::process::{Command, Output};

use serde_json::Value;
use tests::RedisServer;

fn rush(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_seckill"))
        .arg("rush")
        .args(flags)
        .output()
        .expect("the program was built with the test")
}

/// The one JSON object that a rush with these flags prints.
fn summary(output: &Output) -> Value {
    let text = std::str::from_utf8(&output.stdout).expect("JSON is UTF-8");
    assert_eq!(text.lines().count(), 1, "more than one object in {text:?}");
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text:?}"))
}

fn number(summary: &Value, field: &str) -> u64 {
    summary[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {summary}"))
}

/// Every request ended in exactly one way, and the answers agree with the orders table.
fn assert_adds_up(summary: &Value) {
    let n = |field| number(summary, field);
    assert_eq!(
        n("orders") + n("already") + n("sold_out") + n("busy") + n("errors"),
        n("requests"),
        "{summary}"
    );
    assert_eq!(
        n("requests"),
        n("users") * n("requests_per_user"),
        "{summary}"
    );
    assert_eq!(n("orders"), n("sold"), "{summary}");
    assert_eq!(n("oversold"), 0, "{summary}");
    assert_eq!(n("errors"), 0, "{summary}");
    assert!(
        summary["seconds"]
            .as_f64()
            .is_some_and(|seconds| seconds > 0.0),
        "{summary}"
    );
}

/// It ends well unless more than one request in a hundred was refused after its wait: how many are
/// depends on what else the machine does.
#[track_caller]
fn assert_judged(output: &Output, summary: &Value) {
    let patient = number(summary, "busy") * 100 <= number(summary, "requests");
    assert_eq!(output.status.success(), patient, "{output:?}");
    assert_eq!(number(summary, "duplicates"), 0, "{summary}");
}

#[test]
fn with_the_lock_every_user_has_at_most_one_order() {
    let output = rush(&["--json"]);
    let summary = summary(&output);
    assert_judged(&output, &summary);
    assert_adds_up(&summary);
    assert_eq!(number(&summary, "users"), 1000);
    assert_eq!(number(&summary, "instances"), 4);
    assert_eq!(number(&summary, "requests"), 3000);
    assert_eq!(number(&summary, "sold"), 200);
    assert_eq!(number(&summary, "duplicates"), 0);
    assert!(number(&summary, "lock_wait_p99_us") >= number(&summary, "lock_wait_p50_us"));
}

#[test]
fn without_the_lock_users_order_twice() {
    let output = rush(&["--lock", "off", "--json"]);
    let summary = summary(&output);
    assert!(output.status.success(), "{output:?}");
    assert_adds_up(&summary);
    assert_eq!(number(&summary, "sold"), 200);
    assert!(number(&summary, "duplicates") >= 1, "{summary}");
}

#[tokio::test]
async fn two_rushes_on_one_redis_come_out_right_and_leave_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let flags = ["--redis", &url, "--users", "100", "--stock", "40", "--json"];
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| rush(&flags));
        (rush(&flags), other.join().expect("a rush does not panic"))
    });
    for output in [one, other] {
        let summary = summary(&output);
        assert_judged(&output, &summary);
        assert_adds_up(&summary);
        assert_eq!(summary["backend"], "redis");
        assert_eq!(number(&summary, "sold"), 40);
    }

    let mut connection = server.connect().await.expect("the server is up");
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(keys, [""; 0]);
}

#[test]
fn an_unreachable_redis_is_exit_code_2_too() {
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    let output = rush(&["--redis", &url]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--redis"),
        "{output:?}"
    );
}

#[test]
fn the_redis_that_the_environment_names_was_not_asked() {
    for (flags, named) in [
        (&[][..], "--redis"),
        // It is not about the locks of these.
        (&["--http", "http://127.0.0.1:1"], "--http"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_seckill"))
            .arg("rush")
            .args(flags)
            .env("SECKILL_REDIS", "redis://127.0.0.1:1")
            .output()
            .expect("the program was built with the test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(said.starts_with(&format!("error: {named}")), "{said}");
    }
}

#[test]
fn more_vouchers_than_users_leave_some_over() {
    let output = rush(&[
        "--users",
        "50",
        "--stock",
        "80",
        "--instances",
        "2",
        "--json",
    ]);
    let summary = summary(&output);
    assert_judged(&output, &summary);
    assert_adds_up(&summary);
    assert_eq!(number(&summary, "sold"), 50);
    assert_eq!(number(&summary, "already") + number(&summary, "busy"), 100);
}

#[test]
fn a_rush_for_nothing_is_sold_out_at_once() {
    let output = rush(&["--users", "20", "--stock", "0", "--json"]);
    let summary = summary(&output);
    assert!(output.status.success(), "{output:?}");
    assert_adds_up(&summary);
    assert_eq!(number(&summary, "sold_out") + number(&summary, "busy"), 60);
}

#[test]
fn the_summary_is_a_table_and_nothing_else_is_said() {
    let output = rush(&["--users", "20", "--stock", "5"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("the table is UTF-8");
    for name in [
        "orders",
        "sold",
        "duplicate orders",
        "oversold",
        "busy",
        "errors",
        "p99",
    ] {
        assert!(text.contains(name), "{name} is missing from\n{text}");
    }
    assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
    // Standard error is a pipe here, so not even a progress bar.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn wrong_input_is_refused_with_exit_code_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["--users", "0"], "--users"),
        (&["--instances", "0"], "--instances"),
        (&["--requests-per-user", "0"], "--requests-per-user"),
        (&["--concurrency", "0"], "--concurrency"),
        (
            &["--concurrency", "2"],
            "--concurrency 2 is below --requests-per-user 3",
        ),
        (&["--users", "many"], "many"),
        (&["--stock", "-1"], "-1"),
        (&["--lock", "maybe"], "maybe"),
        (&["--think", "2h"], "2ms"),
        (&["--redis", "not a url"], "--redis"),
        (&["--redis", "http://localhost"], "--redis"),
        (&["--discount", "1"], "--discount"),
    ];
    for (flags, named) in cases {
        let output = rush(flags);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
        assert!(
            message.contains(named),
            "{flags:?} is answered with {message}"
        );
        assert!(output.stdout.is_empty(), "{flags:?}: {output:?}");
    }
}
