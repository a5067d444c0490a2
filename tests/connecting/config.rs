//! Settings from a file.

use std::time::Duration;

use redlock_rt::{ClientBuilder, ClientConfig};
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
