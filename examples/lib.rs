//! What the example programs share.

use redlock_rt::{Client, Error};

/// Connects to the server of `REDIS_URL`, or makes an embedded engine where that is not set.
///
/// # Errors
///
/// The URL is none, or nobody answers there.
pub async fn client() -> Result<Client, Error> {
    match std::env::var("REDIS_URL") {
        Ok(url) => Client::connect(&url).await,
        Err(_) => Ok(Client::embedded()),
    }
}
