//! Byte streams to a server.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::addresses::{connect_to_any, in_turn};
use super::endpoint::{Address, Endpoint, Login};
use crate::error::Error;

/// Any byte stream to a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

pub(crate) type BoxStream = Box<dyn Stream>;
type BoxDial = Pin<Box<dyn Future<Output = io::Result<BoxStream>> + Send>>;

/// The library name for CLIENT SETINFO.
pub(super) const LIB_NAME: &str = "redlock-rt";
pub(super) const LIB_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Opens streams to one server.
#[derive(Clone)]
pub(crate) struct Dialer {
    how: How,
    login: Login,
    /// The name that the caller gave to the server.
    name: Option<Arc<str>>,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Tls>,
}

/// Identifies servers without asking them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerId {
    pub(crate) place: Arc<str>,
    pub(crate) db: i64,
}

#[derive(Clone)]
enum How {
    Address(Address),
    /// With the address of the server behind the streams, if it is known.
    Connector(Connector, Option<Address>),
}

/// A source of streams that the library does not open itself.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn() -> BoxDial + Send + Sync>);

impl Connector {
    pub(crate) fn new<F, Fut, S>(dial: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream,
    {
        Self(Arc::new(move || {
            let stream = dial();
            Box::pin(async move { Ok(Box::new(stream.await?) as BoxStream) })
        }))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Dialer {
    /// `roots`: certificates (PEM) to trust for TLS in addition to the well-known ones.
    pub(crate) fn new(endpoint: Endpoint, roots: &[u8]) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        let tls = match endpoint.address {
            Address::Tls { .. } => Some(super::tls::Tls::new(roots)?),
            _ => None,
        };
        #[cfg(not(feature = "tls"))]
        let _ = roots;
        Ok(Self {
            how: How::Address(endpoint.address),
            login: endpoint.login,
            name: None,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// Takes streams from `connector`: an in-process server, a simulation, a tunnel.
    pub(crate) fn through(connector: Connector) -> Self {
        Self {
            how: How::Connector(connector, None),
            login: Login::default(),
            name: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Takes streams from `connector`, and everything else from the address of this dialer:
    /// credentials, the database, the server's name, and whether to use TLS over the streams.
    pub(crate) fn over(mut self, connector: Connector) -> Self {
        let (How::Address(address) | How::Connector(_, Some(address))) = self.how else {
            return Self::through(connector);
        };
        self.how = How::Connector(connector, Some(address));
        self
    }

    /// Sets the server's name, whatever its address is.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The identity of the server and its database: the same in every process with the same URL or
    /// name. A connector without a name is its own identity.
    pub(crate) fn server(&self) -> ServerId {
        let place: Arc<str> = match (&self.name, &self.how) {
            (Some(name), _) => Arc::clone(name),
            (None, How::Address(address)) => address.place().into(),
            (None, How::Connector(_, Some(address))) => address.place().into(),
            (None, How::Connector(Connector(dial), None)) => {
                format!("connector {:p}", Arc::as_ptr(dial)).into()
            }
        };
        ServerId {
            place,
            db: self.login.db,
        }
    }

    /// The server's name in logs and errors: its address, if that is known.
    pub(crate) fn called(&self) -> Arc<str> {
        match (&self.how, &self.name) {
            (How::Address(address) | How::Connector(_, Some(address)), _) => address.place().into(),
            (How::Connector(..), Some(name)) => Arc::clone(name),
            (How::Connector(..), None) => "the server behind the connector".into(),
        }
    }

    /// The commands that log in and choose the database; all must succeed.
    pub(super) fn login(&self) -> redis::Pipeline {
        let mut commands = redis::pipe();
        if let Some(password) = &self.login.password {
            let login = commands.cmd("AUTH");
            if let Some(user) = &self.login.user {
                login.arg(user);
            }
            login.arg(password);
        }
        if self.login.db != 0 {
            commands.cmd("SELECT").arg(self.login.db);
        }
        commands
    }

    /// Whether it opens connections without TLS to a port that may expect TLS.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.how, How::Address(Address::Tcp { .. }))
    }

    /// Opens a stream. `within`: how long connecting may take; the caller enforces this limit.
    pub(super) async fn dial(&self, within: Duration) -> io::Result<BoxStream> {
        match &self.how {
            #[cfg(feature = "tls")]
            How::Connector(Connector(dial), Some(Address::Tls { host, .. })) => match &self.tls {
                Some(tls) => Ok(Box::new(tls.connect(host, dial.as_ref(), within).await?)),
                None => Err(io::ErrorKind::Unsupported.into()),
            },
            How::Connector(Connector(dial), _) => dial().await,
            How::Address(Address::Tcp { host, port }) => {
                Ok(Box::new(tcp(host, *port, within).await?))
            }
            #[cfg(feature = "tls")]
            How::Address(Address::Tls { host, port }) => match &self.tls {
                Some(tls) => {
                    let open = || tcp(host, *port, within);
                    Ok(Box::new(tls.connect(host, open, within).await?))
                }
                None => Err(io::ErrorKind::Unsupported.into()),
            },
            #[cfg(unix)]
            How::Address(Address::Unix(path)) => Ok(Box::new(UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            How::Address(Address::Unix(_)) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

async fn tcp(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let addresses = in_turn(tokio::net::lookup_host((host, port)).await?);
    let stream = connect_to_any(addresses, within, TcpStream::connect).await?;
    // Otherwise every small command waits for Nagle's algorithm.
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match &self.how {
            How::Address(address) => format!("{address:?}"),
            How::Connector(..) => "custom".to_owned(),
        };
        f.debug_struct("Dialer")
            .field("how", &how)
            .field("login", &self.login)
            .finish()
    }
}
