//! The client of functions under the attribute that name none.

use std::sync::{PoisonError, RwLock};

use super::Client;

static DEFAULT: RwLock<Option<Client>> = RwLock::new(None);

tokio::task_local! {
    static SCOPED: Client;
}

/// Runs `future` with `client` as the default client: functions under the attribute that name none
/// use it, in place of the [process' own](set_default_client).
///
/// The innermost one counts. A task that `future` spawns inherits nothing. For tests that run in
/// parallel; see [testing your service](crate::testing).
///
/// # Cancel safety
///
/// That of `future`.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use redlock_rt::{Client, default_client, with_default_client};
///
/// let client = Client::embedded();
/// let uuid = client.uuid().to_owned();
/// with_default_client(client, async {
///     assert_eq!(default_client().map(|client| client.uuid().to_owned()), Some(uuid));
/// })
/// .await;
/// # }
/// ```
pub async fn with_default_client<F: Future>(client: Client, future: F) -> F::Output {
    SCOPED.scope(client, future).await
}

/// Makes `client` the one that functions under the attribute use if they name none; answers the
/// one before.
///
/// It is one for the whole process. In tests, which run in parallel, use [`with_default_client`];
/// see [testing your service](crate::testing).
pub fn set_default_client(client: Client) -> Option<Client> {
    DEFAULT
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(client.uncounted())
        // A clone counts as a handle again.
        .as_ref()
        .cloned()
}

/// Returns the client that functions under the attribute use if they name none: that of the
/// [scope](with_default_client) this is called in, or that of the
/// [process](set_default_client).
#[must_use]
pub fn default_client() -> Option<Client> {
    if let Ok(client) = SCOPED.try_with(Client::clone) {
        return Some(client);
    }
    DEFAULT
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
