//! Errors that a server sends to a new connection: a temporary refusal is neither bad input nor a
//! wrong password, and no release is given up because of one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redlock_rt::embedded::Engine;
use redlock_rt::{Client, ClientBuilder, Credentials, ErrorKind, LockOptions};
use tests::{
    DEADLINE, Proxy, RedisServer, ask, client_over, connection_to, eventually, lock_and_unlock,
    shared_server, told, trace_init, unique, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);
const FULL: &str = "-ERR max number of clients reached\r\n";

/// Errors that a server may send while a client connects, and the command that each answers.
const PASSING: [(&str, &str); 7] = [
    ("AUTH", FULL),
    ("SELECT", FULL),
    ("INFO", "-BUSY Redis is busy running a script.\r\n"),
    ("SELECT", "-BUSY Redis is busy running a script.\r\n"),
    (
        "AUTH",
        "-LOADING Redis is loading the dataset in memory\r\n",
    ),
    ("SELECT", "-ERR something that is not known\r\n"),
    (
        "CLIENT",
        "-LOADING Redis is loading the dataset in memory\r\n",
    ),
];
const FINAL: [(&str, &str, ErrorKind); 6] = [
    (
        "AUTH",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ErrorKind::Denied,
    ),
    (
        "AUTH",
        "-ERR AUTH <password> called without any password configured for the default user.\r\n",
        ErrorKind::Denied,
    ),
    (
        "INFO",
        "-NOAUTH Authentication required.\r\n",
        ErrorKind::Denied,
    ),
    (
        "SELECT",
        "-NOPERM this user has no permissions to run the 'select' command\r\n",
        ErrorKind::Denied,
    ),
    (
        "SELECT",
        "-ERR DB index is out of range\r\n",
        ErrorKind::BadInput,
    ),
    (
        "AUTH",
        "-DENIED Redis is running in protected mode.\r\n",
        ErrorKind::Misconfigured,
    ),
];

/// A server with a password, and a proxy that answers new connections as the test says.
struct Stage {
    // Kept alive.
    _server: RedisServer,
    proxy: Proxy,
    url: String,
    redis: MultiplexedConnection,
    name: String,
}

impl Stage {
    async fn open(what: &str) -> Self {
        trace_init();
        let server = RedisServer::options().password("x").start();
        let proxy = Proxy::to(&server);
        let direct = format!("{}/1", server.url());
        let direct = connection_to(&direct);
        Self {
            redis: direct.await.unwrap(),
            url: format!("{}/1", proxy.url()),
            _server: server,
            proxy,
            name: unique(what),
        }
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().url(&self.url).poll_interval(NEVER)
    }

    async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.redis, words).await
    }

    /// From now on no connection succeeds.
    fn refuse(&self, command: &str, answer: &str) {
        self.proxy.answer(command, answer.to_owned(), 100_000);
        self.proxy.mark();
        self.proxy.cut_all();
    }

    /// Waits until there were this many attempts to connect.
    async fn refused(&self, times: usize) {
        let tried = async || self.proxy.counts().get("INFO").is_some_and(|n| *n >= times);
        eventually(DEADLINE, tried).await;
    }
}

fn panics<T>(message: &str) -> T {
    panic!("{message}")
}

#[tokio::test]
async fn a_panic_while_connecting_is_told_and_tried_again_after_pauses() {
    let proxy = Proxy::to(&shared_server());
    let (at, tries) = (proxy.address(), Arc::new(AtomicUsize::new(0)));
    // The first connection is not closed for its silence: there is no other.
    let builder = || Client::builder().response_timeout(DEADLINE);
    let counted = Arc::clone(&tries);
    let connector = builder().connector(move || {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match first {
                true => TcpStream::connect(at).await,
                false => panics("this connector fails"),
            }
        }
    });
    let counted = Arc::clone(&tries);
    let credentials = builder().url(&proxy.url()).credentials(move || {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match first {
                true => Ok::<_, io::Error>(Credentials::new("").user("default")),
                false => panics("no vault"),
            }
        }
    });
    for (builder, says) in [
        (connector, "connecting panicked: this connector fails"),
        (
            credentials,
            "the source of credentials: it panicked: no vault",
        ),
    ] {
        tries.store(0, Ordering::Relaxed);
        let client = builder.build().unwrap();
        let lock = client.rlock(unique("panics"));
        within(DEADLINE, lock_and_unlock(&lock)).await;
        proxy.cut_all();
        // Fails when the client has noticed, which may be late.
        lock.try_lock().await.unwrap_err();
        let wait = LockOptions::new().wait(Duration::from_secs(1));
        let error = within(DEADLINE, lock.lock_with(wait)).await.unwrap_err();
        // Without pauses there are thousands.
        let tries = tries.load(Ordering::Relaxed);
        assert!((2..100).contains(&tries), "{tries}");
        assert!(error.is_unavailable(), "{error:?}");
        assert!(told(&error).contains(says), "{}", told(&error));
    }
}

