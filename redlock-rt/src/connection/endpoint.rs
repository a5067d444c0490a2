//! The servers of a URL, and how to log in there.

use std::fmt;
use std::path::PathBuf;

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(feature = "tls")]
    Tls {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl Address {
    /// The address as an identity of the server: host names ignore upper and lower case.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Tcp { host, port } => place(host, *port),
            #[cfg(feature = "tls")]
            Self::Tls { host, port } => place(host, *port),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Another host and port, which this server names, with TLS if this address has it; `None`: that is
    /// no host.
    pub(super) fn elsewhere(&self, host: &str, port: u16) -> Option<Self> {
        let host = is_host(host).then(|| host.to_owned())?;
        Some(match self {
            #[cfg(feature = "tls")]
            Self::Tls { .. } => Self::Tls { host, port },
            Self::Tcp { .. } | Self::Unix(_) => Self::Tcp { host, port },
        })
    }

    /// The address that a node of a cluster announces, where this one was asked. Without a host it
    /// means its own.
    pub(super) fn announced(&self, host: &str, port: u16) -> Option<Self> {
        let own = match self {
            Self::Tcp { host, .. } => host,
            #[cfg(feature = "tls")]
            Self::Tls { host, .. } => host,
            Self::Unix(_) => "localhost",
        };
        let host = match host {
            "" | "?" => own,
            host => host,
        };
        self.elsewhere(host, port)
    }

    #[cfg(feature = "tls")]
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }
}

/// Whether a server may name this host, which is kept, and shown in errors and logs.
pub(super) fn is_host(host: &str) -> bool {
    let of_a_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%[]".contains(&byte);
    (1..=255).contains(&host.len()) && host.bytes().all(of_a_host)
}

fn place(host: &str, port: u16) -> String {
    format!("{}:{port}", host.to_ascii_lowercase())
}

/// User, password and database of a connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

/// The servers to which a client connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Servers {
    One(Address),
    /// A master and its replicas: whichever is the master.
    Several(Vec<Address>),
    /// The master of a service, as sentinels name it.
    Service(Service),
    /// Some nodes of a cluster, which know the others.
    Cluster(Vec<Address>),
}

/// A master that sentinels watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: String,
    /// At least one.
    pub(super) sentinels: Vec<Address>,
}

impl Servers {
    /// The servers as an identity: the order in which they are listed does not matter.
    pub(super) fn place(&self) -> String {
        match self {
            Self::One(address) => address.place(),
            Self::Several(addresses) | Self::Cluster(addresses) => places(addresses),
            Self::Service(Service { name, sentinels }) => {
                format!("{name} at the sentinels {}", places(sentinels))
            }
        }
    }

    /// All have TLS, or none has.
    #[cfg(feature = "tls")]
    pub(super) fn is_tls(&self) -> bool {
        match self {
            Self::One(address) => address.is_tls(),
            Self::Several(list)
            | Self::Cluster(list)
            | Self::Service(Service {
                sentinels: list, ..
            }) => list.iter().any(Address::is_tls),
        }
    }
}

fn places(addresses: &[Address]) -> String {
    let mut places: Vec<String> = addresses.iter().map(Address::place).collect();
    places.sort();
    places.join(",")
}

/// What a URL says: servers, and how to log in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) servers: Servers,
    pub(super) login: Login,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, password, db } = self;
        // A password that stands in the place of the user has none behind it.
        let user = user.as_ref().filter(|_| password.is_some());
        f.debug_struct("Login")
            .field("user", &user)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("db", db)
            .finish()
    }
}
