//! The names `a` and `{a}`: Redisson's derived keys of both are the same, ours are not.

use std::time::Duration;

use redlock_rt::{ErrorKind, LockOptions};
use tests::{RedissonClient, World, eventually, lock_and_unlock, shared_server, unique};

use super::DEADLINE;

/// The same name in braces.
fn braced(world: &World) -> String {
    format!("{{{}}}", world.name)
}

async fn delete(world: &World, keys: &[String]) {
    for key in keys {
        let _: bool = world.redis(&["DEL", key]).await;
    }
}

pub(crate) async fn setting_one_semaphore_loses_no_permit_of_the_other(world: &World) {
    let (client, braced) = (world.client(), braced(world));
    let (plain, other) = (client.semaphore(&world.name), client.semaphore(&braced));
    assert!(plain.try_set_permits(2).await.unwrap());
    let one = plain.acquire().await.unwrap();
    assert!(other.try_set_permits(2).await.unwrap());
    let another = other.acquire().await.unwrap();
    one.release().await.unwrap();
    another.release().await.unwrap();
    assert_eq!(plain.available_permits().await.unwrap(), 2);
    assert_eq!(other.available_permits().await.unwrap(), 2);
    delete(world, &[world.name.clone(), braced]).await;
}

pub(crate) async fn deleting_one_latch_says_nothing_of_the_other(world: &World) {
    let (client, braced) = (world.client(), braced(world));
    let (plain, other) = (
        client.count_down_latch(&world.name),
        client.count_down_latch(&braced),
    );
    assert!(other.try_set_count(1).await.unwrap());
    assert!(other.delete().await.unwrap());
    let error = other.wait_with(DEADLINE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LatchDeleted, "{error}");
    plain.wait_with(DEADLINE).await.unwrap();
    let mark = format!("redlock_latch_end_braced:{braced}");
    assert!(world.redis::<bool>(&["EXISTS", &mark]).await);
    delete(world, &[mark]).await;
}

pub(crate) async fn a_writer_that_is_preferred_at_one_lock_keeps_no_reader_from_the_other(
    world: &World,
) {
    let (client, waiting) = (world.client(), world.client());
    let plain = client.read_write_lock(&world.name);
    let other = client.read_write_lock(braced(world));
    let reading = other.read().await.unwrap();
    let writer = tokio::spawn({
        let lock = waiting.read_write_lock(braced(world)).prefer_writers(true);
        async move { lock.write().await.unwrap().unlock().await.unwrap() }
    });
    let wishes = format!("redlock_rw_writers*{}*", world.name);
    eventually(DEADLINE, async || {
        let wishes: Vec<String> = world.redis(&["KEYS", &wishes]).await;
        wishes.len() == 1
    })
    .await;
    let read = plain.try_read().await.unwrap();
    read.expect("nobody waits for this one")
        .unlock()
        .await
        .unwrap();
    reading.unlock().await.unwrap();
    writer.await.unwrap();
}

pub(crate) async fn a_token_seen_for_one_value_is_not_asked_of_the_other(world: &World) {
    let (client, braced) = (world.client(), braced(world));
    let plain = client.fenced_value(&world.name);
    let other = client.fenced_value(&braced);
    plain.set("x", 9).await.unwrap();
    other.set("y", 5).await.unwrap();
    assert!(plain.set("z", 5).await.unwrap_err().is_stale_token());
    let fences = [
        format!("redlock_fence:{{{}}}", world.name),
        format!("redlock_fence_braced:{braced}"),
        world.name.clone(),
        braced,
    ];
    delete(world, &fences).await;
}

/// As documented. Redisson also has one queue for both names, so another behaviour would be
/// incompatible.
pub(crate) async fn fair_locks_share_redissons_queue(world: &World) {
    let client = world.client();
    let (plain, other) = (
        client.fair_lock(&world.name),
        client.fair_lock(braced(world)),
    );
    let held = other.lock().await.unwrap();
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { lock_and_unlock(&other).await }
    });
    eventually(DEADLINE, async || plain.queue_len().await.unwrap() == 1).await;
    assert!(!plain.is_locked().await.unwrap());
    assert!(plain.try_lock().await.unwrap().is_none());
    held.unlock().await.unwrap();
    waiter.await.unwrap();
    // Without waiters they are two locks.
    let one = plain.try_lock().await.unwrap().unwrap();
    let two = other.try_lock().await.unwrap().unwrap();
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
}

/// As documented, and as with Redisson.
pub(crate) async fn permits_with_leases_share_redissons_set(world: &World) {
    let client = world.client();
    let limited = |name: &str| client.permit_expirable_semaphore(name).limit(2);
    let (plain, other) = (limited(&world.name), limited(&braced(world)));
    let one = plain.acquire().await.unwrap();
    assert_eq!(
        other.acquired().await.unwrap(),
        1,
        "that is a permit of the plain name"
    );
    one.release().await.unwrap();
    let permit = other.acquire().await.unwrap();
    assert_eq!(plain.acquired().await.unwrap(), 1);
    permit.release().await.unwrap();
    delete(world, &[world.name.clone(), braced(world)]).await;
}

/// As documented, and as with Redisson. Tokens of both grow all the same.
pub(crate) async fn fenced_locks_share_redissons_counter(world: &World) {
    let client = world.client();
    let (plain, other) = (
        client.fenced_lock(&world.name),
        client.fenced_lock(braced(world)),
    );
    let (one, two) = (plain.lock().await.unwrap(), other.lock().await.unwrap());
    assert!(one.token() < two.token());
    assert_eq!(plain.token().await.unwrap(), Some(two.token()));
    one.unlock().await.unwrap();
    two.unlock().await.unwrap();
    delete(world, &[format!("redisson_lock_token:{}", braced(world))]).await;
}

pub(crate) async fn a_namespace_keeps_them_apart(world: &World) {
    // The whole name is then `NAMESPACE:{a}`, which is no other name in braces.
    let client = world.client_with(|builder| builder.namespace(world.name.clone()));
    let (plain, other) = (client.fair_lock("a"), client.fair_lock("{a}"));
    let held = other.lock().await.unwrap();
    let waiter = tokio::spawn({
        let other = other.clone();
        async move { lock_and_unlock(&other).await }
    });
    eventually(DEADLINE, async || other.queue_len().await.unwrap() == 1).await;
    let options = LockOptions::new().wait(Duration::from_secs(5));
    plain
        .lock_with(options)
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    held.unlock().await.unwrap();
    waiter.await.unwrap();
}

/// The reason why [the queue](fair_locks_share_redissons_queue) cannot be split.
#[tokio::test]
async fn redissons_own_clients_share_the_queue_of_such_names() {
    let name = unique("java-braces");
    let java = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    let (plain, other) = (
        java.fair_lock(&*name),
        java.fair_lock(format!("{{{name}}}")),
    );
    assert_eq!(plain.queue_key(), other.queue_key());
    assert!(other.lock(1, None).await.unwrap());
    assert!(other.attempt(2, None).await.unwrap().is_some(), "it queues");
    assert!(
        plain.attempt(3, None).await.unwrap().is_some(),
        "nobody holds that one"
    );
    plain.give_up(3, None).await.unwrap();
    other.give_up(2, None).await.unwrap();
    other.unlock(1).await.unwrap();
}
