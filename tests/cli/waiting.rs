//! `redlock wait`.

use redlock_rt::Client;
use tests::{RedissonClient, shared_server, unique};

use crate::command::{holds, redlock, start};

#[tokio::test]
async fn it_ends_when_the_lock_of_any_kind_is_free() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    for kind in ["rlock", "fair", "fenced", "read", "write", "spin"] {
        let key = unique("cli:wait");
        let mut run = holds(&key, &["--kind", kind]).await;
        let ended = redlock(["wait", &key, "-w", "50ms"]).await;
        assert_eq!(ended.code, 75, "{kind}: {ended:?}");
        let mut wait = start(["wait", &key, "--every", "10ms"]);
        assert!(wait.is_running());
        run.end_input();
        assert_eq!(wait.ended().await.code, 0, "{kind}");
        assert!(!client.rlock(&key).is_locked().await.unwrap());
        assert_eq!(run.ended().await.code, 0);
    }
}

#[tokio::test]
async fn it_does_not_take_the_lock_and_sees_those_of_java() {
    let key = unique("cli:wait:java");
    let ended = redlock(["--json", "wait", &key]).await;
    assert_eq!(ended.json()["free"], true);
    let java = RedissonClient::connect(&shared_server().url())
        .await
        .unwrap();
    assert!(java.rlock(&key).try_lock(1, None).await.unwrap());
    assert_eq!(redlock(["wait", &key, "-w", "0"]).await.code, 75);
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_65() {
    let key = unique("cli:wait:text");
    let _: String = shared_server().ask(&["SET", &key, "text"]).await;
    assert_eq!(redlock(["wait", &key]).await.code, 65);
    let left: String = shared_server().ask(&["GET", &key]).await;
    assert_eq!(left, "text");
}
