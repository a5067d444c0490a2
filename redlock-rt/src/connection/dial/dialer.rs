//! Byte streams to a server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::credentials::{CredentialSource, Expiry};
use super::endpoint::{Endpoint, Login, Servers, Service};
use super::look_up::{connect_to_any, of_host};
use super::panics::caught;
use crate::connection::address::Address;
use crate::connection::fault::Fault;
use crate::error::Error;
use crate::meter::News;

/// Any byte stream to a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

pub(crate) type BoxStream = Box<dyn Stream>;
type BoxDial = Pin<Box<dyn Future<Output = io::Result<BoxStream>> + Send>>;
type Dial = dyn Fn(&str, u16) -> BoxDial + Send + Sync;

/// The library name for CLIENT SETINFO.
pub(in crate::connection) const LIB_NAME: &str = "redlock-rt";
pub(in crate::connection) const LIB_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The system asks an idle connection for a sign of life after this time. Gateways forget connections without
/// traffic, most after four minutes or more, without telling either end.
const KEEPALIVE: TcpKeepalive = {
    let idle = TcpKeepalive::new().with_time(Duration::from_secs(30));
    // Other systems have a default.
    #[cfg(windows)]
    let idle = idle.with_interval(Duration::from_secs(10));
    idle
};

/// Opens streams to the server of a client, and has the login for it.
#[derive(Clone, Default)]
pub(crate) struct Dialer {
    /// `None`: unknown, behind a connector.
    servers: Option<Servers>,
    /// Opens the streams, to the only server.
    connector: Option<Connector>,
    login: Login,
    /// Asked for user and password at each connection; the URL then has none.
    source: Option<CredentialSource>,
    /// For the sentinels, which have their own users.
    sentinel_login: Login,
    /// The name that the caller gave to the server.
    name: Option<Arc<str>>,
    /// For CLIENT SETNAME.
    client_name: Option<Arc<str>>,
    /// The listeners to the client's events.
    pub(crate) news: Option<Arc<News>>,
    /// Whether the server is a node of a cluster.
    pub(in crate::connection) clustered: bool,
    /// Sends no plain commands in place of scripts.
    pub(crate) scripts_only: bool,
    /// Uses no sharded channels.
    pub(crate) plain_channels: bool,
    /// Opens the streams to its nodes.
    to_nodes: Option<Connector>,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

/// Identifies servers without asking them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId {
    pub(crate) place: Arc<str>,
    pub(crate) db: i64,
}

/// The destination of a stream; `None`: the connector.
pub(in crate::connection) type Target = Option<Address>;

/// A source of streams that the library does not open itself, by host and port where it leads to the nodes
/// of a cluster.
#[derive(Clone)]
pub(crate) struct Connector(Arc<Dial>);

impl Connector {
    pub(crate) fn new<F, Fut, S>(dial: F) -> Self
    where
        F: Fn(&str, u16) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream,
    {
        Self(Arc::new(move |host, port| {
            let stream = dial(host, port);
            Box::pin(async move { Ok(Box::new(stream.await?) as BoxStream) })
        }))
    }
}

impl Dialer {
    /// `roots`: certificates (PEM) to trust for TLS in addition to the well-known ones.
    ///
    /// `identity`: the client's own certificates and key (PEM), if the server asks for one.
    pub(crate) fn new(
        endpoint: Endpoint,
        roots: Option<&[u8]>,
        identity: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        let tls = match endpoint.servers.is_tls() {
            true => Some(super::tls::Tls::new(roots, identity)?),
            false => None,
        };
        #[cfg(not(feature = "tls"))]
        let _ = (roots, identity);
        Ok(Self {
            login: endpoint.login,
            clustered: matches!(endpoint.servers, Servers::Cluster(_)),
            servers: Some(endpoint.servers),
            #[cfg(feature = "tls")]
            tls,
            ..Self::default()
        })
    }

    /// Takes streams from `connector`: an in-process server, a simulation, a tunnel.
    pub(crate) fn through(connector: Connector) -> Self {
        Self {
            connector: Some(connector),
            ..Self::default()
        }
    }

