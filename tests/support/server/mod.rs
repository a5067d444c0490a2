//! Real `redis-server` processes on ports of their own.

mod launch;
mod options;
mod shared;
mod tls;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use redis::{FromRedisValue, RedisError, aio::MultiplexedConnection};
use tokio_rustls::TlsAcceptor;

use self::{launch::Files, tls::Certificates};
pub use self::{
    options::ServerOptions,
    shared::{SharedServer, shared_server},
};
use crate::{
    ask, connection_to, eventually, lock, port::ReservedPort, process::ChildProcess, reaper,
};

/// A `redis-server` process with a port, a directory and a log of its own; killed when dropped.
///
/// Its methods block the calling thread for the few milliseconds that the server takes; tasks that
/// must run meanwhile need a runtime of several threads. When the test fails, the end of the server's
/// log is printed.
///
/// The server is killed as well when the test process itself is killed.
#[derive(Debug)]
pub struct RedisServer {
    options: ServerOptions,
    ports: Ports,
    files: Files,
    // `None` between `kill` and `restart`.
    process: Mutex<Option<ChildProcess>>,
}

#[derive(Debug)]
pub(crate) struct Ports {
    plain: ReservedPort,
    tls: Option<ReservedPort>,
    // Where the other nodes of a cluster connect; nothing but the reservation is needed.
    _bus: Option<ReservedPort>,
    /// Announced in place of the node's own, and known from its start: below Redis 7.0 it cannot be
    /// set later.
    announced: Option<Arc<ReservedPort>>,
}

impl Ports {
    fn pick(options: &ServerOptions) -> Self {
        let (first, bus) = match options.cluster {
            true => {
                let (first, bus) = ReservedPort::pick_with_bus();
                (first, Some(bus))
            }
            false => (ReservedPort::pick(), None),
        };
        let (plain, tls) = match (options.tls, options.cluster) {
            (false, _) => (first, None),
            (true, false) => (first, Some(ReservedPort::pick())),
            // The bus belongs to the port at which the nodes know each other.
            (true, true) => (ReservedPort::pick(), Some(first)),
        };
        let announced = options.announced.then(|| Arc::new(ReservedPort::pick()));
        Self {
            plain,
            tls,
            _bus: bus,
            announced,
        }
    }
}

impl RedisServer {
    /// Starts a server without persistence and without a password.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Options for a server; [`ServerOptions::start`] starts it.
    pub fn options() -> ServerOptions {
        ServerOptions::default()
    }

    fn start_with(options: ServerOptions) -> Self {
        launch::check_installed();
        let directory = reaper::directory("redis");
        let certificates = options.tls.then(|| match &options.certificates {
            Some(other) => Certificates::copy(other, directory.path()),
            None => Certificates::create(directory.path()),
        });
        let files = Files {
            directory,
            certificates,
        };
        let (ports, process) = launch::start_on_free_ports(&options, &files);
        Self {
            options,
            ports,
            files,
            process: Mutex::new(Some(process)),
        }
    }

    /// The port of 127.0.0.1 that the server listens on, the same after a restart.
    pub fn port(&self) -> u16 {
        self.ports.plain.number()
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.ports.plain.address()
    }

