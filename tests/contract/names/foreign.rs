//! A hash of the application under the name of a lock: it is refused and stays unchanged.

use std::collections::BTreeMap;
use std::fmt::Debug;

use redlock_rt::{Error, ErrorKind, LockOptions};
use tests::{Monitor, RedisServer, World, lock_and_unlock};

use super::DEADLINE;

/// Hashes of an application.
const FOREIGN: [&[&str]; 11] = [
    &["name", "Ann"],
    &["name", "Ann", "email", "ann@example.org"],
    &["name:1", "Ann"],
    &["user:ann", "1"],
    &[":1", "1"],
    &["name", "1"],
    &["item:41", "3", "item:42", "1"],
    &["item:42", "3", "mode", "gift"],
    &["mode", "write", "name", "Ann"],
    &["value", "u:1", "u:1:lock_count", "1"],
    &["", ""],
];

/// Hashes of locks, Redisson's among them.
const LOCKS: [&[&str]; 6] = [
    &["8743c9c0-0795-4907-87fd-6c719a6b4586:52", "1"],
    &[
        "8743c9c0-0795-4907-87fd-6c719a6b4586:-9223372036854775808",
        "2",
    ],
    &["any:id:7", "1"],
    &[
        "mode",
        "write",
        "8743c9c0-0795-4907-87fd-6c719a6b4586:52:write",
        "1",
    ],
    &["mode", "write", "a:52:write", "3", "a:52", "1"],
    &["mode", "read", "a:1", "1", "b:2", "7"],
];

/// The fields of a hash that is too large to be checked completely, each with this value.
fn many(value: &'static str) -> Vec<String> {
    let fields = (0..600).map(|n| [format!("field {n}"), value.to_owned()]);
    fields.flatten().collect()
}

async fn put(world: &World, fields: &[&str]) {
    let _: redis::Value = world.redis(&["DEL", &world.name]).await;
    let words = [&["HSET", &*world.name], fields].concat();
    let _: usize = world.redis(&words).await;
}

