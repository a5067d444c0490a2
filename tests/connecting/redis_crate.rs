//! The settings that a service has for the `redis` crate.

use redis::{ConnectionAddr, IntoConnectionInfo};
use redlock_rt::{Client, ClientBuilder};
use tests::{RedisServer, lock_and_unlock, unique};

/// The user and the database of the connections of this client, as the server tells.
async fn logged_in(server: &RedisServer, builder: ClientBuilder) -> (bool, bool) {
    let client = builder.client_name("taken").connect().await.unwrap();
    lock_and_unlock(&client.rlock(unique("taken"))).await;
    let list: String = server.ask(&["CLIENT", "LIST"]).await;
    let ours = list
        .lines()
        .find(|line| line.contains("name=taken"))
        .unwrap();
    (ours.contains("user=app"), ours.contains("db=2"))
}

#[tokio::test]
async fn address_user_password_and_database_are_taken() {
    let server = RedisServer::options().unix_socket().start();
    let user = [
        "ACL", "SETUSER", "app", "on", ">p@ss/w", "~*", "&*", "+@all",
    ];
    server.ask::<()>(&user).await;
    let port = server.port();
    let socket = server.unix_socket();
    let urls = [
        format!("redis://app:p%40ss%2Fw@127.0.0.1:{port}/2"),
        format!(
            "redis+unix://{}?db=2&user=app&pass=p%40ss%2Fw",
            socket.display()
        ),
    ];
    for url in urls {
        let builder = Client::builder().redis(url.as_str());
        assert!(!format!("{builder:?}").contains("ss/w"), "{builder:?}");
        assert_eq!(logged_in(&server, builder).await, (true, true), "{url}");
        let theirs = redis::Client::open(url.as_str()).unwrap();
        assert_eq!(
            logged_in(&server, theirs.into()).await,
            (true, true),
            "{url}"
        );
    }
}

#[tokio::test]
async fn tls_is_taken_with_the_roots_that_are_set_here() {
    let server = RedisServer::options().tls().start();
    let tls = |insecure| ConnectionAddr::TcpTls {
        host: "localhost".to_owned(),
        port: server.tls_port(),
        insecure,
        tls_params: None,
    };
    let builder = Client::builder()
        .redis(tls(false))
        .tls_roots(server.ca_pem());
    assert_eq!(logged_in(&server, builder).await, (false, false));
    let error = Client::builder().redis(tls(true)).build().unwrap_err();
    assert!(error.is_bad_input());
    assert!(error.to_string().contains("set tls_roots"), "{error}");
}

#[test]
fn settings_that_the_redis_crate_refuses_are_refused_without_the_password() {
    for url in [
        "redis://:hunter2@h:x",
        "http://:hunter2@h",
        "redis://:hunter2@h/x",
    ] {
        let error = Client::builder().redis(url).build().unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        assert!(
            !format!("{error:?} {error}").contains("hunter2"),
            "{error:?}"
        );
    }
    let info = "redis://h".into_connection_info().unwrap();
    let below = info.redis_settings().clone().set_db(-1);
    let error = Client::builder()
        .redis(info.set_redis_settings(below))
        .build();
    assert!(error.unwrap_err().to_string().contains("below 0"));
}
