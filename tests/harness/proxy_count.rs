//! The counts and the log of the proxy.

use futures::StreamExt;
use redis::AsyncCommands;
use tests::{
    Matcher, Proxy, RedisServer, Which, ask, connection_to, eventually, shared_server, unique,
    within,
};

use crate::DEADLINE;

async fn connect(url: String) -> redis::aio::MultiplexedConnection {
    connection_to(&url).await.unwrap()
}

#[tokio::test]
async fn request_frames_are_counted_since_the_mark() {
    let proxy = Proxy::to(&shared_server());
    let mut connection = connect(proxy.url()).await;
    proxy.mark();
    let name = unique("count");
    let mut pipe = redis::pipe();
    for _ in 0..50 {
        pipe.cmd("SET").arg(&name).arg("a\r\nb").ignore();
    }
    pipe.exec_async(&mut connection).await.unwrap();
    let script = "return redis.call('del', KEYS[1])";
    ask::<()>(&connection, &["eval", script, "1", &name]).await;
    let counts = proxy.counts();
    assert_eq!((counts["SET"], counts["EVAL"], counts.len()), (50, 1, 2));
    let frames = proxy.frames();
    assert_eq!(frames[0].text(2), "a\r\nb");
    assert!(frames[50].mentions(&name));
    assert_eq!(proxy.connections(Which::Scripts), [frames[50].connection]);

    proxy.mark();
    assert!(proxy.counts().is_empty());
}

#[tokio::test]
async fn a_large_value_passes_both_ways() {
    let proxy = Proxy::to(&shared_server());
    let mut connection = connect(proxy.url()).await;
    let (name, value) = (unique("large"), "x\r\n".repeat(1_000_000));
    let () = connection.set(&name, &value).await.unwrap();
    let back: String = connection.get_del(&name).await.unwrap();
    assert!(back == value);
}

#[tokio::test]
async fn passing_frames_can_be_waited_for() {
    let proxy = Proxy::to(&shared_server());
    let mut connection = connect(proxy.url()).await;
    let name = unique("wait");
    let matcher = Matcher::command("incrby").mentioning(&name);
    let twice = proxy.wait_for_count(matcher.clone(), 2);
    let send = async {
        for count in 1..=2 {
            assert_eq!(connection.incr::<_, _, i64>(&name, 1).await.unwrap(), count);
        }
    };
    within(DEADLINE, async { tokio::join!(twice, send) }).await;
    within(DEADLINE, proxy.wait_for_answer(matcher)).await;
    let _: bool = connection.del(name).await.unwrap();
}

#[tokio::test]
async fn credentials_and_restarts_pass_the_proxy() {
    let server = RedisServer::options()
        .password(unique("secret").replace(':', "-"))
        .start();
    let proxy = Proxy::to(&server);
    let mut connection = connect(proxy.url()).await;
    server.restart();
    let lost: Result<String, _> = connection.ping().await;
    lost.unwrap_err();
    let mut connection = connect(proxy.url()).await;
    assert_eq!(connection.ping::<String>().await.unwrap(), "PONG");
}

/// Messages between confirmations and answers count as neither.
async fn subscriptions_pass(protocol: &str) {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let url = format!("{}/?protocol={protocol}", proxy.url());
    let client = redis::Client::open(url).unwrap();
    let (mut sink, mut messages) = client.get_async_pubsub().await.unwrap().split();
    let mut publisher = server.connect().await.unwrap();
    let channels: Vec<_> = (0..20).map(|_| unique("channel")).collect();
    for channel in &channels {
        sink.subscribe(channel).await.unwrap();
        for known in &channels {
            let _: usize = publisher.publish(known, "0").await.unwrap();
        }
    }
    for _ in 0..(1..=20).sum::<usize>() {
        within(DEADLINE, messages.next()).await.unwrap();
    }
    for channel in &channels {
        sink.unsubscribe(channel).await.unwrap();
    }
    assert_eq!(
        (proxy.counts()["SUBSCRIBE"], proxy.counts()["UNSUBSCRIBE"]),
        (20, 20)
    );
    assert_eq!(proxy.connections(Which::Subscribers).len(), 1);
    within(
        DEADLINE,
        proxy.wait_for_answer(Matcher::command("UNSUBSCRIBE").mentioning(&channels[19])),
    )
    .await;
}

#[tokio::test]
async fn subscriptions_pass_in_resp2() {
    subscriptions_pass("resp2").await;
}

#[tokio::test]
async fn subscriptions_pass_in_resp3() {
    subscriptions_pass("resp3").await;
}

#[tokio::test]
async fn a_dropped_proxy_closes_its_connections() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let mut connection = connect(proxy.url()).await;
    let name = unique("gone");
    let () = ask(&connection, &["CLIENT", "SETNAME", &name]).await;
    drop(proxy);
    let lost: Result<String, _> = connection.ping().await;
    lost.unwrap_err();
    let mut control = server.connect().await.unwrap();
    eventually(DEADLINE, async || {
        let control = control.clone();
        let list: String = ask(&control, &["CLIENT", "LIST"]).await;
        !list.contains(&name)
    })
    .await;
    let _: String = control.ping().await.unwrap();
}
