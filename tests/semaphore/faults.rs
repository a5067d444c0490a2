//! Replies and commands are lost: no permit is lost or created.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{ErrorKind, PermitOptions, Unlocked};
use tests::{Loss, calls, within};

use crate::stage::{DEADLINE, Stage};

async fn each(test: impl AsyncFn(Loss, usize)) {
    // A call has time for one missing reply, and for some broken connections.
    let cases = Loss::ALL.iter().flat_map(|loss| match loss {
        Loss::Reply | Loss::Request => vec![(*loss, 1)],
        Loss::CutAfter | Loss::CutBefore => vec![(*loss, 1), (*loss, 3)],
    });
    join_all(cases.map(|(loss, times)| test(loss, times))).await;
}

#[tokio::test]
async fn of_a_semaphore() {
    each(async |loss, times| {
        let stage = Stage::hasty("lost").await;
        let semaphore = stage.semaphore(5).await;
        stage.lose(loss, &calls("semaphore_acquire"), times);
        let guard = semaphore.acquire_many(2).await.unwrap();
        assert_eq!(stage.free().await, 3, "{loss:?}");
        stage.lose(loss, &calls("semaphore_release"), times);
        let released = guard.release().await.unwrap();
        assert_eq!(
            (released, stage.free().await),
            (Unlocked::Released, 5),
            "{loss:?}"
        );
        stage.lose(loss, &calls("semaphore_release"), times);
        drop(semaphore.acquire_many(2).await.unwrap());
        stage.free_is(5).await;
        stage.lose(loss, &calls("semaphore_forget"), times);
        semaphore.acquire().await.unwrap().forget();
        semaphore.release(1).await.unwrap();
        stage.end(5).await;
    })
    .await;
}

/// At the time of the repeat another client had set another number.
#[tokio::test]
async fn a_number_of_permits_whose_reply_was_lost_was_set_again_over_a_later_one() {
    let stage = Stage::hasty("setter").await;
    let semaphore = stage.permits(5).await;
    // The server knows the script from here on.
    semaphore.set_permits(6).await.unwrap();
    let gate = stage
        .proxy
        .hold_reply(calls("permits_set").mentioning(&stage.name));
    let setter = semaphore.clone();
    let setting = tokio::spawn(async move { setter.set_permits(7).await });
    within(DEADLINE, gate.reached()).await;
    let other = stage.other();
    let later = other.permit_expirable_semaphore(&stage.name);
    later.set_permits(9).await.unwrap();
    stage.proxy.cut_all();
    gate.open();
    within(DEADLINE, setting).await.unwrap().unwrap();
    assert_eq!(semaphore.permits().await.unwrap(), 9);
    stage.end(9).await;
}

/// At the time of the repeat another client had set another lease.
#[tokio::test]
async fn a_lease_whose_reply_was_lost_was_set_again_over_a_later_one() {
    const LONG: Duration = Duration::from_secs(600);
    let stage = Stage::hasty("lease").await;
    let semaphore = stage.permits(1).await;
    let id = semaphore.acquire().await.unwrap().forget().remove(0);
    // The server knows the script from here on.
    assert!(semaphore.update_lease(&id, LONG).await.unwrap());
    let update = calls("permits_update").mentioning(&stage.name);
    let gate = stage.proxy.hold_reply(update);
    let updating = tokio::spawn({
        let (semaphore, id) = (semaphore.clone(), id.clone());
        async move { semaphore.update_lease(&id, DEADLINE).await }
    });
    within(DEADLINE, gate.reached()).await;
    let other = stage.other();
    let other = other.permit_expirable_semaphore(&stage.name);
    assert!(other.update_lease(&id, LONG).await.unwrap());
    let leases = format!("{{{}}}:timeout", stage.name);
    let ends = ["ZRANGE", &leases, "0", "-1", "WITHSCORES"];
    let later: redis::Value = stage.redis(&ends).await;
    stage.proxy.cut_all();
    gate.open();
    let error = within(DEADLINE, updating).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let now: redis::Value = stage.redis(&ends).await;
    assert_eq!(now, later);
    other.release(&id).await.unwrap();
    stage.end(1).await;
}

/// A call that is later than the end of its note is recognised by the hold itself.
#[tokio::test]
async fn a_release_is_done_once_without_any_note() {
    let stage = Stage::hasty("long").await;
    let semaphore = stage.semaphore(2).await;
    stage.lose(Loss::Reply, &calls("semaphore_acquire"), 1);
    let guard = semaphore.acquire().await.unwrap();
    let pattern = format!("redlock_op:{{{}}}:*", stage.name);
    let notes: Vec<String> = stage.redis(&["KEYS", &pattern]).await;
    for note in notes {
        let _: () = stage.redis(&["DEL", &note]).await;
    }
    stage.lose(Loss::Reply, &calls("semaphore_release"), 1);
    assert_eq!(guard.release().await.unwrap(), Unlocked::Released);
    // The call was sent twice, so a note marks late ones.
    let notes: Vec<String> = stage.redis(&["KEYS", &pattern]).await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    // A call that was sent once needs no note.
    drop(semaphore.acquire().await.unwrap());
    stage.free_is(2).await;
    let notes: Vec<String> = stage.redis(&["KEYS", &pattern]).await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    stage.end(2).await;
}

