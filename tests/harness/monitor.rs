//! MONITOR.

use redis::AsyncCommands;
use tests::{Monitor, MonitorLine, RedisServer, ask, unique};

#[tokio::test]
async fn commands_of_clients_are_counted_apart_from_those_of_scripts() {
    let server = RedisServer::options()
        .password(unique("secret").replace(':', "-"))
        .start();
    let mut connection = server.connect().await.unwrap();
    let mut monitor = Monitor::start(&server).await;
    for _ in 0..100 {
        let () = connection.set("key", "a \"value\"\r\n\0").await.unwrap();
    }
    let script = "for _ = 1, 3 do redis.call('incr', KEYS[1]) end";
    ask::<()>(&connection, &["EVAL", script, "1", "n"]).await;

    let counts = monitor.counts().await;
    assert_eq!((counts["SET"], counts["EVAL"]), (100, 1));
    assert_eq!(counts.len(), 2, "{counts:?}");
    let lines = monitor.lines().await;
    assert_eq!(lines[0].args, ["SET", "key", "a \"value\"\r\n\0"]);
    assert_eq!(lines.iter().filter(|line| line.is_inner()).count(), 3);

    monitor.mark().await;
    assert!(monitor.counts().await.is_empty());
}

#[test]
fn lines_are_parsed() {
    let parse = |line| MonitorLine::parse(line).unwrap();
    let line = parse(r#"+1.5 [0 127.0.0.1:4711] "SET" "a \"b\"\r\n" "\x00\xff" """#);
    assert_eq!(line.source, "127.0.0.1:4711");
    assert_eq!(line.args, ["SET", "a \"b\"\r\n", "\0\u{fffd}", ""]);
    let inner = parse(r#"+1.5 [0 lua] "get" "k""#);
    assert!(inner.is_inner());
    assert_eq!(inner.command(), "GET");
}
