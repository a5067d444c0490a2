//! What expanded code calls. Exempt from semantic versioning.

pub use ::core;

use std::fmt;
use std::time::Duration;

use crate::client::{Client, default_client};
use crate::error::Error;
use crate::sync::LockOptions;

const ACTION: &str = "run a function under a lock";

/// Builds a key; every part is checked.
#[derive(Debug)]
pub struct Key(Result<String, Error>);

impl Key {
    /// An empty key.
    pub fn new() -> Self {
        Self(Ok(String::new()))
    }

    /// Adds text of the template.
    pub fn literal(mut self, text: &str) -> Self {
        if let Ok(key) = &mut self.0 {
            key.push_str(text);
        }
        self
    }

    /// Adds the value of a placeholder. An empty or blank one is refused: `order:` would lock
    /// everybody.
    pub fn part(mut self, placeholder: &str, value: fmt::Arguments<'_>) -> Self {
        if let Ok(key) = &mut self.0 {
            let start = key.len();
            if fmt::Write::write_fmt(key, value).is_err() {
                let why = format!("the value of <{placeholder}> cannot be displayed");
                self.0 = Err(Error::bad_input(ACTION, why));
            } else if key[start..].trim().is_empty() {
                let why = format!("the value of <{placeholder}> in the key is empty or blank");
                self.0 = Err(Error::bad_input(ACTION, why));
            }
        }
        self
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

/// The options of the attribute.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    name: &'static str,
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    renew: bool,
}

impl Options {
    /// The defaults. `name` is the path of the function.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            wait: None,
            lease: None,
            max_hold: None,
            renew: true,
        }
    }

    /// Sets the wait; otherwise it is the client's.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the lease.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the longest time to hold.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets whether the lease is renewed.
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    fn lock_options(&self, client: &Client) -> LockOptions {
        let options = LockOptions::new()
            .wait(self.wait.or_else(|| client.default_wait()))
            .renew(self.renew)
            .max_hold(self.max_hold);
        match self.lease {
            Some(lease) => options.lease(lease),
            None => options,
        }
    }
}

/// The client that was named, or the process default.
///
/// # Errors
///
/// Where there is neither.
pub fn client(explicit: Option<&Client>) -> Result<Client, Error> {
    match explicit {
        Some(client) => Ok(client.clone()),
        None => default_client().ok_or_else(|| {
            Error::bad_input(
                ACTION,
                "no client: name one with `client = ..`, or call set_default_client first",
            )
        }),
    }
}

/// Runs `body` under the lock of `key`. It is not polled before the lock is held.
///
/// # Errors
///
/// Those of acquiring, and the loss of the lock; then the body was dropped.
pub async fn locked<T>(
    client: Result<Client, Error>,
    key: Key,
    options: Options,
    body: impl Future<Output = T>,
) -> Result<T, Error> {
    let client = client?;
    let lock = client.rlock(key.0?);
    let guard = lock.lock_for_body(options.lock_options(&client)).await?;
    let output = guard.run(body).await?;
    // The caller waits for the release for as long as it may matter; after that, and where it
    // fails, it goes on in the background. A body that completed is never called lost.
    let released = tokio::time::timeout(client.response_timeout(), guard.unlock()).await;
    match released {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(function = options.name, %error, "late release"),
        Err(_) => tracing::warn!(function = options.name, "late release: no answer yet"),
    }
    Ok(output)
}

/// How the annotated function's return type takes a lock error.
#[diagnostic::on_unimplemented(
    message = "a function under `#[distributed_lock]` must return a `Result` whose error can be made from `redlock_rt::Error`",
    label = "cannot hold a `redlock_rt::Error`",
    note = "return `Result<T, E>` and implement `From<redlock_rt::Error>` for `E`"
)]
pub trait FromLockError: Sized {
    /// Makes the return value of a function whose body did not run, or was dropped.
    fn from_lock_error(error: Error) -> Self;
}

impl<T, E: From<Error>> FromLockError for Result<T, E> {
    fn from_lock_error(error: Error) -> Self {
        Err(error.into())
    }
}
