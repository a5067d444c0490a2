//! The log: each line that docs/observability.md promises, and its frequency.

use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use redlock_rt::{Client, ErrorKind, LockOptions, LostReason, ReplicaAck};
use tests::{
    Cluster, DEADLINE, ENDS, Proxy, RedisServer, Replicated, ask, eventually, lock_and_unlock,
    shared_server, unique, within,
};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

const SOON: Duration = Duration::from_millis(300);
/// A failover may take several votes on a busy machine.
const FAILOVER: Duration = Duration::from_secs(60);
/// A poll interval longer than any test.
const NEVER: Duration = Duration::from_secs(600);
const PAGE: &str = include_str!("../docs/observability.md");

const LOST: &str = "connection to redis lost";
const BACK: &str = "connection to redis is back";
const CANNOT: &str = "cannot connect to redis";
const AT_LAST: &str = "connected to redis at last";
const LOCK_LOST: &str = "lock lost";
const MORE: &str = "more locks lost";
const RIGHT: &str = "redis refuses a right";
const MISSING: &str = "a connection is missing";
const SERVED: &str = "another node serves the slots";
const FEW: &str = "replicas are missing";
const WAITS: &str = "releases wait until redis lets this client in";

/// The log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("redlock_rt=debug"))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The full lines with this message.
    fn lines(&self, message: &str) -> Vec<String> {
        let text = self.text();
        let of = |line: &&str| line.contains(&format!(": {message} "));
        text.lines().filter(of).map(str::to_owned).collect()
    }
}

#[track_caller]
fn one(lines: Vec<String>) -> String {
    let [line] = &lines[..] else {
        panic!("one line, not {lines:#?}");
    };
    line.clone()
}

