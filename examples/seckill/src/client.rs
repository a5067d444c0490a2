//! An HTTP client that keeps its connections.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A connection that has been idle for longer is not used again: a server may be about to close it.
const IDLE: Duration = Duration::from_secs(5);

/// The header by which a session is sent.
const COOKIE: &str = "cookie";

/// Where the paths of a service begin: a URL without the slash at its end.
///
/// # Errors
///
/// It is none of this client's, in words that follow the name of a flag.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected http://HOST:PORT";
    let url = url::Url::parse(text).map_err(|error| format!("{error}, {EXPECTED}"))?;
    match (url.scheme(), url.host_str()) {
        ("http", Some(_)) => Ok(url.as_str().trim_end_matches('/').to_owned()),
        _ => Err(format!("not a URL for this, {EXPECTED}")),
    }
}

/// A client with a bound on each call.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    timeout: Duration,
}

/// A call that was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0} is no URL for this")]
    Url(String),
    #[error("no connection")]
    Connect,
    #[error("the connection ended before the answer")]
    Cut,
    #[error("no answer in time")]
    TimedOut,
}

/// An answer with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) set_cookie: Option<String>,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The body, as far as it is JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl HttpClient {
    pub(crate) fn new(timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(timeout));
        Self {
            client: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(1024)
                .pool_idle_timeout(IDLE)
                .build(connector),
            timeout,
        }
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Reply, CallError> {
        self.call("GET", url, None, None).await
    }

    pub(crate) async fn put(&self, url: &str, body: &Value) -> Result<Reply, CallError> {
        self.call("PUT", url, None, Some(body)).await
    }

    /// Posts JSON, or nothing, with a session if there is one.
    pub(crate) async fn post(
        &self,
        url: &str,
        session: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Reply, CallError> {
        self.call("POST", url, session, body).await
    }

    async fn call(
        &self,
        method: &str,
        url: &str,
        session: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Reply, CallError> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(session) = session {
            request = request.header(COOKIE, session);
        }
        if method != "GET" {
            request = request.header("content-type", "application/json");
        }
        let body = match body {
            Some(body) => Bytes::from(body.to_string()),
            None => Bytes::new(),
        };
        let request = request
            .body(Full::new(body))
            .map_err(|_| CallError::Url(url.to_owned()))?;
        let whole = async {
            let response = self.send(request).await?;
            let status = response.status().as_u16();
            let set_cookie = response
                .headers()
                .get("set-cookie")
                .and_then(|value| Some(value.to_str().ok()?.to_owned()));
            let body = response.into_body().collect().await;
            Ok(Reply {
                status,
                set_cookie,
                body: body.map_err(|_| CallError::Cut)?.to_bytes(),
            })
        };
        tokio::time::timeout(self.timeout, whole)
            .await
            .map_err(|_| CallError::TimedOut)?
    }

    /// Sends a request and returns the answer when its head is there.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, CallError> {
        self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                CallError::Connect
            } else {
                CallError::Cut
            }
        })
    }
}