    /// Takes streams from `connector`, and everything else from the address of this dialer:
    /// credentials, the database, the server's name, and whether to use TLS over the streams.
    ///
    /// # Errors
    ///
    /// If the URL names several servers.
    pub(crate) fn over(mut self, connector: Connector) -> Result<Self, Error> {
        if !matches!(self.servers, None | Some(Servers::One(_))) {
            let why = "a connector leads to one server, and the URL names several";
            return Err(Error::bad_input("make a client", why));
        }
        self.connector = Some(connector);
        Ok(self)
    }

    /// Takes the streams to the nodes of the cluster from `connector`.
    pub(crate) fn over_nodes(mut self, connector: Connector) -> Self {
        self.to_nodes = Some(connector);
        self
    }

    /// Asks for user and password at each connection.
    ///
    /// # Errors
    ///
    /// If the URL has some.
    pub(crate) fn with_credentials(mut self, source: CredentialSource) -> Result<Self, Error> {
        if self.login.user.is_some() || self.login.password.is_some() {
            let why = "both the URL and a source say who logs in: leave user and password out of \
                       the URL";
            return Err(Error::bad_input("make a client", why));
        }
        self.source = Some(source);
        Ok(self)
    }

    /// Logs in to the sentinels as this user.
    ///
    /// # Errors
    ///
    /// If there are no sentinels.
    pub(crate) fn with_sentinel_login(
        mut self,
        user: Option<String>,
        password: String,
    ) -> Result<Self, Error> {
        if self.sentinels().is_none() {
            let why = "credentials of sentinels need a URL with sentinels: redis+sentinel://…";
            return Err(Error::bad_input("make a client", why));
        }
        self.sentinel_login = Login {
            user,
            password: Some(password),
            db: 0,
        };
        Ok(self)
    }

    /// Sets the server's name, for any address.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Gives its connections this name, unless they have one.
    pub(crate) fn or_client_name(&mut self, name: impl Into<Arc<str>>) {
        self.client_name.get_or_insert_with(|| name.into());
    }

    pub(in crate::connection) fn client_name(&self) -> &str {
        self.client_name.as_deref().unwrap_or(LIB_NAME)
    }

    /// The identity of the server and its database: the same in every process with the same URL or
    /// name. A connector without a name is its own identity.
    pub(crate) fn server(&self) -> ServerId {
        let place = match (&self.name, &self.connector) {
            (Some(name), _) => Arc::clone(name),
            (None, Some(Connector(dial))) if self.servers.is_none() => {
                format!("connector {:p}", Arc::as_ptr(dial)).into()
            }
            (None, _) => self.called(),
        };
        ServerId {
            place,
            db: self.login.db,
        }
    }

    /// The server's name in logs and errors: its address, if that is known.
    pub(crate) fn called(&self) -> Arc<str> {
        match (&self.servers, &self.name) {
            (Some(servers), _) => servers.place().into(),
            (None, Some(name)) => Arc::clone(name),
            (None, None) => "the server behind the connector".into(),
        }
    }

    /// How to find the server to lock on; `None`: by the connector.
    pub(in crate::connection) fn route(&self) -> Option<&Servers> {
        self.servers.as_ref().filter(|_| self.connector.is_none())
    }

    /// The service that sentinels watch, if there are any.
    pub(in crate::connection) fn sentinels(&self) -> Option<&Service> {
        match &self.servers {
            Some(Servers::Service(service)) => Some(service),
            _ => None,
        }
    }

    /// Nodes of the cluster, if there is one.
    pub(in crate::connection) fn seeds(&self) -> Option<&[Address]> {
        match &self.servers {
            Some(Servers::Cluster(seeds)) => Some(seeds),
            _ => None,
        }
    }

    /// Restricts it to this node of the cluster.
    pub(in crate::connection) fn at_node(mut self, at: Address) -> Self {
        self.servers = Some(Servers::One(at));
        self
    }

