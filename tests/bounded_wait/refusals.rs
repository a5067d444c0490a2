//! Redis returns a temporary error: the client asks again as long as the wait lasts.

use std::time::Duration;

use futures::future::join_all;
use redlock_rt::{Client, ErrorKind, LockOptions, RLock, Unlocked};
use tests::{
    LeakCheck, RedisServer, ServerOptions, assert_clean, eventually, lock_and_unlock, trace_init,
    unique, within,
};
use tokio::time::Instant;

use crate::{
    DEADLINE, ms,
    scripted::{Scripted, Target},
};

/// The errors, in the words of servers.
const REFUSALS: [&str; 12] = [
    "-LOADING Redis is loading the dataset in memory",
    "-READONLY You can't write against a read only replica.",
    "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "-UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "-TRYAGAIN Multiple keys request during rehashing of slot",
    "-CLUSTERDOWN The cluster is down",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "-NOSCRIPT No matching script. Please use EVAL.",
    "-OOM command not allowed when used memory > 'maxmemory'.",
    "-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist.",
    "-NOREPLICAS Not enough good replicas to write.",
    "-ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write.",
];

/// The errors that a server may send to a new connection.
fn greets_with(refusal: &str) -> bool {
    ["-LOADING", "-BUSY", "-MASTERDOWN"]
        .iter()
        .any(|code| refusal.starts_with(code))
}

async fn wait_in_vain(lock: &RLock, wait: Duration, refusal: &str) {
    let start = Instant::now();
    let outcome = lock.lock_with(LockOptions::new().wait(wait)).await;
    let error = outcome.unwrap_err();
    assert_eq!(start.elapsed(), wait, "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{refusal}: {error}");
}

/// The head waiter and one behind it, for their whole wait.
#[tokio::test(start_paused = true)]
async fn refusals_that_persist() {
    for refusal in REFUSALS {
        for target in [Target::Calls, Target::Greetings] {
            if target == Target::Greetings && !greets_with(refusal) {
                continue;
            }
            let server = Scripted::persistent(target, refusal);
            let client = server.client().build().unwrap();
            let lock = client.rlock("refused");
            let wait = |span| wait_in_vain(&lock, ms(span), refusal);
            join_all([100, 1000, 3000, 3001].map(wait)).await;
            let asked = match target {
                // Three commands of the greeting: CLIENT ID and two INFO.
                Target::Greetings => server.scripted() / 3,
                _ => server.scripted(),
            };
            // The pauses grow to half a second.
            assert!((6..60).contains(&asked), "{refusal}: asked {asked} times");
            // No call has run, so there is nothing to undo.
            let leaks = LeakCheck::without_redis("refused").client(&client);
            leaks.assert_clean().await;
        }
    }
}

/// The error has the text of Redis.
#[tokio::test(start_paused = true)]
async fn the_error_tells_the_refusal() {
    for refusal in REFUSALS {
        let server = Scripted::persistent(Target::Calls, refusal);
        let lock = server.client().build().unwrap().rlock("told");
        let options = LockOptions::new().wait(ms(200));
        let error = lock.lock_with(options).await.unwrap_err();
        let says = match refusal.contains("NOSCRIPT") {
            true => "forgets its scripts",
            false => refusal.split_once(' ').unwrap().1,
        };
        assert!(tests::told(&error).contains(says), "{refusal}: {error}");
        assert!(error.to_string().contains("\"told\""), "{error}");
    }
}

/// The error lasts for a while, at every stage of a lock.
#[tokio::test(start_paused = true)]
async fn refusals_that_pass() {
    for refusal in REFUSALS {
        for target in [Target::Calls, Target::Loads, Target::Greetings] {
            let applies = match target {
                Target::Calls => true,
                Target::Loads => !refusal.starts_with("-NOSCRIPT"),
                Target::Greetings => greets_with(refusal),
            };
            if !applies {
                continue;
            }
            let server = Scripted::passing(target, &[refusal; 3]);
            if target == Target::Loads {
                server.forgets_scripts();
            }
            let client = server.client().build().unwrap();
            let lock = client.rlock("passes");
            let options = LockOptions::new().wait(Duration::from_secs(2));
            let guard = lock.lock_with(options).await;
            let guard = guard.unwrap_or_else(|error| panic!("{refusal} {target:?}: {error}"));
            assert_eq!(server.scripted(), 3, "{refusal} {target:?}");
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            let leaks = LeakCheck::without_redis("passes").client(&client);
            leaks.assert_clean().await;
        }
    }
}

