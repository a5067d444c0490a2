//! Settings from a file.

use std::time::Duration;

use redlock_rt::{ClientBuilder, ClientConfig, ErrorKind};
use serde_json::json;
use tests::{RedisServer, lock_and_unlock, unique};

fn read(config: serde_json::Value) -> Result<ClientConfig, serde_json::Error> {
    serde_json::from_value(config)
}

#[tokio::test]
async fn a_file_makes_a_client() {
    let server = RedisServer::options().password("hunter2").start();
    let config = read(json!({
        "url": format!("redis://127.0.0.1:{}", server.port()),
        "password": "hunter2",
        "namespace": "shop",
        "lease": "1m 30s",
        "hand_over": "0s",
        "tracking": true,
        "sharded_pubsub": false,
    }));
    let config = config.unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    let client = ClientBuilder::from(config).connect().await.unwrap();
    let name = unique("read");
    lock_and_unlock(&client.rlock(&name)).await;
    let guard = client.rlock(&name).lock().await.unwrap();
    let left: u64 = server.ask(&["PTTL", &format!("shop:{name}")]).await;
    assert!(
        Duration::from_millis(left) > Duration::from_secs(80),
        "{left}"
    );
    guard.unlock().await.unwrap();
}

/// They were refused: "both the URL and a source say who logs in".
#[tokio::test]
async fn a_url_with_one_half_of_the_login_and_a_field_with_the_other_are_one_login() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "app", "reset", "on", ">p@ss:1", "~*", "&*", "+@all",
    ];
    server.ask::<()>(&user).await;
    let at = server.address();
    for config in [
        json!({ "url": format!("redis://app@{at}"), "password": "p@ss:1" }),
        json!({ "url": format!("redis://:p%40ss%3A1@{at}"), "user": "app" }),
    ] {
        let config = read(config).unwrap();
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("p@ss") && !shown.contains("p%40"),
            "{shown}"
        );
        let client = ClientBuilder::from(config).connect().await.unwrap();
        lock_and_unlock(&client.rlock(unique("halves"))).await;
        // Without a login it would be the default user, who needs none here.
        let all: String = server.ask(&["CLIENT", "LIST"]).await;
        let own = all.lines().filter(|line| line.contains(client.uuid()));
        let own: Vec<_> = own.collect();
        let is_app = |line: &&str| line.contains(" user=app ");
        assert!(!own.is_empty() && own.iter().all(is_app), "{all}");
    }
    let wrong = json!({ "url": format!("redis://app@{at}"), "password": "p@ss" });
    let wrong = ClientBuilder::from(read(wrong).unwrap()).connect().await;
    let error = wrong.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Its secret was not there, say, and the default user may do everything.
#[tokio::test]
async fn a_user_of_a_url_without_a_password_was_the_default_user() {
    let server = RedisServer::start();
    for (user, password) in [("app", ">pw"), ("open", "nopass")] {
        let user = ["ACL", "SETUSER", user, "on", password, "~*", "&*", "+@all"];
        server.ask::<()>(&user).await;
    }
    let connect = async |user| {
        let url = format!("redis://{user}@{}", server.address());
        redlock_rt::Client::connect(&url).await
    };
    let error = connect("app").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let client = connect("open").await.unwrap();
    let all: String = server.ask(&["CLIENT", "LIST"]).await;
    let mut own = all.lines().filter(|line| line.contains(client.uuid()));
    assert!(
        own.next().is_some_and(|line| line.contains(" user=open ")),
        "{all}"
    );
}

#[tokio::test]
async fn an_empty_user_beside_a_password_was_a_user() {
    let server = RedisServer::options().password("hunter2").start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let whole = format!("redis://:hunter2@127.0.0.1:{}", server.port());
    for config in [
        json!({ "url": url, "user": "", "password": "hunter2" }),
        json!({ "url": whole, "user": "", "password": "" }),
    ] {
        let config = read(config).unwrap();
        let connected = ClientBuilder::from(config).connect().await;
        assert!(connected.is_ok(), "{connected:?}");
    }
}

#[test]
fn each_kind_of_url_may_have_one_half_of_the_login() {
    for url in [
        "redis://app@10.0.0.1",
        "redis://app@a,b:7000/2",
        "redis+sentinel://app@a,b/mymaster",
        "redis+cluster://app@a,b",
        "redis+unix:///run/redis.sock?user=app&db=1",
    ] {
        let config = read(json!({ "url": url, "password": "hunter2" })).unwrap();
        let client = ClientBuilder::from(config).build();
        assert!(client.is_ok(), "{url}: {client:?}");
    }
}

#[test]
fn a_half_of_the_login_that_both_have_is_refused() {
    for config in [
        json!({ "url": "redis://:hunter2@h", "password": "hunter2" }),
        json!({ "url": "redis://:hunter2@h", "user": "app", "password": "hunter3" }),
        json!({ "url": "redis://app@h", "user": "app" }),
        json!({ "url": "redis://app@h", "user": "app", "password": "hunter2" }),
        json!({ "url": "redis://app:hunter2@h", "user": "app" }),
        json!({ "url": "redis://app:hunter2@h", "password": "hunter2" }),
        json!({ "url": "redis+unix:///s?pass=hunter2", "password": "hunter2" }),
    ] {
        let error = ClientBuilder::from(read(config).unwrap())
            .build()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
        let shown = format!("{error} {error:?}");
        assert!(
            shown.contains("who logs in") && !shown.contains("hunter"),
            "{shown}"
        );
    }
}

/// YAML and TOML read it as a number.
#[test]
fn the_error_of_a_password_without_quotes_repeated_it() {
    for field in ["password", "url"] {
        let error = read(json!({ field: 12345678 })).unwrap_err().to_string();
        assert!(
            error.contains("in quotes") && !error.contains("12345678"),
            "{error}"
        );
    }
    let none = read(json!({ "password": null })).unwrap();
    assert_eq!(none.password, None);
}

#[test]
fn settings_that_are_none_are_refused() {
    for (config, says) in [
        (json!({ "lease": "30" }), "expected a duration"),
        (json!({ "lease": 30 }), "invalid type"),
        (json!({ "leese": "30s" }), "unknown field `leese`"),
    ] {
        let error = read(config).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let builder = ClientBuilder::from(read(json!({ "url": "redis://h", "lease": "0s" })).unwrap());
    let error = builder.build().unwrap_err();
    assert!(
        error.to_string().contains("the lease is shorter"),
        "{error}"
    );
}
