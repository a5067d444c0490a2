//! `redlock run`: signals, and the end of `redlock` itself.

use rustix::process::Signal;
use tests::{DEADLINE, eventually, is_alive, shared_server, unique};

use crate::command::{Command, PROGRAM, holds, redlock, start};

async fn is_free(key: &str) -> bool {
    let there: bool = shared_server().ask(&["EXISTS", key]).await;
    !there
}

#[tokio::test]
async fn signals_are_passed_on_and_the_lock_is_released() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let key = unique("cli:signal");
        let mut run = holds(&key, &[]).await;
        assert!(!is_free(&key).await);
        run.signal(signal);
        assert_eq!(run.ended().await.code, 128 + number);
        assert!(is_free(&key).await);
    }
}

#[tokio::test]
async fn a_command_that_catches_the_signal_ends_in_its_own_way() {
    let key = unique("cli:caught");
    let line = "trap 'echo caught; exit 5' USR1; echo ran; while :; do sleep 0.05; done";
    let mut run = start(["run", &key, "-c", line]);
    run.says("ran").await;
    run.signal(Signal::USR1);
    let ended = run.ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (5, "ran\ncaught\n"));
}

#[tokio::test]
async fn the_lock_is_held_until_a_command_that_ignores_the_signal_has_ended() {
    let key = unique("cli:ignored");
    let line = "trap '' TERM; trap 'echo seen' USR1; echo ran; read line; read line; exit 4";
    let mut run = start(["run", &key, "-c", line]);
    run.says("ran").await;
    run.signal(Signal::TERM);
    run.signal(Signal::USR1);
    // The second signal is seen, so the first one has come.
    run.says("seen").await;
    assert!(run.is_running() && !is_free(&key).await);
    run.end_input();
    assert_eq!(run.ended().await.code, 4);
    assert!(is_free(&key).await);
}

/// Starts `redlock run` with a signal ignored.
fn run_without(signal: &str, arguments: &str) -> Command {
    let line = format!("trap '' {signal}; exec {PROGRAM} run {arguments}");
    Command::spawn("sh", &["-c", &line], |sh| {
        sh.env("REDIS_URL", shared_server().url());
    })
}

/// `nohup redlock run` ended at the logout that its user had wanted to survive.
#[tokio::test]
async fn a_signal_that_was_ignored_at_the_start_is_ignored() {
    let key = unique("cli:nohup");
    let command = "trap 'echo seen' USR1; echo ran; read line; read line; exit 4";
    let mut run = run_without("HUP", &format!("{key} -c \"{command}\""));
    run.says("ran").await;
    run.signal(Signal::HUP);
    run.signal(Signal::USR1);
    // The second signal is seen, so the first one has come.
    run.says("seen").await;
    run.end_input();
    assert_eq!(run.ended().await.code, 4);
}

/// Only SIGKILL was left for one whose parent ignores SIGTERM, though its command catches the signal. (A shell may not
/// catch what is ignored as it starts.)
#[tokio::test]
async fn a_command_gets_sigterm_though_it_was_ignored_at_the_start() {
    let key = unique("cli:term");
    let command = "$SIG{TERM} = sub { exit 3 }; $| = 1; print qq(ran\\n); <STDIN>";
    let mut run = run_without("TERM", &format!("{key} -- perl -e '{command}'"));
    run.says("ran").await;
    run.signal(Signal::TERM);
    assert_eq!(run.ended().await.code, 3);
    assert!(is_free(&key).await);
}

#[tokio::test]
async fn one_that_waits_ends_by_the_signal_and_leaves_nothing() {
    for kind in ["rlock", "fair"] {
        let key = unique("cli:waiter");
        let mut holder = holds(&key, &["--kind", kind]).await;
        let mut waiter = start(["run", &key, "--kind", kind, "--", "echo", "never"]);
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
        waiter.signal(Signal::TERM);
        let ended = waiter.ended().await;
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (128 + 15, ""),
            "{ended:?}"
        );
        holder.end_input();
        assert_eq!(holder.ended().await.code, 0);
        let left: Vec<String> = shared_server().ask(&["KEYS", &format!("*{key}*")]).await;
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn killed_by_sigkill_it_leaves_the_command_running_and_a_lock_that_ends_with_its_lease() {
    let key = unique("cli:killed");
    let arguments = [
        "run",
        &key,
        "--lease",
        "1s",
        "--",
        "sh",
        "-c",
        "echo child $$; exec sleep 120",
    ];
    let mut run = start(arguments);
    let child = run.number("child").await;
    assert!(!is_free(&key).await);
    run.kill();
    eventually(DEADLINE, || is_free(&key)).await;
    assert!(is_alive(child));
    rustix::process::kill_process(crate::command::pid(child), Signal::KILL).unwrap();
    assert_eq!(redlock(["run", "-n", &key, "true"]).await.code, 0);
}