#[tokio::test]
async fn a_connector_that_panicked_is_asked_again() {
    let tries = AtomicUsize::new(0);
    let server = shared_server();
    let at = server.address();
    let client = Client::builder().connector(move || {
        assert!(tries.fetch_add(1, Ordering::Relaxed) >= 2, "not yet");
        TcpStream::connect(at)
    });
    let client = client.build().unwrap();
    let lock = client.rlock(unique("panicked"));
    within(DEADLINE, lock_and_unlock(&lock)).await;
}

#[test]
fn a_runtime_without_io_is_named_in_the_error() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let client = Client::builder()
        .url(&shared_server().url())
        .response_timeout(Duration::from_secs(1));
    let client = client.build().unwrap();
    let failed = runtime.block_on(client.rlock(unique("no-io")).try_lock());
    let text = told(&failed.unwrap_err());
    assert!(text.contains("IO is disabled"), "{text}");
}

/// Once, the release was given up: permits were lost, a latch stayed closed, a lock was held until
/// the end of its lease.
#[tokio::test]
async fn a_fault_while_connecting_ended_a_background_settlement_for_good() {
    let stage = Stage::open("settled").await;
    let name = |what: &str| format!("{}:{what}", stage.name);
    let (lock, semaphore, latch) = (name("lock"), name("semaphore"), name("latch"));
    let leased = name("leased");
    let all = PASSING.into_iter();
    for (command, answer) in all.chain(FINAL.map(|(command, answer, _)| (command, answer))) {
        let client = stage.builder().build().unwrap();
        let guard = client.rlock(&lock).lock().await.unwrap();
        let permits = client.semaphore(&semaphore).limit(2);
        let permit = permits.acquire_many(2).await.unwrap();
        let leases = client.permit_expirable_semaphore(&leased).limit(1);
        let lease = leases.acquire().await.unwrap();
        let count = client.count_down_latch(&latch);
        assert!(count.try_set_count(1).await.unwrap());
        let down = count.count_down_guard().unwrap();

        stage.refuse(command, answer);
        drop((guard, permit, lease, down));
        stage.refused(4).await;
        assert_eq!(client.stats().releases, 4, "{command} {answer}");
        stage.proxy.clear();
        eventually(DEADLINE, async || client.stats().releases == 0).await;
        assert!(!stage.redis::<bool>(&["EXISTS", &lock]).await, "{answer}");
        assert!(!stage.redis::<bool>(&["EXISTS", &latch]).await, "{answer}");
        let free: [u32; 2] = stage.redis(&["MGET", &semaphore, &leased]).await;
        assert_eq!(free, [2, 1], "{answer}");
    }
}

