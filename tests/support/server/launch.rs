//! Starts a `redis-server`, and waits until this server answers on its port.

use std::{
    env, fs,
    fs::File,
    io,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use redis::RedisError;
use tempfile::TempDir;

use super::{Ports, ServerOptions, tls::Certificates};
use crate::{process::ChildProcess, step::with_clock};

/// Replaces the server in the PATH by another version, or by Valkey.
const BINARY_VARIABLE: &str = "REDLOCK_TEST_REDIS_SERVER";
const READY_DEADLINE: Duration = Duration::from_secs(20);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(2);
const PORT_TRIES: usize = 20;

/// The server's directory and its files.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) directory: TempDir,
    pub(super) certificates: Option<Certificates>,
}

impl Files {
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(super) fn clock(&self) -> PathBuf {
        self.directory.path().join("clock")
    }

    pub(super) fn log_text(&self) -> String {
        fs::read(self.log()).map_or_else(
            |error| format!("no log: {error}"),
            |text| String::from_utf8_lossy(&text).into_owned(),
        )
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("redis.log")
    }
}

enum Failure {
    PortTaken,
    Other(String),
}

/// Panics if there is no redis-server; the message says what to install.
pub(super) fn check_installed() {
    static CHECKED: OnceLock<()> = OnceLock::new();
    CHECKED.get_or_init(|| {
        let found = Command::new(binary())
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        match found {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => panic!(
                "`{}` was not found: these tests run a real Redis. Install it (Debian, Ubuntu: \
                 `apt-get install redis-server`; macOS: `brew install redis`) or set \
                 {BINARY_VARIABLE} to the path of one",
                binary()
            ),
            Err(error) => panic!("`{}` does not start: {error}", binary()),
        }
    });
}

/// Starts a server for the first time; takes other ports if its ports were taken meanwhile.
pub(super) fn start_on_free_ports(options: &ServerOptions, files: &Files) -> (Ports, ChildProcess) {
    for _ in 0..PORT_TRIES {
        let ports = Ports::pick(options);
        match try_start(options, &ports, files) {
            Ok(process) => return (ports, process),
            Err(Failure::PortTaken) => {}
            Err(Failure::Other(why)) => panic!("{why}\n{}", files.log_text()),
        }
    }
    panic!(
        "redis-server found {PORT_TRIES} ports taken\n{}",
        files.log_text()
    );
}

/// Starts a server again, on the same ports.
pub(super) fn start_on(options: &ServerOptions, ports: &Ports, files: &Files) -> ChildProcess {
    match try_start(options, ports, files) {
        Ok(process) => process,
        Err(Failure::PortTaken) => {
            panic!(
                "port {} was taken while the server was down",
                ports.plain.number()
            )
        }
        Err(Failure::Other(why)) => panic!("{why}\n{}", files.log_text()),
    }
}

fn try_start(
    options: &ServerOptions,
    ports: &Ports,
    files: &Files,
) -> Result<ChildProcess, Failure> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(files.log())
        .expect("the log opens");
    let log_before = files.log_text().len();
    let mut process = ChildProcess::spawn(binary(), arguments(options, ports, files), |command| {
        command
            .stdout(log.try_clone().expect("a file handle can be cloned"))
            .stderr(log.try_clone().expect("a file handle can be cloned"));
        if options.own_clock {
            with_clock(command, &files.clock());
        }
    })
    .map_err(|error| Failure::Other(format!("redis-server was not started: {error}")))?;
    drop(process.take_stdin());

    let deadline = Instant::now() + READY_DEADLINE;
    let mut answer = "not asked".to_owned();
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait() {
            return Err(
                if files.log_text()[log_before..].contains("Address already in use") {
                    Failure::PortTaken
                } else {
                    Failure::Other(format!("redis-server ended at its start: {status}"))
                },
            );
        }
        match answering_process(options, ports) {
            Ok(pid) if pid == process.pid() => return Ok(process),
            // Ours will find the port taken and end.
            Ok(other) => answer = format!("process {other} answers on this port"),
            Err(error) => answer = error.to_string(),
        }
        thread::sleep(POLL);
    }
    Err(Failure::Other(format!(
        "redis-server is not ready after {READY_DEADLINE:?}: {answer}"
    )))
}

/// The pid of the server that answers a PING on the port.
fn answering_process(options: &ServerOptions, ports: &Ports) -> Result<u32, RedisError> {
    let password = options.password.as_ref();
    let credentials = password.map_or_else(String::new, |password| format!(":{password}@"));
    let client = redis::Client::open(format!("redis://{credentials}{}", ports.plain.address()))?;
    let mut connection = client.get_connection_with_timeout(PROBE_TIMEOUT)?;
    connection.set_read_timeout(Some(PROBE_TIMEOUT))?;
    // Fails while the data is being loaded.
    redis::cmd("PING").exec(&mut connection)?;
    let info: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
    let pid = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok());
    Ok(pid.unwrap_or_default())
}

fn arguments(options: &ServerOptions, ports: &Ports, files: &Files) -> Vec<String> {
    let directory = files.directory.path().display();
    let mut arguments = words(&format!("--bind 127.0.0.1 --port {}", ports.plain.number()));
    arguments.extend(["--dir".to_owned(), directory.to_string()]);
    // An empty argument cannot be written as a word.
    arguments.extend(["--save".to_owned(), String::new()]);
    arguments.extend(words(if options.aof {
        "--appendonly yes --appendfsync always"
    } else {
        "--appendonly no"
    }));
    if let Some(password) = &options.password {
        arguments.extend(["--requirepass".to_owned(), password.clone()]);
    }
    if options.unix_socket {
        let socket = files.socket().display().to_string();
        arguments.extend(["--unixsocket".to_owned(), socket]);
    }
    if let Some(tls) = &ports.tls {
        arguments.extend(words(&format!(
            "--tls-port {} --tls-auth-clients no --tls-cert-file {directory}/server.pem \
             --tls-key-file {directory}/server.key --tls-ca-cert-file {directory}/ca.pem",
            tls.number()
        )));
    }
    if let Some(announced) = &ports.announced {
        arguments.extend(words(&format!(
            "--cluster-announce-port {}",
            announced.number()
        )));
    }
    arguments.extend_from_slice(&options.arguments);
    arguments
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

pub(super) fn binary() -> String {
    env::var(BINARY_VARIABLE).unwrap_or_else(|_| "redis-server".to_owned())
}