#[track_caller]
fn assert_says(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[track_caller]
fn assert_says_why(line: &str) {
    let said = line.split_once("reason=\"");
    let why = said.is_some_and(|(_, why)| why.starts_with(char::is_alphabetic));
    assert!(why, "no reason in {line:?}");
}

/// Once, an outage was logged at debug every few milliseconds, and its end was not logged.
#[tokio::test]
async fn an_outage_is_one_warning_and_its_end_one_line() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let name = unique("outage");
    let options = LockOptions::new().renew(Duration::from_millis(50));
    let guard = client.rlock(&name).lock_with(options).await.unwrap();
    let other = client.rlock(&name);
    let waiter = tokio::spawn(async move { other.lock().await });
    eventually(DEADLINE, async || client.stats().subscriptions == 1).await;
    assert_eq!(log.lines(LOST).len(), 0);
    let down = tokio::time::Instant::now();
    server.kill();
    eventually(DEADLINE, async || !log.lines(LOST).is_empty()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let place = format!("server=\"127.0.0.1:{}\"", server.port());
    let line = one(log.lines(LOST));
    assert_says(
        &line,
        &["WARN redlock_rt::connection:", &place, "down_for_ms="],
    );
    assert_says_why(&line);
    assert_eq!(log.lines(BACK).len(), 0);
    server.restart();
    eventually(DEADLINE, async || !log.lines(BACK).is_empty()).await;
    let line = log.lines(BACK).remove(0);
    assert_says(
        &line,
        &["INFO redlock_rt::connection:", &place, "down_for_ms="],
    );
    let down_for = number(&line, "down_for_ms");
    assert!((2000..20_000).contains(&down_for), "{line}");
    for debug in ["Fault {", "Dialer {"] {
        assert!(!log.text().contains(debug), "{}", log.text());
    }
    let most = usize::try_from(down.elapsed().as_secs()).unwrap() + 2;
    for message in ["could not connect", "a call failed and is made again"] {
        let lines = log.lines(message).len();
        assert!(lines <= most, "{lines} of {message:?}, at most {most}");
    }
    waiter.abort();
    drop(guard);
}

/// It was an outage in the log, though every call was answered.
#[tokio::test]
async fn a_connection_that_cannot_be_made_beside_others_is_one_warning() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let builder = Client::builder().url(&server.url());
    let builder = builder.poll_interval(Duration::from_millis(100));
    let client = builder.connect().await.unwrap();
    let name = unique("missing");
    let guard = client.rlock(&name).lock().await.unwrap();
    ask::<()>(&redis, &["CONFIG", "SET", "maxclients", "1"]).await;
    let other = client.rlock(&name);
    let waiter = tokio::spawn(async move { other.lock().await.map(drop) });
    eventually(DEADLINE, async || !log.lines(MISSING).is_empty()).await;
    // Dials go on.
    eventually(DEADLINE, async || {
        let told: String = ask(&redis, &["INFO"]).await;
        let times = told.split_once("rejected_connections:");
        let times = times.and_then(|(_, rest)| rest.lines().next()?.parse().ok());
        times.is_some_and(|times: u32| times > 5)
    })
    .await;
    let line = one(log.lines(MISSING));
    let place = format!("server=\"127.0.0.1:{}\"", server.port());
    let effect = "effect=\"those who wait find out by polling\"";
    assert_says(&line, &["WARN redlock_rt::connection:", &place, effect]);
    assert_says_why(&line);
    assert_eq!(log.lines(LOST), [""; 0]);
    guard.unlock().await.unwrap();
    within(DEADLINE, waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_log_said_nothing_of_the_server_that_a_client_connects_to() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    lock_and_unlock(&client.rlock(unique("first"))).await;
    server.kill();
    eventually(DEADLINE, async || !log.lines(LOST).is_empty()).await;
    server.restart();
    lock_and_unlock(&client.rlock(unique("again"))).await;
    let line = one(log.lines("first connection to redis"));
    let place = format!("server=\"127.0.0.1:{}\"", server.port());
    let topology = "role=\"master\" topology=\"one server\"";
    assert_says(&line, &["INFO", &place, "version=\"", topology]);
}

#[tokio::test]
async fn a_list_of_clients_did_not_say_whose_connections_they_are() {
    let server = RedisServer::start();
    let redis = server.connect().await.unwrap();
    let names = async |named: Option<&str>| {
        let mut builder = Client::builder().url(&server.url());
        if let Some(name) = named {
            builder = builder.client_name(name);
        }
        let client = builder.connect().await.unwrap();
        let guard = client.rlock(unique("named")).lock().await.unwrap();
        let list: String = ask(&redis, &["CLIENT", "LIST"]).await;
        let (id, _) = guard.hold_id().as_str().rsplit_once(':').unwrap();
        let name = named.map_or_else(|| format!("redlock-rt:{id}"), str::to_owned);
        assert!(list.contains(&format!(" name={name} ")), "{list}");
    };
    names(None).await;
    names(Some("orders-7")).await;
    // Without the right, the client works on.
    let mut acl = redis::cmd("ACL");
    acl.arg(&["SETUSER", "default", "-client|setname"]);
    acl.exec_async(&mut server.connect().await.unwrap())
        .await
        .unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    lock_and_unlock(&client.rlock(unique("unnamed"))).await;
    for name in ["orders 7", "a\nb", "ä"] {
        let error = Client::builder().url(&server.url()).client_name(name);
        let error = error.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadInput, "{error}");
    }
}

/// An unused client makes no attempt to connect.
#[tokio::test]
async fn an_idle_client_tells_that_its_connection_is_lost() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let _client = Client::connect(&server.url()).await.unwrap();
    server.kill();
    eventually(DEADLINE, async || !log.lines(LOST).is_empty()).await;
    assert_says_why(&one(log.lines(LOST)));
    assert_eq!(log.lines("could not connect"), [""; 0]);
}

/// Once, the connection was "lost", and "back" later.
#[tokio::test]
async fn a_server_that_was_never_there_is_one_warning() {
    let (log, _guard) = Log::start();
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    let client = Client::builder().url(&url).build().unwrap();
    assert!(
        client
            .rlock("x")
            .is_locked()
            .await
            .unwrap_err()
            .is_unavailable()
    );
    assert!(client.rlock("x").is_locked().await.is_err());
    let line = one(log.lines(CANNOT));
    assert_says(&line, &["WARN", "refused", "down_for_ms="]);
    server.restart();
    assert!(!client.rlock("x").is_locked().await.unwrap());
    let line = one(log.lines(AT_LAST));
    assert_says(&line, &["INFO", "down_for_ms="]);
    assert_eq!([log.lines(LOST), log.lines(BACK)].concat(), [""; 0]);
    // Now it is known.
    server.kill();
    eventually(DEADLINE, async || !log.lines(LOST).is_empty()).await;
    assert_eq!(log.lines(CANNOT).len(), 1);
}

