//! `redlock doctor`: each check, on a server that has the defect.

use std::time::Duration;

use serde_json::Value;
use tests::{Cluster, DEADLINE, Matcher, Proxy, RedisServer, Replicated, ask, eventually, unique};

use crate::command::{Command, Ended};

async fn doctor(url: &str, arguments: &[&str]) -> Ended {
    let all = [&["--json", "doctor"][..], arguments].concat();
    Command::start(url, &all).ended().await
}

/// The findings of one check.
fn of(ended: &Ended, check: &str) -> Vec<(String, String)> {
    let lines = ended
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines = lines.filter(|line| line["check"] == check);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines
        .map(|line| (text(&line["severity"]), text(&line["message"])))
        .collect()
}

/// Whether the check says this with this severity.
#[track_caller]
fn assert_says(ended: &Ended, check: &str, severity: &str, text: &str) {
    let found = of(ended, check);
    let is_it = |(one, message): &(String, String)| one == severity && message.contains(text);
    assert!(
        found.iter().any(is_it),
        "{check}: no {severity} {text:?} in {found:?} {}",
        ended.err
    );
}

#[tokio::test]
async fn a_server_made_for_locks_has_no_error_and_only_notes_of_its_version() {
    let server = RedisServer::options().aof().start();
    let user = [
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-restore",
    ];
    let _: () = server.ask(&user).await;
    let url = server.url().replace("redis://", "redis://app:pw@");
    let ended = doctor(&url, &["--strict"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    for check in [
        "reachable",
        "version",
        "persistence",
        "eviction",
        "scripts",
        "clock",
        "rights",
    ] {
        assert_says(&ended, check, "ok", "");
    }
    assert_says(&ended, "replicas", "note", "no replicas");
    // The rights to RESTORE and to change it are worth a word.
    assert_says(&ended, "rights", "ok", "but not +restore");
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "-client|caching",
        "resetchannels",
        "&redisson_*",
    ];
    let _: () = server.ask(&user).await;
    let ended = doctor(&server.url(), &["--acl-user", "app", "--kinds", "rlock"]).await;
    let lacks = "app lacks +client|caching &__redis__:invalidate: a lock that others delete";
    assert_says(&ended, "rights", "note", lacks);
}

#[tokio::test]
async fn a_policy_that_evicts_locks_is_an_error() {
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::options().args(options).start();
    let ended = doctor(&server.url(), &[]).await;
    assert_eq!(ended.code, 1);
    assert_says(&ended, "eviction", "error", "allkeys-lru");

    let _: () = server
        .ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"])
        .await;
    let ended = doctor(&server.url(), &[]).await;
    assert_eq!(ended.code, 0);
    assert_says(&ended, "eviction", "warning", "volatile-ttl");
    assert_eq!(doctor(&server.url(), &["--strict"]).await.code, 1);
}

#[tokio::test]
async fn keys_that_were_evicted_and_a_memory_that_is_full_are_errors() {
    let server = RedisServer::options().args(["--maxmemory", "4mb"]).start();
    let redis = server.connect().await.unwrap();
    let much = "x".repeat(100_000);
    let _: () = ask(
        &redis,
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
    )
    .await;
    for number in 0..60 {
        let _: () = ask(&redis, &["SET", &format!("data:{number}"), &much]).await;
    }
    assert_says(
        &doctor(&server.url(), &[]).await,
        "eviction",
        "error",
        "were evicted",
    );
    let _: () = ask(&redis, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let used: String = ask(&redis, &["INFO", "memory"]).await;
    let used = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .unwrap();
    let _: () = ask(&redis, &["CONFIG", "SET", "maxmemory", used]).await;
    let ended = doctor(&server.url(), &[]).await;
    assert_says(&ended, "eviction", "error", "each acquisition is refused");
}

#[tokio::test]
async fn what_a_restart_or_a_crash_of_the_machine_loses_is_said() {
    let server = RedisServer::start();
    let ended = doctor(&server.url(), &[]).await;
    assert_says(&ended, "persistence", "warning", "no append-only file");
    let _: () = server.ask(&["CONFIG", "SET", "appendonly", "yes"]).await;
    for (fsync, severity) in [("everysec", "note"), ("no", "warning"), ("always", "ok")] {
        let _: () = server.ask(&["CONFIG", "SET", "appendfsync", fsync]).await;
        assert_says(
            &doctor(&server.url(), &[]).await,
            "persistence",
            severity,
            "",
        );
    }
}

#[tokio::test]
async fn a_snapshot_that_fails_is_an_error() {
    let server = RedisServer::options()
        .args(["--enable-protected-configs", "yes"])
        .start();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_str().unwrap();
    let _: () = server.ask(&["CONFIG", "SET", "dir", path]).await;
    drop(place);
    let _: () = server.ask(&["BGSAVE"]).await;
    eventually(DEADLINE, async || {
        let info: String = server.ask(&["INFO", "persistence"]).await;
        info.contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert_says(
        &doctor(&server.url(), &[]).await,
        "persistence",
        "error",
        "snapshot failed",
    );
}

#[tokio::test]
async fn a_master_that_may_be_cut_off_and_a_replica_that_is_silent_are_found() {
    let servers = Replicated::start(RedisServer::options(), 1).await;
    servers.is_counted(0, 1).await;
    let url = servers.url();
    let ended = doctor(&url, &[]).await;
    assert_says(&ended, "replicas", "warning", "min-replicas-to-write is 0");
    assert_says(&ended, "replicas", "ok", "bytes behind");
    let _: () = servers
        .server(0)
        .ask(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    assert_says(
        &doctor(&url, &[]).await,
        "replicas",
        "ok",
        "min-replicas-to-write is 1",
    );

    servers.server(1).pause();
    let master = servers.server(0).url();
    eventually(DEADLINE, async || {
        let ended = doctor(&master, &[]).await;
        of(&ended, "replicas")
            .iter()
            .any(|(severity, message)| severity == "error" && message.contains("was last heard"))
    })
    .await;
    servers.server(1).resume();
}

#[tokio::test]
async fn a_server_of_the_wrong_role_is_69_and_named() {
    let servers = Replicated::start(RedisServer::options(), 1).await;
    let ended = doctor(&servers.server(1).url(), &[]).await;
    assert_eq!(ended.code, 69);
    assert_says(&ended, "reachable", "error", "replica");
    let node = Cluster::options().start();
    let ended = doctor(&node.node(0).url(), &[]).await;
    assert_eq!(ended.code, 69);
    assert_says(&ended, "reachable", "error", "cluster");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_refuses_is_said_as_a_finding() {
    let ended = doctor("redis://127.0.0.1:1", &[]).await;
    assert_eq!(ended.code, 69);
    assert_says(&ended, "reachable", "error", "");
    let server = RedisServer::options().password("secret").start();
    let ended = doctor(&server.url().replace("secret", "wrong"), &[]).await;
    assert_eq!(ended.code, 77);
    assert_says(&ended, "reachable", "error", "");
}

#[tokio::test]
async fn a_question_that_fails_has_the_code_of_its_error() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    for (reply, code) in [
        ("-NOPERM no right\r\n", 77),
        ("-WRONGTYPE another type\r\n", 65),
        ("-ERR it is odd\r\n", 70),
    ] {
        proxy.answer(Matcher::command("PING"), reply, 1);
        let ended = doctor(&proxy.url(), &[]).await;
        assert_eq!(ended.code, code, "{ended:?}");
        assert_says(&ended, "reachable", "error", "");
    }
    proxy.swallow_reply(Matcher::command("PING"), 1);
    let ended = doctor(&proxy.url(), &["--timeout", "300ms"]).await;
    assert_eq!(ended.code, 69, "{ended:?}");
}

#[tokio::test]
async fn a_server_that_is_slow_is_a_warning() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    proxy.delay(Matcher::command("PING"), Duration::from_millis(150));
    let ended = doctor(&proxy.url(), &[]).await;
    assert_eq!(ended.code, 0);
    assert_says(&ended, "reachable", "warning", "for an answer");
}

#[tokio::test]
async fn each_master_of_a_cluster_is_looked_at() {
    let cluster = Cluster::options().masters(3).start();
    let ended = doctor(&cluster.url(), &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(of(&ended, "eviction").len(), 3);
    assert_eq!(of(&ended, "rights").len(), 3);
    assert_says(&ended, "rights", "ok", "has all");
}

#[tokio::test]
async fn a_node_of_a_cluster_without_a_host_of_its_own_has_that_of_the_url() {
    let cluster = Cluster::options().start();
    let url = cluster.url().replace("127.0.0.1", "localhost");
    for (told, host) in [
        ("ip", "127.0.0.1"),
        ("hostname", "localhost"),
        ("unknown-endpoint", "localhost"),
    ] {
        let kind = ["CONFIG", "SET", "cluster-preferred-endpoint-type", told];
        let _: () = cluster.node(0).ask(&kind).await;
        let ended = doctor(&url, &[]).await;
        assert_eq!(ended.code, 0, "{told}: {ended:?}");
        let server = format!(r#""server":"{host}:"#);
        assert!(ended.out.contains(&server), "{told}: {ended:?}");
    }
}

#[tokio::test]
async fn it_asks_over_tls_and_a_socket() {
    let server = RedisServer::options()
        .unix_socket()
        .tls()
        .password("secret")
        .start();
    assert_eq!(doctor(&server.unix_url(), &[]).await.code, 0);
    let roots = server.directory().join("roots.pem");
    std::fs::write(&roots, server.ca_pem()).unwrap();
    // As the library, which reads each of these.
    let upper = server.tls_url().replace("rediss", " REDISS");
    for url in [server.tls_url(), upper] {
        let ended = doctor(&url, &["--tls-ca", roots.to_str().unwrap()]).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_says(&ended, "eviction", "ok", "noeviction");
    }
    let unix = server.unix_url().replace("redis+unix", "unix");
    let ended = doctor(&unix, &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_says(&ended, "eviction", "ok", "noeviction");
}

#[tokio::test]
async fn it_presents_its_certificate_to_a_server_that_asks_for_one() {
    let options = RedisServer::options().tls();
    let server = options.args(["--tls-auth-clients", "yes"]).start();
    let file = |name: &str, content: &str| {
        let path = server.directory().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let roots = file("roots.pem", server.ca_pem());
    let (certificate, key) = server.client_pem();
    let (certificate, key) = (file("mine.pem", &certificate), file("mine.key", &key));
    let trust = ["--tls-ca", &roots];
    let present = ["--tls-cert", &certificate, "--tls-key", &key];
    assert_eq!(doctor(&server.tls_url(), &trust).await.code, 69);
    let all = [&trust[..], &present].concat();
    assert_eq!(doctor(&server.tls_url(), &all).await.code, 0);
    let run = [&["run", "k"], &all[..], &["--", "echo", "ran"]].concat();
    let ended = Command::start(&server.tls_url(), &run).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "ran\n"), "{ended:?}");
    let half = [&["run", "k"], &all[..4], &["--", "true"]].concat();
    let ended = Command::start(&server.tls_url(), &half).ended().await;
    assert_eq!(ended.code, 64, "{ended:?}");
}

#[tokio::test]
async fn scripts_that_are_made_anew_for_each_call_are_found() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    for number in 0..=1000 {
        let _: String = ask(&redis, &["SCRIPT", "LOAD", &format!("return {number}")]).await;
    }
    assert_says(
        &doctor(&server.url(), &[]).await,
        "scripts",
        "warning",
        "scripts are cached",
    );
}

#[tokio::test]
async fn a_clock_that_is_far_from_ours_is_found() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    assert_says(&doctor(&proxy.url(), &[]).await, "clock", "ok", "");
    proxy.answer(
        Matcher::command("TIME"),
        "*2\r\n$10\r\n1000000000\r\n$1\r\n5\r\n",
        1,
    );
    assert_says(
        &doctor(&proxy.url(), &[]).await,
        "clock",
        "warning",
        "behind ours",
    );
    proxy.answer(
        Matcher::command("TIME"),
        "*2\r\n$10\r\n9000000000\r\n$1\r\n5\r\n",
        1,
    );
    assert_says(
        &doctor(&proxy.url(), &[]).await,
        "clock",
        "warning",
        "ahead of ours",
    );
    // It panicked.
    proxy.answer(
        Matcher::command("TIME"),
        "*2\r\n$20\r\n18446744073709551615\r\n$1\r\n5\r\n",
        1,
    );
    let odd = doctor(&proxy.url(), &[]).await;
    assert_says(&odd, "clock", "note", "18446744073709551615 s");
}

#[tokio::test]
async fn keys_that_are_no_locks_and_locks_with_another_prefix_are_found() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let client = "5c2ad9c4-5a24-4d8c-9f0a-0a5c0d6f3a11";
    let owner = &format!("{client}:42");
    let identity = format!("shop:redlock_client:{{{client}}}");
    let lease = format!("shop:stock:{{7}}:{owner}:rwlock_timeout:1");
    let permit = "0123456789abcdef";
    for words in [
        &["HSET", "shop:order:7", owner, "1"][..],
        &["HSET", "shop:both", "mode", "read", owner, "2"],
        &["SET", "shop:permits", "5"],
        &["SET", "shop:least", "-9223372036854775808"],
        &["SET", "other:text", "of somebody else"],
        // Beside locks, semaphores of either kind and read locks.
        &["HSET", &identity, "name", "api", "host", "a", "pid", "7"],
        &["SET", "shop:calls:{42}", "5"],
        &["ZADD", "shop:calls:{42}:timeout", "1", permit],
        &["HSET", "redlock_sem:shop:calls:{42}", owner, "1"],
        &["HSET", "shop:stock:{7}", "mode", "read", owner, "1"],
        &["SET", &lease, "1"],
    ] {
        let _: redis::Value = ask(&redis, words).await;
    }
    let clean = doctor(&server.url(), &["--namespace", "shop"]).await;
    assert_says(&clean, "keys", "ok", "9 keys under shop:");
    for words in [
        &["RPUSH", "shop:list", "1"][..],
        &["ZADD", "shop:set:timeout", "1", permit],
        &["SET", "shop:text", "of a user"],
        &["HSET", "shop:user", "name", "me"],
        // Once, nothing was found where a value is no text.
        &[
            "EVAL",
            "return redis.call('HSET', KEYS[1], 'photo', '\\255')",
            "1",
            "shop:photo",
        ],
        &["HSET", "order:7", owner, "1"],
        &["HSET", "java:order:7", owner, "1"],
    ] {
        let _: redis::Value = ask(&redis, words).await;
    }
    let ended = doctor(&server.url(), &["--namespace", "shop"]).await;
    assert_says(&ended, "keys", "warning", "5 keys under shop: are no locks");
    assert_says(&ended, "keys", "warning", "locks have the same name");
    let named: Vec<String> = of(&ended, "keys")
        .iter()
        .filter_map(|(_, message)| message.rsplit_once(": "))
        .flat_map(|(_, keys)| keys.split(", ").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for key in [
        "shop:list",
        "shop:set:timeout",
        "shop:text",
        "shop:user",
        "shop:photo",
        "java:order:7",
        "order:7",
    ] {
        assert!(named.iter().any(|name| name == key), "{key}: {named:?}");
    }
    for number in 0..1000 {
        let _: () = ask(&redis, &["SET", &format!("data:{number}"), "1"]).await;
    }
    let ended = doctor(&server.url(), &["--scan", "100"]).await;
    assert_says(&ended, "keys", "note", "more than 100 keys");
}

#[tokio::test]
async fn dead_waiters_and_permits_without_an_end_are_found() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    for words in [
        ["RPUSH", "redisson_lock_queue:{lives}", "uuid:1"].as_slice(),
        &["ZADD", "redisson_lock_timeout:{lives}", "9e15", "uuid:1"],
        &["ZADD", "{ends}:timeout", "1000", "0123456789abcdef"],
    ] {
        let _: u64 = ask(&redis, words).await;
    }
    let clean = doctor(&server.url(), &[]).await;
    assert_says(&clean, "queues", "ok", "1 fair locks have a queue");
    assert_says(&clean, "permits", "ok", "1 semaphores have permits");
    let _: u64 = ask(&redis, &["RPUSH", "redisson_lock_queue:{report}", "uuid:1"]).await;
    let _: u64 = ask(
        &redis,
        &["ZADD", "redisson_lock_timeout:{report}", "1000", "uuid:1"],
    )
    .await;
    let _: u64 = ask(
        &redis,
        &["ZADD", "{exports}:timeout", "9e15", "0123456789abcdef"],
    )
    .await;
    let braced = ["ZADD", "calls:{42}:timeout", "9e15", "0123456789abcdef"];
    let _: u64 = ask(&redis, &braced).await;
    let _: () = ask(&redis, &["SET", "others:{42}:timeout", "no permits"]).await;
    let ended = doctor(&server.url(), &[]).await;
    assert_says(&ended, "queues", "warning", "1 in the queue of {report}");
    assert_says(&ended, "permits", "warning", "1 permits of exports");
    assert_says(&ended, "permits", "warning", "1 permits of calls:{42}");
}

#[tokio::test]
async fn a_key_of_a_wrong_type_hid_the_dead_waiters_of_all_other_queues() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    for number in 0..5 {
        let queue = format!("redisson_lock_queue:{{q{number}}}");
        let _: u64 = ask(&redis, &["RPUSH", &queue, "uuid:1"]).await;
        let deadlines = format!("redisson_lock_timeout:{{q{number}}}");
        let _: u64 = match number {
            2 => ask(&redis, &["RPUSH", &deadlines, "1"]).await,
            _ => ask(&redis, &["ZADD", &deadlines, "1000", "uuid:1"]).await,
        };
    }
    let ended = doctor(&server.url(), &[]).await;
    for number in [0, 1, 3, 4] {
        let dead = format!("1 in the queue of {{q{number}}} are dead");
        assert_says(&ended, "queues", "warning", &dead);
    }
    assert_says(&ended, "queues", "note", "not known of {q2}: ");
}

#[tokio::test]
async fn a_key_of_many_colons_kept_the_check_from_its_end() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let colons = ":".repeat(1 << 20);
    for key in ["shop:permits", &colons] {
        let _: () = ask(&redis, &["SET", key, "1"]).await;
    }
    let ended = doctor(&server.url(), &["--namespace", "shop"]).await;
    assert_says(&ended, "keys", "ok", "1 keys under shop:");
}

#[tokio::test]
async fn a_scan_of_empty_pages_without_end_kept_the_check_from_its_end() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let empty = "*2\r\n$1\r\n7\r\n*0\r\n";
    proxy.answer(Matcher::command("SCAN"), empty, usize::MAX);
    let ended = doctor(&proxy.url(), &["--scan", "10"]).await;
    assert_says(
        &ended,
        "keys",
        "note",
        "0 keys were looked at: there are more than 10 keys or pages",
    );
}

