//! Prints what one acquisition and release of each kind takes of the server: instructions, and
//! commands with those inside scripts.
//!
//! ```text
//! cargo run --release -p benches --bin server_cost
//! ```
//!
//! The server runs under valgrind, which counts the same on a busy machine as on an idle one. The
//! figures are the difference between a long run and a short one, so the start is not part of them.

use std::{
    fs,
    future::Future,
    io::{self, Write},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::future::join_all;
use redlock_rt::{Client, Kind, Lock};

const TASKS: usize = 32;
const FEW: usize = 4;
const MANY: usize = 24;
/// Valgrind starts slowly, and the server in it.
const START: Duration = Duration::from_secs(60);

/// A server under valgrind.
struct Counted {
    process: Child,
    url: String,
    directory: tempfile::TempDir,
}

/// What a run took.
#[derive(Debug, Clone, Copy)]
struct Cost {
    instructions: u64,
    commands: u64,
}

impl Counted {
    async fn start() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let program = std::env::var("REDLOCK_TEST_REDIS_SERVER");
        let program = program.unwrap_or_else(|_| String::from("redis-server"));
        let log = fs::File::create(Self::log(directory.path()))?;
        let process = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(program)
            // Its own timers would be part of the count.
            .args(["--save", "", "--hz", "1", "--port", &port.to_string()])
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let counted = Self {
            process,
            url: format!("redis://127.0.0.1:{port}"),
            directory,
        };
        let answers = async {
            while tests::connection_to(&counted.url).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(START, answers).await?;
        Ok(counted)
    }

    fn log(directory: &Path) -> std::path::PathBuf {
        directory.join("valgrind.log")
    }

    /// The commands that were run so far.
    async fn commands(&self) -> redis::RedisResult<u64> {
        let mut connection = tests::connection_to(&self.url).await?;
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut connection)
            .await?;
        let calls = info.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let counts = !command.starts_with("info") && !command.starts_with("client");
            rest.split(',')
                .next()?
                .parse::<u64>()
                .ok()
                .filter(|_| counts)
        });
        Ok(calls.sum())
    }

    /// Ends the server; returns its instructions.
    async fn end(mut self) -> io::Result<u64> {
        if let Ok(mut connection) = tests::connection_to(&self.url).await {
            // It ends without an answer.
            let ended = redis::cmd("SHUTDOWN").arg("NOSAVE").to_owned();
            let _: Result<(), _> = ended.query_async(&mut connection).await;
        }
        self.process.wait()?;
        let log = fs::read_to_string(Self::log(self.directory.path()))?;
        let count = log
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| io::Error::other(log))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn run<F: Future<Output = ()> + Send + 'static>(
    times: usize,
    pair: &(impl Fn(Client, String) -> F + Send + Sync),
) -> Cost {
    let server = Counted::start()
        .await
        .expect("valgrind and redis-server are installed");
    let client = Client::connect(&server.url)
        .await
        .expect("the server answers");
    for _ in 0..times {
        let pairs =
            (0..TASKS).map(|task| tokio::spawn(pair(client.clone(), format!("cost:{task:02}"))));
        for pair in join_all(pairs).await {
            pair.expect("no task panics");
        }
    }
    let commands = server.commands().await.expect("the server answers");
    drop(client);
    Cost {
        instructions: server.end().await.expect("valgrind has counted"),
        commands,
    }
}

async fn report<F: Future<Output = ()> + Send + 'static>(
    kind: &str,
    pair: impl Fn(Client, String) -> F + Send + Sync,
) {
    let (few, many) = (run(FEW, &pair).await, run(MANY, &pair).await);
    let pairs = ((MANY - FEW) * TASKS) as u64;
    let _ = writeln!(
        io::stdout(),
        "{kind:24} {:8} instructions {:6.1} commands",
        (many.instructions - few.instructions) / pairs,
        (many.commands - few.commands) as f64 / pairs as f64,
    );
}

async fn lock<K: Kind>(lock: Lock<K>) {
    let guard = lock.lock().await.expect("it is free");
    guard.unlock().await.expect("the server answers");
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    report("RLock", |client, name| lock(client.rlock(name))).await;
    report("SpinLock", |client, name| lock(client.spin_lock(name))).await;
    report("FencedLock", |client, name| lock(client.fenced_lock(name))).await;
    let read = |client: Client, name| lock(client.read_write_lock(name).read_lock());
    report("ReadLock", read).await;
    let write = |client: Client, name| lock(client.read_write_lock(name).write_lock());
    report("WriteLock", write).await;
    report("FairLock", |client, name| lock(client.fair_lock(name))).await;
    report("Semaphore", |client: Client, name: String| async move {
        let permit = client.semaphore(name).limit(1).acquire().await;
        permit
            .expect("it is free")
            .release()
            .await
            .expect("the server answers");
    })
    .await;
    report(
        "PermitExpirableSemaphore",
        |client: Client, name: String| async move {
            let semaphore = client.permit_expirable_semaphore(name).limit(1);
            let permit = semaphore.acquire().await;
            permit
                .expect("it is free")
                .release()
                .await
                .expect("the server answers");
        },
    )
    .await;
}
