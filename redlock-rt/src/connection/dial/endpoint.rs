//! The servers of a URL, and how to log in there.

use std::fmt;

use crate::connection::address::Address;

/// User, password and database of a connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

/// The servers to which a client connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::connection) enum Servers {
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
pub(in crate::connection) struct Service {
    pub(in crate::connection) name: String,
    /// At least one.
    pub(in crate::connection) sentinels: Vec<Address>,
}

impl Servers {
    /// A server, or a master and its replicas.
    pub(super) fn of(mut addresses: Vec<Address>) -> Self {
        match addresses.len() {
            1 => Self::One(addresses.remove(0)),
            _ => Self::Several(addresses),
        }
    }

    /// The addresses in the URL.
    pub(super) fn addresses(&self) -> &[Address] {
        match self {
            Self::One(address) => std::slice::from_ref(address),
            Self::Several(addresses) | Self::Cluster(addresses) => addresses,
            Self::Service(service) => &service.sentinels,
        }
    }

    /// The servers as an identity: the order in which they are listed does not matter.
    pub(super) fn place(&self) -> String {
        let mut places: Vec<String> = self.addresses().iter().map(Address::place).collect();
        places.sort();
        let places = places.join(",");
        match self {
            Self::Service(service) => format!("{} at the sentinels {places}", service.name),
            _ => places,
        }
    }

    /// All have TLS, or none has.
    #[cfg(feature = "tls")]
    pub(super) fn is_tls(&self) -> bool {
        self.addresses().iter().any(Address::is_tls)
    }
}

/// The contents of a URL: servers, and the login there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) servers: Servers,
    pub(super) login: Login,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, password, db } = self;
        // A password in the place of the user is not followed by a password.
        let user = user.as_ref().filter(|_| password.is_some());
        f.debug_struct("Login")
            .field("user", &user)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("db", db)
            .finish()
    }
}
