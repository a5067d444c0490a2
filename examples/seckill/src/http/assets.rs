//! The page. Its files are part of the program: nothing is built and nothing comes from elsewhere.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text)
}

pub(super) async fn index() -> impl IntoResponse {
    file(HTML, include_str!("../page/index.html"))
}

pub(super) async fn script() -> impl IntoResponse {
    file(SCRIPT, include_str!("../page/app.js"))
}

pub(super) async fn style() -> impl IntoResponse {
    file(CSS, include_str!("../page/style.css"))
}

pub(super) async fn icon() -> impl IntoResponse {
    file(SVG, include_str!("../page/icon.svg"))
}

pub(super) async fn docs() -> impl IntoResponse {
    file(HTML, include_str!("../page/docs.html"))
}

pub(super) async fn docs_script() -> impl IntoResponse {
    file(SCRIPT, include_str!("../page/docs.js"))
}