#[tokio::test]
async fn a_key_that_expires_during_the_check_is_not_foreign() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let _: () = server.ask(&["SET", "shop:text", "of a user"]).await;
    proxy.answer(Matcher::command("TYPE"), "+none\r\n", 1);
    let ended = doctor(&proxy.url(), &["--namespace", "shop"]).await;
    assert_says(&ended, "keys", "ok", "1 keys under shop:");
}

#[tokio::test]
async fn a_large_value_in_the_namespace_was_read_whole() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let _: () = server
        .ask(&["SET", "shop:page", &"1".repeat(100_000)])
        .await;
    let ended = doctor(&proxy.url(), &["--namespace", "shop"]).await;
    let foreign = "1 key under shop: are no locks: shop:page";
    assert_says(&ended, "keys", "warning", foreign);
    assert_eq!(proxy.count(Matcher::command("GET")), 0);
}

#[tokio::test]
async fn a_user_without_a_password_was_not_who_was_looked_at() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-zadd",
    ];
    let _: () = server.ask(&user).await;
    let url = server.url().replace("redis://", "redis://app@");
    assert_says(
        &doctor(&url, &[]).await,
        "rights",
        "error",
        "app lacks +zadd",
    );
}

#[tokio::test]
async fn the_check_ended_at_a_user_that_may_not_ask_info() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info",
    ];
    let _: () = server.ask(&user).await;
    let url = server.url().replace("redis://", "redis://app:pw@");
    let ended = doctor(&url, &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_says(&ended, "rights", "warning", "app lacks +info");
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_and_the_line_that_is_printed_is_enough() {
    let server = RedisServer::start();
    let namespace = unique("doctor").replace(':', "-");
    let user = [
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-zadd", "-publish",
    ];
    let _: () = server.ask(&user).await;
    let of_app = ["--namespace", &namespace, "--acl-user", "app"];
    let ended = doctor(&server.url(), &of_app).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_says(&ended, "rights", "error", "app lacks +publish +zadd");
    // Without it waiters poll.
    let fewer = [&of_app[..], &["--kinds", "rlock,latch"]].concat();
    assert_says(
        &doctor(&server.url(), &fewer).await,
        "rights",
        "warning",
        "app lacks +publish",
    );

    let words = printed(&ended);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _: () = server.ask(&words).await;
    let ended = doctor(&server.url(), &of_app).await;
    assert_says(&ended, "rights", "ok", "app has all");
    let url = server.url().replace("redis://", "redis://app:pw@");
    // Keys of names with a brace are made of them in another way.
    for tag in ["", ":{1}"] {
        use_of_all_kinds(&url, &namespace, tag).await;
        waits_in_a_queue(&server, &url, &namespace, tag).await;
    }
    for name in [
        format!("{{{namespace}:name}}"),
        format!("{namespace}:name:{{1}}"),
    ] {
        for start in [
            "redisson_lock__channel",
            "redisson_rwlock",
            "redisson_sc",
            "redlock_barrier",
        ] {
            let channel = format!("{start}:{name}");
            let dry = ["ACL", "DRYRUN", "app", "PUBLISH", &channel, "1"];
            assert_eq!(server.ask::<String>(&dry).await, "OK", "{channel}");
        }
    }
}

/// The line that is printed last as a remedy, with the password `pw`.
fn printed(ended: &Ended) -> Vec<String> {
    let lines = ended.out.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut remedies = lines.filter_map(|line| line["remedy"].as_str().map(str::to_owned));
    let remedy = remedies.rfind(|remedy| remedy.contains("ACL SETUSER"));
    let remedy = remedy.unwrap();
    let line = remedy.split_once("ACL SETUSER").unwrap().1;
    let line = line.replace("PASSWORD", "pw");
    // From Redis 7.2 on.
    let words = line
        .split_whitespace()
        .filter(|word| *word != "+client|setinfo");
    let words = ["ACL", "SETUSER"].into_iter().chain(words);
    words.map(str::to_owned).collect()
}

/// `tag`: behind each name.
async fn use_of_all_kinds(url: &str, namespace: &str, tag: &str) {
    let run = async |words: &[&str]| {
        let all = [&["--namespace", namespace][..], words].concat();
        let ended = Command::start(url, &all).ended().await;
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
    };
    for kind in ["rlock", "fair", "fenced", "read", "write", "spin"] {
        let name = format!("{kind}{tag}");
        run(&["run", &name, "--kind", kind, "true"]).await;
    }
    let [permits, latch, plain] = ["permits", "latch", "plain"].map(|name| format!("{name}{tag}"));
    let of_permits = ["--kind", "semaphore", "--permits", "2", "true"];
    run(&[&["run", &permits][..], &of_permits].concat()).await;
    run(&["latch", &latch, "set", "1"]).await;
    run(&["latch", &latch, "count-down"]).await;
    run(&["permits", &plain, "--without-lease", "set", "1"]).await;
}

async fn waits_in_a_queue(server: &RedisServer, url: &str, namespace: &str, tag: &str) {
    let name = format!("queue{tag}");
    let of_queue = ["run", &name, "--kind", "fair", "-c", "echo ran; cat"];
    let hold = [&["--namespace", namespace][..], &of_queue].concat();
    let mut holder = Command::start(url, &hold);
    holder.says("ran").await;
    let mut waiter = Command::start(url, &hold);
    let queue = match tag.is_empty() {
        true => format!("redisson_lock_queue:{{{namespace}:{name}}}"),
        false => format!("redisson_lock_queue:{namespace}:{name}"),
    };
    eventually(DEADLINE, async || {
        let length: u64 = server.ask(&["LLEN", &queue]).await;
        length == 1
    })
    .await;
    holder.end_input();
    waiter.says("ran").await;
    waiter.end_input();
    assert_eq!(
        (holder.ended().await.code, waiter.ended().await.code),
        (0, 0)
    );
}

#[tokio::test]
async fn doctor_missed_the_right_to_read_who_is_the_leader() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "app", "~*", "&*", "+@all", "-hmget"];
    let _: () = server.ask(&user).await;
    let of_app = ["--acl-user", "app", "--kinds", "fenced"];
    let ended = doctor(&server.url(), &of_app).await;
    assert_says(&ended, "rights", "error", "app lacks +hmget for");
}

