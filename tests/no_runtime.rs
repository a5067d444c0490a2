//! Calls outside a runtime. In a separate process, since a client with its own thread, anywhere in the
//! process, would allow timers everywhere.

use std::fs;
use std::time::Duration;

use futures::FutureExt;
use redlock_rt::{Client, LockOptions};
use tests::{Proxy, RedisServer, calls, eventually, unique, within};
use tokio::runtime::{Builder, Runtime};

const PROMPT: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

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

/// What it had still to tell Redis had its hold, and that had the client, with two files of the runtime.
#[test]
fn a_client_whose_runtime_ended_behind_a_dropped_guard_was_never_freed() {
    let server = RedisServer::start();
    let guard = async || {
        let client = Client::connect(&server.url()).await.unwrap();
        client.rlock(unique("job")).lock().await.unwrap()
    };
    let inside = || runtime().block_on(async { drop(guard().await) });
    let outside = || {
        let runtime = runtime();
        let guard = runtime.block_on(guard());
        drop(runtime);
        drop(guard);
    };
    let files = || fs::read_dir("/proc/self/fd").unwrap().count();
    let jobs: [&dyn Fn(); 2] = [&inside, &outside];
    for job in jobs {
        job();
        let before = files();
        (0..50).for_each(|_| job());
        let after = files();
        assert!(after < before + 50, "{before} files, then {after}");
    }
}

/// The tasks of the client end with the first runtime, and start again in that of the guard.
#[test]
fn what_a_guard_left_before_the_tasks_had_started_again_is_released() {
    let server = RedisServer::start();
    let mut first = Builder::new_multi_thread();
    let first = first.worker_threads(1).enable_all().build().unwrap();
    let client = first.block_on(Client::connect(&server.url())).unwrap();
    let second = runtime();
    let semaphore = client.semaphore("permits").limit(1);
    let permit = second.block_on(semaphore.acquire()).unwrap();
    drop((semaphore, client));
    drop(first);
    drop(permit);
    second.block_on(eventually(PROMPT, async || {
        let free: String = server.ask(&["GET", "permits"]).await;
        free == "1"
    }));
}
