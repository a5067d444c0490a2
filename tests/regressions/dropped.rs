//! Dropped guards, whose releases no caller awaits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, LockOptions};
use tests::{CALL, LeakCheck, Matcher, Proxy, eventually, shared_server, unique, within};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::{DEADLINE, ms};

/// More than the number of concurrent releases.
const GUARDS: usize = 300;
const MOST_AT_ONCE: usize = 128;
const LONG: Duration = Duration::from_secs(60);

/// Each release was tried with each attempt to connect, and all were sent at once after the outage.
#[tokio::test]
async fn guards_dropped_in_an_outage_were_all_released_at_once() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let (name, other) = (unique("many"), unique("other"));
    let builder = Client::builder().url(&proxy.url()).lease(LONG);
    let client = builder.response_timeout(LONG).build().unwrap();
    let leaks = LeakCheck::on(&server, &name).await.client(&client);
    let locks: Vec<_> = (0..GUARDS)
        .map(|number| client.rlock(format!("{name}:{number}")))
        .collect();
    // Loads the scripts.
    let first = locks[0].lock().await.unwrap();
    first.unlock().await.unwrap();
    let guards = join_all(locks.iter().map(|lock| lock.lock())).await;
    let guards: Vec<_> = guards.into_iter().map(Result::unwrap).collect();
    proxy.refuse();
    proxy.cut_all();
    // When this has failed, the client knows that there is no connection.
    let brief = LockOptions::new().wait(ms(50));
    let error = client.rlock(&other).lock_with(brief).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    drop(guards);
    let releases = || Matcher::command(CALL).mentioning(&name);
    proxy.mark();
    let unanswered = proxy.hold_reply(releases());
    proxy.accept();
    // One place is that of the call that failed: it may have reached the server.
    proxy.wait_for_count(releases(), MOST_AT_ONCE - 1).await;
    let asked = tokio::spawn({
        let lock = client.rlock(&other);
        async move { lock.is_locked().await }
    });
    let ask = Matcher::command(CALL).mentioning(&other);
    proxy.wait_for(ask).await;
    assert_eq!(proxy.count(releases()), MOST_AT_ONCE - 1);
    unanswered.open();
    assert!(!within(DEADLINE, asked).await.unwrap().unwrap());
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    leaks.assert_clean().await;
}

/// A stream whose writes create timers or spawn tasks.
struct OfItsRuntime(TcpStream);

impl AsyncRead for OfItsRuntime {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for OfItsRuntime {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        drop(Handle::current());
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The stream of a connector was written outside the runtime in which it was opened.
#[tokio::test]
async fn a_guard_dropped_on_a_thread_panicked_where_the_stream_needs_its_runtime() {
    let server = shared_server();
    let name = unique("thread");
    let address = server.address();
    let connect = move || async move { Ok(OfItsRuntime(TcpStream::connect(address).await?)) };
    let client = Client::builder().connector(connect).build().unwrap();
    let leaks = LeakCheck::on(&server, &name).await.client(&client);
    let guard = client.rlock(&name).lock().await.unwrap();
    let dropped = std::thread::spawn(move || drop(guard)).join();
    assert!(dropped.is_ok(), "dropping the guard panicked");
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    leaks.assert_clean().await;
}
