//! HTTP requests under distributed locks on Redis: a Tower layer on [`redlock_rt`].
//!
//! ```
//! use axum::extract::Request;
//! use axum::http::StatusCode;
//! use axum::routing::post;
//! use axum::{Router, body::Body};
//! use redlock_rt::Client;
//! use redlock_tower::LockLayer;
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::embedded();
//! let user = |request: &Request| {
//!     let user = request.headers().get("x-user-id");
//!     // Those without a readable user share one lock: `None` would be no lock.
//!     format!("transfer:{}", user.and_then(|user| user.to_str().ok()).unwrap_or_default())
//! };
//! let app: Router = Router::new()
//!     .route("/transfer", post(async || "done"))
//!     .layer(LockLayer::new(&client, user));
//!
//! let elsewhere = client.rlock("transfer:7").lock().await?;
//! let transfer = || Request::post("/transfer").header("x-user-id", 7).body(Body::empty());
//! let refused = app.clone().oneshot(transfer()?).await?;
//! assert_eq!(refused.status(), StatusCode::LOCKED);
//!
//! elsewhere.unlock().await?;
//! assert_eq!(app.clone().oneshot(transfer()?).await?.status(), StatusCode::OK);
//! # // It was no lock that these two took.
//! # let _common = client.rlock("transfer:").lock().await?;
//! # let unreadable = Request::post("/transfer").header("x-user-id", &b"\xff"[..]).body(Body::empty())?;
//! # for nobody in [Request::post("/transfer").body(Body::empty())?, unreadable] {
//! #     assert_eq!(app.clone().oneshot(nobody).await?.status(), StatusCode::LOCKED);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! **A request whose name is `None` runs without a lock.** Return `None` only where that is meant, and never by a `?` on what the
//! client has sent.
//!
//! # The answer without the lock
//!
//! Its status is [`status`] of the error. The error is an extension of the response, as an `Arc<`[`Error`]`>`. Its body
//! is empty: a layer around this one can write a body.
//!
//! # How long the lock is held
//!
//! Until the inner service has answered. The release ends before the answer is sent, so the client's next request finds
//! the lock free. A response body that is streamed afterwards has no lock, unless the handler keeps the guard.
//!
//! # The guard
//!
//! The guard is an extension of the request. The handler can use it, for instance for the fencing token:
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::Extension;
//! use axum::extract::Request;
//! use axum::routing::post;
//! use redlock_rt::{Client, FencedLockGuard};
//! use redlock_tower::LockLayer;
//!
//! async fn transfer(Extension(lock): Extension<Arc<FencedLockGuard>>) -> String {
//!     format!("token {}", lock.token())
//! }
//!
//! fn app(client: Client) -> axum::Router {
//!     let lock_of = move |_: &Request| Some(client.fenced_lock("transfers"));
//!     let router = axum::Router::new().route("/transfer", post(transfer));
//!     router.layer(LockLayer::of(lock_of))
//! }
//! # use tower::ServiceExt;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let request = Request::post("/transfer").body(axum::body::Body::empty())?;
//! # let answer = app(Client::embedded()).oneshot(request).await?;
//! # assert_eq!(answer.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Cancel safety
//!
//! A request whose client goes away is dropped: first the handler, then the lock is released in the background.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use redlock_rt::{Client, Error, ErrorKind, Kind, Lock, LockOptions, RLock};
use tower_layer::Layer;
use tower_service::Service;

/// Runs each request under a lock.
#[derive(Clone)]
pub struct LockLayer<F> {
    lock_of: F,
    options: LockOptions,
    retry_after: Duration,
}

impl LockLayer<()> {
    /// Returns a layer that locks the [`RLock`] of this name. **A request without a name (`None`) runs without a lock.**
    pub fn new<B, N, F>(
        client: &Client,
        name: F,
    ) -> LockLayer<impl Fn(&Request<B>) -> Option<RLock> + Clone + use<B, N, F>>
    where
        N: Into<Option<String>>,
        F: Fn(&Request<B>) -> N + Clone,
    {
        let client = client.clone();
        LockLayer::of(move |request: &Request<B>| {
            let name = name(request).into()?;
            Some(client.rlock(name))
        })
    }
}