/// Once, the call ended with BadInput or with Denied.
#[tokio::test]
async fn an_unbounded_wait_ended_where_redis_was_busy_or_full_while_connecting() {
    let stage = Stage::open("waits").await;
    for (command, answer) in PASSING {
        let client = stage.builder().build().unwrap();
        stage.refuse(command, answer);
        let lock = client.rlock(&stage.name);
        let waiter = tokio::spawn(async move { lock.lock().await });
        stage.refused(3).await;
        let short = LockOptions::new().wait(Duration::from_millis(50));
        let other = client.rlock(format!("{}:other", stage.name));
        let error = other.lock_with(short).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!waiter.is_finished(), "{answer}");
        stage.proxy.clear();
        let guard = within(DEADLINE, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_permanent_fault_is_returned_at_once_and_the_release_continues() {
    let stage = Stage::open("told").await;
    for (command, answer, kind) in FINAL {
        let client = stage.builder().response_timeout(NEVER).build().unwrap();
        let guard = client.rlock(&stage.name).lock().await.unwrap();
        stage.refuse(command, answer);
        let error = within(DEADLINE, guard.unlock()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("in the background"), "{error}");
        let other = client.rlock(format!("{}:other", stage.name));
        let error = within(DEADLINE, other.lock()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        stage.proxy.clear();
        eventually(DEADLINE, async || client.stats().releases == 0).await;
        assert!(!stage.redis::<bool>(&["EXISTS", &stage.name]).await);
    }
}

/// The server sends the error in reply to the first command, the password, and closes the connection.
/// The client may or may not read the text.
#[tokio::test]
async fn a_server_that_is_full_is_waited_for_and_not_said_to_refuse_the_password() {
    trace_init();
    let options = RedisServer::options().password("x").unix_socket();
    let server = options.start();
    let mut control = server.connect().await.unwrap();
    let unix = format!("{}&db=1", server.unix_url());
    let tcp = format!("{}/1", server.url());
    for url in [unix, tcp] {
        let client = Client::builder().url(&url).build().unwrap();
        let set = |count: u32| {
            let mut set = redis::cmd("CONFIG");
            set.arg(&["SET", "maxclients"]).arg(count);
            set
        };
        let _: () = set(1).query_async(&mut control).await.unwrap();
        let name = unique("full");
        // Many times, since it depends on timing whether the client reads the text.
        for _ in 0..20 {
            let short = LockOptions::new().wait(Duration::from_millis(30));
            let error = client.rlock(&name).lock_with(short).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        let _: () = set(1000).query_async(&mut control).await.unwrap();
        let guard = within(DEADLINE, client.rlock(&name).lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
}

/// As above, with a server that closes in both ways.
#[tokio::test]
async fn a_full_server_may_reset_the_connection_before_or_after_its_answer_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        for number in 0_u32.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(FULL.as_bytes()).await.unwrap();
            match number % 3 {
                // The request is not read, so the close is a reset.
                0 => {}
                // A reset that may overtake the answer.
                1 => stream.set_zero_linger().unwrap(),
                // The answer is read, then comes the end.
                _ => {
                    stream.shutdown().await.unwrap();
                    let _ = stream.read(&mut [0; 1024]).await;
                }
            }
        }
    });
    let client = Client::builder().url(&format!("redis://:x@127.0.0.1:{port}/1"));
    let client = client.build().unwrap();
    for _ in 0..30 {
        let short = LockOptions::new().wait(Duration::from_millis(30));
        let error = client.rlock("full").lock_with(short).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    server.abort();
}

/// Name resolution waited for the threads that waited for it: for ever, without a limit on the wait.
#[test]
fn waiters_on_all_threads_for_blocking_work_kept_a_host_name_from_being_resolved() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = RedisServer::start();
    let url = server.url().replace("127.0.0.1", "localhost");
    let client = Client::builder().url(&url).build().unwrap();
    let handle = runtime.handle().clone();
    let job = runtime.spawn_blocking(move || {
        handle.block_on(async {
            let lock = client.rlock(unique("resolved"));
            for _ in 0..2 {
                let options = LockOptions::new().wait(DEADLINE / 4);
                let guard = lock.lock_with(options).await?;
                // The next one connects again.
                let redis = server.connect().await.unwrap();
                let _: i64 = ask(&redis, &["CLIENT", "KILL", "SKIPME", "yes"]).await;
                guard.unlock().await?;
            }
            Ok::<_, redlock_rt::Error>(())
        })
    });
    let locked = runtime.block_on(within(DEADLINE, job)).unwrap();
    assert!(locked.is_ok(), "{locked:?}");
}

/// A client of a server that answers one call on each connection, and hangs up at the next one.
fn hung_up_on(dials: &Arc<AtomicUsize>) -> Client {
    let (engine, dials) = (Engine::new(), Arc::clone(dials));
    let client = client_over(move |mut theirs| {
        dials.fetch_add(1, Ordering::SeqCst);
        let mut session = engine.connect();
        async move {
            let (mut sent, mut said) = ([0; 4096], [0; 4096]);
            let mut is_next = false;
            loop {
                let len = tokio::select! {
                    len = theirs.read(&mut sent) => len.unwrap(),
                    len = session.read(&mut said) => {
                        theirs.write_all(&said[..len.unwrap()]).await.unwrap();
                        continue;
                    }
                };
                let is_call = String::from_utf8_lossy(&sent[..len]).contains("lock:");
                if len == 0 || is_call && is_next {
                    return;
                }
                is_next |= is_call;
                session.write_all(&sent[..len]).await.unwrap();
            }
        }
    });
    client.build().unwrap()
}

/// Each call was another connection without a pause.
#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_up_after_each_answer_is_dialled_after_short_pauses() {
    let dials = Arc::default();
    let client = hung_up_on(&dials);
    let lock = client.rlock("lock:a");
    let began = tokio::time::Instant::now();
    for _ in 0..50 {
        lock_and_unlock(&lock).await;
    }
    let (took, dials) = (began.elapsed(), dials.load(Ordering::SeqCst));
    // Twice the first interval or four times, less at random.
    assert!(dials > 90, "{dials}");
    assert!((4..12).contains(&took.as_secs()), "{took:?} for {dials}");
}

/// A waiter of another client makes the release subscribe, and the subscription was to linger.
#[tokio::test]
async fn a_client_that_wanted_nothing_dialled_for_ever() {
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let (ours, other) = (&proxy.url(), &server.url());
    let build = |url| Client::builder().url(url).build().unwrap();
    let (ours, other) = (build(ours), build(other));
    let guard = ours.rlock("dialled").lock().await.unwrap();
    let lock = other.rlock("dialled");
    let waits = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
    let redis = server.connect().await.unwrap();
    eventually(DEADLINE, async || {
        let channels: Vec<String> = ask(&redis, &["PUBSUB", "CHANNELS", "*dialled*"]).await;
        channels.len() == 1
    })
    .await;
    // The commands go on over the connection that is there.
    proxy.refuse();
    guard.unlock().await.unwrap();
    assert_eq!(ours.stats().subscriptions, 1);
    eventually(DEADLINE, async || ours.stats().subscriptions == 0).await;
    within(DEADLINE, waits).await.unwrap().unwrap();
}
