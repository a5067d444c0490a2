//! Routes of orders.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::body::Body;
use super::id::Id;
use super::problem::Problem;
use super::session::{User, has_pass};
use crate::service::Shop;
use crate::store::Order;

/// Places an order of a voucher that is on sale.
pub(super) async fn place(
    State(app): State<App>,
    User(user): User,
    Id(voucher): Id,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let pass = has_pass(&app, &headers, &voucher, user);
    let placed = app.shop.order(user, &voucher, pass).await?;
    let order_id = placed.into_order()?;
    Ok((
        StatusCode::CREATED,
        Json(json!({ "order_id": order_id, "voucher_id": voucher })),
    ))
}

pub(super) async fn mine(
    State(shop): State<Arc<Shop>>,
    User(user): User,
) -> Result<Json<Vec<Order>>, Problem> {
    Ok(Json(shop.orders_of(user).await?))
}

pub(super) async fn pay(
    State(shop): State<Arc<Shop>>,
    User(user): User,
    Id(order): Id,
) -> Result<Json<Order>, Problem> {
    Ok(Json(shop.pay(user, &order).await?))
}

pub(super) async fn offer(
    State(shop): State<Arc<Shop>>,
    User(user): User,
    Id(order): Id,
) -> Result<Json<Order>, Problem> {
    Ok(Json(shop.offer(user, &order).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwapFor {
    for_order_id: String,
}

pub(super) async fn swap(
    State(shop): State<Arc<Shop>>,
    User(user): User,
    Id(order): Id,
    Body(asked): Body<SwapFor>,
) -> Result<Json<Value>, Problem> {
    shop.swap(user, &order, &asked.for_order_id).await?;
    Ok(Json(json!({ "gave": order, "got": asked.for_order_id })))
}
