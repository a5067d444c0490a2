//! Keys without a number under the names of semaphores and latches: they are refused and stay
//! unchanged.

use std::fmt::Debug;

use redlock_rt::{CountDownLatch, Error, ErrorKind};
use tests::World;

/// Values that an application may have under a name.
const FOREIGN: [&[&str]; 6] = [
    &["SET", "many"],
    &["SET", "1.5"],
    &["SET", ""],
    &["HSET", "8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1"],
    &["RPUSH", "1"],
    &["ZADD", "1", "a"],
];

async fn put(world: &World, key: &str, value: &[&str]) {
    let _: redis::Value = world.redis(&["DEL", key]).await;
    let words = [&[value[0], key], &value[1..]].concat();
    let _: redis::Value = world.redis(&words).await;
}

#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Error>, value: &[&str]) {
    match outcome {
        Err(error) if error.kind() == ErrorKind::WrongType => {}
        other => panic!("{value:?}: {other:?}"),
    }
}

/// All methods of a latch.
async fn is_refused(latch: &CountDownLatch, value: &[&str]) {
    refused(latch.delete().await, value);
    refused(latch.try_set_count(1).await, value);
    refused(latch.count_down().await, value);
    refused(latch.count_down_guard().unwrap().count_down().await, value);
    refused(latch.count().await, value);
    refused(latch.wait().await, value);
}

pub(crate) async fn deleting_a_latch_deletes_no_key_of_another_type(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let latch = client.count_down_latch(name);
    for value in FOREIGN {
        put(world, name, value).await;
        let type_of: String = world.redis(&["TYPE", name]).await;
        is_refused(&latch, value).await;
        assert_eq!(world.redis::<String>(&["TYPE", name]).await, type_of);
        if type_of == "string" {
            let text: String = world.redis(&["GET", name]).await;
            assert_eq!(text, value[1]);
        }
        assert_eq!(world.ttl().await, None);
        let keys: Vec<String> = world.redis(&["KEYS", &format!("*{name}*")]).await;
        assert_eq!(keys, std::slice::from_ref(name), "no mark and no note");
    }
    let _: bool = world.redis(&["DEL", name]).await;
    // A count that Redisson allows is a latch.
    put(world, name, &["SET", "-1"]).await;
    assert!(latch.delete().await.unwrap());
}

pub(crate) async fn permits_are_not_set_over_a_key_of_another_type(world: &World) {
    let (client, name) = (world.client(), &world.name);
    for value in FOREIGN {
        put(world, name, value).await;
        refused(client.semaphore(name).try_set_permits(1).await, value);
        let leased = client.permit_expirable_semaphore(name);
        refused(leased.try_set_permits(1).await, value);
        let limited = client.semaphore(name).limit(1);
        refused(limited.try_acquire().await, value);
    }
    let _: bool = world.redis(&["DEL", name]).await;
}

pub(crate) async fn what_is_no_fencing_token_is_of_another_type(world: &World) {
    let (client, name) = (world.client(), &world.name);
    let counter = format!("redisson_lock_token:{{{name}}}");
    let fence = format!("redlock_fence:{{{name}}}");
    let (lock, guarded) = (client.fenced_lock(name), client.fenced_value(name));
    for value in FOREIGN {
        put(world, &counter, value).await;
        refused(lock.try_lock().await, value);
        refused(lock.token().await, value);
        assert!(!world.is_there().await);
        put(world, &fence, value).await;
        refused(guarded.set("new", 7).await, value);
        let exec = guarded.exec("return redis.call('SET', KEYS[1], 'new')", &[], 7);
        refused(exec.await, value);
        assert!(!world.is_there().await);
    }
    let _: usize = world.redis(&["DEL", &counter, &fence]).await;
}