impl<F> LockLayer<F> {
    /// Returns a layer that locks the lock of this function, of any kind. **A request without one (`None`) runs without a lock.**
    pub fn of<B, K: Kind>(lock_of: F) -> Self
    where
        F: Fn(&Request<B>) -> Option<Lock<K>>,
    {
        Self {
            lock_of,
            options: LockOptions::new().wait(Duration::ZERO),
            retry_after: Duration::from_secs(1),
        }
    }

    /// Sets how requests acquire the lock. Defaults to a wait of zero: 423 at once if another request has it. Options
    /// without a [`wait`](LockOptions::wait) have no limit.
    #[must_use]
    pub fn options(self, options: LockOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets the seconds, rounded up, after which a client is told to try again, by `Retry-After`. Defaults to 1 s.
    #[must_use]
    pub fn retry_after(self, retry_after: Duration) -> Self {
        Self {
            retry_after,
            ..self
        }
    }
}

impl<S, F: Clone> Layer<S> for LockLayer<F> {
    type Service = LockService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService {
            inner,
            layer: self.clone(),
        }
    }
}

impl<F> fmt::Debug for LockLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("options", &self.options)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// A service whose requests run under a lock: made by a [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockService<S, F> {
    inner: S,
    layer: LockLayer<F>,
}

impl<S, F, K, B, R> Service<Request<B>> for LockService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: Fn(&Request<B>) -> Option<Lock<K>>,
    K: Kind,
    B: Send + 'static,
    R: Default + Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(lock) = (self.layer.lock_of)(&request) else {
            return Box::pin(self.inner.call(request));
        };
        // The clone may not be ready; the service that was polled is.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (options, retry_after) = (self.layer.options.clone(), self.layer.retry_after);
        Box::pin(async move {
            let guard = match lock.lock_owned(options).await {
                Ok(guard) => Arc::new(guard),
                Err(error) => return Ok(refusal(error, retry_after)),
            };
            request.extensions_mut().insert(Arc::clone(&guard));
            let answer = guard.run(inner.call(request)).await;
            // Otherwise the handler keeps the guard.
            if let Some(guard) = Arc::into_inner(guard) {
                // The request has had its effect. A failed release continues in the background.
                let _ = guard.unlock().await;
            }
            answer.unwrap_or_else(|error| Ok(refusal(error, retry_after)))
        })
    }
}

/// The answer to a request that does not have its lock.
fn refusal<R: Default>(error: Error, retry_after: Duration) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = status(&error);
    if is_to_be_repeated(&error) {
        let seconds = retry_after.as_secs();
        let seconds = seconds.saturating_add(u64::from(retry_after.subsec_nanos() > 0));
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response.extensions_mut().insert(Arc::new(error));
    response
}

/// Whether the request had no effect, and a repeat may soon succeed.
fn is_to_be_repeated(error: &Error) -> bool {
    let status = status(error);
    error.lost_reason().is_none()
        && matches!(status, StatusCode::LOCKED | StatusCode::SERVICE_UNAVAILABLE)
}

/// Returns the status of an answer to a request that failed with this error.
///
/// | [`ErrorKind`] | status |
/// |---|---|
/// | `Contended`, `TimedOut` | 423 Locked |
/// | `StaleToken` | 409 Conflict: a request with a newer lock was faster |
/// | `BadInput` | 400 Bad Request: in a [`LockLayer`] whose options are valid, the name is not |
/// | `Unavailable`, `Quorum`, `OutcomeUnknown`, `NotReplicated`, `ShutDown`, `Denied`, `Misconfigured` | 503 Service Unavailable |
/// | `Lost`, and `ShutDown` of a client that ends on the way | 503, without `Retry-After`: the handler was cancelled, and may have had an effect |
/// | any other | 500 Internal Server Error: a mistake in the service |
#[must_use]
pub fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Contended | ErrorKind::TimedOut => StatusCode::LOCKED,
        ErrorKind::StaleToken => StatusCode::CONFLICT,
        ErrorKind::BadInput => StatusCode::BAD_REQUEST,
        ErrorKind::Unavailable
        | ErrorKind::Quorum
        | ErrorKind::OutcomeUnknown
        | ErrorKind::NotReplicated
        | ErrorKind::ShutDown
        | ErrorKind::Denied
        | ErrorKind::Misconfigured
        | ErrorKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
