//! Dropped guards, whose releases no caller awaits.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, LockOptions, Owner, RLockGuard, Unlocked};
use tests::{CALL, Matcher, Proxy, assert_clean, eventually, shared_server, unique, within};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::DEADLINE;

fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// More than the number of concurrent releases.
const GUARDS: usize = 300;
const MOST_AT_ONCE: usize = 128;
const LONG: Duration = Duration::from_secs(60);

fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Each release was tried with each attempt to connect, and all were sent at once after the outage.
#[tokio::test]
async fn guards_dropped_in_an_outage_were_all_released_at_once() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let (name, other) = (unique("many"), unique("other"));
    let builder = Client::builder().url(&proxy.url()).lease(LONG);
    let client = builder.response_timeout(LONG).build().unwrap();
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
    unanswered.reached().await;
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
    assert_clean(&server, &name, [&client]).await;
}

/// A stream that looks at what is written.
struct Watched<L>(TcpStream, L);

impl<L: Unpin> AsyncRead for Watched<L> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<L: FnMut(&[u8]) + Unpin> AsyncWrite for Watched<L> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1(bytes);
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
    // As one does that makes timers or spawns tasks.
    let needs_runtime = |_: &[u8]| drop(Handle::current());
    let connect =
        move || async move { Ok(Watched(TcpStream::connect(address).await?, needs_runtime)) };
    let client = Client::builder().connector(connect).build().unwrap();
    let guard = client.rlock(&name).lock().await.unwrap();
    let dropped = thread::spawn(move || drop(guard)).join();
    assert!(dropped.is_ok(), "dropping the guard panicked");
    eventually(DEADLINE, async || client.stats().releases == 0).await;
    assert_clean(&server, &name, [&client]).await;
}

/// The watchdog wrote to a connection of another runtime with a mutex held that the end of a guard takes.
#[test]
fn a_stream_that_drops_a_guard_stopped_the_watchdog_for_ever() {
    let server = shared_server();
    let address = server.address();
    let (name, fair) = (unique("renewed"), unique("fair"));
    let kept = Arc::<Mutex<Option<RLockGuard>>>::default();
    // The first beat for `fair` tells that the connection for renewals is there. A renewal of `name` that
    // the watchdog's thread writes drops the guard that is kept.
    const WATCHDOG: &str = "watchdog";
    let renewals = Arc::<AtomicUsize>::default();
    let (beat, beats) = mpsc::channel();
    let writes = {
        let (kept, renewals) = (Arc::clone(&kept), Arc::clone(&renewals));
        let (name, fair) = (name.clone(), fair.clone());
        move |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            if text.contains(&name) {
                renewals.fetch_add(1, Ordering::Relaxed);
                if thread::current().name() == Some(WATCHDOG) {
                    let guard = kept.lock().unwrap().take();
                    drop(guard);
                }
            }
            if text.contains(&fair) && text.contains("EVALSHA") {
                let _ = beat.send(());
            }
        }
    };
    let opened = Arc::<AtomicUsize>::default();
    let connect = move || {
        // The watchdog's thread has the connection for calls alone: that for renewals is made by another.
        let is_elsewhere = thread::current().name() != Some(WATCHDOG);
        let refused = !is_elsewhere && opened.fetch_add(1, Ordering::Relaxed) > 0;
        let writes = writes.clone();
        let look = move |bytes: &[u8]| {
            if is_elsewhere {
                writes(bytes);
            }
        };
        async move {
            if refused {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Watched(TcpStream::connect(address).await?, look))
        }
    };
    let client = Client::builder().connector(connect).build().unwrap();
    let (go, goes) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let (ended, end) = oneshot::channel::<()>();
    let watchdog = {
        let client = client.clone();
        move || {
            current_thread().block_on(async {
                let long = client.rlock(unique("long")).lock().await.unwrap();
                go.send(()).unwrap();
                beats.recv().unwrap();
                let options = LockOptions::new().lease(ms(900));
                let short = client.rlock(name).lock_with(options).await.unwrap();
                *kept.lock().unwrap() = Some(long);
                let begun = renewals.load(Ordering::Relaxed);
                let several = async || renewals.load(Ordering::Relaxed) >= begun + 4;
                eventually(DEADLINE, several).await;
                let long = kept.lock().unwrap().take();
                drop(long);
                done.send(short.unlock().await.unwrap()).unwrap();
            });
        }
    };
    let watchdog = thread::Builder::new().name(WATCHDOG.into()).spawn(watchdog);
    goes.recv_timeout(DEADLINE).unwrap();
    // The connection for renewals is that of this thread, where a waiter of a fair lock needs it first.
    let waits = thread::spawn(move || {
        current_thread().block_on(async {
            let lock = client.fair_lock(&fair);
            let guard = lock.lock().await.unwrap();
            let waiter = tokio::spawn(async move { drop(lock.lock().await) });
            let _ = end.await;
            guard.unlock().await.unwrap();
            waiter.await.unwrap();
        });
    });
    let unlocked = is_done.recv_timeout(DEADLINE);
    drop(ended);
    assert_eq!(unlocked, Ok(Unlocked::Released));
    waits.join().unwrap();
    watchdog.unwrap().join().unwrap();
}

/// A cleanup that had the turn of its hold was queued behind cleanups that waited for that turn, and
/// those took all places of the release task.
#[tokio::test(start_paused = true)]
async fn many_dropped_guards_of_one_hold_behind_a_cancelled_extension_stopped_all_releases() {
    const GUARDS: usize = 200;
    let client = Client::embedded();
    let owner = Owner::new();
    let lock = client.rlock("crowded");
    let options = LockOptions::new().owner(&owner);
    let first = lock.lock_with(options.clone()).await.unwrap();
    let mut guards = Vec::new();
    for _ in 1..GUARDS {
        guards.push(lock.lock_with(options.clone()).await.unwrap());
    }
    {
        let mut extension = tokio_test::task::spawn(first.extend(Duration::from_secs(60)));
        assert!(extension.poll().is_pending());
        drop(guards);
        // The release task takes as many cleanups as it can.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    drop(first);
    let guard = within(Duration::from_secs(5), lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    assert_eq!(client.stats().releases, 0);
}
