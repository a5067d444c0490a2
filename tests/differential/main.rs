//! The embedded engine against a real redis-server: the same requests, the same replies.
//!
//! Replies are compared byte by byte. Exceptions, all of them:
//!
//! 1. Times may differ by 20 ms, and by the measured skew of the two servers (see `Skew`).
//! 2. Collections without an order may have any order; one page of a scan is compared.
//! 3. Replies that depend on the server are compared by their type only: INFO and CLIENT ID.
//! 4. A scan starts at cursor 0, since the engine returns everything in one page.
//! 5. UNSUBSCRIBE without arguments, and several patterns that match one message, may answer in
//!    any order.
//! 6. For an unknown command or global the engine adds to the error of Redis that it lacks it.
//! 7. Not sent: scripts that crash 7.0.15 (`error({})`), commands that 7.0 lacks (CLIENT SETINFO) or
//!    the engine lacks (see `Engine`), HRANDFIELD (random), CLIENT KILL except by ID, and RESTORE of
//!    what the engine does not read.
//!
//! `REDLOCK_SEED=n` repeats a run; `REDLOCK_SOAK=1` sends a million commands.

// Helpers fail a test by a panic.
#![allow(clippy::print_stdout)]

mod compare;
mod conversations;
mod frame;
mod generate;
mod peer;
mod restore;
mod scripts;

use compare::Rule;
use frame::Frame;
use generate::{Generator, words};
use peer::{Command, Pair, Replies};
use redlock_rt::embedded::Engine;
use std::collections::VecDeque;
use tests::{Random, RedisServer};