/// A connection that the client itself closes is not logged.
#[tokio::test]
async fn the_end_of_a_client_is_no_outage() {
    let (log, _guard) = Log::start();
    for shut_down in [false, true] {
        let client = Client::connect(&shared_server().url()).await.unwrap();
        let lock = client.rlock(unique("end"));
        lock_and_unlock(&lock).await;
        if shut_down {
            client
                .shutdown(redlock_rt::Shutdown::ReleaseAll)
                .await
                .unwrap();
        }
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(log.lines(LOST), [""; 0]);
}

/// Once, the loss of a deleted lock was logged, and the loss by an expired lease was not.
#[tokio::test(start_paused = true)]
async fn every_lost_lock_is_told_with_its_reason() {
    let lease = Duration::from_millis(300);
    for how in ["expired", "dropped", "max_hold", "deleted"] {
        let (log, _guard) = Log::start();
        let client = Client::embedded();
        let lock = client.rlock(how);
        let options = match how {
            "max_hold" => LockOptions::new()
                .lease(lease)
                .renew(true)
                .max_hold(2 * lease),
            "deleted" => LockOptions::new().renew(lease),
            _ => LockOptions::new().lease(lease).renew(false),
        };
        let guard = lock.lock_with(options).await.unwrap();
        let reason = match how {
            "dropped" => {
                // Nobody asks for the state, and the task has had no time to check it.
                tokio::time::advance(2 * lease).await;
                drop(guard);
                LostReason::Expired
            }
            "deleted" => {
                lock.force_unlock().await.unwrap();
                guard.lost().await
            }
            _ => guard.lost().await,
        };
        tokio::time::sleep(10 * lease).await;
        let line = one(log.lines(LOCK_LOST));
        let (name, why) = (format!("lock=\"{how}\""), format!("reason={reason}"));
        assert_says(&line, &["WARN redlock_rt::lock:", &name, &why]);
    }
}

/// A thousand simultaneous losses are two lines.
#[tokio::test(start_paused = true)]
async fn many_lost_locks_are_a_line_a_second() {
    let (log, _guard) = Log::start();
    let client = Client::embedded();
    let options = LockOptions::new()
        .lease(Duration::from_millis(300))
        .renew(false);
    let mut guards = Vec::new();
    for number in 0..40 {
        let lock = client.rlock(format!("many:{number}"));
        guards.push(lock.lock_with(options.clone()).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    one(log.lines(LOCK_LOST));
    assert_says(
        &one(log.lines(MORE)),
        &["WARN redlock_rt::lock:", "count=39", "many:"],
    );
}

/// The client ends within the second in which losses are counted.
#[tokio::test(start_paused = true)]
async fn locks_lost_just_before_the_end_of_the_client_are_told() {
    let (log, _guard) = Log::start();
    let client = Client::embedded();
    let mut guards = Vec::new();
    for number in 0..3 {
        let lock = client.rlock(format!("last:{number}"));
        guards.push(lock.lock().await.unwrap());
    }
    for guard in &guards {
        let name = guard.name();
        assert!(client.rlock(name).force_unlock().await.unwrap());
        let error = guard.extend(Duration::from_secs(1)).await.unwrap_err();
        assert!(error.is_lost(), "{error}");
    }
    one(log.lines(LOCK_LOST));
    assert_eq!(log.lines(MORE), [""; 0]);
    let end = redlock_rt::Shutdown::ReleaseAll;
    client.shutdown(end).await.unwrap();
    assert_says(&one(log.lines(MORE)), &["count=2", "last:1", "last:2"]);
}

/// A client of a user without these rights.
async fn without(server: &RedisServer, url: &str, rights: &[&str]) -> Client {
    let mut redis = server.connect().await.unwrap();
    let user = unique("user").replace(':', "-");
    let mut acl = redis::cmd("ACL");
    acl.arg(&["SETUSER", &user, "on", ">pw", "~*", "&*", "+@all"])
        .arg(rights);
    let _: () = acl.query_async(&mut redis).await.unwrap();
    let url = url.replace("redis://", &format!("redis://{user}:pw@"));
    let builder = Client::builder().url(&url).poll_interval(NEVER);
    // Every end is announced, also to the tasks of this client.
    let builder = builder.waiter_timeout(NEVER).hand_over(None);
    builder.connect().await.unwrap()
}

/// Once, nothing explained why a hand-over took more than a second.
#[tokio::test]
async fn a_right_that_is_missing_is_told_once() {
    for (right, rule) in [
        ("PUBLISH", "-publish"),
        ("SUBSCRIBE", "-subscribe"),
        ("CLIENT KILL", "-client|kill"),
        ("CLIENT ID", "-client|id"),
        ("INFO", "-info"),
    ] {
        let (log, _guard) = Log::start();
        let server = shared_server();
        let proxy = Proxy::to(&server);
        let client = without(&server, &proxy.url(), &[rule]).await;
        let lock = client.rlock(unique("right"));
        for _ in 0..2 {
            let guard = lock.lock().await.unwrap();
            if right == "SUBSCRIBE" {
                let waiter = lock.clone();
                let options = LockOptions::new().wait(Duration::from_millis(200));
                assert!(waiter.lock_with(options).await.is_err());
            }
            guard.unlock().await.unwrap();
            proxy.cut_all();
        }
        eventually(DEADLINE, async || !log.lines(RIGHT).is_empty()).await;
        let line = one(log.lines(RIGHT));
        let told = format!("right=\"{right}\"");
        assert_says(
            &line,
            &["WARN redlock_rt::rights:", &told, "effect=", "server="],
        );
    }
}

/// Once, a permit stayed taken until the password was corrected, and nothing was logged.
#[tokio::test]
async fn releases_that_wait_behind_a_wrong_password_are_one_warning() {
    let (log, _guard) = Log::start();
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let name = unique("waits");
    let guards = [
        client.rlock(&name).lock().await.unwrap(),
        client.rlock(unique("waits")).lock().await.unwrap(),
    ];
    let wrong = "-NOAUTH Authentication required.\r\n";
    proxy.answer("INFO", wrong, usize::MAX);
    proxy.cut_all();
    proxy.mark();
    drop(guards);
    proxy.wait_for_count("INFO", 12).await;
    let line = one(log.lines(WAITS));
    let place = format!("server=\"{}\"", proxy.address());
    let says = ["WARN redlock_rt::connection:", &place, "lock=", "NOAUTH"];
    assert_says(&line, &says);
    proxy.clear();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert!(!client.rlock(&name).is_locked().await.unwrap());
}

/// Once, the log left out the cause.
#[tokio::test]
async fn a_release_that_goes_on_in_the_background_says_why() {
    let (log, _guard) = Log::start();
    let proxy = Proxy::to(&shared_server());
    let client = Client::connect(&proxy.url()).await.unwrap();
    let lock = client.rlock(unique("why"));
    let several = client.multi_lock([unique("why"), unique("why")]);
    let leave = || {
        let wrong = "-NOAUTH Authentication required.\r\n";
        proxy.answer("INFO", wrong, usize::MAX);
        proxy.cut_all();
    };
    lock.with(async |_| leave()).await.unwrap();
    proxy.clear();
    several.with(async |_| leave()).await.unwrap();
    for message in [
        "the release goes on in the background",
        "the releases go on in the background",
    ] {
        assert_says(&one(log.lines(message)), &["WARN", "sources=", "NOAUTH"]);
    }
    proxy.clear();
    eventually(DEADLINE, async || client.stats().releases == 0).await;
}

/// Once, nothing was logged when only heartbeats handed fair locks over.
#[tokio::test]
async fn a_client_whose_own_channel_is_forbidden_is_told_once() {
    let (log, _guard) = Log::start();
    let server = shared_server();
    let rights = ["resetchannels", "&redisson_*"];
    let client = without(&server, &server.url(), &rights).await;
    let lock = client.fair_lock(unique("channel"));
    for _ in 0..2 {
        let guard = lock.lock().await.unwrap();
        let waiter = lock.clone();
        let waiter = tokio::spawn(async move { waiter.lock().await.unwrap().unlock().await });
        eventually(DEADLINE, async || lock.queue_len().await.unwrap() == 1).await;
        guard.unlock().await.unwrap();
        within(DEADLINE, waiter).await.unwrap().unwrap();
    }
    let lines = log.lines(RIGHT);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for right in ["PUBLISH", "SUBSCRIBE"] {
        let told = format!("right=\"{right}\"");
        let lines = lines.iter().filter(|line| line.contains(&told));
        assert_eq!(lines.count(), 1, "{right}");
    }
}

/// Waiters of the releasing process need no announcement, and the line is logged for every kind of
/// release. Once, it was logged only for locks with one channel.
#[tokio::test]
async fn without_the_right_to_publish_the_own_waiters_are_woken_and_it_is_told() {
    let server = shared_server();
    for end in ENDS {
        let (log, _guard) = Log::start();
        let proxy = Proxy::to(&server);
        let client = without(&server, &proxy.url(), &["-publish"]).await;
        let (ending, waiter) = end.awaited(&client, &proxy, &unique("own")).await;
        ending.await;
        let woken = tokio::time::timeout(DEADLINE, waiter).await;
        woken.unwrap_or_else(|_| panic!("{end:?}")).unwrap();
        eventually(DEADLINE, async || !log.lines(RIGHT).is_empty()).await;
        assert_says(&one(log.lines(RIGHT)), &["right=\"PUBLISH\""]);
        // The refusal was not found by a missing message. Each end of a subscription has a PING.
        let counts = proxy.counts();
        let [pings, ends] = ["PING", "UNSUBSCRIBE"].map(|name| counts.get(name));
        assert_eq!(pings, ends, "{end:?}");
    }
}

/// Once, an outage logged one line for each call.
#[test]
fn functions_that_are_skipped_in_an_outage_share_a_line() {
    let (log, _guard) = Log::start();
    let build = |url: &str| Client::builder().url(url).build();
    let error = build("http://h").unwrap_err();
    (0..20).for_each(|_| redlock_rt::__private::skipped(&error));
    assert_says(
        &one(log.lines("a function was not run")),
        &["WARN", "left_out=0"],
    );
}

/// Once, a line had the fault's insides and no name, and there was one for each release.
#[tokio::test]
async fn releases_that_redis_refuses_share_a_line() {
    let (log, _guard) = Log::start();
    let proxy = Proxy::to(&shared_server());
    let client = Client::connect(&proxy.url()).await.unwrap();
    let names = [unique("refused"), unique("refused"), unique("refused")];
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.fair_lock(name).lock().await.unwrap());
    }
    proxy.answer("EVALSHA", "-NOPERM no permissions\r\n", usize::MAX);
    drop(guards);
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    let line = one(log.lines("redis refuses a release"));
    let says = [
        "WARN redlock_rt::connection:",
        &names[0],
        "no permissions",
        "ends with its lease",
    ];
    assert_says(&line, &says);
    proxy.clear();
    for name in &names {
        client.fair_lock(name).force_unlock().await.unwrap();
    }
}

#[test]
fn the_page_has_every_line() {
    let unset = "waiting for permits that were never set";
    for message in [
        LOST,
        BACK,
        CANNOT,
        AT_LAST,
        LOCK_LOST,
        MORE,
        RIGHT,
        WAITS,
        unset,
        "redis refuses a release",
        "a function was not run",
        "lock lost before its body completed",
        "the release goes on in the background",
        "late release",
        MISSING,
        "first connection to redis",
        SERVED,
        FEW,
    ] {
        assert!(PAGE.contains(&format!("`{message}`")), "{message}");
    }
    for target in [
        "redlock_rt::connection",
        "redlock_rt::lock",
        "redlock_rt::rights",
        "redlock_rt::semaphore",
    ] {
        assert!(PAGE.contains(&format!("`{target}`")), "{target}");
    }
}

/// The number of a field.
fn number(line: &str, field: &str) -> u64 {
    let (_, rest) = line.split_once(&format!(" {field}=")).unwrap();
    let end = rest.find(' ').unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// Once, the log said that a master was lost, and nothing when another one served its slots: only that
/// the old node was back, with all the time that it had been away.
#[tokio::test]
async fn after_a_failover_the_log_said_nothing_until_the_old_node_returned() {
    let cluster = Cluster::options().replicas(1).start();
    let replica = cluster.replicas_of(0).await[0];
    let name = cluster.name_at(0, "told").await;
    let (log, _guard) = Log::start();
    let client = Client::connect(&cluster.url()).await.unwrap();
    let lock = client.rlock(&name);
    let wait = LockOptions::new().wait(FAILOVER);
    lock_and_unlock(&lock).await;
    cluster.kill(0);
    let began = Instant::now();
    let guard = lock.lock_with(wait).await.unwrap();
    let felt = began.elapsed();
    guard.unlock().await.unwrap();
    let [old, new] = [0, replica].map(|at| cluster.node(at).address().to_string());
    let served = one(log.lines(SERVED));
    let [server, lost] = [format!("server=\"{new}\""), format!("lost=\"{old}\"")];
    assert_says(&served, &["INFO", &server, &lost]);
    let told = Duration::from_millis(number(&served, "down_for_ms"));
    let apart = told.max(felt) - told.min(felt);
    assert!(apart < Duration::from_secs(2), "{told:?} of {felt:?}");
    cluster.restart(0);
    cluster.is_well().await;
    for at in 0..9 {
        lock_and_unlock(&client.rlock(format!("after:{at}"))).await;
    }
    // The return of the old one is none of a server with slots.
    let of_old = |line: &String| line.contains(&format!("server=\"{old}\""));
    assert_eq!(
        log.lines(BACK).iter().filter(|line| of_old(line)).count(),
        0
    );
    assert_eq!(
        log.lines(LOST).iter().filter(|line| of_old(line)).count(),
        1
    );
    one(log.lines(SERVED));
}

/// Once, the line came with the connection, before two more seconds of CLUSTERDOWN.
#[tokio::test]
async fn a_node_that_still_refused_all_calls_was_told_to_be_back() {
    let cluster = Cluster::options().replicas(0).start();
    let name = cluster.name_at(0, "told").await;
    let (log, _guard) = Log::start();
    let client = Client::connect(&cluster.url()).await.unwrap();
    let lock = client.rlock(&name);
    lock_and_unlock(&lock).await;
    cluster.kill(0);
    let began = Instant::now();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock_with(LockOptions::new().wait(FAILOVER)).await }
    });
    eventually(DEADLINE, async || !log.lines(LOST).is_empty()).await;
    cluster.restart(0);
    drop(waiter.await.unwrap().unwrap());
    let felt = began.elapsed();
    let address = format!("server=\"{}\"", cluster.node(0).address());
    let back: Vec<_> = log.lines(BACK);
    let back = one(back
        .into_iter()
        .filter(|line| line.contains(&address))
        .collect());
    let told = Duration::from_millis(number(&back, "down_for_ms"));
    let apart = told.max(felt) - told.min(felt);
    assert!(apart < Duration::from_secs(1), "{told:?} of {felt:?}");
}

/// Once, a master whose replicas did not answer was lost and back every second, and no line named them.
#[tokio::test]
async fn a_master_whose_replicas_were_missing_was_lost_and_back_every_second() {
    let servers = Replicated::start(RedisServer::options(), 1).await;
    let (log, _guard) = Log::start();
    let builder = Client::builder().url(&servers.server(0).url());
    let builder = builder.replica_ack(ReplicaAck::AtLeast(1));
    let client = builder.replica_timeout(SOON).connect().await.unwrap();
    let lock = client.rlock(unique("few"));
    for _ in 0..2 {
        eventually(DEADLINE, async || {
            let got = lock.lock().await;
            got.is_ok()
        })
        .await;
        let before = log.lines(FEW).len();
        servers.server(1).pause();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            let error = lock.lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        }
        servers.server(1).resume();
        let lines = log.lines(FEW).split_off(before);
        assert_says(&one(lines), &["WARN", "acknowledged=0", "wanted=1"]);
    }
    for message in [LOST, BACK] {
        assert_eq!(log.lines(message), [""; 0]);
    }
}
