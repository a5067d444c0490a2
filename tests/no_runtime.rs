//! Calls outside a runtime. In a separate process, since a client with its own thread, anywhere in the
//! process, would allow timers everywhere.

use std::time::Duration;

use futures::FutureExt;
use redlock_rt::{Client, LockOptions};
use tests::{Proxy, RedisServer, calls, unique, within};
use tokio::runtime::Builder;

const PROMPT: Duration = Duration::from_secs(5);

#[test]
#[should_panic(expected = "ClientBuilder::dedicated_thread(true)")]
fn outside_of_a_runtime_the_panic_said_that_no_reactor_is_running() {
    let client = Client::embedded();
    // Bounded, so that the test ends also without the panic.
    let brief = LockOptions::new().wait(Duration::from_millis(10));
    let _ = tests::block_on(client.rlock("here").lock_with(brief));
}

/// The release was sent, and Redis does not know its script. What loads it needs no runtime either.
#[test]
fn a_release_without_its_script_is_repeated_although_its_caller_left_the_runtime() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let server = RedisServer::start();
    let proxy = Proxy::to(&server);
    let client = Client::builder().url(&proxy.url()).build().unwrap();
    let name = unique("unknown");
    let lock = client.read_write_lock(&name);
    let first = runtime();
    let guard = first.block_on(lock.write_lock().lock()).unwrap();
    let mut unlock = Box::pin(guard.unlock());
    first.block_on(async {
        assert!((&mut unlock).now_or_never().is_none());
        proxy.wait_for(calls("rw_write_release")).await;
        // The reply, NOSCRIPT, is read before that to a later command.
        client.rlock("later").is_locked().await.unwrap();
    });
    drop(unlock);
    drop(first);
    runtime().block_on(async {
        let next = within(PROMPT, lock.write_lock().lock()).await.unwrap();
        next.unlock().await.unwrap();
    });
}