fn seed() -> u64 {
    let seed = match std::env::var("REDLOCK_SEED") {
        Ok(text) => text.parse().expect("REDLOCK_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
    };
    println!("REDLOCK_SEED={seed}");
    seed
}

fn soak() -> bool {
    std::env::var_os("REDLOCK_SOAK").is_some_and(|value| value != "0")
}

/// The last commands, which are shown after a difference.
struct History(VecDeque<(usize, Command)>);

impl History {
    fn add(&mut self, connection: usize, command: &Command) {
        self.0.push_back((connection, command.clone()));
        if self.0.len() > 2000 {
            self.0.pop_front();
        }
    }

    /// The last commands that have a key in common with this one.
    fn related(&self, command: &Command) -> String {
        let is_key = |a: &&Vec<u8>| a.len() == 2 && a[0].is_ascii_lowercase() && a[1] <= b'9';
        let keys: Vec<&Vec<u8>> = command.iter().filter(is_key).collect();
        let shares = |other: &Command| other.iter().any(|a| keys.contains(&a));
        let related = self.0.iter().filter(|(_, other)| shares(other));
        let lines: Vec<String> = related
            .map(|(c, other)| format!("  [{c}] {}", scripts::show(other)))
            .collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

/// Sorts messages for several patterns of one connection (exception 5).
fn settle(frames: &mut [Frame]) {
    let is_pattern = |frame: &Frame| {
        let word = frame.items().and_then(|items| items.first());
        word.is_some_and(|word| word.body == frame::Body::Bulk(b"pmessage".to_vec()))
    };
    for run in frames.chunk_by_mut(|a, b| is_pattern(a) && is_pattern(b)) {
        run.sort();
    }
}

fn unsubscribes_all(command: &Command) -> bool {
    command.len() == 1 && command[0].to_ascii_lowercase().ends_with(b"unsubscribe")
}

/// Compares the replies to one connection's commands; returns the first difference.
fn check_own(
    commands: &[Command],
    replies: &Replies,
    tolerance: f64,
) -> Result<(), (usize, String)> {
    let mut at = 0;
    for (index, (command, count)) in commands.iter().zip(&replies.counts).enumerate() {
        let range = at..at + count;
        at += count;
        let real: Option<Vec<Frame>> = replies.real.range(range.clone()).cloned().collect();
        let mut embedded = replies.embedded[range].to_vec();
        let Some(mut real) = real else {
            return Err((index, "redis said nothing more".into()));
        };
        if unsubscribes_all(command) {
            continue;
        }
        settle(&mut real);
        settle(&mut embedded);
        let rule = if real.len() == 1 {
            compare::rule(command)
        } else {
            Rule::Exact
        };
        let mut pairs = real.iter().zip(&embedded);
        if !pairs.all(|(real, embedded)| compare::equal(rule, real, embedded, tolerance)) {
            return Err((index, format!("redis:  {real:?}\n  engine: {embedded:?}")));
        }
    }
    Ok(())
}

/// Compares the replies to commands on the first connection, with what came before the difference.
fn check_alone(pair: &mut Pair, commands: &[Command]) -> Result<(), String> {
    let replies = pair.run(0, commands);
    let checked = check_own(commands, &replies[0], pair.skew.tolerance());
    checked.map_err(|(index, problem)| {
        let before = &commands[index.saturating_sub(8)..=index];
        let shown: Vec<String> = before.iter().map(scripts::show).collect();
        format!("{}\n  {problem}", shown.join("\n"))
    })
}

/// Compares the messages of another connection.
fn check_other(replies: &Replies) -> Result<(), String> {
    let real: Option<Vec<Frame>> = replies.real.iter().cloned().collect();
    let Some(mut real) = real else {
        return Err(format!(
            "messages are missing from redis\n  redis:  {:?}\n  engine: {:?}",
            replies.real, replies.embedded
        ));
    };
    let mut embedded = replies.embedded.clone();
    settle(&mut real);
    settle(&mut embedded);
    if real == embedded {
        return Ok(());
    }
    Err(format!(
        "messages\n  redis:  {real:?}\n  engine: {embedded:?}"
    ))
}

#[test]
fn random_commands() {
    let server = RedisServer::start();
    let engine = Engine::new();
    let total = if soak() { 1_000_000 } else { 30_000 };
    let seed = seed();
    let mut generator = Generator::new(seed);
    let mut pair = Pair::connect(server.address(), &engine, 4);
    let mut history = History(VecDeque::new());
    let mut sent = 0;
    while sent < total {
        let connection = generator.random.below(4);
        let len = 1 + generator.random.below(60);
        let commands = generator.batch(len);
        let replies = pair.run(connection, &commands);
        let tolerance = pair.skew.tolerance();
        for (other, replies) in replies.iter().enumerate() {
            let checked = if other == connection {
                check_own(&commands, replies, tolerance).map_err(|(index, problem)| {
                    for command in &commands[..index] {
                        history.add(connection, command);
                    }
                    let command = &commands[index];
                    let (shown, related) = (scripts::show(command), history.related(command));
                    format!("{shown}\n  {problem}\nbefore that:\n{related}")
                })
            } else {
                check_other(replies).map_err(|problem| {
                    let batch: Vec<String> = commands.iter().map(scripts::show).collect();
                    format!("{problem}\nbatch:\n{}", batch.join("\n"))
                })
            };
            if let Err(problem) = checked {
                panic!(
                    "REDLOCK_SEED={seed}, after {sent} commands, connection {other} (batch on \
                     {connection}), tolerance {tolerance:.1} ms\n{problem}"
                );
            }
        }
        for command in &commands {
            history.add(connection, command);
        }
        sent += commands.len();
    }
    println!(
        "{sent} commands, times within {:.1} ms",
        pair.skew.tolerance()
    );
}

#[test]
fn commands_that_neither_knows_are_refused_in_the_same_words() {
    let server = RedisServer::start();
    let mut pair = Pair::connect(server.address(), &Engine::new(), 1);
    let seed = seed();
    let mut generator = Generator::new(seed);
    for _ in 0..3000 {
        let unknown = generator.unknown();
        if let Err(problem) = check_alone(&mut pair, &[unknown]) {
            panic!("REDLOCK_SEED={seed}: {problem}");
        }
    }
}

#[test]
fn scripts_of_the_project_on_random_states() {
    let server = RedisServer::start();
    let engine = Engine::new();
    let rounds = if soak() { 5000 } else { 100 };
    let seed = seed();
    let mut random = Random::new(seed);
    let mut pair = Pair::connect(server.address(), &engine, 1);
    for file in scripts::lua_files() {
        for round in 0..rounds {
            if let Err(problem) = scripts::compare_on_random_state(&mut pair, &mut random, &file) {
                panic!("REDLOCK_SEED={seed}, round {round}: {problem}");
            }
        }
    }
}

#[test]
fn conversions_between_lua_and_redis() {
    let server = RedisServer::start();
    let engine = Engine::new();
    let mut pair = Pair::connect(server.address(), &engine, 1);
    let mut problems = Vec::new();
    for script in scripts::CONVERSIONS {
        let state = ["flushall", "hset h f v", "zadd z 1.5 a 2 b", "sadd s a"].map(words);
        pair.run(0, &state);
        let (real, embedded) = scripts::conversion(&mut pair, script);
        if real.as_ref() != Some(&embedded) {
            problems.push(format!(
                "{script:?}\n  redis:  {real:?}\n  engine: {embedded:?}"
            ));
        }
    }
    assert!(
        problems.is_empty(),
        "{} differ\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[test]
fn each_way_to_restore_a_hash_and_to_be_refused() {
    let server = RedisServer::start();
    let mut pair = Pair::connect(server.address(), &Engine::new(), 1);
    let mut problems = Vec::new();
    for commands in restore::cases() {
        problems.extend(check_alone(&mut pair, &commands).err());
    }
    assert_eq!(problems, [""; 0], "{} differ", problems.len());
}

#[test]
fn what_a_real_server_dumps_is_restored() {
    let server = RedisServer::start();
    let mut pair = Pair::connect(server.address(), &Engine::new(), 1);
    let (payload, fields) = restore::dumped(&mut pair);
    let restored = [words("restore h 0"), vec![payload]].concat();
    // The fields of so long a hash have no order in a real server.
    let read = [words("hmget h none"), fields].concat();
    check_alone(&mut pair, &[restored, words("hlen h"), read]).unwrap();
}

#[test]
fn conversations_of_several_connections() {
    let server = RedisServer::start();
    let mut problems = Vec::new();
    for (name, steps) in conversations::CONVERSATIONS {
        let mut pair = Pair::connect(server.address(), &Engine::new(), 3);
        pair.run(0, &[words("flushall"), words("script flush")]);
        if let Err(problem) = conversations::hold(&mut pair, steps) {
            problems.push(format!("{name}: {problem}"));
        }
    }
    assert!(
        problems.is_empty(),
        "{} differ\n{}",
        problems.len(),
        problems.join("\n")
    );
}

#[test]
fn a_server_with_a_password() {
    let server = RedisServer::options().password("secret").start();
    let engine = Engine::with_password("secret");
    for (name, steps) in conversations::WITH_PASSWORD {
        let mut pair = Pair::connect(server.address(), &engine, 3);
        if let Err(problem) = conversations::hold(&mut pair, steps) {
            panic!("{name}: {problem}");
        }
    }
}
