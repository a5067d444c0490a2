//! A connection of the `redis` crate over any byte stream, such as one to an embedded engine.

use redis::{RedisConnectionInfo, RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};

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
        match MultiplexedConnection::new(&info, stream).await {
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