    /// For the log.
    pub(in crate::connection) fn topology(&self) -> &'static str {
        match self.route() {
            _ if self.clustered => "cluster",
            Some(Servers::Service(_)) => "sentinel",
            Some(Servers::Several(_)) => "replicated",
            _ => "one server",
        }
    }

    /// How many replicas the URL names; `None`: it names none.
    pub(in crate::connection) fn replicas(&self) -> Option<u32> {
        match &self.servers {
            Some(Servers::Several(addresses)) => u32::try_from(addresses.len() - 1).ok(),
            _ => None,
        }
    }

    /// Whether the server is the master among several.
    pub(in crate::connection) fn looks_for_the_master(&self) -> bool {
        matches!(
            self.route(),
            Some(Servers::Several(_) | Servers::Service(_))
        )
    }

    /// Whether sentinels name the master.
    pub(crate) fn has_sentinels(&self) -> bool {
        self.sentinels().is_some()
    }

    /// The commands that log in and choose the database, all of which must succeed, and when the
    /// credentials expire.
    pub(in crate::connection) async fn login(&self) -> Result<(Pipeline, Option<Expiry>), Fault> {
        let Some(source) = &self.source else {
            return Ok((self.login.commands(), None));
        };
        let given = source.ask().await?;
        let login = Login {
            user: given.user,
            password: Some(given.password),
            db: self.login.db,
        };
        Ok((login.commands(), given.valid_for.map(Expiry::after)))
    }

    /// As [`login`](Self::login), at a sentinel.
    pub(in crate::connection) fn sentinel_login(&self) -> Pipeline {
        self.sentinel_login.commands()
    }

    /// Opens a stream. `within`: how long connecting may take; the caller enforces this limit.
    pub(in crate::connection) async fn dial(
        &self,
        target: &Target,
        within: Duration,
    ) -> io::Result<BoxStream> {
        caught("connecting", self.open(target, within)).await
    }

    async fn open(&self, target: &Target, within: Duration) -> io::Result<BoxStream> {
        let address = match (target, &self.connector) {
            (Some(address), _) => address,
            (None, Some(Connector(dial))) => {
                #[cfg(feature = "tls")]
                if let Some(Servers::One(Address::Tcp { host, tls, .. })) = &self.servers
                    && *tls
                {
                    let stream = self.tls()?.connect(host, || dial("", 0), within).await?;
                    return Ok(Box::new(stream));
                }
                return dial("", 0).await;
            }
            (None, None) => return Err(io::ErrorKind::Unsupported.into()),
        };
        match address {
            #[cfg(feature = "tls")]
            Address::Tcp { host, port, tls } if *tls => {
                let open = || tcp(host, *port, within);
                Ok(Box::new(self.tls()?.connect(host, open, within).await?))
            }
            Address::Tcp { host, port, .. } => match &self.to_nodes {
                Some(Connector(dial)) => dial(host, *port).await,
                None => Ok(Box::new(tcp(host, *port, within).await?)),
            },
            #[cfg(unix)]
            Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> io::Result<&super::tls::Tls> {
        let none = || io::ErrorKind::Unsupported.into();
        self.tls.as_ref().ok_or_else(none)
    }
}

impl Login {
    fn commands(&self) -> Pipeline {
        let mut commands = redis::pipe();
        if self.user.is_some() || self.password.is_some() {
            // A user without a password is not the default user, which may have more rights.
            let login = commands.cmd("AUTH");
            if let Some(user) = &self.user {
                login.arg(user);
            }
            login.arg(self.password.as_deref().unwrap_or_default());
        }
        if self.db != 0 {
            commands.cmd("SELECT").arg(self.db);
        }
        commands
    }
}

async fn tcp(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let addresses = of_host(host, port, within).await?;
    let stream = connect_to_any(addresses, within, TcpStream::connect).await?;
    // Otherwise every small command waits for Nagle's algorithm.
    stream.set_nodelay(true)?;
    if let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE) {
        tracing::debug!(%error, "no keepalive for a connection");
    }
    Ok(stream)
}
