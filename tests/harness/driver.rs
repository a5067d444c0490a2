//! The handle of a line driver, against a program that has only the form of the protocol.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tests::{Answer, Driver, is_alive};

/// `keep` is answered when `release` comes, before `release` itself.
const PROGRAM: &str = r#"#!/bin/sh
while read -r id command argument; do
    case $command in
        keep) kept=$id ;;
        release) echo "$kept ok true 5ms"; echo "$id ok some words 0ms" ;;
        cancel) echo "$argument err cancelled: dropped"; echo "$id ok ok 0ms" ;;
        fail) echo "$id err usage: unknown command: fail" ;;
    esac
done
exit 7
"#;

fn program() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("driver");
    fs::write(&path, PROGRAM).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    (directory, path)
}

#[tokio::test]
async fn answers_may_come_out_of_order() {
    let (_directory, path) = program();
    let driver = Driver::start(path);
    let mut kept = driver.send("keep");
    assert_eq!(driver.call("fail").await.err_kind(), "usage");
    assert!(kept.is_pending());
    assert_eq!(driver.ok("release").await, "some words");
    assert!(!kept.is_pending());
    let kept = kept.answer().await;
    assert_eq!(
        (kept.took, kept.ok().as_str()),
        (Some(Duration::from_millis(5)), "true")
    );

    let kept = driver.send("keep");
    assert_eq!(driver.cancel(&kept).await.ok(), "ok");
    assert_eq!(kept.answer().await.err_kind(), "cancelled");
}

#[tokio::test]
async fn a_killed_driver_abandons_its_commands() {
    let (_directory, path) = program();
    let mut driver = Driver::start(path);
    let (kept, pid) = (driver.send("keep"), driver.pid());
    driver.kill();
    assert!(!is_alive(pid));
    kept.abandoned().await;
    driver.send("fail").abandoned().await;
}

#[tokio::test]
async fn a_paused_driver_goes_on_where_it_was() {
    let (_directory, path) = program();
    let mut driver = Driver::start(path);
    driver.pause();
    // More than the pipe can buffer.
    let mut pending: Vec<_> = (0..20_000).map(|_| driver.send("fail")).collect();
    assert!(pending[0].is_pending());
    driver.resume();
    assert_eq!(pending.pop().unwrap().answer().await.err_kind(), "usage");
}

#[tokio::test]
async fn the_end_of_stdin_is_the_drivers_end() {
    let (_directory, path) = program();
    let mut driver = Driver::start(path);
    driver.close_stdin();
    assert_eq!(driver.wait_exit().code(), Some(7));
}

#[test]
fn answers_are_parsed() {
    let (id, answer) = Answer::parse("7 ok {\"held\": 1} 12ms").unwrap();
    assert_eq!((id, answer.took), ("7", Some(Duration::from_millis(12))));
    assert_eq!(answer.ok(), "{\"held\": 1}");
    let (id, answer) = Answer::parse("x err timed_out: lock a: not within 5ms").unwrap();
    let error = answer.result.unwrap_err();
    assert_eq!((id, error.kind.as_str()), ("x", "timed_out"));
    assert_eq!(error.message, "lock a: not within 5ms");
    assert!(
        ["", "7", "7 ok true", "7 ok true 1s", "7 maybe"]
            .iter()
            .all(|line| Answer::parse(line).is_none())
    );
}
