//! Real sentinels, and the master and replicas that they watch.

use std::{
    fs,
    net::SocketAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use futures::StreamExt;
use redis::{FromRedisValue, RedisError};
use tempfile::TempDir;

use crate::{
    DEADLINE, RedisServer, ServerOptions, connection_to, eventually, lock, port::ReservedPort,
    process::ChildProcess, reaper,
};

/// The name of the service that the sentinels watch.
pub const SERVICE: &str = "locks";
/// After this long without an answer a server counts as down, by default. A sentinel takes up to a second
/// to connect to a new master: with less time it counts as down at once, and failovers follow each other.
const DOWN_AFTER: Duration = Duration::from_secs(2);

/// How sentinels are to be started.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SentinelOptions {
    password: Option<String>,
    tls: bool,
    down_after: Option<Duration>,
}

impl SentinelOptions {
    /// Asks clients, and the other sentinels, for a password.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// After this long without an answer a server counts as down; half a second by default.
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = Some(silence);
        self
    }

    /// Speaks TLS only, with the certificate of the master, which must have one.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts `count` sentinels that watch `master`, which must know of its replicas already, and
    /// waits until each of them knows the others and the replicas.
    pub async fn watch(self, master: &RedisServer, replicas: usize, count: usize) -> Sentinels {
        let port = match self.tls {
            true => master.tls_port(),
            false => master.port(),
        };
        self.watch_at(port, master, replicas, count).await
    }

    /// The same with the port of a proxy in front of the master, to which clients are led too.
    pub async fn watch_at(
        self,
        port: u16,
        master: &RedisServer,
        replicas: usize,
        count: usize,
    ) -> Sentinels {
        let sentinels = Sentinels {
            all: (0..count)
                .map(|_| Sentinel::start(&self, master, port, count / 2 + 1))
                .collect(),
            options: self,
        };
        sentinels.know(replicas).await;
        sentinels
    }
}

/// Several sentinels that watch one service.
#[derive(Debug)]
pub struct Sentinels {
    options: SentinelOptions,
    all: Vec<Sentinel>,
}

/// One sentinel process, killed when dropped.
#[derive(Debug)]
struct Sentinel {
    /// Where clients and other sentinels connect.
    port: ReservedPort,
    /// Without TLS, for the harness, if clients need it.
    plain: Option<ReservedPort>,
    // Removed with the process.
    _directory: TempDir,
    process: Mutex<ChildProcess>,
}

impl Sentinels {
    /// Sentinels without a password and without TLS.
    pub fn options() -> SentinelOptions {
        SentinelOptions::default()
    }

    /// `redis+sentinel://` URL of the service; `credentials` are those of the master, with their @.
    pub fn url(&self, credentials: &str) -> String {
        let scheme = match self.options.tls {
            true => "rediss+sentinel",
            false => "redis+sentinel",
        };
        let places: Vec<String> = self.addresses().map(|place| place.to_string()).collect();
        format!("{scheme}://{credentials}{}/{SERVICE}", places.join(","))
    }

    /// Where the sentinels listen.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.all.iter().map(|sentinel| sentinel.port.address())
    }

    /// Asks one of the sentinels about the service.
    ///
    /// # Errors
    /// When it does not answer, or not as expected.
    pub async fn ask<T: FromRedisValue>(&self, at: usize, what: &str) -> Result<T, RedisError> {
        self.all[at].ask(&self.options, &[what]).await
    }

    /// Has the sentinels forget who is gone, and find the replicas and each other anew.
    pub async fn look_again(&self, replicas: usize) {
        for sentinel in &self.all {
            let reset = sentinel
                .ask::<redis::Value>(&self.options, &["RESET"])
                .await;
            reset.expect("a sentinel answers");
        }
        self.know(replicas).await;
    }

    /// Waits until each of them knows the others and so many replicas.
    async fn know(&self, replicas: usize) {
        for sentinel in &self.all {
            let knows = async || {
                let known: Vec<String> = sentinel.ask(&self.options, &["MASTER"]).await?;
                let number = |name: &str| {
                    let at = known.iter().position(|known| known == name)?;
                    known.get(at + 1)?.parse::<usize>().ok()
                };
                Ok::<_, RedisError>(
                    number("num-slaves") == Some(replicas)
                        && number("num-other-sentinels") == Some(self.all.len() - 1),
                )
            };
            eventually(DEADLINE, async || knows().await.unwrap_or(false)).await;
        }
    }

    /// The moment at which the last sentinel has announced another master, none of which was
    /// announced before this returns.
    ///
    /// # Errors
    /// When a sentinel does not answer.
    pub async fn switched(&self) -> Result<impl Future<Output = Instant> + use<>, RedisError> {
        let mut announced = Vec::new();
        for sentinel in &self.all {
            let client = redis::Client::open(sentinel.url(&self.options))?;
            let mut listener = client.get_async_pubsub().await?;
            listener.subscribe("+switch-master").await?;
            announced.push(tokio::spawn(async move {
                let heard = listener.on_message().next().await;
                heard.map(|_| Instant::now())
            }));
        }
        Ok(async move {
            let mut last = None;
            for announced in announced {
                last = last.max(announced.await.expect("it listens"));
            }
            last.expect("the sentinels run")
        })
    }

    /// Kills one of the sentinels for good.
    pub fn kill(&self, at: usize) {
        lock(&self.all[at].process).kill();
    }

    /// Stops one of the sentinels with SIGSTOP.
    pub fn pause(&self, at: usize) {
        lock(&self.all[at].process).pause();
    }

    /// Lets a paused sentinel go on.
    pub fn resume(&self, at: usize) {
        lock(&self.all[at].process).resume();
    }
}

