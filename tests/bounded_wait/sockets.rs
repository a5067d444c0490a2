//! The limit on real sockets, where it may be late on a busy machine.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use futures::future::join_all;
use redlock_rt::{Client, ErrorKind, LockOptions, RLock};
use tests::{
    Proxy, RedisServer, assert_clean, lock_and_unlock, shared_server, trace_init, unique, within,
};

use crate::{DEADLINE, ms};

/// How late a wait may end if threads have to wait for a processor. Below the response time-out of
/// 3 s.
const LATE: Duration = ms_const(2000);

const fn ms_const(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Concurrent waits of several lengths; each ends in time, with `Unavailable`.
async fn wait_in_vain(what: &str, lock: &RLock) {
    let waits = [30, 100, 400].map(ms).map(async |wait| {
        let start = Instant::now();
        let outcome = lock.lock_with(LockOptions::new().wait(wait)).await;
        let waited = start.elapsed();
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
        assert!(
            waited >= wait && waited <= wait + LATE,
            "{what}: {waited:?} of {wait:?}"
        );
    });
    join_all(waits).await;
}

fn client(url: &str) -> Client {
    // Long, so that the wait ends first.
    Client::builder().url(url).linger(ms(20)).build().unwrap()
}

#[tokio::test]
async fn a_link_that_is_silent_from_the_start() {
    trace_init();
    let (server, name) = (shared_server(), unique("silent"));
    let proxy = Proxy::to(&server);
    proxy.go_silent();
    let client = client(&proxy.url());
    let lock = client.rlock(&name);
    wait_in_vain("silent", &lock).await;
    proxy.resume();
    within(DEADLINE, lock_and_unlock(&lock)).await;
    assert_clean(&server, &name, [&client]).await;
}

#[tokio::test]
async fn a_link_that_falls_silent() {
    trace_init();
    let (server, name) = (shared_server(), unique("falls"));
    let proxy = Proxy::to(&server);
    let (client, holder) = (client(&proxy.url()), client(&server.url()));
    let guard = holder.rlock(&name).lock().await.unwrap();
    let lock = client.rlock(&name);
    assert!(lock.try_lock().await.unwrap().is_none());
    proxy.go_silent();
    wait_in_vain("falls silent", &lock).await;
    proxy.resume();
    guard.unlock().await.unwrap();
    within(DEADLINE, lock_and_unlock(&lock)).await;
    assert_clean(&server, &name, [&client, &holder]).await;
}

#[tokio::test]
async fn a_server_that_is_stopped() {
    trace_init();
    let (server, name) = (RedisServer::start(), unique("stopped"));
    let used = client(&server.url());
    lock_and_unlock(&used.rlock(&name)).await;
    let fresh = client(&server.url());
    server.pause();
    let (used_lock, fresh_lock) = (used.rlock(&name), fresh.rlock(&name));
    tokio::join!(
        wait_in_vain("stopped, used", &used_lock),
        wait_in_vain("stopped, fresh", &fresh_lock)
    );
    server.resume();
    for lock in [used_lock, fresh_lock] {
        within(DEADLINE, lock_and_unlock(&lock)).await;
    }
    assert_clean(&server, &name, [&used, &fresh]).await;
}

#[tokio::test]
async fn nobody_listens() {
    trace_init();
    let (server, name) = (shared_server(), unique("nobody"));
    let proxy = Proxy::to(&server);
    let client = client(&proxy.url());
    proxy.refuse();
    let lock = client.rlock(&name);
    wait_in_vain("refused", &lock).await;
    proxy.accept();
    within(DEADLINE, lock_and_unlock(&lock)).await;
    assert_clean(&server, &name, [&client]).await;
}

#[tokio::test]
async fn a_listener_that_never_answers() {
    trace_init();
    // The system accepts the connection, and no process reads.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The limit also covers a TLS handshake.
    for scheme in ["redis", "rediss"] {
        let client = client(&format!("{scheme}://127.0.0.1:{port}"));
        wait_in_vain(scheme, &client.rlock("mute")).await;
    }
}
