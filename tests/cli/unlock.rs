//! `redlock unlock --force`.

use redlock_rt::Client;
use tests::{DEADLINE, eventually, shared_server, unique};

use crate::command::{PROGRAM, redlock, start};
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
        assert_eq!(run.ended().await.code, 76, "{kind}");
        let ended = redlock(["unlock", "--force", "--yes", &key]).await;
        assert_eq!(ended.code, 1, "{kind}: {ended:?}");
    }
}

#[tokio::test]
async fn those_who_wait_have_the_lock_then() {
    for kind in ["rlock", "fair", "write"] {
        let key = unique("cli:next");
        let holder = start(["run", &key, "--kind", kind, "-c", "echo ran; cat"]);
        holder.says("ran").await;
        let mut next = start(["run", &key, "--kind", kind, "--", "echo", "next"]);
        let channels = match kind {
            "fair" => "redlock_wake:*".to_owned(),
            _ => format!("*{key}*"),
        };
        eventually(DEADLINE, async || {
            let heard: Vec<String> = shared_server()
                .ask(&["PUBSUB", "CHANNELS", &channels])
                .await;
            !heard.is_empty()
        })
        .await;
        assert_eq!(redlock(["unlock", "--force", "--yes", &key]).await.code, 0);
        assert_eq!(next.ended().await.out, "next\n", "{kind}");
    }
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
async fn a_key_that_is_no_lock_stays() {
    let key = unique("cli:force:data");
    let _: u64 = shared_server().ask(&["HSET", &key, "name", "value"]).await;
    assert_eq!(redlock(["unlock", "--force", "--yes", &key]).await.code, 65);
    let left: String = shared_server().ask(&["HGET", &key, "name"]).await;
    assert_eq!(left, "value");
}