#[tokio::test]
async fn a_user_of_some_keys_lacks_all_where_there_is_no_namespace() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "app", "~redlock_probe", "&*", "+@all"];
    let _: () = server.ask(&user).await;
    let ended = doctor(&server.url(), &["--acl-user", "app"]).await;
    assert_says(&ended, "rights", "error", "app lacks ~* for");
}

#[tokio::test]
async fn doctor_found_nothing_where_names_with_a_brace_were_refused() {
    let server = RedisServer::start();
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "+@all",
        "~shop:*",
        "~redlock_probe",
        "~redlock_stolen:{shop:*",
        "~redisson_lock_token:{shop:*",
        "~redlock_fence:{shop:*",
        "~redlock_barrier:{shop:*",
        "~redlock_barrier_parties:{shop:*",
        "~redlock_double_barrier:{shop:*",
        "~redlock_double_barrier_parties:{shop:*",
        "~redlock_op:{shop:*",
        "&redisson_lock__channel:{shop:*",
        "&redlock_barrier:{shop:*",
        "&redlock_wake:*",
        "~redlock_stolen:shop:*",
        "&redisson_lock__channel:shop:*",
    ];
    let _: () = server.ask(&user).await;
    let of_app = ["--namespace", "shop", "--acl-user", "app", "--kinds"];
    let asked = async |kinds: &str| doctor(&server.url(), &[&of_app[..], &[kinds]].concat()).await;
    let ended = asked("rlock,fenced,barrier").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let lacks =
        "app lacks ~redisson_lock_token:shop:* ~redlock_fence:shop:* ~redlock_barrier:shop:*";
    assert_says(&ended, "rights", "warning", lacks);
    assert_says(&ended, "rights", "warning", "&redlock_barrier:shop:*");
    assert_says(&ended, "rights", "warning", "such as shop:order:{42}");
    assert_says(&asked("rlock").await, "rights", "ok", "app has all");
    // What no name can do without is an error.
    let fewer = [
        "ACL",
        "SETUSER",
        "app",
        "resetkeys",
        "~shop:*",
        "~redisson_lock_token:shop:*",
        "~redlock_fence:shop:*",
    ];
    let _: () = server.ask(&fewer).await;
    let ended = asked("fenced").await;
    assert_says(&ended, "rights", "error", "~redisson_lock_token:{shop:*");
    // An RLock has nothing there but the notes of thefts.
    let ended = asked("rlock").await;
    assert_says(
        &ended,
        "rights",
        "warning",
        "app lacks ~redlock_stolen:{shop:* for",
    );
    let ended = asked("latch,read-write").await;
    assert_says(
        &ended,
        "rights",
        "error",
        " ~{shop:* &redisson_countdownlatch__channel__{shop:* for",
    );
}

#[tokio::test]
async fn for_people_each_finding_is_a_line_with_its_remedy_below() {
    let server = RedisServer::start();
    let ended = Command::start(&server.url(), &["doctor"]).ended().await;
    assert_eq!(ended.code, 0);
    assert!(ended.out.contains("warning persistence"), "{}", ended.out);
    assert!(
        ended
            .out
            .contains("\n        mend it: CONFIG SET appendonly yes"),
        "{}",
        ended.out
    );
    assert!(!ended.out.contains('\x1b'));
}
