//! The settings of a service for the `redis` crate.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::endpoint::{Endpoint, Login, Servers};
use crate::connection::address::Address;
use crate::error::Error;

const ACTION: &str = "take the settings of the redis crate";

/// Settings for one server, or why the `redis` crate refuses them.
#[derive(Clone)]
pub(crate) struct RedisSettings(Result<ConnectionInfo, String>);

impl RedisSettings {
    pub(crate) fn of(info: impl IntoConnectionInfo) -> Self {
        // Its errors repeat no part of a URL.
        Self(
            info.into_connection_info()
                .map_err(|error| error.to_string()),
        )
    }

    /// `own_tls`: certificates are set here. Certificates in the settings cannot be read.
    pub(crate) fn endpoint(&self, own_tls: bool) -> Result<Endpoint, Error> {
        let info = self
            .0
            .as_ref()
            .map_err(|why| Error::bad_input(ACTION, why.clone()))?;
        let address = address(info.addr(), own_tls).map_err(|why| Error::bad_input(ACTION, why))?;
        let settings = info.redis_settings();
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        if settings.db() < 0 {
            return Err(Error::bad_input(ACTION, "the database is below 0"));
        }
        let password = text(settings.password());
        Ok(Endpoint {
            servers: Servers::One(address),
            login: Login {
                // That crate does not log in without a password.
                user: text(settings.username()).filter(|_| password.is_some()),
                password,
                db: settings.db(),
            },
        })
    }
}

fn address(address: &ConnectionAddr, own_tls: bool) -> Result<Address, &'static str> {
    Ok(match address {
        ConnectionAddr::Tcp(host, port) => Address::Tcp {
            host: host.clone(),
            port: *port,
            tls: false,
        },
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            return Err(
                "TLS that verifies no certificate is not offered: set tls_roots, and take it out",
            );
        }
        ConnectionAddr::TcpTls {
            tls_params: Some(_),
            ..
        } if !own_tls => {
            return Err(
                "certificates of the redis crate cannot be read: set tls_roots or tls_identity, too",
            );
        }
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, .. } => Address::Tcp {
            host: host.clone(),
            port: *port,
            tls: true,
        },
        #[cfg(not(feature = "tls"))]
        ConnectionAddr::TcpTls { .. } => return Err("TLS needs the feature `tls`"),
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err("this kind of address is not known here: set a url"),
    })
}
