//! The questions about whatever is there.

use std::time::Duration;

use futures::TryStreamExt;
use redlock_rt::{Client, ErrorKind, FoundKind, Inspection, LockOptions};
use tests::eventually;

use crate::world::*;

async fn found(client: &Client, name: &str) -> Option<Inspection> {
    client.inspect(name).await.unwrap()
}

/// What is there is of this kind, and these hold it.
async fn assert_is(client: &Client, name: &str, kind: FoundKind, holders: &[&str]) -> Inspection {
    let found = found(client, name).await.expect("it is there");
    assert_eq!((&*found.name, found.kind), (name, kind));
    let ids: Vec<_> = found.holders.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, holders);
    found
}

pub(crate) async fn each_kind_of_lock_is_told(world: &World) {
    let (client, name) = (world.client(), &*world.name);
    assert_eq!(found(&client, name).await, None);
    let lock = client.rlock(name).lock().await.unwrap();
    let inner = lock.reenter().await.unwrap();
    let is = assert_is(&client, name, FoundKind::Lock, &[lock.hold_id().as_str()]).await;
    assert_eq!(is.holders[0].count, 2);
    let lives = is.holders[0].ttl.unwrap();
    assert!(
        lives + LATE > Duration::from_secs(30) && is.ttl == Some(lives),
        "{is:?}"
    );
    assert_eq!(
        (is.token, is.count, is.queued, is.listening),
        (None, None, 0, Some(0))
    );
    drop(inner);
    lock.unlock().await.unwrap();

    let kept = LockOptions::new().min_hold(Duration::from_millis(500));
    let kept = client.rlock(name).lock_with(kept).await.unwrap();
    let id = kept.hold_id().clone();
    kept.unlock().await.unwrap();
    let is = assert_is(&client, name, FoundKind::Lock, &[id.as_str()]).await;
    assert_eq!(is.holders[0].count, 0, "it has ended");
    assert!(client.rlock(name).force_unlock().await.unwrap());

    let fenced = client.fenced_lock(name).lock().await.unwrap();
    let is = assert_is(
        &client,
        name,
        FoundKind::FencedLock,
        &[fenced.hold_id().as_str()],
    )
    .await;
    let token = fenced.token().to_string();
    assert_eq!(is.token.as_ref(), Some(&token));
    fenced.unlock().await.unwrap();
    let is = assert_is(&client, name, FoundKind::FencedLock, &[]).await;
    assert_eq!(
        (is.token, is.ttl),
        (Some(token), None),
        "the next token is greater"
    );
    let _: bool = world
        .redis(&["DEL", &format!("redisson_lock_token:{{{name}}}")])
        .await;
}

pub(crate) async fn readers_and_writers_are_told_apart(world: &World) {
    let (client, name) = (world.client(), &*world.name);
    let lock = client.read_write_lock(name);
    let writer = lock.write().await.unwrap();
    let is = assert_is(
        &client,
        name,
        FoundKind::ReadWriteLock,
        &[writer.hold_id().as_str()],
    )
    .await;
    assert!(is.holders[0].is_writer && is.holders[0].ttl == is.ttl);
    writer.unlock().await.unwrap();
    let short = LockOptions::new()
        .lease(HELD)
        .renew(redlock_rt::Renew::Never);
    let one = lock.read_with(short).await.unwrap();
    let two = world.client().read_write_lock(name).read().await.unwrap();
    let is = found(&client, name).await.unwrap();
    let mut leases: Vec<_> = is.holders.iter().map(|one| one.ttl.unwrap()).collect();
    leases.sort_unstable();
    assert!(
        leases[0] <= HELD && leases[1] > HELD,
        "each reader has its lease: {is:?}"
    );
    assert!(
        is.holders
            .iter()
            .all(|one| !one.is_writer && one.count == 1)
    );
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
}

pub(crate) async fn those_who_wait_are_counted(world: &World) {
    let (client, other, name) = (world.client(), world.client(), &*world.name);
    let holder = client.fair_lock(name).lock().await.unwrap();
    assert_is(&client, name, FoundKind::Lock, &[holder.hold_id().as_str()]).await;
    let waiting = tokio::spawn({
        let lock = other.fair_lock(name);
        async move { lock.lock().await.unwrap().unlock().await }
    });
    eventually(DEADLINE, async || match found(&client, name).await {
        Some(is) if is.kind == FoundKind::FairLock && is.queued == 1 => Ok(()),
        is => Err(format!("{is:?}")),
    })
    .await;
    holder.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();

    let holder = client.rlock(name).lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.rlock(name);
        async move { lock.lock().await.unwrap().unlock().await }
    });
    eventually(DEADLINE, async || match found(&client, name).await {
        Some(is) if is.listening == Some(1) => Ok(()),
        is => Err(format!("{is:?}")),
    })
    .await;
    holder.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
}

