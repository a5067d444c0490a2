//! Routes of rushes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::body::Body;
use super::id::Id;
use super::problem::Problem;
use crate::service::{RushRequest, RushState, Shop};

pub(super) async fn begin(
    State(shop): State<Arc<Shop>>,
    Body(asked): Body<RushRequest>,
) -> Result<impl IntoResponse, Problem> {
    let id = shop.begin_rush(asked).await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

pub(super) async fn state(
    State(shop): State<Arc<Shop>>,
    Id(id): Id,
) -> Result<Json<RushState>, Problem> {
    Ok(Json(shop.rush_state(&id).await?))
}

pub(super) async fn instances(State(shop): State<Arc<Shop>>) -> Result<Json<Value>, Problem> {
    let all = shop.instances().await?;
    let all: Vec<_> = all
        .into_iter()
        .map(|(id, url)| json!({ "id": id, "url": url }))
        .collect();
    Ok(Json(json!(all)))
}
