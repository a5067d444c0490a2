//! Routes of vouchers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{AppendHeaders, IntoResponse};
use serde_json::{Value, json};

use super::body::Body;
use super::id::Id;
use super::problem::Problem;
use crate::service::{CreateVoucher, Shop};
use crate::store::Voucher;

type Answer<T> = Result<Json<T>, Problem>;

pub(super) async fn create(
    State(shop): State<Arc<Shop>>,
    Body(asked): Body<CreateVoucher>,
) -> Result<impl IntoResponse, Problem> {
    let voucher = shop.create_voucher(asked).await?;
    let location = format!("/api/vouchers/{}", voucher.id);
    Ok((
        StatusCode::CREATED,
        AppendHeaders([(LOCATION, location)]),
        Json(voucher),
    ))
}

pub(super) async fn list(State(shop): State<Arc<Shop>>) -> Answer<Vec<Voucher>> {
    Ok(Json(shop.vouchers().await?))
}

pub(super) async fn get(State(shop): State<Arc<Shop>>, Id(id): Id) -> Answer<Voucher> {
    Ok(Json(shop.voucher(&id).await?))
}

/// What the orders table says: the oracle of a rush.
pub(super) async fn books(State(shop): State<Arc<Shop>>, Id(id): Id) -> Answer<Value> {
    shop.voucher(&id).await?;
    let books = shop.books(&id).await?;
    Ok(Json(json!({
        "sold": books.sold,
        "buyers": books.buyers,
        "duplicates": books.duplicates(),
    })))
}

pub(super) async fn settlements(State(shop): State<Arc<Shop>>) -> Answer<Value> {
    Ok(Json(json!(shop.settlements().await?)))
}
