//! An in-process server with scripted answers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use redlock_rt::ClientBuilder;
use tests::client_over;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

/// The commands with scripted answers; the server answers all others as if all locks were free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// EVALSHA. The server has no RESTORE.
    Calls,
    /// SCRIPT LOAD.
    Loads,
    /// CLIENT ID and two INFO, the first commands of a connection.
    Greetings,
}

/// The server; clones are the same.
#[derive(Clone)]
pub(crate) struct Scripted {
    shared: Arc<Mutex<Shared>>,
    target: Target,
}

#[derive(Default)]
struct Shared {
    answers: VecDeque<String>,
    for_ever: Option<String>,
    calls: usize,
    /// Whether scripts must be loaded first.
    forgetful: bool,
}

impl Scripted {
    /// Sends each of these answers once, then those of a free lock.
    pub(crate) fn passing(target: Target, answers: &[&str]) -> Self {
        let answers = answers.iter().map(|&answer| answer.to_owned()).collect();
        Self::new(
            target,
            Shared {
                answers,
                ..Shared::default()
            },
        )
    }

    /// Always sends this answer.
    pub(crate) fn persistent(target: Target, answer: &str) -> Self {
        let for_ever = Some(answer.to_owned());
        Self::new(
            target,
            Shared {
                for_ever,
                ..Shared::default()
            },
        )
    }

    fn new(target: Target, shared: Shared) -> Self {
        Self {
            shared: Arc::new(Mutex::new(shared)),
            target,
        }
    }

    /// From now on scripts must be loaded first.
    pub(crate) fn forgets_scripts(&self) {
        self.shared.lock().unwrap().forgetful = true;
    }

    /// The number of commands with scripted answers.
    pub(crate) fn scripted(&self) -> usize {
        self.shared.lock().unwrap().calls
    }

    pub(crate) fn client(&self) -> ClientBuilder {
        let server = self.clone();
        client_over(move |theirs| server.clone().serve(theirs))
    }

    async fn serve(self, stream: DuplexStream) {
        let mut stream = BufReader::new(stream);
        while let Some(words) = read(&mut stream).await {
            let answer = self.answer(&words);
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, words: &[String]) -> String {
        let command = words[0].to_ascii_uppercase();
        // The first connection asks whether it can renew, with no holds.
        if command == "EVALSHA" && words[2] == "0" {
            return "*0\r\n".into();
        }
        let target = match (command.as_str(), words[1].to_ascii_uppercase().as_str()) {
            ("EVALSHA", _) => Some(Target::Calls),
            ("SCRIPT", _) => Some(Target::Loads),
            ("CLIENT", "ID") | ("INFO", _) => Some(Target::Greetings),
            _ => None,
        };
        if target == Some(self.target)
            && let Some(answer) = self.next()
        {
            return format!("{answer}\r\n");
        }
        let mut shared = self.shared.lock().unwrap();
        if command == "EVALSHA" && shared.forgetful {
            return "-NOSCRIPT No matching script.\r\n".into();
        }
        shared.forgetful &= command != "SCRIPT";
        let info = "run_id:scripted\r\n";
        match (command.as_str(), target) {
            // The releasing script has a channel and a publish command; the acquiring one returns nil
            // if it takes the lock.
            ("EVALSHA", _) if words.last().is_some_and(|word| word == "PUBLISH") => ":1\r\n".into(),
            ("EVALSHA", _) => "$-1\r\n".into(),
            ("RESTORE" | "HDEL", _) => format!("-ERR unknown command '{command}'\r\n"),
            ("INFO", _) => format!("${}\r\n{info}\r\n", info.len()),
            ("CLIENT", Some(_)) => ":7\r\n".into(),
            ("SCRIPT", _) => "+loaded\r\n".into(),
            ("SUBSCRIBE" | "UNSUBSCRIBE", _) => format!(
                "*3\r\n${}\r\n{}\r\n${}\r\n{}\r\n:1\r\n",
                command.len(),
                command.to_ascii_lowercase(),
                words[1].len(),
                words[1]
            ),
            _ => "+OK\r\n".into(),
        }
    }

    fn next(&self) -> Option<String> {
        let mut shared = self.shared.lock().unwrap();
        let answer = shared
            .answers
            .pop_front()
            .or_else(|| shared.for_ever.clone())?;
        shared.calls += 1;
        Some(answer)
    }
}

/// An array of bulk strings, as clients send.
async fn read(stream: &mut BufReader<DuplexStream>) -> Option<Vec<String>> {
    let count = read_number(stream).await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = read_number(stream).await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    // So that every command has a second word.
    words.resize(words.len().max(2), String::new());
    Some(words)
}

/// The number after `*` or `$`; `None` at the end of the stream.
async fn read_number(stream: &mut BufReader<DuplexStream>) -> Option<usize> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).await.ok()?;
    (read > 0).then(|| line[1..].trim_end().parse().unwrap())
}
