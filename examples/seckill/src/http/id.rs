//! The id in a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use uuid::Uuid;

use super::problem::Problem;

/// An id. All are UUIDs, so nothing has any other: a text that no database takes does not come there.
#[derive(Debug)]
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) if Uuid::try_parse(&id).is_ok() => Ok(Self(id)),
            _ => {
                let detail = "nothing has this id";
                Err(Problem::new(StatusCode::NOT_FOUND, "not-found", detail))
            }
        }
    }
}
