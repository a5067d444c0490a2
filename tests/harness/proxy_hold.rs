//! Held frames: gates, delays, silence.

use std::time::{Duration, Instant};

use futures::StreamExt;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use tests::{Loss, Matcher, Proxy, Which, shared_server, unique, within};
use tokio::time::timeout;

use crate::{DEADLINE, MOMENT};

async fn connect(proxy: &Proxy) -> MultiplexedConnection {
    let client = redis::Client::open(proxy.url()).unwrap();
    let config = redis::AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap()
}

async fn incr(mut connection: MultiplexedConnection, name: String) -> i64 {
    within(DEADLINE, connection.incr(name, 1)).await.unwrap()
}

#[tokio::test]
async fn a_gate_forces_the_order_of_requests() {
    let (server, name) = (shared_server(), unique("gate"));
    let proxy = Proxy::to(&server);
    let (first, second) = (connect(&proxy).await, connect(&proxy).await);
    let [number, _] = proxy.connections(Which::All)[..] else {
        panic!("two connections")
    };
    let gate = proxy.hold_request(Matcher::command("INCRBY").on(Which::Connection(number)));
    let held = tokio::spawn(incr(first, name.clone()));
    within(DEADLINE, gate.reached()).await;
    assert_eq!((gate.held(), incr(second, name.clone()).await), (1, 1));
    gate.open();
    assert_eq!(held.await.unwrap(), 2);
    let _: bool = server.connect().await.unwrap().del(name).await.unwrap();
}

#[tokio::test]
async fn a_held_reply_is_that_of_a_command_carried_out() {
    let (server, name) = (shared_server(), unique("reply"));
    let proxy = Proxy::to(&server);
    let (first, second) = (connect(&proxy).await, connect(&proxy).await);
    let gate = proxy.hold_reply("INCRBY");
    let held = tokio::spawn(incr(first, name.clone()));
    within(DEADLINE, gate.reached()).await;
    let other = tokio::spawn(incr(second, name.clone()));
    within(DEADLINE, gate.reached_by(2)).await;
    let now: i64 = server.connect().await.unwrap().get_del(name).await.unwrap();
    assert_eq!(now, 2);
    assert!(!held.is_finished() && !other.is_finished());
    drop(gate);
    assert_eq!((held.await.unwrap(), other.await.unwrap()), (1, 2));
}

#[tokio::test]
async fn a_held_connection_can_be_cut() {
    let proxy = Proxy::to(&shared_server());
    let connection = connect(&proxy).await;
    let gate = proxy.hold_request("PING");
    let ping = {
        let mut connection = connection.clone();
        tokio::spawn(async move { connection.ping::<String>().await })
    };
    within(DEADLINE, gate.reached()).await;
    assert_eq!(proxy.cut_all(), 1);
    within(DEADLINE, ping).await.unwrap().unwrap_err();
    gate.open();
    assert_eq!(
        connect(&proxy).await.ping::<String>().await.unwrap(),
        "PONG"
    );
}

#[tokio::test]
async fn messages_can_be_held() {
    let (server, channel) = (shared_server(), unique("message"));
    let proxy = Proxy::to(&server);
    let client = redis::Client::open(proxy.url()).unwrap();
    let (mut sink, mut messages) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe(&channel).await.unwrap();
    let gate = proxy.hold_message("message");
    let _: usize = server
        .connect()
        .await
        .unwrap()
        .publish(&channel, 0)
        .await
        .unwrap();
    within(DEADLINE, gate.reached()).await;
    timeout(MOMENT, messages.next()).await.unwrap_err();
    gate.open();
    within(DEADLINE, messages.next()).await.unwrap();
}

#[tokio::test]
async fn matching_requests_are_delayed() {
    let proxy = Proxy::to(&shared_server());
    let mut connection = connect(&proxy).await;
    proxy.delay("PING", MOMENT);
    let start = Instant::now();
    let _: String = connection.ping().await.unwrap();
    let _: String = connection.ping().await.unwrap();
    assert!(start.elapsed() >= 2 * MOMENT);
    proxy.delay("PING", 10 * DEADLINE);
    proxy.clear();
    let _: String = within(DEADLINE, connection.ping()).await.unwrap();
}

#[tokio::test]
async fn silence_holds_all_back_and_delivers_it_in_the_end() {
    let (server, name) = (shared_server(), unique("silence"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    proxy.go_silent();
    let mut old = Box::pin(connection.incr::<_, _, i64>(&name, 1));
    timeout(MOMENT, &mut old).await.unwrap_err();
    // A new connection is accepted and receives nothing.
    let mut raw = tokio::net::TcpStream::connect(proxy.address())
        .await
        .unwrap();
    {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        raw.write_all(b"PING\r\n").await.unwrap();
        timeout(MOMENT, raw.read_u8()).await.unwrap_err();
        let there: bool = server.connect().await.unwrap().exists(&name).await.unwrap();
        assert!(!there);

        proxy.resume();
        assert_eq!(within(DEADLINE, old).await.unwrap(), 1);
        assert_eq!(within(DEADLINE, raw.read_u8()).await.unwrap(), b'+');
    }
    let _: bool = connection.del(name).await.unwrap();
}

#[tokio::test]
async fn commands_of_a_closed_client_run_when_a_silent_server_resumes() {
    let (server, name) = (shared_server(), unique("late"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    proxy.go_silent();
    timeout(MOMENT, connection.incr::<_, _, i64>(&name, 1))
        .await
        .unwrap_err();
    drop(connection);
    proxy.resume();
    within(DEADLINE, proxy.wait_for_answer("INCRBY")).await;
    let count: i64 = server.connect().await.unwrap().get_del(name).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn only_the_subscribers_fall_silent() {
    let (server, channel) = (shared_server(), unique("subscribers"));
    let proxy = Proxy::to(&server);
    let mut connection = connect(&proxy).await;
    let client = redis::Client::open(proxy.url()).unwrap();
    let (mut sink, mut messages) = client.get_async_pubsub().await.unwrap().split();
    sink.subscribe(&channel).await.unwrap();
    proxy.go_silent_on(Which::Subscribers);
    assert_eq!(
        connection
            .publish::<_, _, usize>(&channel, 0)
            .await
            .unwrap(),
        1
    );
    timeout(MOMENT, messages.next()).await.unwrap_err();
    // A new subscriber falls silent with its first SUBSCRIBE.
    let (mut late, _messages) = client.get_async_pubsub().await.unwrap().split();
    timeout(MOMENT, late.subscribe(&channel)).await.unwrap_err();
    proxy.resume();
    within(DEADLINE, messages.next()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_proxy_does_not_depend_on_the_clock_and_runtime_of_the_test() {
    let proxy = Proxy::to(&shared_server());
    let mut connection = std::net::TcpStream::connect(proxy.address()).unwrap();
    connection
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // Blocks the only thread of the test's runtime.
    std::io::Write::write_all(&mut connection, b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    std::io::Read::read_exact(&mut connection, &mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[tokio::test]
#[should_panic(expected = "nothing of this was there")]
async fn a_gate_that_held_nothing_fails_its_test() {
    let proxy = Proxy::to(&shared_server());
    proxy.hold_request("PING").open();
}

#[tokio::test]
#[should_panic(expected = "nothing of this was there")]
async fn a_loss_that_lost_nothing_fails_its_test() {
    let proxy = Proxy::to(&shared_server());
    proxy.lose(Loss::Reply, "PING", 1);
    proxy.clear();
}
