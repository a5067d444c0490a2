//! Which route leads where.

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::json;
use tower_http::set_header::SetResponseHeaderLayer;

use super::problem::Problem;
use super::{App, assets, body, layers, openapi, orders, rushes, session, sse, vouchers};

/// Every route of an instance.
pub(crate) fn router(app: App) -> Router {
    let constant = |name: HeaderName, value: &'static str| {
        SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
    };
    let files = assets::FILES
        .into_iter()
        .fold(Router::new(), |files, (path, kind, text)| {
            files.route(path, assets::file(kind, text))
        });
    files
        .route("/openapi.json", get(openapi::document))
        .route("/health", get(health))
        .route("/chaos", get(chaos))
        .route("/api/session", get(session::show).post(session::begin))
        .route("/api/vouchers", get(vouchers::list).post(vouchers::create))
        .route("/api/vouchers/{id}", get(vouchers::get))
        .route("/api/vouchers/{id}/books", get(vouchers::books))
        .route("/api/vouchers/{id}/waiting-room", get(sse::room))
        .route("/api/voucher-orders", get(orders::mine))
        .route("/api/voucher-orders/{id}/seckill", post(orders::place))
        .route("/api/voucher-orders/{id}/payment", post(orders::pay))
        .route("/api/voucher-orders/{id}/offer", post(orders::offer))
        .route("/api/voucher-orders/{id}/swap", post(orders::swap))
        .route("/api/settlements", get(vouchers::settlements))
        .route("/api/instances", get(rushes::instances))
        .route("/api/rushes", post(rushes::begin))
        .route("/api/rushes/{id}", get(rushes::state))
        .route("/api/rushes/{id}/events", get(sse::rush))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "not-found", "there is no such page")
        })
        .method_not_allowed_fallback(async || Problem::no_such_method())
        .layer(DefaultBodyLimit::max(body::LARGEST))
        .layer(from_fn(layers::time_out))
        .layer(constant(
            CONTENT_SECURITY_POLICY,
            layers::CONTENT_SECURITY_POLICY,
        ))
        .layer(constant(X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(constant(REFERRER_POLICY, "no-referrer"))
        .layer(layers::trace())
        .with_state(app)
}

/// Whether this instance can serve: its database answers.
async fn health(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    app.shop.ready().await?;
    Ok(Json(
        json!({ "instance": *app.instance, "lock": app.shop.default_lock().as_str() }),
    ))
}

/// What can be broken from the page: nothing here. What stands in front may know more.
async fn chaos() -> impl IntoResponse {
    Json(json!({ "faults": [] }))
}
