//! How a client reaches its server, and the threads from which it is used.

use std::time::Duration;

use redlock_rt::{Client, ClientBuilder, LockOptions, Shutdown};
use tests::{RedisServer, shared_server, unique};
use tokio::net::TcpStream;

const SHORT: Duration = Duration::from_millis(50);

/// A tunnel to the server.
fn tunnel(builder: ClientBuilder, server: &RedisServer) -> ClientBuilder {
    let address = server.address();
    builder.connector(move || TcpStream::connect(address))
}

/// The host of the URL does not exist, so the stream must come from the connector.
#[tokio::test]
async fn a_url_and_a_connector_replaced_each_other() {
    let server = RedisServer::start();
    let user = [
        "ACL", "SETUSER", "app", "on", ">se cret", "~*", "&*", "+@all",
    ];
    server.ask::<()>(&user).await;
    let url = "redis://app:se%20cret@nobody.invalid:1/3";
    let url_first = tunnel(Client::builder().url(url), &server);
    let url_last = tunnel(Client::builder(), &server).url(url);
    for builder in [url_first, url_last] {
        let client = builder.connect().await.unwrap();
        let guard = client.rlock("there").lock().await.unwrap();
        let mut redis = server.connect().await.unwrap();
        let held = redis::pipe()
            .cmd("SELECT")
            .arg(3)
            .ignore()
            .cmd("EXISTS")
            .arg("there")
            .cmd("CLIENT")
            .arg("LIST")
            .query_async(&mut redis)
            .await;
        let (held, clients): (bool, String) = held.unwrap();
        assert!(held, "it is in another database");
        assert!(clients.contains("user=app"), "{clients}");
        guard.unlock().await.unwrap();
        client.shutdown(Shutdown::ReleaseAll).await.unwrap();
    }

    let wrong = "redis://app:wrong@nobody.invalid/3";
    let error = tunnel(Client::builder().url(wrong), &server)
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), redlock_rt::ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn tls_is_spoken_over_the_streams_of_a_connector() {
    let server = RedisServer::options().tls().start();
    let tls = server.tls_url();
    let port = tls
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end_matches('/')
        .parse::<u16>()
        .unwrap();
    let client = Client::builder()
        .url(&tls)
        .tls_roots(server.ca_pem())
        .connector(move || TcpStream::connect(("127.0.0.1", port)));
    let client = client.connect().await.unwrap();
    let guard = client.rlock("there").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// No thread of the test is in a runtime.
#[test]
fn a_client_with_a_thread_of_its_own_works_under_any_executor() {
    let client = Client::builder()
        .url(&shared_server().url())
        .dedicated_thread(true);
    tests::block_on(async {
        let client = client.connect().await.unwrap();
        let name = unique("executor");
        let lock = client.rlock(&name);
        let guard = lock.lock().await.unwrap();
        let brief = LockOptions::new().wait(SHORT);
        let taken = lock.lock_with(brief).await;
        assert!(taken.is_err_and(|error| error.is_timed_out() || error.is_unavailable()));
        assert!(lock.try_lock().await.unwrap().is_none());
        let waiter = lock.lock();
        let (next, unlocked) = futures::join!(waiter, guard.unlock());
        unlocked.unwrap();
        let next = next.unwrap();
        next.extend(Duration::from_secs(60)).await.unwrap();
        next.unlock().await.unwrap();
        let fair = client
            .fair_lock(format!("{name}:fair"))
            .lock()
            .await
            .unwrap();
        fair.unlock().await.unwrap();
        let latch = client.count_down_latch(format!("{name}:latch"));
        assert!(latch.try_set_count(1).await.unwrap());
        assert!(latch.wait_with(SHORT).await.is_err());
        latch.delete().await.unwrap();
        client.shutdown(Shutdown::Drain(SHORT)).await.unwrap();
    });
}