pub(crate) async fn semaphores_and_latches_are_told(world: &World) {
    let (client, name) = (world.client(), &*world.name);
    let semaphore = client.semaphore(name);
    semaphore.try_set_permits(3).await.unwrap();
    let is = assert_is(&client, name, FoundKind::Number, &[]).await;
    assert_eq!((is.count, is.ttl), (Some(3), None));
    let two = semaphore.acquire_many(2).await.unwrap();
    let is = found(&client, name).await.unwrap();
    assert_eq!((is.kind, is.count), (FoundKind::Semaphore, Some(1)));
    assert_eq!((is.holders[0].count, is.holders[0].ttl), (2, None));
    assert_eq!(is.holders[0].id.client(), client.uuid());
    two.release().await.unwrap();
    gone(world, 3).await;

    let permits = client.permit_expirable_semaphore(name);
    permits.try_set_permits(2).await.unwrap();
    let permit = permits.acquire().await.unwrap();
    let kind = FoundKind::PermitExpirableSemaphore;
    let is = assert_is(&client, name, kind, &[permit.id()]).await;
    assert_eq!((is.count, is.holders[0].count), (Some(1), 1));
    let lives = is.holders[0].ttl.unwrap();
    assert!(lives + LATE > Duration::from_secs(30), "{lives:?}");
    permit.release().await.unwrap();
    gone(world, 2).await;

    let latch = client.count_down_latch(name).ttl(HELD * 20);
    latch.try_set_count(2).await.unwrap();
    let is = assert_is(&client, name, FoundKind::CountDownLatch, &[]).await;
    assert!(is.count == Some(2) && is.ttl.is_some(), "{is:?}");
    latch.delete().await.unwrap();
    assert_eq!(found(&client, name).await, None);
}

pub(crate) async fn what_is_no_lock_is_refused(world: &World) {
    let (client, name) = (world.client(), &*world.name);
    for foreign in [
        &["SET", name, "text"][..],
        &["HSET", name, "a", "b"],
        &["RPUSH", name, "a"],
    ] {
        let _: redis::Value = world.redis(foreign).await;
        let error = client.inspect(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(
            error.to_string().contains(&format!("inspect {name:?}")),
            "{error}"
        );
        let _: bool = world.redis(&["DEL", name]).await;
    }
    let error = client.inspect(" ").await.unwrap_err();
    assert!(error.is_bad_input());
}

/// The names that a scan finds.
async fn names(client: &Client, pattern: &str) -> Vec<String> {
    let found: Vec<_> = client.scan(pattern).try_collect().await.unwrap();
    let mut names: Vec<_> = found.into_iter().map(|one| one.name).collect();
    names.sort_unstable();
    // A server may return a key twice.
    names.dedup();
    names
}

pub(crate) async fn a_scan_finds_what_is_there(world: &World) {
    let space = format!("{}[a]", world.name);
    let client = world.client_with(|builder| builder.namespace(&space));
    assert_eq!(names(&client, "*").await, [""; 0]);
    let mut wanted = Vec::new();
    let mut guards = Vec::new();
    // More than a page.
    for number in 0..300 {
        let name = format!("ä:{number:03}");
        guards.push(client.rlock(&name).lock().await.unwrap());
        wanted.push(name);
    }
    let reader = client.read_write_lock("reader").read().await.unwrap();
    let semaphore = client.semaphore("semaphore");
    semaphore.try_set_permits(1).await.unwrap();
    let fenced = client.fenced_lock("fenced").lock().await.unwrap();
    let outside = world.client().rlock(&world.name).lock().await.unwrap();
    let _: bool = world
        .redis(&["SET", &format!("{space}:text"), "text"])
        .await;
    let odd = format!("{space}:").into_bytes();
    let odd = [&odd[..], b"\xff"].concat();
    let _: bool = world.query(redis::cmd("SET").arg(&odd).arg(1)).await;
    assert_eq!(names(&client, "ä:*").await, wanted);
    assert_eq!(names(&client, "ä:00?").await, wanted[..10]);
    assert_eq!(
        names(&client, "[frs]e*").await,
        ["fenced", "reader", "semaphore"]
    );
    let _: u32 = world.query(redis::cmd("DEL").arg(&odd)).await;
    for key in ["semaphore", "text"] {
        let _: bool = world.redis(&["DEL", &format!("{space}:{key}")]).await;
    }
    drop((guards, reader, outside));
    fenced.unlock().await.unwrap();
    let token = format!("redisson_lock_token:{{{space}:fenced}}");
    let _: bool = world.redis(&["DEL", &token]).await;
}
