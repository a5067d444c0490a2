//! Calls of the payment service.

use std::time::Duration;

use serde_json::json;

use crate::client::{CallError, HttpClient};

/// How long a payment may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The payment service at a URL.
#[derive(Clone, Debug)]
pub(crate) struct Payments {
    url: String,
    http: HttpClient,
}

/// Why a payment was not made, as far as one knows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PaymentError {
    #[error("declined")]
    Declined,
    #[error("the payment service failed with {0}")]
    Failed(u16),
    #[error("the payment service cannot be reached: {0}")]
    Unreachable(#[from] CallError),
}

impl Payments {
    /// `url` is where the service's paths begin, such as `http://127.0.0.1:9000`.
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            http: HttpClient::new(TIMEOUT),
        }
    }

    /// Pays an amount for an order; asked for twice, it is paid once.
    pub(crate) async fn pay(&self, order: &str, amount_cents: i64) -> Result<(), PaymentError> {
        let url = format!("{}/payments/{order}", self.url);
        let body = json!({ "amount_cents": amount_cents });
        let reply = self.http.put(&url, &body).await?;
        match reply.status {
            200..=299 => Ok(()),
            402 => Err(PaymentError::Declined),
            other => Err(PaymentError::Failed(other)),
        }
    }
}
