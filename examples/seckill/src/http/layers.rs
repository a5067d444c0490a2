//! What goes around every route: a span, a bound on time, and headers.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::classify::{ServerErrorsAsFailures, SharedClassifier};
use tower_http::trace::{MakeSpan, OnResponse, TraceLayer};
use tracing::Span;
use tracing::field::Empty;

use super::problem::Problem;

/// How long an answer may take to begin.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Nothing but our own files, and nothing inline.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// Cancels what takes too long. A transaction is rolled back, a lock released in the background.
pub(super) async fn time_out(request: Request, next: Next) -> Response {
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "it took too long; look whether it was done";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timed-out", detail)
                .retry_after(Duration::from_secs(1))
                .into_response()
        }
    }
}

/// A span for each request. The shop notes in it which lock it took and how long that took.
pub(super) fn trace()
-> TraceLayer<SharedClassifier<ServerErrorsAsFailures>, Spans, (), Ends, (), (), ()> {
    TraceLayer::new_for_http()
        .make_span_with(Spans)
        .on_request(())
        .on_response(Ends)
        .on_body_chunk(())
        .on_eos(())
        .on_failure(())
}

#[derive(Clone, Debug)]
pub(super) struct Spans;

impl MakeSpan<Body> for Spans {
    fn make_span(&mut self, request: &Request) -> Span {
        tracing::info_span!(
            "request",
            method = %request.method(),
            path = request.uri().path(),
            lock = Empty,
            lock_wait_ms = Empty,
        )
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ends;

impl<B> OnResponse<B> for Ends {
    fn on_response(self, response: &axum::http::Response<B>, latency: Duration, _: &Span) {
        let status = response.status().as_u16();
        let latency_ms = latency.as_secs_f64() * 1000.0;
        // An order a line would be most of the log; `RUST_LOG=seckill=debug` shows them.
        if response.status().is_server_error() {
            tracing::warn!(status, latency_ms, "answered");
        } else {
            tracing::debug!(status, latency_ms, "answered");
        }
    }
}
