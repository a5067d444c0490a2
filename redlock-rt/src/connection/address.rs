//! The address of a server.

use std::path::PathBuf;

/// The address of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
        /// Only with the feature `tls`.
        tls: bool,
    },
    Unix(PathBuf),
}

impl Address {
    /// The address as an identity of the server. Host names ignore upper and lower case.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } => format!("{}:{port}", host.to_ascii_lowercase()),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Another host and port that this server names, with TLS if this address has it. `None`: that is
    /// not a host.
    pub(super) fn elsewhere(&self, host: &str, port: u16) -> Option<Self> {
        let host = is_host(host).then(|| host.to_owned())?;
        let tls = self.is_tls();
        Some(Self::Tcp { host, port, tls })
    }

    /// The address that a node of a cluster announces, as an answer from this address. Without a host
    /// the node means its own.
    pub(super) fn announced(&self, host: &str, port: u16) -> Option<Self> {
        let own = match self {
            Self::Tcp { host, .. } => host,
            Self::Unix(_) => "localhost",
        };
        let host = match host {
            "" | "?" => own,
            host => host,
        };
        self.elsewhere(host, port)
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { tls: true, .. })
    }

    #[cfg(test)]
    pub(super) fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp {
            host: host.to_owned(),
            port,
            tls: false,
        }
    }
}

/// Whether a server may name this host. It is stored, and shown in errors and logs.
pub(super) fn is_host(host: &str) -> bool {
    let of_a_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%[]".contains(&byte);
    (1..=255).contains(&host.len()) && host.bytes().all(of_a_host)
}
