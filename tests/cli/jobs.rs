//! `redlock run` at a terminal: the command has it, and jobs are stopped and continued by the shell.

use std::future::ready;
use std::time::Duration;

use tests::{DEADLINE, eventually, is_alive, shared_server, unique};

use crate::command::PROGRAM;
use crate::terminal::Terminal;

async fn is_free(key: &str) -> bool {
    let there: bool = shared_server().ask(&["EXISTS", key]).await;
    !there
}

/// An interactive shell with job control.
fn shell() -> Terminal {
    Terminal::start(
        &shared_server().url(),
        &["bash", "--norc", "--noprofile", "-i"],
    )
}

/// Whether the group of this process is in the foreground of its terminal.
fn has_terminal(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    // State, parent, group, session, terminal, group in the foreground.
    fields[2] == fields[5]
}

#[tokio::test]
async fn the_command_reads_from_the_terminal_and_has_it_to_itself() {
    let key = unique("cli:tty");
    // The eighth field is the foreground group, which this is before it reads.
    let line = "until set -- $(cat /proc/$$/stat) && test $8 = $$; do sleep 0.01; done; echo front; \
                test -t 0 && read word && echo \"got <$word>\"";
    let mut terminal = Terminal::start(
        &shared_server().url(),
        &[PROGRAM, "run", &key, "--", "sh", "-c", line],
    );
    terminal.shows("front", 1).await;
    assert!(!is_free(&key).await);
    terminal.types("hello\n");
    terminal.shows("got <hello>", 1).await;
    assert_eq!(terminal.ended().await, 0);
    assert!(is_free(&key).await);
}

#[tokio::test]
async fn control_c_ends_the_command_and_releases_the_lock() {
    let key = unique("cli:int");
    let arguments = [
        PROGRAM,
        "run",
        &key,
        "--",
        "sh",
        "-c",
        "echo ran; exec sleep 120",
    ];
    let mut terminal = Terminal::start(&shared_server().url(), &arguments);
    terminal.shows("ran", 1).await;
    // The echo of the keys comes before the command has the terminal, or after it: both end it.
    terminal.types("\x03");
    assert_eq!(terminal.ended().await, 128 + 2);
    assert!(is_free(&key).await);
}

#[tokio::test]
async fn the_terminal_returns_to_the_shell_after_each_command() {
    let mut shell = shell();
    let key = unique("cli:return");
    for turn in 1..=3 {
        shell.types(&format!(
            "{PROGRAM} run {key} -- sh -c 'read word; echo \"<$word-{turn}>\"'\n"
        ));
        shell.types("word\n");
        shell.shows(&format!("<word-{turn}>"), 1).await;
    }
    shell.types("echo still $((6 * 7))\n");
    shell.shows("still 42", 1).await;
}

#[tokio::test]
async fn a_job_that_is_stopped_returns_to_the_shell_and_goes_on_in_front() {
    let mut shell = shell();
    let key = unique("cli:stop");
    let line = "echo child $$; while read word; do echo \"<$word>\"; done; echo end";
    shell.types(&format!("{PROGRAM} run {key} -- sh -c '{line}'\n"));
    let _ = shell.number("child").await;
    shell.types("one\n");
    shell.shows("<one>", 1).await;
    shell.types("\x1a");
    shell.shows("Stopped", 1).await;
    shell.types("echo shell $((6 * 7))\n");
    shell.shows("shell 42", 1).await;
    shell.types("fg\n");
    shell.types("two\n");
    shell.shows("<two>", 1).await;
    shell.types("\x04");
    shell.shows("end\r\n", 1).await;
    eventually(DEADLINE, || is_free(&key)).await;
    shell.types("echo done $((40 + 2))\n");
    shell.shows("done 42", 1).await;
}

#[tokio::test]
async fn a_job_that_is_stopped_for_longer_than_its_lease_is_ended_when_it_goes_on() {
    let mut shell = shell();
    let key = unique("cli:late");
    let line = "echo child $$; while read word; do echo \"<$word>\"; done";
    shell.types(&format!(
        "{PROGRAM} run {key} --lease 500ms -- sh -c '{line}'; echo code $?\n"
    ));
    let child = shell.number("child").await;
    shell.types("\x1a");
    shell.shows("Stopped", 1).await;
    eventually(DEADLINE, || is_free(&key)).await;
    assert!(is_alive(child));
    shell.types("fg; echo \"after $?\"\n");
    shell.shows("after 76", 1).await;
    assert!(!is_alive(child));
}

/// A shell continues no job that runs: nothing told of the terminal, and Ctrl-Z stopped `redlock` alone.
#[tokio::test]
async fn a_command_ran_on_without_its_lock_after_fg_and_control_z() {
    let mut shell = shell();
    let key = unique("cli:fg");
    let line =
        "trap \"echo told $((40 + 2))\" TSTP; echo child $$; sleep 120 & while :; do wait; done";
    shell.types(&format!("{PROGRAM} run {key} -- sh -c '{line}' &\n"));
    let child = shell.number("child").await;
    shell.types("fg\n");
    // Until the command has the terminal, Ctrl-Z is for this program alone.
    eventually(DEADLINE, || ready(has_terminal(child))).await;
    shell.types("\x1a");
    shell.shows("told 42", 1).await;
    shell.types("\x03");
    eventually(DEADLINE, || is_free(&key)).await;
}

/// Ctrl-Z does nothing there.
#[tokio::test]
async fn control_z_where_no_shell_can_continue_the_command_kept_the_lock_for_ever() {
    let key = unique("cli:alone");
    let line = "echo child $$; exec sleep 120";
    let arguments = [PROGRAM, "run", &key, "--", "sh", "-c", line];
    let mut terminal = Terminal::start(&shared_server().url(), &arguments);
    let child = terminal.number("child").await;
    eventually(DEADLINE, || ready(has_terminal(child))).await;
    terminal.types("\x1a");
    // Long enough for the program to take the terminal back, and to find that it goes on.
    tokio::time::sleep(Duration::from_millis(500)).await;
    eventually(DEADLINE, || ready(has_terminal(child))).await;
    terminal.types("\x03");
    assert_eq!(terminal.ended().await, 128 + 2);
    assert!(is_free(&key).await);
}

#[tokio::test]
async fn a_terminal_that_stops_who_writes_from_behind_kept_a_command_without_its_lock() {
    let mut shell = shell();
    let key = unique("cli:tostop");
    let line = "stty tostop; echo child $$; exec sleep 120";
    shell.types(&format!(
        "{PROGRAM} run {key} --lease 500ms -- sh -c '{line}'; echo code $?\n"
    ));
    let child = shell.number("child").await;
    let client = redlock_rt::Client::connect(&shared_server().url())
        .await
        .unwrap();
    // After a stall its lease is over already.
    client.rlock(&key).force_unlock().await.unwrap();
    shell.shows("code 76", 1).await;
    assert!(!is_alive(child));
}

#[tokio::test]
async fn a_job_in_the_background_stops_when_it_reads_and_has_the_terminal_in_front() {
    let mut shell = shell();
    let key = unique("cli:behind");
    let line = "echo child $$; read word; echo \"<$word>\"";
    shell.types(&format!("{PROGRAM} run {key} -- sh -c '{line}' &\n"));
    let _ = shell.number("child").await;
    // The shell tells of jobs before it prompts.
    eventually(DEADLINE, || {
        shell.types("\n");
        ready(shell.shown().contains("Stopped"))
    })
    .await;
    shell.types("fg\n");
    shell.types("word\n");
    shell.shows("<word>", 1).await;
    eventually(DEADLINE, || is_free(&key)).await;
}
