//! Cut connections, lost requests, replies and messages.

use std::io::ErrorKind;

use futures::StreamExt;
use redis::{AsyncCommands, RedisResult, aio::MultiplexedConnection};
use tests::{Matcher, Proxy, Which, eventually, shared_server, unique, within};

use crate::{DEADLINE, MOMENT};

async fn connect(proxy: &Proxy) -> MultiplexedConnection {
    let client = redis::Client::open(proxy.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap()
}

async fn incr(connection: &mut MultiplexedConnection, name: &str) -> RedisResult<i64> {
    within(DEADLINE, connection.incr(name, 1)).await
}

#[tokio::test]
async fn cut_all_cuts_and_accepts_new_ones() {
    let proxy = Proxy::to(&shared_server());
    let mut connections = [connect(&proxy).await, connect(&proxy).await];
    assert_eq!(proxy.cut_all(), 2);
    assert!(proxy.connections(Which::All).is_empty());
    for connection in &mut connections {
        within(DEADLINE, connection.ping::<String>())
            .await
            .unwrap_err();
    }
    assert_eq!(
        connect(&proxy).await.ping::<String>().await.unwrap(),
        "PONG"
    );
}

#[tokio::test]
async fn kinds_of_connections_are_cut_apart() {
    let proxy = Proxy::to(&shared_server());
    let mut plain = connect(&proxy).await;
    let mut scripts = connect(&proxy).await;
    let eval = redis::cmd("EVAL").arg(&["return 1", "0"]).to_owned();
    eval.exec_async(&mut scripts).await.unwrap();
    let client = redis::Client::open(proxy.url()).unwrap();
    let mut subscriber = client.get_async_pubsub().await.unwrap();
    subscriber.subscribe(unique("cut")).await.unwrap();

    assert_eq!(proxy.cut(Which::Subscribers), 1);
    let end = within(DEADLINE, subscriber.on_message().next()).await;
    assert!(end.is_none());
    eval.exec_async(&mut scripts).await.unwrap();

    assert_eq!(proxy.cut(Which::Scripts), 1);
    eval.exec_async(&mut scripts).await.unwrap_err();
    assert_eq!(plain.ping::<String>().await.unwrap(), "PONG");

    let [rest] = proxy.connections(Which::All)[..] else {
        panic!("one connection is left")
    };
    assert_eq!(proxy.cut(Which::Connection(rest)), 1);
    plain.ping::<String>().await.unwrap_err();
}

#[tokio::test]
async fn a_request_lost_with_its_connection_was_not_carried_out() {
    let (server, name) = (shared_server(), unique("before"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    proxy.cut_before_request(Matcher::command("INCRBY").mentioning(&name));
    assert!(
        incr(&mut connection, &name)
            .await
            .unwrap_err()
            .is_io_error()
    );
    assert_eq!(
        incr(&mut connect(&proxy).await, &name).await.unwrap(),
        1,
        "once only"
    );
    let _: bool = server.connect().await.unwrap().del(name).await.unwrap();
}

#[tokio::test]
async fn a_reply_lost_with_its_connection_was_carried_out() {
    let (server, name) = (shared_server(), unique("after"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    proxy.cut_after_request(Matcher::command("INCRBY").mentioning(&name));
    assert!(
        incr(&mut connection, &name)
            .await
            .unwrap_err()
            .is_io_error()
    );
    assert_eq!(incr(&mut connect(&proxy).await, &name).await.unwrap(), 2);
    let _: bool = server.connect().await.unwrap().del(name).await.unwrap();
}

#[tokio::test]
async fn swallowed_frames_leave_the_connection_open() {
    let (server, name) = (shared_server(), unique("swallow"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    proxy.swallow_request("INCRBY", 1);
    proxy.swallow_reply("INCRBY", 2);
    for _ in 0..3 {
        // The redis crate assigns replies by their order, so each loss needs a connection.
        let answer = connection.incr::<_, _, i64>(&name, 1);
        tokio::time::timeout(MOMENT, answer).await.unwrap_err();
        assert_eq!(
            proxy.connections(Which::All).len(),
            1,
            "not closed by the proxy"
        );
        drop(connection);
        eventually(DEADLINE, async || proxy.connections(Which::All).is_empty()).await;
        connection = connect(&proxy).await;
    }
    assert_eq!(
        incr(&mut connection, &name).await.unwrap(),
        3,
        "one request was lost"
    );
    let _: bool = connection.del(name).await.unwrap();
}

#[tokio::test]
async fn the_proxy_answers_in_place_of_the_server_in_turn() {
    let name = unique("answer");
    let proxy = Proxy::to(&shared_server());
    let mut connection = connect(&proxy).await;
    proxy.answer(
        "INCRBY",
        "-READONLY You can't write against a read only replica.\r\n",
        2,
    );
    let (first, second) = (incr(&mut connection.clone(), &name).await, {
        // Between others in a pipeline, so that its position matters.
        let mut pipe = redis::pipe();
        pipe.ping().incr(&name, 1).ping();
        pipe.query_async::<(String, i64, String)>(&mut connection)
            .await
    });
    assert_eq!(first.unwrap_err().code(), Some("READONLY"));
    assert_eq!(second.unwrap_err().code(), Some("READONLY"));
    assert_eq!(incr(&mut connection, &name).await.unwrap(), 1);
    let _: bool = connection.del(name).await.unwrap();
}

#[tokio::test]
async fn messages_can_be_lost() {
    let (server, channel) = (shared_server(), unique("message"));
    let proxy = Proxy::to(&server);
    let client = redis::Client::open(proxy.url()).unwrap();
    let (mut sink, mut messages) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe(&channel).await.unwrap();
    proxy.swallow_message(Matcher::command("message").mentioning(&channel), 2);
    let mut publisher = server.connect().await.unwrap();
    for number in 1..=3 {
        let _: usize = publisher.publish(&channel, number).await.unwrap();
    }
    let message = within(DEADLINE, messages.next()).await.unwrap();
    assert_eq!(message.get_payload::<i64>().unwrap(), 3);
}

#[tokio::test]
async fn new_connections_are_refused() {
    let proxy = Proxy::to(&shared_server());
    let mut open = connect(&proxy).await;
    proxy.refuse();
    let refused = tokio::net::TcpStream::connect(proxy.address())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(
        open.ping::<String>().await.unwrap(),
        "PONG",
        "those that are open stay"
    );
    proxy.accept();
    proxy.accept();
    assert_eq!(
        connect(&proxy).await.ping::<String>().await.unwrap(),
        "PONG"
    );
}
