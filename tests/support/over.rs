//! Connections of the `redis` crate: to an address, or over any byte stream, such as one to an
//! embedded engine.

use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

/// Only what hangs takes so long. The default of half a second is less than a server takes that has
/// to wait for a processor.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test's own connections are made with.
pub fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
}

/// Connects to this address.
///
/// # Errors
/// When nothing there answers as Redis does.
pub async fn connection_to(url: &str) -> RedisResult<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client
        .get_multiplexed_async_connection_with_config(&patient())
        .await
}

/// Connects over this stream; the connection is served by a task of the present runtime.
///
/// # Errors
/// When the other end does not answer as Redis does.
pub async fn connection_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    let (sender, made) = oneshot::channel();
    // The task keeps the parameters, which the driver of the connection borrows.
    tokio::spawn(async move {
        let info = RedisConnectionInfo::default();
        match MultiplexedConnection::new_with_config(&info, stream, patient()).await {
            Ok((connection, driver)) => {
                // Dropped by who gave up connecting, which ends the driver.
                let _ = sender.send(Ok(connection));
                driver.await;
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    });
    made.await.expect("the task sends what it made")
}
