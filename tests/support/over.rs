//! Connections of the `redis` crate: to an address, or over any byte stream, such as one to an
//! embedded engine.

use std::{io, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
    aio::MultiplexedConnection,
};
use redlock_rt::{Client, ClientBuilder};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream},
    net::TcpStream,
    sync::oneshot,
};
use tokio_rustls::TlsConnector;

/// Only a call that hangs takes this long. A server that waits for a processor may need more than the
/// default of half a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// The settings of a test's own connections.
pub fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
}

/// Connects to this address.
///
/// # Errors
/// If no Redis answers there.
pub async fn connection_to(url: &str) -> RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client
        .get_multiplexed_async_connection_with_config(&patient())
        .await
}

/// Connects to a `rediss://` URL, trusting these certificates (PEM) only.
///
/// # Errors
/// If no Redis answers there, or its certificate is another one.
pub async fn connection_over_tls(url: &str, roots: &str) -> RedisResult<MultiplexedConnection> {
    // The redis crate is built without TLS.
    let info = url
        .replacen("rediss:", "redis:", 1)
        .into_connection_info()?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Err(io::Error::other("it has no host").into());
    };
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(trusting(roots).map_err(io::Error::other)?));
    let stream = connector.connect(name, stream).await?;
    logged_in(info.redis_settings().clone(), stream).await
}

fn trusting(pem: &str) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(config.with_no_client_auth())
}

/// Connects over this stream; the connection is served by a task of the present runtime.
///
/// # Errors
/// If the other end is not a Redis.
pub async fn connection_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    logged_in(RedisConnectionInfo::default(), stream).await
}

async fn logged_in(
    info: RedisConnectionInfo,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    let (sender, made) = oneshot::channel();
    // The task keeps the parameters, which the driver of the connection borrows.
    tokio::spawn(async move {
        match MultiplexedConnection::new_with_config(&info, stream, patient()).await {
            Ok((connection, driver)) => {
                // Fails if the caller has given up; dropping the connection ends the driver.
                let _ = sender.send(Ok(connection));
                driver.await;
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    });
    made.await.expect("the task sends what it made")
}

/// A client whose connections lead to a server in this process, which serves the other end of each.
pub fn client_over<F>(serve: impl Fn(DuplexStream) -> F + Send + Sync + 'static) -> ClientBuilder
where
    F: Future<Output = ()> + Send + 'static,
{
    Client::builder().connector(move || {
        let (ours, theirs) = tokio::io::duplex(16 * 1024);
        tokio::spawn(serve(theirs));
        async move { Ok(ours) }
    })
}