#[track_caller]
fn refused<T: Debug>(outcome: Result<T, Error>, what: &str) {
    match outcome {
        Err(error) if error.kind() == ErrorKind::WrongType => {
            assert!(tests::told(&error).contains("no lock"), "{what}: {error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

pub(crate) async fn the_hash_of_somebody_else_is_neither_waited_for_nor_deleted(world: &World) {
    let client = world.client();
    let name = &world.name;
    let lock = client.read_write_lock(name);
    let many = many("a text");
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for fields in FOREIGN.into_iter().chain([&many[..]]) {
        put(world, fields).await;
        let before: BTreeMap<String, String> = world.redis(&["HGETALL", name]).await;
        let what = format!("{:?}", &fields[..2]);
        // First the calls that do not wait: a wrong result is easier to read than a hanging test.
        macro_rules! each {
            ($($lock:expr),+ $(,)?) => {
                $(let lock = $lock;
                let says = |call| format!("{call} of {}: {what}", stringify!($lock));
                refused(lock.try_lock().await, &says("try_lock"));
                refused(lock.lock().await, &says("lock"));
                let options = LockOptions::new().wait(DEADLINE);
                refused(lock.lock_with(options).await, &says("lock_with"));
                refused(lock.is_locked().await, &says("is_locked"));
                refused(lock.holder().await, &says("holder"));
                refused(lock.force_unlock().await, &says("force_unlock"));)+
            };
        }
        each!(
            client.rlock(name),
            client.fair_lock(name),
            client.fenced_lock(name),
            client.spin_lock(name),
            lock.read_lock(),
            lock.write_lock(),
            lock.clone().prefer_writers(true).write_lock(),
        );
        let several = client.multi_lock([name.clone(), format!("{name}:more")]);
        refused(several.try_lock().await, &what);
        refused(several.lock().await, &what);
        let after: BTreeMap<String, String> = world.redis(&["HGETALL", name]).await;
        assert_eq!(before, after);
        assert_eq!(world.ttl().await, None);
        let keys: Vec<String> = world.redis(&["KEYS", &format!("*{name}*")]).await;
        assert_eq!(
            keys,
            std::slice::from_ref(name),
            "nobody queues, and nothing else is left"
        );
    }
    let _: bool = world.redis(&["DEL", name]).await;
}

/// A refusal checks only the first fields, and may mistake the hash for a lock; a deletion checks all.
pub(crate) async fn a_large_hash_with_a_mode_of_its_own_is_not_deleted(world: &World) {
    let client = world.client();
    let name = &world.name;
    let both = client.read_write_lock(name);
    let many = many("a text");
    let many = many.iter().map(String::as_str);
    for mode in ["read", "write"] {
        let fields: Vec<&str> = ["mode", mode].into_iter().chain(many.clone()).collect();
        put(world, &fields).await;
        macro_rules! each {
            ($($lock:expr),+ $(,)?) => {
                $(assert!($lock.try_lock().await.unwrap().is_none());
                refused($lock.force_unlock().await, stringify!($lock));)+
            };
        }
        each!(
            client.rlock(name),
            client.fair_lock(name),
            client.fenced_lock(name),
            client.spin_lock(name),
        );
        refused(both.read_lock().force_unlock().await, mode);
        refused(both.write_lock().force_unlock().await, mode);
        let left: usize = world.redis(&["HLEN", name]).await;
        assert_eq!(left, fields.len() / 2);
    }
    let _: bool = world.redis(&["DEL", name]).await;
}

pub(crate) async fn the_lock_of_anybody_is_waited_for_and_can_be_forced(world: &World) {
    let client = world.client();
    let name = &world.name;
    let readers: Vec<String> = (0..600).map(|n| format!("u:{n}")).collect();
    let readers = readers.iter().flat_map(|reader| [&**reader, "1"]);
    let readers: Vec<&str> = ["mode", "read"].into_iter().chain(readers).collect();
    for fields in LOCKS.into_iter().chain([&readers[..]]) {
        let lock = client.read_write_lock(name);
        macro_rules! each {
            ($($lock:expr),+ $(,)?) => {
                $(put(world, fields).await;
                assert!($lock.try_lock().await.unwrap().is_none(), "{fields:?}");
                assert!($lock.is_locked().await.unwrap());
                assert!($lock.force_unlock().await.unwrap());
                assert!(!world.is_there().await);)+
            };
        }
        each!(
            client.rlock(name),
            client.fair_lock(name),
            client.fenced_lock(name),
            client.spin_lock(name),
        );
        put(world, fields).await;
        assert!(lock.try_write().await.unwrap().is_none(), "{fields:?}");
        let (read, write) = (lock.read_lock(), lock.write_lock());
        let reads = read.force_unlock().await.unwrap();
        let writes = write.force_unlock().await.unwrap();
        let mode = fields.iter().position(|field| *field == "mode");
        let mode = mode.map(|at| fields[at + 1]);
        assert_eq!(
            (reads, writes),
            (mode == Some("read"), mode == Some("write"))
        );
    }
    let _: bool = world.redis(&["DEL", name]).await;
}

/// A call checks the hash only when it is refused, and then only the first fields.
#[tokio::test]
async fn a_free_lock_costs_no_command_more_and_a_refusal_few() {
    let server = RedisServer::start();
    let client = redlock_rt::Client::connect(&server.url()).await.unwrap();
    let lock = client.rlock("lock");
    // Loads the scripts.
    lock_and_unlock(&lock).await;
    let mut monitor = Monitor::start(&server).await;
    let inner = async |monitor: &mut Monitor| {
        let lines = monitor.lines().await.into_iter();
        let inner = lines.filter(|line| line.is_inner());
        let commands: Vec<String> = inner.map(|line| line.command()).collect();
        monitor.mark().await;
        commands
    };
    monitor.mark().await;
    lock_and_unlock(&lock).await;
    let plain: [&str; 0] = [];
    assert_eq!(inner(&mut monitor).await, plain, "no script runs");

    let held = lock.lock().await.unwrap();
    let other = redlock_rt::Client::connect(&server.url()).await.unwrap();
    monitor.mark().await;
    assert!(other.rlock("lock").try_lock().await.unwrap().is_none());
    let refused = ["PTTL", "HEXISTS", "HLEN", "HGETALL"];
    assert_eq!(inner(&mut monitor).await, refused);
    held.unlock().await.unwrap();

    let mut redis = server.connect().await.unwrap();
    let mut readers = redis::cmd("HSET");
    readers.arg("read").arg("mode").arg("read");
    for reader in 0..4000 {
        readers.arg(format!("u:{reader}")).arg(1);
    }
    readers.exec_async(&mut redis).await.unwrap();
    monitor.mark().await;
    let lock = other.read_write_lock("read");
    assert!(lock.try_write().await.unwrap().is_none());
    assert_eq!(inner(&mut monitor).await, ["PTTL", "HGET", "HLEN", "HGET"]);
}
