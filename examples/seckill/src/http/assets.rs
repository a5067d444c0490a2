//! The page. Its files are part of the program: nothing is built, and nothing is loaded from elsewhere.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::{MethodRouter, get};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const SVG: &str = "image/svg+xml";

/// Path, type and text of each file.
pub(super) const FILES: [(&str, &str, &str); 8] = [
    ("/", HTML, include_str!("../page/index.html")),
    ("/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/story.js", SCRIPT, include_str!("../page/story.js")),
    ("/story.json", JSON, include_str!("../page/story.json")),
    ("/style.css", CSS, include_str!("../page/style.css")),
    ("/icon.svg", SVG, include_str!("../page/icon.svg")),
    ("/docs", HTML, include_str!("../page/docs.html")),
    ("/docs.js", SCRIPT, include_str!("../page/docs.js")),
];

pub(super) fn file<S: Clone + Send + Sync + 'static>(
    kind: &'static str,
    text: &'static str,
) -> MethodRouter<S> {
    get(async move || ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text))
}