/// As happens if an ACL forbids to kill the broken connection.
#[tokio::test]
async fn an_acquisition_that_comes_after_its_withdrawal_takes_nothing() {
    const ACQUIRE: &str = include_str!("../../redlock-rt/src/wire/lua/semaphore_acquire.lua");
    const RELEASE: &str = include_str!("../../redlock-rt/src/wire/lua/semaphore_release.lua");
    let stage = Stage::open("late").await;
    let semaphore = stage.semaphore(2).await;
    let holds = stage.holds_key();
    for owner in ["u:1", "u:2"] {
        let note = format!("redlock_op:{{{}}}:{owner}", stage.name);
        let keys = ["3", &stage.name, &holds, &note];
        let run = async |script, args: &[&str]| -> redis::Value {
            stage
                .redis(&[&["EVAL", script][..], &keys, args].concat())
                .await
        };
        let withdraw = [owner, "channel", "PUBLISH", "120000"];
        // In one case it never ran before, in the other it did.
        if owner == "u:2" {
            run(ACQUIRE, &[owner, "1"]).await;
            let announced = vec![redis::Value::Int(1), redis::Value::Int(1)];
            let withdrawn = run(RELEASE, &withdraw).await;
            assert_eq!(withdrawn, redis::Value::Array(announced));
        }
        assert_eq!(run(RELEASE, &withdraw).await, redis::Value::Int(0));
        let late = run(ACQUIRE, &[owner, "1"]).await;
        assert_eq!(late, redis::Value::Int(-1));
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    }
    stage.end(2).await;
}

#[tokio::test]
async fn of_changes_of_the_number() {
    each(async |loss, times| {
        let stage = Stage::hasty("number").await;
        let semaphore = stage.client.semaphore(&stage.name);
        stage.lose(loss, &calls("semaphore_set"), times);
        assert!(semaphore.try_set_permits(3).await.unwrap(), "{loss:?}");
        stage.lose(loss, &calls("semaphore_add"), times);
        semaphore.release(2).await.unwrap();
        assert_eq!(stage.free().await, 5, "{loss:?}");
        stage.lose(loss, &calls("semaphore_add"), times);
        semaphore.add_permits(-1).await.unwrap();
        stage.lose(loss, &calls("semaphore_drain"), times);
        assert_eq!(semaphore.drain().await.unwrap(), 4, "{loss:?}");
        stage.end(0).await;
    })
    .await;
}

#[tokio::test]
async fn of_a_semaphore_with_leases() {
    each(async |loss, times| {
        let stage = Stage::hasty("leased").await;
        let semaphore = stage.permits(5).await;
        stage.lose(loss, &calls("permits_acquire"), times);
        let permits = semaphore.acquire_many(2).await.unwrap();
        assert_eq!(stage.free().await, 3, "{loss:?}");
        stage.lose(loss, &calls("permits_update"), times);
        permits.extend(Duration::from_secs(60)).await.unwrap();
        stage.lose(loss, &calls("permits_release"), times);
        let released = permits.release().await.unwrap();
        assert_eq!(
            (released, stage.free().await),
            (Unlocked::Released, 5),
            "{loss:?}"
        );
        let ids = semaphore.acquire().await.unwrap().forget();
        stage.lose(loss, &calls("permits_release_id"), times);
        assert!(semaphore.try_release(&ids[0]).await.unwrap(), "{loss:?}");
        assert!(!semaphore.try_release(&ids[0]).await.unwrap(), "{loss:?}");
        stage.lose(loss, &calls("permits_set"), times);
        semaphore.set_permits(4).await.unwrap();
        stage.end(4).await;
    })
    .await;
}

/// The outcome is unknown when the caller gives up: permits that may have been taken are released,
/// and a later call takes nothing.
#[tokio::test]
async fn of_an_acquisition_whose_wait_is_over() {
    each(async |loss, _| {
        for script in ["semaphore_acquire", "permits_acquire"] {
            let stage = Stage::hasty("given-up").await;
            let semaphore = stage.semaphore(2).await;
            let leased = stage.client.permit_expirable_semaphore(&stage.name);
            let options = PermitOptions::new().wait(Duration::from_millis(60));
            stage.lose(loss, &calls(script), 1000);
            let error = match script {
                "semaphore_acquire" => semaphore.acquire_with(options).await.unwrap_err(),
                _ => leased.acquire_with(options).await.unwrap_err(),
            };
            assert!(error.is_unavailable(), "{script}, {loss:?}: {error}");
            stage.free_is(2).await;
            stage.end(2).await;
        }
    })
    .await;
}
