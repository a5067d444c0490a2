//! The lock clients, one an instance as in real life, that all meet in one place.

use std::time::{SystemTime, UNIX_EPOCH};

use redlock_rt::embedded::Engine;
use redlock_rt::{Client, Error};

/// Makes that many clients of the Redis server at `url`, or of a new engine in this process.
///
/// # Errors
///
/// The URL is none, or nothing that speaks Redis answers there.
pub(crate) async fn clients(url: Option<&str>, count: u32) -> Result<Vec<Client>, Error> {
    let mut clients = Vec::new();
    match url {
        Some(url) => {
            let namespace = namespace();
            for _ in 0..count {
                clients.push(
                    Client::builder()
                        .url(url)
                        .namespace(&namespace)
                        .connect()
                        .await?,
                );
            }
        }
        None => {
            let engine = Engine::new();
            for _ in 0..count {
                clients.push(Client::builder().embedded(&engine).build()?);
            }
        }
    }
    Ok(clients)
}

/// Keeps the locks of this run apart from those of other runs on the same server.
fn namespace() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("seckill-{}-{}", std::process::id(), now.as_nanos())
}
