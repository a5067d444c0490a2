//! `redlock run`: each kind of lock.

use redlock_rt::Client;
use tests::{ask, shared_server, unique};

use crate::command::{holds, redlock, start};

#[tokio::test]
async fn each_kind_excludes_itself_and_leaves_no_key() {
    let redis = shared_server().connect().await.unwrap();
    for kind in ["rlock", "fair", "fenced", "write", "spin"] {
        let key = unique(&format!("cli:{kind}"));
        let mut run = holds(&key, &["--kind", kind]).await;
        let ended = redlock(["run", "-n", &key, "--kind", kind, "--", "echo", "twice"]).await;
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (75, ""),
            "{kind}: {ended:?}"
        );
        run.end_input();
        assert_eq!(run.ended().await.code, 0, "{kind}");
        let there: bool = ask(&redis, &["EXISTS", &key]).await;
        assert!(!there, "{kind}");
    }
}

#[tokio::test]
async fn shared_locks_are_held_together_and_exclude_others() {
    let key = unique("cli:shared");
    let mut first = start(["run", "-s", &key, "--", "sh", "-c", "echo reads; cat"]);
    first.says("reads").await;
    assert_eq!(redlock(["run", "-s", "-n", &key, "true"]).await.code, 0);
    for alone in ["-x", "-e"] {
        assert_eq!(redlock(["run", alone, "-n", &key, "true"]).await.code, 75);
    }
    assert_eq!(redlock(["run", "-n", &key, "true"]).await.code, 75);
    first.end_input();
    assert_eq!(first.ended().await.code, 0);
    assert_eq!(redlock(["run", "-x", "-n", &key, "true"]).await.code, 0);
}

#[tokio::test]
async fn as_many_run_at_once_as_there_are_permits() {
    let key = unique("cli:permits");
    let run = || {
        let arguments = ["run", "-n", &key, "--kind", "semaphore", "--permits", "2"];
        let command = ["sh", "-c", "echo ran; cat"];
        let all = [&arguments[..], &command].concat();
        crate::command::Command::start(&shared_server().url(), &all)
    };
    let mut both = [run(), run()];
    for one in &both {
        one.says("ran").await;
    }
    assert_eq!(run().ended().await.code, 75);
    for one in &mut both {
        one.end_input();
        assert_eq!(one.ended().await.code, 0);
    }
    let client = Client::connect(&shared_server().url()).await.unwrap();
    let semaphore = client.permit_expirable_semaphore(&key);
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
    let line = "echo $REDLOCK_NAME";
    let ended = redlock(["run", &key, "--kind", "semaphore", "-c", line]).await;
    assert_eq!(ended.out, format!("{key}\n"), "{ended:?}");
}

#[tokio::test]
async fn the_command_under_a_fenced_lock_has_a_token_that_grows() {
    let key = unique("cli:token");
    let line = "echo $REDLOCK_TOKEN";
    let mut last = 0;
    for _ in 0..3 {
        let ended = redlock(["run", &key, "--kind", "fenced", "-c", line]).await;
        let token: u64 = ended.out.trim().parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test]
async fn a_token_is_not_inherited_by_a_lock_that_has_none() {
    let (outer, inner) = (unique("cli:outer"), unique("cli:inner"));
    let program = crate::command::PROGRAM;
    let line = format!("{program} run {inner} -c 'echo token=$REDLOCK_TOKEN.'");
    let ended = redlock(["run", &outer, "--kind", "fenced", "-c", &line]).await;
    assert_eq!(ended.out, "token=.\n", "{ended:?}");
}

#[tokio::test]
async fn a_lock_is_kept_for_its_shortest_hold() {
    let key = unique("cli:min");
    let ended = redlock(["run", &key, "--min-hold", "60s", "--", "true"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(redlock(["run", "-n", &key, "true"]).await.code, 75);
}
