//! The shop over HTTP. Routes check who asks and what for, call the shop, and say what came of it;
//! none of them takes a lock.

use std::sync::Arc;

use axum::extract::FromRef;
use cookie::Key;
use tokio::sync::watch;

use crate::service::Shop;

mod assets;
mod body;
mod id;
mod layers;
mod openapi;
mod orders;
mod problem;
mod routes;
mod rushes;
mod server;
mod session;
mod sse;
mod vouchers;

pub(crate) use self::body::is_json;
pub(crate) use self::problem::Problem;
pub(crate) use self::routes::router;
pub(crate) use self::server::serve;
pub(crate) use self::session::cookie_of;

/// What every route may use.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) shop: Arc<Shop>,
    /// Signs sessions and passes; all instances have the same.
    pub(crate) key: Key,
    /// Whether the header `x-user-id` stands for a session: for tests only.
    pub(crate) trust_user_header: bool,
    /// The name of this instance.
    pub(crate) instance: Arc<str>,
    /// Turns true when no more is served.
    pub(crate) closing: watch::Receiver<bool>,
}

impl FromRef<App> for Arc<Shop> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.shop)
    }
}
