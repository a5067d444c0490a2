//! docs/cli.md, whose commands run and print what it says; completions and the man page.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command as Settings};

use tests::RedisServer;

use crate::command::{PROGRAM, redlock};

const MANUAL: &str = include_str!("../../docs/cli.md");

/// The commands of a block, and what they print: `…` stands for any text of a line.
fn block(text: &str) -> (String, Vec<&str>) {
    let mut script = String::new();
    let mut printed = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        let command = line
            .strip_prefix("$ ")
            .or_else(|| continued.then_some(line));
        match command {
            Some(command) => {
                script.push_str(command);
                script.push('\n');
                continued = command.ends_with('\\');
            }
            None => printed.push(line),
        }
    }
    (script, printed)
}

fn matches(line: &str, pattern: &str) -> bool {
    match pattern.split_once('…') {
        None => line == pattern,
        Some((before, after)) => line.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| matches(&rest[at..], after))
        }),
    }
}

#[test]
fn each_command_of_the_manual_prints_what_it_says() {
    let server = RedisServer::start();
    let place = tempfile::tempdir().unwrap();
    symlink(PROGRAM, place.path().join("redlock")).unwrap();
    let mut ran = 0;
    for text in MANUAL.split("```console\n").skip(1) {
        let (script, expected) = block(text.split("```").next().unwrap());
        let printed = run(&script, &server, place.path());
        let printed: Vec<_> = printed.lines().collect();
        let same = printed.len() == expected.len()
            && printed
                .iter()
                .zip(&expected)
                .all(|(line, pattern)| matches(line, pattern));
        assert!(same, "{script}prints {printed:#?}, not {expected:#?}");
        ran += 1;
    }
    assert!(ran >= 5, "{ran}");
}

fn run(script: &str, server: &RedisServer, place: &Path) -> String {
    let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap());
    let output = Settings::new("timeout")
        .args(["60", "sh", "-c", &format!("exec 2>&1\n{script}")])
        .current_dir(place)
        .env("PATH", path)
        .env("REDIS_URL", server.url())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_manual_names_each_command_and_option() {
    let place = tempfile::tempdir().unwrap();
    symlink(PROGRAM, place.path().join("redlock")).unwrap();
    let help = |command: &str| {
        let program = place.path().join("redlock");
        let output = Settings::new(program)
            .args([command, "--help"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = [
        "run", "wait", "unlock", "latch", "permits", "doctor", "ls", "show", "watch", "top",
    ];
    for command in commands {
        assert!(MANUAL.contains(&format!("redlock {command}")), "{command}");
        let help = help(command);
        let options = help.lines().filter_map(|line| {
            let option = &line[line.find("--")?..];
            let starts = line.trim_start().starts_with('-');
            starts.then(|| option.split([' ', '=', '.', ',']).next().unwrap_or(option))
        });
        for option in options.filter(|option| !["--help", "--version"].contains(option)) {
            assert!(MANUAL.contains(option), "{command} {option}");
        }
    }
}

#[test]
fn completions_that_cannot_be_written_were_a_panic() {
    let full = fs::File::options().write(true).open("/dev/full");
    let mut completions = std::process::Command::new(PROGRAM);
    completions.args(["completions", "bash"]);
    let output = completions.stdout(full.unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(70), "{output:?}");
}

#[tokio::test]
async fn completions_are_scripts_of_their_shells_and_the_man_page_is_one() {
    let bash = redlock(["completions", "bash"]).await;
    assert!(bash.code == 0 && bash.out.contains("complete -F _redlock"));
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("redlock.bash");
    fs::write(&file, &bash.out).unwrap();
    // As bash does it for `redlock run --min<tab>`.
    let asks = format!(
        "source {} && COMP_WORDS=(redlock run --min) COMP_CWORD=2 && _redlock redlock --min run && \
         echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    let output = Settings::new("bash").args(["-c", &asks]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "--min-hold\n",
        "{output:?}"
    );
    for shell in ["zsh", "fish"] {
        let script = redlock(["completions", shell]).await;
        assert!(
            script.code == 0 && script.out.contains("min-hold"),
            "{shell}"
        );
    }
    for (arguments, title) in [(&["man"][..], "redlock"), (&["man", "run"], "redlock-run")] {
        let page = crate::command::Command::start("", arguments).ended().await;
        assert!(page.out.contains(&format!(".TH {title} 1")), "{}", page.out);
    }
    assert_eq!(redlock(["man", "nothing"]).await.code, 64);
}
