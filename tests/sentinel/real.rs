//! What real sentinels ask for: passwords, certificates.

use redlock_rt::{Client, ErrorKind};
use tests::{DEADLINE, RedisServer, Replicated, Sentinels, ask, told, trace_init, unique, within};

#[tokio::test]
async fn sentinels_have_credentials_of_their_own() {
    trace_init();
    let options = RedisServer::options().password("master");
    let servers = Replicated::start(options, 1).await;
    let sentinels = Sentinels::options().password("sentinel");
    let sentinels = sentinels.watch(servers.server(0), 1, 2).await;
    let builder = Client::builder().url(&sentinels.url(":master@"));
    let without = within(DEADLINE, builder.clone().connect())
        .await
        .unwrap_err();
    assert_eq!(without.kind(), ErrorKind::Denied, "{without}");
    let text = told(&without);
    assert!(text.contains("sentinel_credentials"), "{text}");
    let wrong = builder
        .clone()
        .sentinel_credentials(None, "hunter2")
        .connect();
    let wrong = within(DEADLINE, wrong).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");
    assert!(!format!("{wrong:?}").contains("hunter2"));
    let client = builder.sentinel_credentials(None, "sentinel");
    assert!(!format!("{client:?}").contains("sentinel\""), "{client:?}");
    let client = client.connect().await.unwrap();
    let guard = client.rlock(unique("credentials")).lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn tls_is_spoken_to_sentinels_and_to_the_master() {
    trace_init();
    let master = RedisServer::options().tls().start();
    let sentinels = Sentinels::options().tls().watch(&master, 0, 2).await;
    let url = sentinels.url("");
    assert!(url.starts_with("rediss+sentinel://"));
    let untrusted = within(DEADLINE, Client::connect(&url)).await.unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Misconfigured, "{untrusted}");
    let builder = Client::builder().url(&url).tls_roots(master.ca_pem());
    let client = builder.connect().await.unwrap();
    let guard = client.rlock(unique("tls")).lock().await.unwrap();
    guard.unlock().await.unwrap();
    let redis = master.connect().await.unwrap();
    let clients: String = ask(&redis, &["CLIENT", "LIST"]).await;
    let ours: Vec<&str> = clients
        .lines()
        .filter(|line| {
            line.contains("lib-name=redlock-rt")
                || line.contains("cmd=evalsha")
                || line.contains("cmd=publish")
        })
        .collect();
    let port = format!(":{}", master.tls_port());
    assert!(!ours.is_empty());
    for line in ours {
        let local = line.split(' ').find(|field| field.starts_with("laddr="));
        assert!(local.is_some_and(|local| local.ends_with(&port)), "{line}");
    }
}
