//! Errors as problem details (RFC 9457).

use std::time::Duration;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::payment::PaymentError;
use crate::service::ShopError;

/// What went wrong, for a program to tell and for a human to read.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// The last part of its type, `/problems/KIND`.
    kind: &'static str,
    pub(super) detail: String,
    retry_after: Option<Duration>,
    more: Map<String, Value>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            detail: detail.into(),
            retry_after: None,
            more: Map::new(),
        }
    }

    pub(crate) fn unauthorized(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "no-session", detail)
    }

    pub(crate) fn no_such_method() -> Self {
        let detail = "this page knows other methods";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "no-such-method", detail)
    }

    /// The same will work later, perhaps.
    pub(crate) fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.more.insert(field.to_owned(), value);
        self
    }

    fn of_lock(error: &redlock_rt::Error) -> Self {
        let (kind, detail) = if error.is_timed_out() || error.is_contended() {
            let detail = "another request has the lock still; nothing was done";
            ("busy", detail)
        } else if error.is_lost() || error.is_outcome_unknown() {
            let detail = "the lock was lost on the way; look whether it was done";
            ("lock-lost", detail)
        } else {
            tracing::warn!(%error, "no lock to be had");
            let detail = "locks cannot be had; nothing was done";
            ("locks-unavailable", detail)
        };
        Self::new(redlock_tower::status(error), kind, detail).retry_after(SOON)
    }
}

/// After how long another try makes sense.
const SOON: Duration = Duration::from_secs(1);

impl From<ShopError> for Problem {
    fn from(error: ShopError) -> Self {
        let text = error.to_string();
        let conflict = |kind| Self::new(StatusCode::CONFLICT, kind, text.clone());
        match error {
            ShopError::Lock(error) => Self::of_lock(&error),
            ShopError::RawLockTaken => {
                Self::new(StatusCode::LOCKED, "busy", text).retry_after(SOON)
            }
            ShopError::RawLock(error) => {
                tracing::warn!(%error, "no lock to be had");
                let detail = "locks cannot be had; look whether it was done";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "locks-unavailable", detail)
                    .retry_after(SOON)
            }
            ShopError::Store(error) if error.is_unavailable() => {
                tracing::warn!(%error, "the database is away");
                let detail = "the database is away; look whether it was done";
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "database-unavailable",
                    detail,
                )
                .retry_after(SOON)
            }
            ShopError::Store(error) => {
                tracing::error!(%error, "a statement failed");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "the shop has a fault",
                )
            }
            ShopError::NoSuchVoucher | ShopError::NoSuchOrder | ShopError::NoSuchRush => {
                Self::new(StatusCode::NOT_FOUND, "not-found", text)
            }
            ShopError::NoInstances => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-instances", text).retry_after(SOON)
            }
            ShopError::NotOnSale => conflict("not-on-sale"),
            ShopError::NameTaken(_) => conflict("name-taken"),
            ShopError::NotBegun { begins_at } => {
                conflict("not-begun").with("begins_at", json!(begins_at))
            }
            ShopError::Over => conflict("over"),
            ShopError::SoldOut => conflict("sold-out"),
            ShopError::AlreadyOrdered => conflict("already-ordered"),
            ShopError::Overtaken => conflict("overtaken"),
            ShopError::AlreadyPaid => conflict("already-paid"),
            ShopError::NotOffered => conflict("not-offered"),
            ShopError::SwappedTwice => conflict("swapped-twice"),
            ShopError::NoPass => Self::new(StatusCode::FORBIDDEN, "no-pass", text),
            ShopError::NoPayments => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "payments-unavailable",
                text,
            ),
            ShopError::Payment(PaymentError::Declined) => {
                Self::new(StatusCode::PAYMENT_REQUIRED, "payment-declined", text)
            }
            ShopError::Payment(_) => {
                Self::new(StatusCode::BAD_GATEWAY, "payment-failed", text).retry_after(SOON)
            }
            ShopError::Invalid { field, problem } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", text)
                    .with("errors", json!([{ "field": field, "problem": problem }]))
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = self.more;
        body.insert("type".to_owned(), json!(format!("/problems/{}", self.kind)));
        body.insert("title".to_owned(), json!(self.kind.replace('-', " ")));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("detail".to_owned(), json!(self.detail));
        let mut response = (self.status, Json(Value::Object(body))).into_response();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(time) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(time.as_secs()));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Cookie realm=\"POST /api/session\"");
            headers.insert(axum::http::header::WWW_AUTHENTICATE, how);
        }
        response
    }
}
