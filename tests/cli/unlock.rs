//! `redlock unlock --force`.

use redlock_rt::Client;
use tests::{DEADLINE, Monitor, RedisServer, eventually, shared_server, unique};

use crate::command::{Command, PROGRAM, redlock, start};
use crate::terminal::Terminal;

#[tokio::test]
async fn a_lock_of_each_kind_is_freed_and_its_command_is_stopped() {
    for kind in ["rlock", "fair", "fenced", "read", "write", "spin"] {
        let key = unique("cli:force");
        let mut run = start([
            "run",
            &key,
            "--kind",
            kind,
            "--lease",
            "600ms",
            "-c",
            "echo ran; sleep 120",
        ]);
        run.says("ran").await;
        let ended = redlock(["--json", "unlock", "--force", "--yes", &key]).await;
        assert_eq!(ended.code, 0, "{kind}: {ended:?}");
        assert_eq!(ended.json()["freed"], true);
        assert!(ended.json()["holder"].as_str().unwrap().contains(':'));
        // Also the lease of a reader.
        let left: Vec<String> = shared_server().ask(&["KEYS", &format!("*{key}*")]).await;
        let token = format!("redisson_lock_token:{{{key}}}");
        assert!(left.iter().all(|key| *key == token), "{kind}: {left:?}");
        assert_eq!(run.ended().await.code, 76, "{kind}");
        let ended = redlock(["unlock", "--force", "--yes", &key]).await;
        assert_eq!(ended.code, 1, "{kind}: {ended:?}");
    }
}

#[tokio::test]
async fn those_who_wait_are_woken_as_their_kind_is_and_have_the_lock_then() {
    let server = RedisServer::start();
    let mut monitor = Monitor::start(&server).await;
    for (kind, listens, told) in [
        (
            "rlock",
            "redisson_lock__channel:*",
            "redisson_lock__channel:",
        ),
        ("fair", "redlock_wake:*", "redlock_wake:"),
        ("write", "redisson_rwlock:*", "redisson_rwlock:"),
    ] {
        let key = unique("cli:next");
        let run = |what| Command::start(&server.url(), &["run", &key, "--kind", kind, "-c", what]);
        let holder = run("echo ran; cat");
        holder.says("ran").await;
        // It keeps the lock, and so does not publish.
        let next = run("echo next; cat");
        eventually(DEADLINE, async || {
            let heard: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", listens]).await;
            !heard.is_empty()
        })
        .await;
        monitor.mark().await;
        let unlock = ["unlock", "--force", "--yes", &key];
        assert_eq!(Command::start(&server.url(), &unlock).ended().await.code, 0);
        next.says("next").await;
        let lines = monitor.lines().await;
        let first = lines
            .iter()
            .find(|line| line.command() == "PUBLISH")
            .unwrap();
        assert!(first.args[1].starts_with(told), "{kind}: {first:?}");
    }
}

#[tokio::test]
async fn the_command_under_the_lock_ends_with_the_reason() {
    let key = unique("cli:why");
    let command = ["run", &key, "--lease", "600ms", "-c", "echo ran; sleep 120"];
    let mut run = start(command);
    run.says("ran").await;
    let unlock = ["unlock", "--force", "--yes", "--why", "stuck", &key];
    assert_eq!(redlock(unlock).await.code, 0);
    let ended = run.ended().await;
    assert_eq!(ended.code, 76);
    let told = " (redlock unlock): stuck";
    assert!(ended.err.contains(told), "{ended:?}");
    let unlock = ["unlock", "--force", "--yes", "--why", "", &key];
    assert_eq!(redlock(unlock).await.code, 1, "it is free");
}

#[tokio::test]
async fn it_asks_at_a_terminal_and_only_yes_is_yes() {
    let client = Client::connect(&shared_server().url()).await.unwrap();
    for (answer, code) in [("n", 1), ("", 1), ("what", 1), ("y", 0)] {
        let key = unique("cli:ask");
        let guard = client.rlock(&key).lock().await.unwrap();
        let arguments = [PROGRAM, "unlock", "--force", &key];
        let mut terminal = Terminal::start(&shared_server().url(), &arguments);
        let question = format!("Take {key} away from {}? [y/N]", guard.hold_id().as_str());
        terminal.shows(&question, 1).await;
        terminal.types(&format!("{answer}\n"));
        assert_eq!(terminal.ended().await, code, "{answer:?}");
        assert_eq!(client.rlock(&key).is_locked().await.unwrap(), code == 1);
    }
}

#[tokio::test]
async fn a_yes_for_one_holder_took_the_lock_from_the_next() {
    let url = shared_server().url();
    let connected = async || Client::connect(&url).await.unwrap();
    let (first, second) = (connected().await, connected().await);
    let key = unique("cli:ask:next");
    let asks = |id: &str| format!("Take {key} away from {id}? [y/N]");
    let guard = first.rlock(&key).lock().await.unwrap();
    let arguments = [PROGRAM, "unlock", "--force", &key];
    let mut terminal = Terminal::start(&url, &arguments);
    terminal.shows(&asks(guard.hold_id().as_str()), 1).await;
    guard.unlock().await.unwrap();
    let next = second.rlock(&key).lock().await.unwrap();
    terminal.types("y\n");
    terminal.shows(&asks(next.hold_id().as_str()), 1).await;
    next.unlock().await.unwrap();
    terminal.types("y\n");
    terminal.shows(&format!("{key} was free already"), 1).await;
    assert_eq!(terminal.ended().await, 1);
}

#[tokio::test]
async fn a_key_that_is_no_lock_stays() {
    let key = unique("cli:force:data");
    let _: u64 = shared_server().ask(&["HSET", &key, "name", "value"]).await;
    assert_eq!(redlock(["unlock", "--force", "--yes", &key]).await.code, 65);
    let left: String = shared_server().ask(&["HGET", &key, "name"]).await;
    assert_eq!(left, "value");
}
