//! `redlock ls` and `redlock show`: what is there, whoever holds it.

use std::time::Duration;

use redlock_rt::{Client, LockOptions};
use serde_json::Value;
use tests::{Cluster, DEADLINE, RedissonClient, eventually, shared_server, unique};

use crate::command::{Command, Ended, holds, redlock, start};

/// The objects that were printed, by their keys.
fn objects(out: &str) -> Vec<Value> {
    let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[track_caller]
fn of_key<'a>(objects: &'a [Value], key: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["key"] == key);
    found.unwrap_or_else(|| panic!("{key} is not in {objects:?}"))
}

#[tokio::test]
async fn all_kinds_are_listed_with_their_holders() {
    let prefix = unique("cli:ls");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let name = |what: &str| format!("{prefix}:{what}");
    let lock = client.rlock(name("lock")).lock().await.unwrap();
    let fenced = client.fenced_lock(name("fenced")).lock().await.unwrap();
    let rw = client.read_write_lock(name("rw"));
    let reads = [rw.read().await.unwrap(), rw.read().await.unwrap()];
    let permits = client.permit_expirable_semaphore(name("permits")).limit(3);
    let permit = permits.acquire().await.unwrap();
    // Without a TTL or a waiter it would be listed as a number.
    let latch = client.count_down_latch(name("latch")).ttl(DEADLINE);
    assert!(latch.try_set_count(2).await.unwrap());
    let java = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    assert!(java.rlock(name("java")).try_lock(7, None).await.unwrap());

    let pattern = format!("{prefix}:*");
    let listed = objects(&redlock(["--json", "ls", &pattern]).await.out);
    assert_eq!(listed.len(), 6, "{listed:?}");
    for (what, kind) in [
        ("lock", "lock"),
        ("fenced", "fenced"),
        ("rw", "read-write"),
        ("permits", "permits"),
        ("latch", "latch"),
        ("java", "lock"),
    ] {
        assert_eq!(of_key(&listed, &name(what))["kind"], kind);
    }
    let own = of_key(&listed, &name("lock"));
    assert_eq!(own["holders"][0]["library"], "redlock-rt");
    assert_eq!(own["holders"][0]["id"], lock.hold_id().as_str());
    let ttl = own["holders"][0]["ttl_ms"].as_u64().unwrap();
    assert!((20_000..=30_000).contains(&ttl), "{ttl}");
    assert_eq!(
        of_key(&listed, &name("fenced"))["token"],
        fenced.token().to_string()
    );
    assert_eq!(
        of_key(&listed, &name("rw"))["holders"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(of_key(&listed, &name("permits"))["count"], 2);
    assert_eq!(of_key(&listed, &name("latch"))["count"], 2);
    assert_eq!(
        of_key(&listed, &name("java"))["holders"][0]["library"],
        "Redisson"
    );

    let text = redlock(["ls", &pattern]).await.out;
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(
        text.starts_with("KEY ") && text.contains(lock.hold_id().as_str()),
        "{text}"
    );
    drop((lock, fenced, reads, permit));
}

#[tokio::test]
async fn only_the_namespace_is_listed_and_keys_have_their_whole_names() {
    let namespace = unique("cli:ls:namespace");
    let client = Client::builder()
        .url(&shared_server().url())
        .namespace(&namespace);
    let client = client.connect().await.unwrap();
    let _guard = client.rlock("job").lock().await.unwrap();
    let listed = redlock(["--json", "--namespace", &namespace, "ls"]).await;
    let listed = objects(&listed.out);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["key"], format!("{namespace}:job"));
}

/// A key that another program has written could print lines of its own, and move the cursor of a terminal.
#[tokio::test]
async fn what_moves_the_cursor_of_a_terminal_is_printed_as_text() {
    let part = unique("cli:ls:cursor");
    let key = format!("{part}\n\u{1b}[2K\rfree\u{202e}\u{200f}");
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let _guard = client.rlock(&key).lock().await.unwrap();
    let pattern = format!("{part}*");
    let asks = [
        redlock(["ls", &pattern]).await,
        redlock(["show", &key]).await,
        redlock(["unlock", "--force", "--yes", &key]).await,
    ];
    for Ended { out, .. } in asks {
        let line = out.lines().find(|line| line.contains(&part)).unwrap();
        assert!(
            line.contains("\\n\\u{1b}[2K\\rfree\\u{202e}\\u{200f}"),
            "{out}"
        );
        assert!(!out.contains(['\r', '\u{1b}']), "{out}");
    }
    let listed = objects(&redlock(["--json", "ls", &pattern]).await.out);
    assert!(listed.is_empty(), "{listed:?}");
}

#[tokio::test]
async fn the_locks_of_all_masters_of_a_cluster_are_listed() {
    let cluster = Cluster::options().masters(3).start();
    let client = Client::connect(&cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..12 {
        guards.push(client.rlock(format!("cli:{number}")).lock().await.unwrap());
    }
    let ended = Command::start(&cluster.url(), &["--json", "ls", "cli:*"])
        .ended()
        .await;
    assert_eq!(objects(&ended.out).len(), 12, "{ended:?}");
}

#[tokio::test]
async fn one_lock_is_shown_with_its_queue_in_order_and_where_its_holder_is() {
    let key = unique("cli:show");
    let _holder = holds(&key, &["--kind", "fair"]).await;
    let mut waiters = Vec::new();
    let queue = format!("redisson_lock_queue:{{{key}}}");
    for number in 1..=2 {
        waiters.push(start(["run", &key, "--kind", "fair", "true"]));
        eventually(DEADLINE, async || {
            let length: u64 = shared_server().ask(&["LLEN", &queue]).await;
            length == number
        })
        .await;
    }
    let order: Vec<String> = shared_server().ask(&["LRANGE", &queue, "0", "-1"]).await;
    let ended = redlock(["--json", "show", &key]).await;
    let shown = ended.json();
    assert_eq!(shown["kind"], "fair", "{shown}");
    assert_eq!(shown["queue"], serde_json::json!(order));
    assert_eq!(shown["queued"], 2);
    let address = shown["holders"][0]["address"].as_str().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");

    let text = redlock(["show", &key]).await.out;
    for (place, waiter) in order.iter().enumerate() {
        assert!(
            text.contains(&format!("{}. {waiter}\n", place + 1)),
            "{text}"
        );
    }
    assert!(text.contains("(redlock-rt at 127.0.0.1:"), "{text}");
}

#[tokio::test]
async fn a_holder_that_says_who_it_is_is_shown_by_its_name() {
    let builder = Client::builder().url(&shared_server().url());
    let client = builder.identity("orders-7f9c").build().unwrap();
    let key = unique("cli:show:named");
    let often = LockOptions::new().renew(Duration::from_millis(20));
    let guard = client.rlock(&key).lock_with(often).await.unwrap();
    let says = async || client.identity_of(guard.hold_id()).await.unwrap();
    eventually(DEADLINE, async || says().await.is_some()).await;
    let shown = redlock(["--json", "show", &key]).await.json();
    let identity = &shown["holders"][0]["identity"];
    assert_eq!(identity["name"], "orders-7f9c", "{shown}");
    assert_eq!(identity["pid"], std::process::id());
    let text = redlock(["show", &key]).await.out;
    let named = format!("process {})", std::process::id());
    assert!(
        text.contains(", orders-7f9c on ") && text.contains(&named),
        "{text}"
    );
}

#[tokio::test]
async fn re_entries_tokens_and_writers_are_shown() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let key = unique("cli:show:fenced");
    let guard = client.fenced_lock(&key).lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    let shown = redlock(["--json", "show", &key]).await.json();
    assert_eq!(shown["holders"][0]["count"], 2);
    assert_eq!(shown["token"], guard.token().to_string());
    assert!(redlock(["show", &key]).await.out.contains("2 times"));
    drop((guard, again));
    let key = unique("cli:show:write");
    let _guard = client.read_write_lock(&key).write().await.unwrap();
    assert_eq!(
        redlock(["--json", "show", &key]).await.json()["holders"][0]["writer"],
        true
    );
}

#[tokio::test]
async fn what_is_not_there_is_1_and_what_is_no_lock_is_65() {
    let key = unique("cli:show:none");
    let ended = redlock(["--json", "show", &key]).await;
    assert_eq!(
        (
            ended.code,
            ended.json()["holders"].as_array().unwrap().len()
        ),
        (1, 0)
    );
    let _: u64 = shared_server().ask(&["HSET", &key, "name", "value"]).await;
    assert_eq!(redlock(["show", &key]).await.code, 65);
}
