//! Credentials that change: requested for each connection, and again before they expire.
//!
//! The task of the connection logs in again after four fifths of the time or a minute before its end; there
//! is no separate task. A connection that could not log in again by the end is closed. The subscribing
//! connection cannot send AUTH; when the server ends it, it is dialed again.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::panics::caught;
use crate::clock;
use crate::connection::fault::Fault;

type BoxError = Box<dyn StdError + Send + Sync>;
type CredentialsFuture = Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>>;

/// User and password for a server; see
/// [`ClientBuilder::credentials`](crate::ClientBuilder::credentials).
#[derive(Clone)]
pub struct Credentials {
    pub(super) user: Option<String>,
    pub(super) password: String,
    pub(super) valid_for: Option<Duration>,
}

impl Credentials {
    /// Returns the password of the default user, which does not expire.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
            valid_for: None,
        }
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets how long the server accepts the password, from now on. Connections log in again before that.
    /// Credentials with a time of zero have expired: they are not sent, and the source is asked again after
    /// a pause.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

/// The source of credentials.
#[derive(Clone)]
pub(crate) struct CredentialSource(Arc<dyn Fn() -> CredentialsFuture + Send + Sync>);

impl CredentialSource {
    pub(crate) fn new<F, Fut, E>(ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self(Arc::new(move || {
            let asked = ask();
            Box::pin(async move { asked.await.map_err(Into::into) })
        }))
    }

    pub(super) async fn ask(&self) -> Result<Credentials, Fault> {
        let asked = caught("it", async { (self.0)().await }).await;
        let failed = |error: BoxError| format!("the source of credentials: {error}");
        let credentials = asked.map_err(|error| Fault::passing(failed(error)))?;
        match credentials.valid_for {
            // With them a connection would be closed as soon as it is made.
            Some(Duration::ZERO) => Err(Fault::passing(failed("they have expired".into()))),
            _ => Ok(credentials),
        }
    }
}

/// When credentials that are valid for `time` from now on are replaced, and when they expire.
#[derive(Debug, Clone, Copy)]
pub(in crate::connection) struct Expiry {
    pub(in crate::connection) renew_at: Instant,
    pub(in crate::connection) over_at: Instant,
}

impl Expiry {
    pub(super) fn after(time: Duration) -> Self {
        const EARLIEST: Duration = Duration::from_secs(60);
        let (now, early) = (clock::now(), (time / 5).min(EARLIEST));
        Self {
            renew_at: clock::after(now, time - early),
            over_at: clock::after(now, time),
        }
    }
}
