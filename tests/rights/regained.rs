//! What is dropped while a right is missing, and the right comes back.

use std::time::Duration;

use redlock_rt::{AclKind, ErrorKind, LockOptions, PermitOptions};
use tests::{eventually, within};
use tokio::time::Instant;

use super::{DEADLINE, Stage, assert_denied, rights};

/// No lease ends them: once, they stayed taken and closed for ever after one refusal.
#[tokio::test]
async fn permits_and_counts_that_were_dropped_while_a_right_was_missing_come_back() {
    let mut stage = Stage::open("regained").await;
    let all = rights(&[AclKind::CountDownLatch, AclKind::Semaphore]);
    let client = stage.client(&all).await;
    let name = stage.world.name.clone();
    let semaphore = client.semaphore(&name);
    semaphore.try_set_permits(2).await.unwrap();
    let latch = client.count_down_latch(format!("{name}:latch"));
    latch.try_set_count(2).await.unwrap();
    let permits = [
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let counts = [
        latch.count_down_guard().unwrap(),
        latch.count_down_guard().unwrap(),
    ];

    stage.set("-evalsha").await;
    stage.proxy.mark();
    let [dropped, released] = permits;
    let [left, counted] = counts;
    drop((dropped, left));
    // Those who ask are told, and what they asked for goes on too.
    for error in [
        released.release().await.unwrap_err(),
        counted.count_down().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let said = error.to_string();
        assert!(said.contains("goes on in the background"), "{said}");
    }
    // Each of the four is sent again.
    stage.proxy.wait_for_count("EVALSHA", 9).await;
    assert_eq!(client.stats().releases, 4);
    assert_denied(semaphore.release(1).await, &name);

    stage.set("+evalsha").await;
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let free: String = stage.world.redis(&["GET", &name]).await;
    assert_eq!(free, "2");
    assert_eq!(latch.count().await.unwrap(), 0);
    stage.end().await;
}

/// All places were taken by releases that were refused.
#[tokio::test]
async fn a_hold_count_stayed_while_many_permits_waited_for_a_right() {
    const MANY: usize = 200;
    let mut stage = Stage::open("others").await;
    let client = stage.client(&rights(&[AclKind::Semaphore])).await;
    let name = stage.world.name.clone();
    let key = format!("{name}:lock");
    let lock = client.rlock(&key);
    let semaphore = client.semaphore(&name).limit(MANY as u32);
    let mut permits = Vec::new();
    for _ in 0..MANY {
        permits.push(semaphore.acquire().await.unwrap());
    }
    let outer = lock.lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();

    stage.set("resetkeys").await;
    stage.set(&format!("~{key}")).await;
    stage.proxy.mark();
    drop(permits);
    // All places are taken: each release was sent once by its guard, and more than once from a place.
    stage.proxy.wait_for_count("EVALSHA", MANY + 2 * 128).await;
    let counts: Vec<u32> = stage.world.redis(&["HVALS", &key]).await;
    assert_eq!(counts, [2]);
    drop(inner);
    let counted_down = async || {
        let counts: Vec<u32> = stage.world.redis(&["HVALS", &key]).await;
        counts == [1]
    };
    eventually(DEADLINE, counted_down).await;

    stage.set("~*").await;
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_eq!(semaphore.available_permits().await.unwrap(), MANY as i64);
    outer.unlock().await.unwrap();
    stage.end().await;
}

/// A wait without a limit ended where an operator was about to set the right.
#[tokio::test]
async fn a_wait_that_is_to_outlast_a_missing_right_has_what_it_waits_for_when_that_is_back() {
    let mut stage = Stage::open("outlasts").await;
    let all = rights(&[AclKind::Semaphore]);
    let client = stage.client(&all).await;
    let name = stage.world.name.clone();
    let locked = format!("{name}:lock");
    let (semaphore, lock) = (client.semaphore(&name), client.rlock(&locked));
    semaphore.try_set_permits(1).await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();

    stage.set("-evalsha").await;
    stage.set("-restore").await;
    stage.proxy.mark();
    assert_denied(semaphore.acquire().await, &name);
    assert_denied(lock.lock().await, &locked);
    let wait = Duration::from_millis(300);
    let began = Instant::now();
    let limited = LockOptions::new().outlast_denial(true).wait(wait);
    assert_denied(lock.lock_with(limited).await, &locked);
    assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    let waiting = tokio::spawn({
        let (semaphore, lock) = (semaphore.clone(), lock.clone());
        async move {
            let options = LockOptions::new().outlast_denial(true);
            let guard = lock.lock_owned(options).await.unwrap();
            let options = PermitOptions::new().outlast_denial(true);
            (semaphore.acquire_with(options).await.unwrap(), guard)
        }
    });
    let before = stage.proxy.counts()["EVALSHA"];
    stage.proxy.wait_for_count("EVALSHA", before + 3).await;
    assert!(!waiting.is_finished());
    stage.set("+evalsha").await;
    let (permit, guard) = within(DEADLINE, waiting).await.unwrap();
    permit.release().await.unwrap();
    guard.unlock().await.unwrap();
    stage.end().await;
}