/// A release is repeated too.
#[tokio::test(start_paused = true)]
async fn a_refused_release_is_repeated() {
    for refusal in REFUSALS {
        let free = "$-1";
        let server = Scripted::passing(Target::Calls, &[free, refusal, refusal, refusal]);
        let client = server.client().build().unwrap();
        let guard = client.rlock("release").lock().await.unwrap();
        assert_eq!(
            guard.unlock().await.unwrap(),
            Unlocked::Released,
            "{refusal}"
        );
        assert_eq!(server.scripted(), 4);
    }
}

/// A permanent error ends the wait.
#[tokio::test(start_paused = true)]
async fn other_errors_are_told_at_once() {
    for (refusal, kind) in [
        (
            "-NOPERM this user has no permissions to run the 'evalsha' command",
            ErrorKind::Denied,
        ),
        ("-NOAUTH Authentication required.", ErrorKind::Denied),
        (
            "-WRONGTYPE Operation against a key holding the wrong kind",
            ErrorKind::WrongType,
        ),
        ("-MOVED 866 10.0.0.1:6379", ErrorKind::Misconfigured),
        ("-ERR unknown command 'EVALSHA'", ErrorKind::Protocol),
        ("+what", ErrorKind::Protocol),
        ("*0", ErrorKind::Protocol),
    ] {
        let server = Scripted::persistent(Target::Calls, refusal);
        let client = server.client().build().unwrap();
        let start = Instant::now();
        let error = client.rlock("told").lock().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{refusal}: {error}");
        assert_eq!(start.elapsed(), Duration::ZERO, "{refusal}");
    }
}

/// The same with errors of real servers.
async fn refused_by(what: &str, options: ServerOptions, refuse: &[&str], allow: &[&str]) {
    trace_init();
    let (server, name) = (options.start(), unique(what));
    let control = server.connect().await.unwrap();
    let order = async |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.exec_async(&mut control.clone()).await
    };
    let client = Client::builder().url(&server.url()).linger(ms(20));
    let client = client.build().unwrap();
    let lock = client.rlock(&name);
    lock_and_unlock(&lock).await;
    // The first one does not answer until it is killed.
    let refusing = async { order(refuse).await };
    let contend = async {
        let wait = ms(300);
        eventually(DEADLINE, async || {
            let outcome = lock.lock_with(LockOptions::new().wait(wait)).await;
            match outcome {
                Ok(guard) => drop(guard),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    return true;
                }
            }
            false
        })
        .await;
        // Another client gets the error when it connects.
        let late = Client::builder().url(&server.url()).build().unwrap();
        let start = Instant::now();
        let outcome = late
            .rlock(&name)
            .lock_with(LockOptions::new().wait(wait))
            .await;
        let error = outcome.unwrap_err();
        let kind = match refuse[0] {
            // A client that was never connected gets the error of a wrong address.
            "REPLICAOF" => ErrorKind::Misconfigured,
            _ => ErrorKind::Unavailable,
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(start.elapsed() < wait + ms(2_000), "{:?}", start.elapsed());
        let waiting = within(DEADLINE, lock.lock());
        let allow = async {
            eventually(DEADLINE, async || client.stats().waiting == 1).await;
            server.connect().await.unwrap();
            server.ask::<()>(allow).await;
        };
        let (guard, ()) = tokio::join!(waiting, allow);
        assert_eq!(guard.unwrap().unlock().await.unwrap(), Unlocked::Released);
    };
    let (_, ()) = tokio::join!(refusing, contend);
    assert_clean(&server, &name, [&client]).await;
}

#[tokio::test]
async fn a_server_that_is_busy() {
    let options = RedisServer::options().args(["--busy-reply-threshold", "1"]);
    let busy = ["EVAL", "while true do end", "0"];
    refused_by("busy", options, &busy, &["SCRIPT", "KILL"]).await;
}

#[tokio::test]
async fn a_replica_that_serves_nothing_stale() {
    let options = RedisServer::options().args(["--replica-serve-stale-data", "no"]);
    let demote = ["REPLICAOF", "127.0.0.1", "1"];
    refused_by("stale", options, &demote, &["REPLICAOF", "NO", "ONE"]).await;
}
