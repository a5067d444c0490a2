//! The client of functions under the attribute that name no client.

use std::sync::{PoisonError, RwLock};

use super::Client;

static DEFAULT: RwLock<Option<Client>> = RwLock::new(None);

tokio::task_local! {
    static SCOPED: Client;
}

/// Runs `future` with `client` as the default client, which functions under the attribute use if
/// they name no client. It replaces the [default of the process](set_default_client).
///
/// Calls may be nested: the innermost client applies. A task that `future` spawns does not inherit
/// the client. This is for tests that run in parallel; see [testing your service](crate::testing).
///
/// # Cancel safety
///
/// Dropping the returned future drops `future`.
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

/// Sets the default client, which functions under the attribute use if they name no client, and
/// returns the previous one.
///
/// There is one default client for the whole process. In tests, which run in parallel, use
/// [`with_default_client`]; see [testing your service](crate::testing).
pub fn set_default_client(client: Client) -> Option<Client> {
    DEFAULT
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(client.uncounted())
        // A clone counts as a handle again.
        .as_ref()
        .cloned()
}

/// Returns the default client, which functions under the attribute use if they name no client: that
/// of the surrounding [`with_default_client`], or that of the [process](set_default_client).
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
