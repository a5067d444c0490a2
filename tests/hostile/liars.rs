//! Sentinels and nodes of a cluster that lie.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::Value;
use redlock_rt::{Client, ErrorKind, LockOptions};
use tests::{DEADLINE, RedisServer, SERVICE, eventually, told, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is said to a command.
enum Says {
    This(String),
    AndHangsUp(&'static str),
    /// This, again and again.
    Endless(&'static str, &'static str),
}

/// Says to each command what a test tells it to say.
struct Liar {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// The bytes that were taken of what has no end.
    taken: Arc<AtomicUsize>,
}

type Answer = dyn Fn(SocketAddr, &[&str]) -> Says + Send + Sync;

impl Liar {
    async fn start(answer: impl Fn(SocketAddr, &[&str]) -> Says + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let liar = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            taken: Arc::default(),
        };
        let answer: Arc<Answer> = Arc::new(answer);
        let (connections, taken) = (Arc::clone(&liar.connections), Arc::clone(&liar.taken));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&taken)));
            }
        });
        liar
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, answer: Arc<Answer>, taken: Arc<AtomicUsize>) {
    let at = stream.local_addr().unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut decoder = Default::default();
    while let Ok(Value::Array(words)) =
        redis::parse_redis_value_async(&mut decoder, &mut reader).await
    {
        let words: Vec<String> = words
            .iter()
            .map(|word| match word {
                // Also of a RESTORE.
                Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let sent = match answer(at, &words) {
            Says::This(reply) => writer.write_all(reply.as_bytes()).await,
            Says::AndHangsUp(reply) => return drop(writer.write_all(reply.as_bytes()).await),
            Says::Endless(begin, again) => {
                let again = again.repeat(1000);
                let mut sent = writer.write_all(begin.as_bytes()).await;
                while sent.is_ok() {
                    sent = writer.write_all(again.as_bytes()).await;
                    taken.fetch_add(again.len(), Ordering::SeqCst);
                }
                sent
            }
        };
        if sent.is_err() {
            return;
        }
    }
    // What is not read would make the other side's end of the stream an error.
    let _ = reader.read(&mut [0; 1024]).await;
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn list(texts: &[&str]) -> String {
    let texts: String = texts.iter().map(|text| bulk(text)).collect();
    let count = texts.matches("\r\n").count() / 2;
    format!("*{count}\r\n{texts}")
}

/// What a sentinel says that names this master.
fn sentinel(words: &[&str], host: &str, port: u16) -> Says {
    Says::This(match words {
        ["SUBSCRIBE", channel] => format!("*3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(channel)),
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE] => list(&[host, &port.to_string()]),
        ["SENTINEL", "MASTER", SERVICE] => list(&["config-epoch", "1"]),
        _ => "-ERR unknown command\r\n".to_owned(),
    })
}

/// The client took 306 MiB, and half a core.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_sends_without_end_was_read_without_end() {
    let server = RedisServer::start();
    let master = server.address();
    for (begin, again) in [
        ("*2000000000\r\n", "$-1\r\n"),
        ("", "*1\r\n"),
        ("", "+OK\r\n"),
        ("", "*2\r\n+message\r\n+other\r\n"),
        ("*1\r\n+", "ever and "),
    ] {
        let liar = Liar::start(move |_, words| match words {
            ["SUBSCRIBE", _] => Says::Endless(begin, again),
            _ => sentinel(words, &master.ip().to_string(), master.port()),
        });
        let liar = liar.await;
        let url = format!("redis+sentinel://{}/{SERVICE}", liar.address);
        let client = Client::connect(&url).await.unwrap();
        drop(client.rlock("liar").lock().await.unwrap());
        eventually(DEADLINE, async || liar.taken() > 0).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Some of it is in the buffers of the sockets, of each of a few connections.
        let (taken, connections) = (liar.taken(), liar.connections());
        assert!(taken < 64 * 1024 * 1024, "{again:?}: {taken} bytes");
        assert!(connections < 60, "{again:?}: {connections} connections");
    }
}

#[tokio::test]
async fn a_host_that_a_sentinel_names_is_one() {
    for host in [&"x".repeat(256), "a\u{1b}[2Jb", "a b", ""] {
        let named = host.to_owned();
        let liar = Liar::start(move |_, words| sentinel(words, &named, 1)).await;
        let url = format!("redis+sentinel://{}/{SERVICE}", liar.address);
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = told(&error);
        assert!(text.contains("no host") && text.len() < 500, "{text}");
    }
}

/// The reply to CLUSTER SLOTS of a node that has all slots.
fn all_slots(at: SocketAddr) -> String {
    let node = format!("*2\r\n{}:{}\r\n", bulk(&at.ip().to_string()), at.port());
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n{node}")
}

/// A node of a cluster, which says this to the commands of locks.
async fn node(calls: impl Fn(SocketAddr) -> Says + Send + Sync + 'static) -> Liar {
    Liar::start(move |at, words| match words {
        ["CLUSTER", "SLOTS"] => Says::This(all_slots(at)),
        ["CLUSTER", "INFO"] => Says::This(bulk("cluster_current_epoch:1\r\n")),
        ["CLIENT", "ID"] => Says::This(":1\r\n".to_owned()),
        ["CLIENT", ..] => Says::This("+OK\r\n".to_owned()),
        ["INFO", ..] => Says::This(bulk("redis_mode:cluster\r\nrole:master\r\n")),
        ["PUBSUB", ..] => Says::This("*0\r\n".to_owned()),
        _ => calls(at),
    })
    .await
}

/// The client kept them all: 575 MiB after 25 seconds.
#[tokio::test]
async fn a_cluster_that_names_long_hosts_without_end_is_refused_with_the_name() {
    let number = AtomicUsize::new(0);
    let liar = node(move |_| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let host = "x".repeat(60_000);
        Says::This(format!("-MOVED 1 {host}{number}:1\r\n"))
    });
    let liar = liar.await;
    let client = Client::connect(&format!("redis+cluster://{}", liar.address)).await;
    let client = client.unwrap();
    let wait = LockOptions::new().wait(Duration::from_millis(300));
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = told(&error);
    let says = text.contains("what is no host") && text.contains("\"xxx");
    assert!(says && text.len() < 1000, "{text}");
}

#[tokio::test]
async fn redirections_in_a_circle_end_with_an_error_that_names_them() {
    let liar = node(|at| Says::This(format!("-MOVED 1 localhost:{}\r\n", at.port()))).await;
    let client = Client::connect(&format!("redis+cluster://{}", liar.address)).await;
    let client = client.unwrap();
    let wait = LockOptions::new().wait(Duration::from_millis(300));
    let error = client.rlock("a").lock_with(wait).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let (text, port) = (told(&error), liar.address.port());
    let says = format!("it was sent to \"localhost\", port {port}");
    assert!(text.contains(&says), "{text}");
}

/// It was dialled 50 times a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_node_that_hangs_up_is_dialled_a_few_times_a_second() {
    for says in [None, Some(""), Some("-ERR no\r\n")] {
        let hangs_up = match says {
            None => Liar::start(|_, _| Says::AndHangsUp("")).await,
            Some(says) => node(move |_| Says::AndHangsUp(says)).await,
        };
        let to = hangs_up.address;
        let liar = Liar::start(move |_, words| match words {
            ["CLUSTER", "SLOTS"] => Says::This(all_slots(to)),
            ["CLUSTER", "INFO"] => Says::This(bulk("cluster_current_epoch:1\r\n")),
            _ => Says::AndHangsUp(""),
        });
        let url = format!("redis+cluster://{}", liar.await.address);
        let client = Client::builder().url(&url).build().unwrap();
        let wait = LockOptions::new().wait(Duration::from_secs(3));
        let calls = (0..10).map(|number| {
            let (lock, wait) = (client.rlock(number.to_string()), wait.clone());
            async move { within(DEADLINE, lock.lock_with(wait)).await.is_err() }
        });
        let failed = futures::future::join_all(calls).await;
        assert!(failed.iter().all(|failed| *failed));
        // Several connections lead there, and one more asks whether it speaks TLS.
        let dialled = hangs_up.connections();
        assert!(dialled < 110, "{says:?}: {dialled} in 3 s");
    }
}
