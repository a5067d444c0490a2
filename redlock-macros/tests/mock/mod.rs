//! Plays `redlock_rt` for expanded code: the same names, no Redis. What the expansion asks for and
//! when is written down; what it gets is up to the test.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

/// Grants locks whatever their keys, so many at a time as it was told to.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    permits: Semaphore,
    refuse: bool,
    log: Mutex<Vec<String>>,
    asked: Mutex<Vec<Asked>>,
}

/// What a call asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) name: &'static str,
    pub(crate) key: String,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) renew: Option<bool>,
}

impl Client {
    /// Grants every lock when it is free.
    pub(crate) fn new() -> Self {
        Self::with(1, false)
    }

    /// Grants none until [`grant`](Self::grant).
    pub(crate) fn closed() -> Self {
        Self::with(0, false)
    }

    /// Grants so many at a time.
    pub(crate) fn many(permits: usize) -> Self {
        Self::with(permits, false)
    }

    /// Answers each call with an error.
    pub(crate) fn refusing() -> Self {
        Self::with(1, true)
    }

    fn with(permits: usize, refuse: bool) -> Self {
        Self(Arc::new(Inner {
            permits: Semaphore::new(permits),
            refuse,
            log: Mutex::default(),
            asked: Mutex::default(),
        }))
    }

    pub(crate) fn grant(&self) {
        self.0.permits.add_permits(1);
    }

    /// Adds a line of the test's own to the log.
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.log.lock().unwrap().push(line.into());
    }

    /// What happened, in order.
    pub(crate) fn log(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().unwrap().clone()
    }

    /// The keys that were asked for.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.key).collect()
    }

    pub(crate) fn is_free(&self) -> bool {
        self.0.permits.available_permits() == 1
    }
}

/// Why a lock was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    Refused,
    BlankPart(String),
    NoClient,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Error {}

std::thread_local! {
    static DEFAULT: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) };
}

/// The default is one of the thread here, so that tests do not meet in it.
pub(crate) fn set_default_client(client: Client) {
    DEFAULT.set(Some(client));
}

#[doc(hidden)]
pub(crate) mod __private {
    pub(crate) use ::core;
    pub(crate) use redlock_rt::__private::{
        Kind, LockKind, Output, Segment, Sendable, Unsendable, never,
    };

    use super::*;

    pub(crate) fn key(segments: &[Segment<'_>]) -> Result<String, Error> {
        let mut key = String::new();
        for segment in segments {
            match segment {
                Segment::Text(text) => key.push_str(text),
                Segment::Value(placeholder, value) => {
                    let value = value.to_string();
                    if value.trim().is_empty() {
                        return Err(Error::BlankPart((*placeholder).to_owned()));
                    }
                    key.push_str(&value);
                }
            }
        }
        Ok(key)
    }

    pub(crate) fn client(explicit: Option<&Client>) -> Result<Client, Error> {
        explicit
            .cloned()
            .or_else(|| DEFAULT.with_borrow(Clone::clone))
            .ok_or(Error::NoClient)
    }

    pub(crate) fn renew(renew: bool) -> bool {
        renew
    }

    pub(crate) struct Call {
        client: Result<Client, Error>,
        key: Result<String, Error>,
        asked: Asked,
    }

    impl Call {
        pub(crate) fn new(
            name: &'static str,
            key: Result<String, Error>,
            client: Result<Client, Error>,
        ) -> Self {
            let asked = Asked {
                name,
                ..Asked::default()
            };
            Self { client, key, asked }
        }

        pub(crate) fn wait(mut self, wait: Option<Duration>) -> Self {
            self.asked.wait = wait;
            self
        }

        pub(crate) fn lease(mut self, lease: Duration) -> Self {
            self.asked.lease = Some(lease);
            self
        }

        pub(crate) fn max_hold(mut self, max_hold: Duration) -> Self {
            self.asked.max_hold = Some(max_hold);
            self
        }

        pub(crate) fn renew(mut self, renew: bool) -> Self {
            self.asked.renew = Some(renew);
            self
        }

        pub(crate) fn enter(self, _: Kind) -> Entering {
            Entering(self)
        }

        async fn acquire(self) -> Result<Session, Error> {
            let client = self.client?;
            let asked = Asked {
                key: self.key?,
                ..self.asked
            };
            client.0.asked.lock().unwrap().push(asked);
            if client.0.refuse {
                return Err(Error::Refused);
            }
            client
                .0
                .permits
                .acquire()
                .await
                .expect("never closed")
                .forget();
            client.note("locked");
            Ok(Session(client))
        }
    }

    pub(crate) struct Session(Client);

    pub(crate) struct Entering(Call);

    impl Entering {
        pub(crate) async fn run<T>(
            self,
            _: impl redlock_rt::__private::Keep<T>,
            fail: fn(Error) -> T,
            body: impl Future<Output = T>,
        ) -> T {
            match self.0.acquire().await {
                Ok(_session) => body.await,
                Err(error) => fail(error),
            }
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            self.0.note("released");
            self.0.grant();
        }
    }

    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot say that the lock was not taken",
        label = "not a `Result` that takes a lock error",
        note = "an annotated function returns `Result<T, E>` with `E: From<redlock_rt::Error>`"
    )]
    pub(crate) trait FromLockError: Sized {
        fn from_lock_error(error: Error) -> Self;
    }

    impl<T, E: From<Error>> FromLockError for Result<T, E> {
        fn from_lock_error(error: Error) -> Self {
            Err(error.into())
        }
    }
}
