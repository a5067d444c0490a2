//! A MONITOR connection: the commands that a server has received.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use crate::{DEADLINE, RedisServer, eventually::within, lock, names::unique};

/// One command that the server has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorLine {
    /// The client's address, or `lua` for a call inside a script.
    pub source: String,
    /// The command and its arguments; bytes that are not ASCII are replaced.
    pub args: Vec<String>,
}

impl MonitorLine {
    /// Whether a script called it, rather than a client.
    pub fn is_inner(&self) -> bool {
        self.source == "lua"
    }

    /// The command's name in upper case.
    pub fn command(&self) -> String {
        self.args
            .first()
            .map_or_else(String::new, |name| name.to_ascii_uppercase())
    }

    /// Parses `+TIME [DB SOURCE] "ARG" "ARG"…`.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, mut rest) = line.strip_prefix('+')?.split_once("] ")?;
        let source = head.split_once(" [")?.1.split_once(' ')?.1.to_owned();
        let mut args = Vec::new();
        while let Some(text) = rest.trim_start().strip_prefix('"') {
            let (arg, after) = unquote(text)?;
            args.push(arg);
            rest = after;
        }
        Some(Self { source, args })
    }
}

/// Collects the commands of all clients of a server since the last mark.
#[derive(Debug)]
pub struct Monitor {
    stream: TcpStream,
    seen: Arc<Seen>,
    control: MultiplexedConnection,
}

#[derive(Debug, Default)]
struct Seen {
    lines: Mutex<Vec<MonitorLine>>,
    count: watch::Sender<usize>,
}

impl Monitor {
    /// Watches this server from now on.
    pub async fn start(server: &RedisServer) -> Self {
        let control = server.connect().await.expect("the server answers");
        let (stream, reader) = monitor(server).expect("the server takes MONITOR");
        let seen = Arc::new(Seen::default());
        let collect = {
            let seen = seen.clone();
            // Ends with the connection.
            move || {
                reader
                    .lines()
                    .map_while(Result::ok)
                    .for_each(|line| seen.add(&line))
            }
        };
        thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(collect)
            .expect("a thread");
        let mut monitor = Self {
            stream,
            seen,
            control,
        };
        monitor.mark().await;
        monitor
    }

    /// Forgets all lines so far.
    pub async fn mark(&mut self) {
        self.sync().await;
    }

    /// The lines since the last mark, with all commands that were answered before this call.
    pub async fn lines(&mut self) -> Vec<MonitorLine> {
        let lines = self.sync().await;
        // The next call also counts from the last mark.
        lock(&self.seen.lines).splice(0..0, lines.iter().cloned());
        lines
    }

    /// How many commands of each name clients sent since the last mark, up to now, without those
    /// that scripts called.
    pub async fn counts(&mut self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines().await.iter().filter(|line| !line.is_inner()) {
            *counts.entry(line.command()).or_insert(0) += 1;
        }
        counts
    }

    /// Takes the lines up to a marker that it sends. The server serves one command after the other,
    /// so no earlier command comes after the marker.
    async fn sync(&mut self) -> Vec<MonitorLine> {
        let marker = unique("monitor");
        let echo = redis::cmd("ECHO").arg(&marker).to_owned();
        let answered = within(DEADLINE, echo.exec_async(&mut self.control)).await;
        answered.expect("the server answers");
        let is_marker = |line: &MonitorLine| line.args.get(1) == Some(&marker);
        let mut count = self.seen.count.subscribe();
        let arrived = count.wait_for(|_| lock(&self.seen.lines).iter().any(is_marker));
        within(DEADLINE, arrived)
            .await
            .expect("self owns the sender");
        let mut lines = lock(&self.seen.lines);
        let end = lines
            .iter()
            .position(is_marker)
            .expect("the marker has arrived");
        let mut taken: Vec<_> = lines.drain(..=end).collect();
        taken.pop();
        taken
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // Ends the collecting thread. Fails if the server is gone; then the thread has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Seen {
    fn add(&self, line: &str) {
        if let Some(line) = MonitorLine::parse(line) {
            lock(&self.lines).push(line);
            self.count.send_modify(|count| *count += 1);
        }
    }
}

fn monitor(server: &RedisServer) -> io::Result<(TcpStream, BufReader<TcpStream>)> {
    let mut stream = TcpStream::connect(server.address())?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let auth = server
        .password()
        .map(|password| format!("AUTH {password}\r\n"));
    for command in auth.into_iter().chain(["MONITOR\r\n".to_owned()]) {
        stream.write_all(command.as_bytes())?;
        let mut answer = String::new();
        reader.read_line(&mut answer)?;
        if answer != "+OK\r\n" {
            return Err(io::Error::other(answer));
        }
    }
    Ok((stream, reader))
}

/// Undoes the server's quoting up to the closing quote; also returns the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut arg = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (end, '"') => return Some((arg, &text[end + 1..])),
            (_, '\\') => arg.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'a' => '\x07',
                'b' => '\x08',
                'x' => {
                    let digits: String = chars.by_ref().take(2).map(|(_, digit)| digit).collect();
                    let byte = u8::from_str_radix(&digits, 16).ok()?;
                    if byte.is_ascii() {
                        byte.into()
                    } else {
                        char::REPLACEMENT_CHARACTER
                    }
                }
                other => other,
            }),
            (_, other) => arg.push(other),
        }
    }
}
