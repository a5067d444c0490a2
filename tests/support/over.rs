//! Connections of the `redis` crate: to an address, or over any byte stream, such as one to an
//! embedded engine.

use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

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

/// Connects over this stream; the connection is served by a task of the present runtime.
///
/// # Errors
/// If the other end is not a Redis.
pub async fn connection_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    let (sender, made) = oneshot::channel();
    // The task keeps the parameters, which the driver of the connection borrows.
    tokio::spawn(async move {
        let info = RedisConnectionInfo::default();
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
