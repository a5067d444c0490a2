//! The options of a server.

use std::path::PathBuf;

use super::RedisServer;

/// Options of a [`RedisServer`]; the default has no persistence, password, TLS or unix socket.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ServerOptions {
    pub(super) aof: bool,
    pub(crate) tls: bool,
    /// The directory with the certificates, if another server has made them.
    pub(super) certificates: Option<PathBuf>,
    pub(super) unix_socket: bool,
    pub(super) cluster: bool,
    pub(super) announced: bool,
    pub(super) own_clock: bool,
    pub(super) password: Option<String>,
    pub(super) arguments: Vec<String>,
}

impl ServerOptions {
    /// Starts the server and waits until it answers.
    pub fn start(self) -> RedisServer {
        RedisServer::start_with(self)
    }

    /// Writes an append-only file, synced with every write, so that the data survives a kill.
    pub fn aof(mut self) -> Self {
        self.aof = true;
        self
    }

    /// Requires a password, whose characters need no escape in a URL.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on a TLS port as well, with a certificate for `localhost` and `127.0.0.1` made for
    /// this server; clients need no certificate. Needs a redis-server built with TLS.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// With the certificates of another server that speaks TLS.
    pub(crate) fn certificates_of(mut self, other: &RedisServer) -> Self {
        self.certificates = Some(other.directory().to_owned());
        self
    }

    /// Listens on a unix socket as well.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Is a node of a cluster, which knows no other one at first.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self.replication().args(["--cluster-enabled", "yes"])
    }

    /// Announces another port than its own to clients and to the other nodes, for a
    /// [proxy](crate::Proxy::announced_by).
    pub(crate) fn announced(mut self) -> Self {
        self.announced = true;
        self
    }

    /// Has a [clock](RedisServer::clock) that can be stepped, where that is possible.
    pub fn own_clock(mut self) -> Self {
        self.own_clock = true;
        self
    }

    /// Can be a replica of a server with the same options, soon after it was made one.
    pub(crate) fn replication(mut self) -> Self {
        if let Some(password) = self.password.clone() {
            self = self.args(["--masterauth".to_owned(), password]);
        }
        self.args(["--repl-diskless-sync-delay", "0"])
    }

    /// Adds arguments of redis-server, for instance `["--maxmemory", "1mb"]`.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}
