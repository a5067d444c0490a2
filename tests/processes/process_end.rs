//! What a process leaves behind when it ends.

use std::future::ready;

use redlock_rt::Client;
use tests::{ChildProcess, DEADLINE, Proxy, ask, calls, eventually, shared_server, unique, within};

/// Enough runs that the test does not pass by chance: without the code that it guards, every second
/// run fails.
const RUNS: usize = 10;

/// Runs a process that ends while it holds something, until its end.
async fn leave(name: &str, what: &str, runtime: &str, end: &str) {
    let url = shared_server().url();
    let arguments = ["leave", &url, name, what, runtime, end];
    let program = env!("CARGO_BIN_EXE_participant");
    let mut process = ChildProcess::spawn(program, arguments, |_| ()).unwrap();
    let status = eventually(DEADLINE, || ready(process.try_wait())).await;
    assert!(status.success(), "{what} {runtime} {end}: {status}");
}

/// Each run has a separate name, in both kinds of runtime. The lease is 30 s, so a missing key was
/// released.
async fn locks_are_free_after(what: &str, end: &str) {
    let redis = shared_server().connect().await.unwrap();
    for runtime in ["current", "workers"] {
        for run in 0..RUNS {
            let name = unique(&format!("end:{what}"));
            leave(&name, what, runtime, end).await;
            let pattern = format!("{name}*");
            eventually(DEADLINE / 4, async || {
                let left: Vec<String> = ask(&redis, &["KEYS", &pattern]).await;
                match left.len() {
                    0 => Ok(()),
                    count => Err(format!("{runtime}, run {run}: {count} keys are left")),
                }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_guard_dropped_at_the_end_of_main_stays_locked() {
    locks_are_free_after("guard", "drop").await;
}

/// After the drop, no runtime, task or other thread runs.
#[tokio::test]
async fn a_guard_dropped_before_exit_is_called_stays_locked() {
    locks_are_free_after("guard", "exit").await;
}

#[tokio::test]
async fn a_guard_dropped_at_the_end_of_main_stays_locked_with_a_dedicated_thread() {
    locks_are_free_after("guard", "dedicated").await;
}

#[tokio::test]
async fn flush_on_drop_waits_for_all_that_is_left() {
    locks_are_free_after("nested", "flush").await;
    locks_are_free_after("many", "flush").await;
}

#[tokio::test]
async fn nothing_is_left_after_a_shutdown_at_the_end_of_main() {
    locks_are_free_after("guard", "shutdown").await;
    locks_are_free_after("nested", "shutdown").await;
}

#[tokio::test]
async fn a_count_down_guard_dropped_at_the_end_of_main_is_not_counted() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    for end in ["drop", "exit", "dedicated", "flush", "shutdown"] {
        let name = unique("end:latch");
        let runs = u32::try_from(RUNS).unwrap();
        let latch = client.count_down_latch(&name);
        assert!(latch.try_set_count(runs.into()).await.unwrap());
        for run in 0..runs {
            leave(&name, "latch", "workers", end).await;
            let left = runs - run - 1;
            eventually(DEADLINE / 4, async || match latch.count().await.unwrap() {
                count if count == u64::from(left) => Ok(()),
                count => Err(format!("{end}, run {run}: {count} instead of {left}")),
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_permit_dropped_at_the_end_of_main_stays_taken() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let name = unique("end:permit");
    let semaphore = client.semaphore(&name);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    for end in ["drop", "exit", "dedicated", "flush", "shutdown"] {
        for run in 0..RUNS {
            leave(&name, "permit", "workers", end).await;
            eventually(DEADLINE / 4, async || {
                match semaphore.available_permits().await {
                    Ok(1) => Ok(()),
                    other => Err(format!("{end}, run {run}: {other:?}")),
                }
            })
            .await;
        }
    }
}

/// Some refusals come before the server looks for the script. They were taken for a sign that it has it, and the
/// lock of a process that ended then stayed.
#[tokio::test]
async fn a_guard_dropped_behind_a_refused_release_did_not_load_the_script() {
    let server = shared_server();
    let proxy = Proxy::to(&server);
    let client = Client::connect(&proxy.url()).await.unwrap();
    let names = [unique("end:refused"), unique("end:dropped")];
    let [refused, dropped] = names.each_ref().map(|name| client.read_write_lock(name));
    let refused = refused.write().await.unwrap();
    let dropped = dropped.write().await.unwrap();
    let [release, dropping] = names
        .each_ref()
        .map(|name| calls("rw_write_release").mentioning(name));
    proxy.answer(
        release.clone(),
        "-TRYAGAIN not all keys are here\r\n",
        1_000_000,
    );
    let unlocking = tokio::spawn(refused.unlock());
    // The answer to the first was read.
    proxy.wait_for_count(release, 2).await;
    proxy.mark();
    drop(dropped);
    proxy.wait_for(dropping.clone()).await;
    let frames = proxy.frames();
    let loaded = frames.iter().position(|frame| frame.command() == "SCRIPT");
    let released = frames.iter().position(|frame| dropping.matches(frame));
    assert!(loaded.is_some() && loaded < released, "{frames:?}");
    proxy.clear();
    within(DEADLINE, unlocking).await.unwrap().unwrap();
}
