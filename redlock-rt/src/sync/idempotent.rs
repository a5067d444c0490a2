//! A request that is answered once, even if it is repeated.

use std::sync::Arc;
use std::time::Duration;

use super::guard::GoesOn;
use super::once::Once;
use super::options::LockOptions;
use crate::engine::ClientEngine;
use crate::error::Error;
#[cfg(any(feature = "serde", doc))]
use crate::error::ErrorKind;
use crate::name::HoldId;
use crate::wire::Found;

const STORE: &str = "store the answer to a request";
/// The longest answer in bytes.
const LONGEST: usize = 64 * 1024;

static STORES: GoesOn =
    GoesOn::new("an answer is not known to be stored: the next such request runs again");

/// A request with an idempotency key: the first caller runs it, and later ones get the answer of the first.
///
/// Use it where a client repeats a request whose answer it did not get, and the work must not be done twice: a
/// payment, an order. The key comes from the client (the header `Idempotency-Key`), or is the id of a message.
/// Prefix it with the sender (`ann:KEY`), so that no client gets the answer of another.
///
/// # What is promised
///
/// The guarantees of [`Once`](crate::Once): a request that was answered does not run again while its answer is
/// [kept](Self::keep), and valid runs never overlap. A run *begins* again if it was dropped, its process died, or
/// it returned an error. A process that dies after its work and before its answer is stored has done the work. If
/// that must not be done twice even then, do it in one transaction with the key.
///
/// # Round trips
///
/// One to begin and one to store the answer; one for a request that was answered.
///
/// # Fairness
///
/// That of a [lock](crate::Lock::lock).
///
/// # Cancel safety
///
/// A [`run`](Self::run) that is dropped drops its body, and opens the request for others.
///
/// # Errors
///
/// Those of a [lock](crate::Lock::lock), and [`OtherRequest`](ErrorKind::OtherRequest) if the key was used
/// for a request with another [fingerprint](Self::request).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_rt::Error> {
/// use redlock_rt::{Answer, Client, Error};
///
/// async fn charge() -> Result<Vec<u8>, Error> {
///     Ok(b"receipt 1".to_vec())
/// }
///
/// let client = Client::embedded();
/// let payment = client.idempotent("ann:7f3a").request("POST /payments 100");
/// assert_eq!(payment.run(charge()).await?, Answer::First(b"receipt 1".to_vec()));
/// assert_eq!(payment.run(charge()).await?, Answer::Stored(b"receipt 1".to_vec()));
///
/// let other = client.idempotent("ann:7f3a").request("POST /payments 200");
/// assert!(other.run(charge()).await.unwrap_err().is_other_request());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is run before `run` is awaited"]
pub struct Idempotent {
    once: Once,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<T = Vec<u8>> {
    /// The answer of this call, which has run.
    First(T),
    /// The answer of an earlier call.
    Stored(T),
    /// No answer yet: this owner ran it when Redis was last asked during the wait.
    InProgress(HoldId),
}

impl Idempotent {
    pub(crate) fn handle(engine: &Arc<ClientEngine>, key: &str) -> Self {
        Self {
            once: Once::named(engine, "idempotent", key, Ok),
        }
    }

    /// Sets the content of the request, for instance its method, path and body. Redis keeps a fingerprint of it.
    /// The same key with another fingerprint is the error [`OtherRequest`](ErrorKind::OtherRequest). Defaults to
    /// nothing.
    pub fn request(mut self, request: impl AsRef<[u8]>) -> Self {
        self.once.terms.request = sha1_smol::Sha1::from(request).digest().to_string();
        self
    }

    /// Sets how long Redis keeps the answer. It may not be shorter than the lease. Defaults to 24 h.
    pub fn keep(self, keep: Duration) -> Self {
        Self {
            once: self.once.keep(keep),
        }
    }

    /// Sets the options of the lock under which the request runs, such as the lease, and the wait while another
    /// caller runs it. A wait of zero returns [`InProgress`](Answer::InProgress) at once; the default waits until
    /// there is an answer. A [`min_hold`](LockOptions::min_hold) is refused.
    pub fn options(self, options: LockOptions) -> Self {
        Self {
            once: self.once.options(options),
        }
    }

    /// Runs the request and stores its answer, or returns the stored answer. If the lock is lost, the body is
    /// dropped.
    ///
    /// # Round trips, fairness, cancel safety
    ///
    /// See [`Idempotent`].
    ///
    /// # Errors
    ///
    /// See [`Idempotent`]. An error of the body is returned, and opens the request again, as does an answer of more
    /// than 64 KiB ([`BadInput`](ErrorKind::BadInput)). Any other answer of a completed body is returned: if Redis
    /// does not store it, this is logged.
    pub async fn run<E: From<Error>>(
        &self,
        body: impl Future<Output = Result<Vec<u8>, E>>,
    ) -> Result<Answer, E> {
        let guard = match self.once.begin().await? {
            Ok(guard) => guard,
            Err(Found::Done { result, .. }) => return Ok(Answer::Stored(result)),
            Err(Found::Running(by)) => return Ok(Answer::InProgress(by)),
            // The attempts have no limit, so they cannot have failed.
            Err(found) => return Err(self.once.unexpected(found).into()),
        };
        let answer = guard.run(body).await??;
        if answer.len() > LONGEST {
            let error = Error::bad_input(STORE, "the answer is longer than 64 KiB");
            return Err(error.named(&guard.name().into()).into());
        }
        STORES.note(guard.done_with(&answer).await);
        Ok(Answer::First(answer))
    }

    /// As [`run`](Self::run), for an answer that is stored as JSON.
    ///
    /// The caller that has run the body gets its value, not one read from the JSON. So an `f64` that is not a
    /// number, written as `null`, is an answer for this caller, and an error for later ones.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run), [`BadInput`](ErrorKind::BadInput) if the answer cannot be written as JSON,
    /// and [`Protocol`](ErrorKind::Protocol) if a stored one cannot be read as a `T`.
    #[cfg(feature = "serde")]
    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    pub async fn run_json<T: serde::Serialize + serde::de::DeserializeOwned, E: From<Error>>(
        &self,
        body: impl Future<Output = Result<T, E>>,
    ) -> Result<Answer<T>, E> {
        let failed = |kind, source: serde_json::Error| -> E {
            Error::new(kind, STORE).caused_by(Arc::new(source)).into()
        };
        // JSON that was written may not be readable, so the answer itself is kept.
        let mut first: Option<T> = None;
        let body = async {
            let answer = body.await?;
            let bytes = serde_json::to_vec(&answer);
            let bytes = bytes.map_err(|error| failed(ErrorKind::BadInput, error))?;
            first = Some(answer);
            Ok::<_, E>(bytes)
        };
        let answer = self.run::<E>(body).await?;
        let read = |bytes: Vec<u8>| -> Result<T, E> {
            let answer = serde_json::from_slice(&bytes);
            answer.map_err(|error| failed(ErrorKind::Protocol, error))
        };
        Ok(match answer {
            Answer::First(bytes) => Answer::First(first.map_or_else(|| read(bytes), Ok)?),
            Answer::Stored(bytes) => Answer::Stored(read(bytes)?),
            Answer::InProgress(by) => Answer::InProgress(by),
        })
    }
}
