//! Bodies: JSON of a bounded size, and a problem that says what is wrong with any other.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::response::IntoResponse;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::problem::Problem;

/// The largest body that is read.
pub(super) const LARGEST: usize = 16 * 1024;

/// How JSON writes the one character that a text in PostgreSQL may not have.
const NUL: &[u8] = b"\\u0000";

/// Refuses what another page may have had a browser send: that is no JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok()?.split(';').next());
    if kind.map(str::trim) == Some("application/json") {
        return Ok(());
    }
    let detail = "what changes something has the content type application/json";
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "no-json",
        detail,
    ))
}

/// A body of JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        is_json(request.headers())?;
        let bytes =
            Bytes::from_request(request, state)
                .await
                .map_err(|rejection| match rejection.into_response().status() {
                    StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        "too-large",
                        format!("a body has {LARGEST} bytes at most"),
                    ),
                    _ => Problem::new(StatusCode::BAD_REQUEST, "cut-off", "the body ends early"),
                })?;
        let invalid =
            |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
        if bytes.windows(NUL.len()).any(|text| text == NUL) {
            return Err(invalid("no text may have the character U+0000".to_owned()));
        }
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| match error.classify() {
                Category::Data => invalid(error.to_string()),
                _ => Problem::new(StatusCode::BAD_REQUEST, "no-json", error.to_string()),
            })
    }
}