    /// `redis://` URL of the server, with the password if it has one.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The URL with the address of a proxy.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("redis://{}{address}", self.credentials())
    }

    /// `rediss://` URL of a server started with [`ServerOptions::tls`].
    pub fn tls_url(&self) -> String {
        self.tls_url_at(self.tls_port())
    }

    /// The same with the port of a proxy.
    pub(crate) fn tls_url_at(&self, port: u16) -> String {
        format!("rediss://{}localhost:{port}", self.credentials())
    }

    /// Serves others with the certificate of a server started with [`ServerOptions::tls`].
    pub(crate) fn tls_acceptor(&self) -> TlsAcceptor {
        tls::acceptor(self.directory())
    }

    /// The port for TLS of a server started with [`ServerOptions::tls`].
    pub fn tls_port(&self) -> u16 {
        let tls = self.ports.tls.as_ref();
        tls.expect("started without tls()").number()
    }

    /// The port at which other nodes of a cluster, and its clients, know this one.
    pub(crate) fn node_port(&self) -> u16 {
        match self.options.tls {
            true => self.tls_port(),
            false => self.port(),
        }
    }

    /// The port that a node of a cluster announces for its proxy, if it has one.
    pub(crate) fn announced_port(&self) -> Option<&Arc<ReservedPort>> {
        self.ports.announced.as_ref()
    }

    /// The program that is a server, and with an argument a sentinel.
    pub(crate) fn binary() -> String {
        launch::check_installed();
        launch::binary()
    }

    /// The certificate, in PEM form, of the authority that signed the server's; see
    /// [`ServerOptions::tls`].
    pub fn ca_pem(&self) -> &str {
        &self
            .files
            .certificates
            .as_ref()
            .expect("started without tls()")
            .ca_pem
    }

    /// Certificate and key, in PEM form, of a client that the authority of
    /// [`ca_pem`](Self::ca_pem) vouches for.
    pub fn client_pem(&self) -> (String, String) {
        let read = |name: &str| {
            let file = self.directory().join(name);
            std::fs::read_to_string(file).expect("started with tls()")
        };
        (read("client.pem"), read("client.key"))
    }

    /// `redis+unix://` URL of a server started with [`ServerOptions::unix_socket`].
    pub fn unix_url(&self) -> String {
        let path = self.unix_socket();
        match &self.options.password {
            Some(password) => format!("redis+unix://{}?pass={password}", path.display()),
            None => format!("redis+unix://{}", path.display()),
        }
    }

    /// Path of the socket of a server started with [`ServerOptions::unix_socket`].
    pub fn unix_socket(&self) -> PathBuf {
        assert!(self.options.unix_socket, "started without unix_socket()");
        self.files.socket()
    }

    /// The password that clients need, if any.
    pub fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// Process id of the running server.
    pub fn pid(&self) -> u32 {
        self.process()
            .as_ref()
            .expect("the server was killed")
            .pid()
    }

    /// Whether the server was neither killed nor paused.
    pub fn is_up(&self) -> bool {
        let process = self.process();
        process.as_ref().is_some_and(|process| !process.is_paused())
    }

    /// A new connection of the `redis` crate to this server.
    ///
    /// # Errors
    /// If the server does not answer, for instance because it is paused.
    pub async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        connection_to(&self.url()).await
    }

    /// Sends a command over a connection of its own, and returns the reply.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.connect().await.expect("it answers"), words).await
    }

    /// Waits until a replica is connected to its master and has its data.
    pub(crate) async fn follows(&self, deadline: Duration) {
        let up = async || {
            let info: String = self.ask(&["INFO", "replication"]).await;
            info.contains("master_link_status:up")
        };
        eventually(deadline, up).await;
    }

    /// Kills the server with SIGKILL. The port stays reserved for [`restart`](Self::restart).
    pub fn kill(&self) {
        // Dropping the process kills it.
        self.process().take();
    }

    /// Starts the server again, killing it first if it runs: same port, directory and options.
    ///
    /// With [`ServerOptions::aof`] the data is kept, otherwise it is lost. When this returns, the
    /// server answers.
    pub fn restart(&self) {
        let mut process = self.process();
        process.take();
        *process = Some(launch::start_on(&self.options, &self.ports, &self.files));
    }

    /// Stops the process with SIGSTOP: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process()
            .as_mut()
            .expect("the server was killed")
            .pause();
    }

    /// Lets a paused server continue.
    pub fn resume(&self) {
        self.process()
            .as_mut()
            .expect("the server was killed")
            .resume();
    }

    /// The directory of the server, removed with it.
    pub fn directory(&self) -> &Path {
        self.files.directory.path()
    }

    /// The file for [`step_clock`](crate::step_clock), started with [`ServerOptions::own_clock`].
    pub fn clock(&self) -> PathBuf {
        self.files.clock()
    }

    /// Starts an empty server with the same options, at another port.
    pub(crate) fn another(&self) -> Self {
        Self::start_with(self.options.clone())
    }

    /// The log of the server since its first start.
    pub fn log(&self) -> String {
        self.files.log_text()
    }

    /// Prints the end of the log if the thread is panicking, so if the test has failed.
    fn show_log_on_failure(&self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(60)..];
            eprintln!(
                "--- redis-server on port {}:\n{}\n---",
                self.port(),
                tail.join("\n")
            );
        }
    }

    fn credentials(&self) -> String {
        self.options
            .password
            .as_ref()
            .map_or_else(String::new, |password| format!(":{password}@"))
    }

    fn process(&self) -> MutexGuard<'_, Option<ChildProcess>> {
        // After a failed restart there is no process; every method handles that.
        lock(&self.process)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.show_log_on_failure();
    }
}