impl Sentinel {
    fn start(options: &SentinelOptions, master: &RedisServer, port: u16, quorum: usize) -> Self {
        let directory = reaper::directory("sentinel");
        let own = ReservedPort::pick();
        let plain = options.tls.then(ReservedPort::pick);
        let file = directory.path().join("sentinel.conf");
        let mut text = format!(
            "bind 127.0.0.1\ndir {}\n\
             sentinel monitor {SERVICE} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {SERVICE} {}\n\
             sentinel failover-timeout {SERVICE} 5000\n",
            directory.path().display(),
            options.down_after.unwrap_or(DOWN_AFTER).as_millis()
        );
        text += &ports_and_passwords(options, master, own.number(), plain.as_ref());
        fs::write(&file, text).expect("the directory is writable");
        let arguments = [file.display().to_string(), "--sentinel".to_owned()];
        let log = fs::File::create(directory.path().join("log")).expect("a log file");
        let mut process = ChildProcess::spawn(RedisServer::binary(), arguments, |command| {
            command.stdout(log);
        })
        .expect("a sentinel can be started");
        drop(process.take_stdin());
        Self {
            port: own,
            plain,
            _directory: directory,
            process: Mutex::new(process),
        }
    }

    async fn ask<T: FromRedisValue>(
        &self,
        options: &SentinelOptions,
        what: &[&str],
    ) -> Result<T, RedisError> {
        let mut sentinel = connection_to(&self.url(options)).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg(what).arg(SERVICE);
        question.query_async(&mut sentinel).await
    }

    /// Without TLS.
    fn url(&self, options: &SentinelOptions) -> String {
        let credentials = match &options.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        let port = self.plain.as_ref().unwrap_or(&self.port);
        format!("redis://{credentials}{}", port.address())
    }
}

fn ports_and_passwords(
    options: &SentinelOptions,
    master: &RedisServer,
    own: u16,
    plain: Option<&ReservedPort>,
) -> String {
    let files = master.directory().display();
    let mut lines = match plain {
        None => vec![format!("port {own}")],
        Some(plain) => vec![
            format!("port {}", plain.number()),
            format!("tls-port {own}"),
            "tls-auth-clients no".to_owned(),
            "tls-replication yes".to_owned(),
            format!("tls-cert-file {files}/server.pem"),
            format!("tls-key-file {files}/server.key"),
            format!("tls-ca-cert-file {files}/ca.pem"),
        ],
    };
    if let Some(password) = &options.password {
        lines.push(format!("requirepass {password}"));
        lines.push(format!("sentinel sentinel-pass {password}"));
    }
    if let Some(password) = master.password() {
        lines.push(format!("sentinel auth-pass {SERVICE} {password}"));
    }
    lines.join("\n")
}

/// A master and its replicas.
#[derive(Debug)]
pub struct Replicated {
    servers: Vec<RedisServer>,
}

impl Replicated {
    /// Starts a master and `replicas` of it, and waits until the replicas have its data.
    pub async fn start(options: ServerOptions, replicas: usize) -> Self {
        // A replica needs the password of its master, and any of them may become one.
        let options = options.replication();
        let replicated = Self {
            servers: (0..=replicas).map(|_| options.clone().start()).collect(),
        };
        for replica in 1..=replicas {
            replicated.follow(replica, 0).await;
        }
        replicated
    }

    /// A server by its number; the first was the master at the start.
    pub fn server(&self, at: usize) -> &RedisServer {
        &self.servers[at]
    }

    /// The number of the server that listens there.
    pub fn at(&self, port: u16) -> usize {
        let is_there = |server: &RedisServer| server.port() == port;
        let at = self.servers.iter().position(is_there);
        at.expect("one of the servers")
    }

    /// `redis://` URL of all the servers.
    pub fn url(&self) -> String {
        let first = self.servers[0].url();
        let others = self.servers[1..].iter().map(|server| server.address());
        others.fold(first, |url, other| format!("{url},{other}"))
    }

    /// Sends a command to one of the servers.
    ///
    /// # Panics
    /// When it fails.
    pub async fn command<T: FromRedisValue>(&self, at: usize, words: &[&str]) -> T {
        self.servers[at].ask(words).await
    }

    /// Makes one of the servers a replica of another, and waits until it has the data.
    pub async fn follow(&self, replica: usize, master: usize) {
        let port = self.servers[master].port().to_string();
        let words = ["REPLICAOF", "127.0.0.1", &port];
        self.command::<()>(replica, &words).await;
        self.servers[replica].follows(DEADLINE).await;
    }

    /// Ends a replica for good, and starts an empty one in its place, at another port.
    pub async fn replace(&mut self, replica: usize, master: usize) {
        self.servers[replica] = self.servers[replica].another();
        self.follow(replica, master).await;
    }

    /// Waits until a master counts so many replicas, which then have told it how far they are.
    pub async fn is_counted(&self, master: usize, replicas: usize) {
        let online = async || {
            let info: String = self.command(master, &["INFO", "replication"]).await;
            info.matches("state=online").count() == replicas
        };
        eventually(DEADLINE, online).await;
    }

    /// Waits until a replica has this key. (WAIT on a connection that has written nothing says
    /// nothing.)
    pub async fn receives(&self, replica: usize, key: &str) {
        let has = async || self.command::<bool>(replica, &["EXISTS", key]).await;
        eventually(DEADLINE, has).await;
    }

    /// Makes one of the servers a master.
    pub async fn promote(&self, at: usize) {
        self.command::<()>(at, &["REPLICAOF", "NO", "ONE"]).await;
    }
}
