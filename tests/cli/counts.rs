//! `redlock latch` and `redlock permits`.

use redlock_rt::Client;
use tests::{shared_server, unique};

use crate::command::{holds, redlock, start};

#[tokio::test]
async fn a_latch_is_set_counted_down_and_waited_for() {
    let key = unique("cli:latch");
    assert_eq!(redlock(["latch", &key]).await.out, format!("{key}: 0\n"));
    assert_eq!(redlock(["latch", &key, "set", "2"]).await.code, 0);
    let again = redlock(["--json", "latch", &key, "set", "5"]).await;
    assert_eq!(again.code, 1);
    let object = again.json();
    assert_eq!(
        (&object["set"], &object["count"]),
        (&false.into(), &2.into())
    );
    assert_eq!(
        redlock(["latch", &key, "wait", "-w", "50ms"]).await.code,
        75
    );

    let mut wait = start(["latch", &key, "wait"]);
    assert_eq!(
        redlock(["latch", &key, "count-down"]).await.out,
        format!("{key}: 1\n")
    );
    assert!(wait.is_running());
    let last = redlock(["--json", "latch", &key, "count-down"]).await;
    assert_eq!(last.json()["count"], 0);
    let ended = wait.ended().await;
    assert_eq!((ended.code, ended.out), (0, format!("{key} is open\n")));
}

#[tokio::test]
async fn who_waits_for_a_latch_that_is_deleted_gets_76() {
    let key = unique("cli:latch:deleted");
    assert_eq!(redlock(["latch", &key, "set", "1"]).await.code, 0);
    let mut wait = start(["latch", &key, "wait"]);
    let channels = format!("*{key}*");
    tests::eventually(tests::DEADLINE, async || {
        let heard: Vec<String> = shared_server()
            .ask(&["PUBSUB", "CHANNELS", &channels])
            .await;
        !heard.is_empty()
    })
    .await;
    let client = Client::connect(&shared_server().url()).await.unwrap();
    assert!(client.count_down_latch(&key).delete().await.unwrap());
    assert_eq!(wait.ended().await.code, 76);
}

#[tokio::test]
async fn a_latch_lives_for_its_ttl() {
    let key = unique("cli:latch:ttl");
    assert_eq!(
        redlock(["latch", &key, "set", "1", "--ttl", "1h"])
            .await
            .code,
        0
    );
    let left: i64 = shared_server().ask(&["TTL", &key]).await;
    assert!((3500..=3600).contains(&left), "{left}");
}

#[tokio::test]
async fn permits_are_set_and_shown() {
    let key = unique("cli:permits:set");
    assert_eq!(redlock(["permits", &key, "set", "3"]).await.code, 0);
    let mut run = holds(&key, &["--kind", "semaphore"]).await;
    let shown = redlock(["permits", &key]).await;
    assert_eq!(shown.out, format!("{key}: 3 permits, 2 free, 1 held\n"));
    let object = redlock(["--json", "permits", &key, "set", "5"])
        .await
        .json();
    let expected = serde_json::json!({ "key": key, "permits": 5, "free": 4, "held": 1 });
    assert_eq!(object, expected);
    run.end_input();
    assert_eq!(run.ended().await.code, 0);
}

#[tokio::test]
async fn permits_without_leases_are_set_once() {
    let key = unique("cli:permits:plain");
    let set = ["permits", &key, "--without-lease", "set", "3"];
    assert_eq!(redlock(set).await.out, format!("{key}: 3 free\n"));
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let permit = client.semaphore(&key).acquire().await.unwrap();
    let again = redlock(set).await;
    assert_eq!(
        (again.code, again.out),
        (1, format!("{key}: has permits already, 2 free\n"))
    );
    drop(permit);
}

#[tokio::test]
async fn names_have_the_namespace_of_the_services() {
    let namespace = unique("cli:namespace");
    let client = Client::builder()
        .url(&shared_server().url())
        .namespace(&namespace);
    let client = client.connect().await.unwrap();
    let latch = client.count_down_latch("jobs");
    assert!(latch.try_set_count(4).await.unwrap());
    let shown = redlock(["--namespace", &namespace, "latch", "jobs"]).await;
    assert_eq!(shown.out, format!("{namespace}:jobs: 4\n"));
}
