//! One connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Node;
use super::place::Place;
use crate::exit::{Code, Failure};
use crate::server::Server;

pub(super) struct Dialer {
    tls: Option<TlsConnector>,
    login: RedisConnectionInfo,
    of_sentinels: RedisConnectionInfo,
    limit: Duration,
}

impl Dialer {
    pub(super) fn new(server: &Server, place: &Place) -> Result<Self, Failure> {
        let (mut user, mut password) = (place.user.clone(), place.password.clone());
        if server.password_file.is_some() {
            let (its_user, its_password) = server.login()?;
            (user, password) = (its_user, Some(its_password));
        }
        let mut login = RedisConnectionInfo::default().set_db(place.database);
        if let Some(user) = user {
            // As the library, which logs in without a password too.
            password.get_or_insert_default();
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        let mut of_sentinels = RedisConnectionInfo::default();
        if let Some(password) = server.sentinel_password()? {
            of_sentinels = of_sentinels.set_password(password);
        }
        Ok(Self {
            tls: if place.tls {
                Some(connector(server)?)
            } else {
                None
            },
            login,
            of_sentinels,
            limit: server.timeout,
        })
    }

    pub(super) async fn node(&self, host: &str, port: u16) -> Result<Node, Failure> {
        self.tcp(host, port, self.login.clone()).await
    }

    pub(super) async fn sentinel(&self, host: &str, port: u16) -> Result<Node, Failure> {
        self.tcp(host, port, self.of_sentinels.clone()).await
    }

    pub(super) async fn socket(&self, path: &str) -> Result<Node, Failure> {
        let connect = async {
            let stream = UnixStream::connect(path).await?;
            self.logged_in(self.login.clone(), stream).await
        };
        self.named(path.to_owned(), connect).await
    }

    async fn tcp(
        &self,
        host: &str,
        port: u16,
        login: RedisConnectionInfo,
    ) -> Result<Node, Failure> {
        let connect = async {
            let stream = TcpStream::connect((host, port)).await?;
            let Some(tls) = &self.tls else {
                return self.logged_in(login, stream).await;
            };
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            self.logged_in(login, tls.connect(name, stream).await?)
                .await
        };
        self.named(format!("{host}:{port}"), connect).await
    }

    async fn named(
        &self,
        address: String,
        connect: impl Future<Output = RedisResult<MultiplexedConnection>>,
    ) -> Result<Node, Failure> {
        match timeout(self.limit, connect).await {
            Ok(Ok(redis)) => Ok(Node { address, redis }),
            Ok(Err(error)) => {
                let failure = Failure::from(error);
                Err(Failure::new(
                    failure.code,
                    format!("{address}: {}", failure.message),
                ))
            }
            Err(_) => Err(Failure::new(
                Code::UNAVAILABLE,
                format!("{address}: no answer"),
            )),
        }
    }

    async fn logged_in(
        &self,
        login: RedisConnectionInfo,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(Some(self.limit));
        let (sender, made) = oneshot::channel();
        // The task keeps the login, which the driver of the connection borrows.
        tokio::spawn(async move {
            match MultiplexedConnection::new_with_config(&login, stream, config).await {
                Ok((connection, driver)) => {
                    // It fails if the caller has given up, and then the driver ends.
                    let _ = sender.send(Ok(connection));
                    driver.await;
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        });
        made.await
            .unwrap_or_else(|_| Err(io::Error::other("no connection").into()))
    }
}

fn connector(server: &Server) -> Result<TlsConnector, Failure> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("--tls-ca: {error}"));
    for certificate in CertificateDer::pem_slice_iter(&server.roots()?.unwrap_or_default()) {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::new(Code::SOFTWARE, error.to_string()))?;
    let config = config.with_root_certificates(roots);
    let config = match server.tls_identity()? {
        None => config.with_no_client_auth(),
        Some([certificates, key]) => {
            let failed =
                |error: &dyn std::fmt::Display| Failure::usage(format!("--tls-cert: {error}"));
            let certificates =
                CertificateDer::pem_slice_iter(&certificates).collect::<Result<_, _>>();
            let certificates = certificates.map_err(|error| failed(&error))?;
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| failed(&error))?;
            let config = config.with_client_auth_cert(certificates, key);
            config.map_err(|error| failed(&error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
