//! Holds that end in another way than by `done`: forced, flushed, expired, lost with their server, shut down.

use std::time::Duration;

use redlock_rt::{Client, ErrorKind, Fire, LockOptions, LostReason, Shutdown};
use tests::{Redis, RedisServer, World, eventually, unique, within};

use crate::stage::{DEADLINE, Stage, fire_time, guard, run, start, started, waiting};

#[tokio::test]
async fn a_fire_that_was_freed_by_force_is_marked_by_its_next_holder_alone() {
    let stage = Stage::open::<Redis>("once-forced").await;
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let starting = start(&stage.once(&other));
    waiting(&other, 1).await;
    assert!(other.rlock(stage.lock()).force_unlock().await.unwrap());
    let second = guard(started(starting).await);
    // It does not know of the loss yet.
    assert!(first.is_valid());
    let error = first.done().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!stage.is_done().await && second.is_valid());
    second.done().await.unwrap();
    assert!(stage.is_done().await);
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_body_is_dropped_when_its_fire_is_taken() {
    let stage = Stage::open::<Redis>("once-taken").await;
    let client = stage.client();
    let often = LockOptions::new().renew(Duration::from_millis(200));
    let first = run(&stage.once(&client).options(often)).await;
    let _: bool = stage.redis(&["DEL", &stage.lock()]).await;
    let body = first.run(std::future::pending::<()>());
    let error = within(DEADLINE, body).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Deleted));
    let error = first.done().await.unwrap_err();
    assert!(error.is_lost() && !stage.is_done().await, "{error}");
    stage.assert_clean().await;
}

/// The process was paused for longer than its lease.
#[tokio::test]
async fn what_is_done_after_its_lease_marks_nothing() {
    let stage = Stage::open::<Redis>("once-late").await;
    let [one, other] = [stage.client(), stage.client()];
    let options = LockOptions::new()
        .lease(Duration::from_millis(200))
        .renew(false);
    let first = run(&stage.once(&one).options(options)).await;
    let second = run(&stage.once(&other)).await;
    let error = first.done().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    eventually(DEADLINE, async || one.stats().releases == 0).await;
    assert!(!stage.is_done().await && second.is_valid());
    second.done().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_mark_that_was_deleted_under_way_is_made_anew() {
    let stage = Stage::open::<Redis>("once-evicted").await;
    let client = stage.client();
    let first = run(&stage.once(&client)).await;
    let _: bool = stage.redis(&["DEL", &stage.mark_key()]).await;
    first.done().await.unwrap();
    let fire = stage.once(&client).start().await.unwrap();
    assert!(matches!(fire, Fire::Done(_)));
    stage.assert_clean().await;
}

#[tokio::test]
async fn after_a_flush_it_is_begun_again_and_the_first_marks_nothing() {
    let server = RedisServer::start();
    let stage = Stage::of(World::on(&server, "once-flush").await);
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let _: () = stage.redis(&["FLUSHALL"]).await;
    let second = run(&stage.once(&other)).await;
    let error = first.done().await.unwrap_err();
    assert!(error.is_lost() && !stage.is_done().await, "{error}");
    second.done().await.unwrap();
    stage.assert_clean().await;
}

/// As a failover to a replica that has nothing yet.
#[tokio::test]
async fn after_its_server_has_forgotten_it_the_first_marks_nothing() {
    let server = RedisServer::start();
    let client = Client::builder().url(&server.url()).build().unwrap();
    let name = unique("once-restart");
    let first = run(&client.once(&name, fire_time())).await;
    server.kill();
    server.restart();
    within(DEADLINE, first.lost()).await;
    let error = first.done().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    let stage = Stage::of(World::named(&server, &name).await);
    let fire = stage.once(&stage.client());
    let second = run(&fire).await;
    assert!(!stage.is_done().await);
    second.done().await.unwrap();
    stage.assert_clean().await;
}

#[tokio::test]
async fn a_shut_down_leaves_it_open_for_others() {
    let stage = Stage::open::<Redis>("once-shutdown").await;
    let [one, other] = [stage.client(), stage.client()];
    let first = run(&stage.once(&one)).await;
    let [here, there] = [start(&stage.once(&one)), start(&stage.once(&other))];
    waiting(&one, 1).await;
    waiting(&other, 1).await;
    one.shutdown(Shutdown::ReleaseAll).await.unwrap();
    let error = within(DEADLINE, here).await.unwrap().unwrap_err();
    assert!(error.is_shut_down(), "{error}");
    let error = first.done().await.unwrap_err();
    assert!(error.is_shut_down(), "{error}");
    assert!(!stage.is_done().await);
    let error = stage.once(&one).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShutDown);
    guard(started(there).await).done().await.unwrap();
    stage.assert_clean().await;
}

/// A full memory refuses an acquisition, and not the mark of what was done.
#[tokio::test]
async fn a_full_memory_does_not_refuse_the_mark() {
    let server = RedisServer::start();
    let stage = Stage::of(World::on(&server, "once-memory").await);
    let client = stage.client();
    let first = run(&stage.once(&client)).await;
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    first.done().await.unwrap();
    assert!(stage.is_done().await);
    let _: () = stage.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    stage.assert_clean().await;
}
