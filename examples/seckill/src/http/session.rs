//! Who asks: a signed cookie. And a pass of the waiting room, which is signed likewise.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::response::{AppendHeaders, IntoResponse};
use cookie::{Cookie, CookieJar, Key, SameSite};
use serde::{Deserialize, Serialize};

use super::App;
use super::body::Body;
use super::problem::Problem;
use crate::service::{ShopError, now};

const SESSION: &str = "seckill_session";
const PASS: &str = "seckill_pass";

/// The header in which a pass comes, and, where tests may, a user.
pub(super) const PASS_HEADER: &str = "x-waiting-room-pass";
const USER_HEADER: &str = "x-user-id";

/// For how long a pass opens a sale, in milliseconds.
const PASS_LASTS: i64 = 60_000;

/// The user who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct User(pub(super) i64);

/// The cookie of a user's session, as a client sends it.
pub(crate) fn cookie_of(key: &Key, user: i64) -> String {
    format!("{SESSION}={}", sign(key, SESSION, &user.to_string()))
}

impl FromRequestParts<App> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        if app.trust_user_header
            && let Some(user) = parts.headers.get(USER_HEADER)
        {
            let user = user.to_str().ok().and_then(|text| text.parse().ok());
            return user
                .filter(|user| *user > 0)
                .map(Self)
                .ok_or_else(|| Problem::unauthorized("x-user-id is no user"));
        }
        let cookies = parts.headers.get_all(COOKIE).iter();
        let session = cookies
            .filter_map(|header| header.to_str().ok())
            .flat_map(Cookie::split_parse)
            .filter_map(Result::ok)
            .find(|cookie| cookie.name() == SESSION)
            .ok_or_else(|| Problem::unauthorized("no session: POST /api/session begins one"))?;
        verify(&app.key, SESSION, session.value())
            .and_then(|user| user.parse().ok())
            .map(Self)
            .ok_or_else(|| Problem::unauthorized("the session is not one of this shop"))
    }
}

/// A pass for one user and one sale, from this moment on.
pub(super) fn pass(key: &Key, voucher: &str, user: i64) -> String {
    sign(
        key,
        PASS,
        &format!("{voucher}/{user}/{}", now() + PASS_LASTS),
    )
}

/// Whether these headers have a pass of this user for this sale.
pub(super) fn has_pass(app: &App, parts: &axum::http::HeaderMap, voucher: &str, user: i64) -> bool {
    let Some(pass) = parts.get(PASS_HEADER).and_then(|pass| pass.to_str().ok()) else {
        return false;
    };
    verify(&app.key, PASS, pass).is_some_and(|pass| {
        let until = pass.strip_prefix(&format!("{voucher}/{user}/"));
        until
            .and_then(|until| until.parse().ok())
            .is_some_and(|until: i64| now() < until)
    })
}

/// Signs a value for a purpose: what is signed for one is worth nothing for another.
fn sign(key: &Key, purpose: &'static str, value: &str) -> String {
    let mut jar = CookieJar::new();
    jar.signed_mut(key)
        .add(Cookie::new(purpose, format!("{purpose}:{value}")));
    jar.get(purpose)
        .map(|cookie| cookie.value().to_owned())
        .unwrap_or_default()
}

fn verify(key: &Key, purpose: &'static str, value: &str) -> Option<String> {
    let cookie = Cookie::new(purpose, value.to_owned());
    let signed = CookieJar::new().signed(key).verify(cookie)?;
    let value = signed.value().strip_prefix(purpose)?.strip_prefix(':')?;
    Some(value.to_owned())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    user_id: Option<i64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Session {
    user_id: i64,
}

/// Begins a session: of the user named, or else goes on with the one there is, or begins one of
/// somebody new. A real shop would ask for a password.
pub(super) async fn begin(
    State(app): State<App>,
    there: Result<User, Problem>,
    Body(login): Body<Login>,
) -> Result<impl IntoResponse, Problem> {
    let somebody = || fastrand::i64(1_000_000_000..i64::from(u32::MAX));
    let user_id = match (login.user_id, there) {
        (Some(user), _) | (None, Ok(User(user))) => user,
        (None, Err(_)) => somebody(),
    };
    if user_id < 1 {
        return Err(ShopError::invalid("user_id", "expected 1 or more").into());
    }
    let cookie = Cookie::build((SESSION, sign(&app.key, SESSION, &user_id.to_string())))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .build();
    Ok((
        AppendHeaders([(SET_COOKIE, cookie.to_string())]),
        Json(Session { user_id }),
    ))
}

/// Says whose session it is.
pub(super) async fn show(User(user_id): User) -> Json<Session> {
    Json(Session { user_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_verified_and_nothing_else() {
        let (key, other) = (Key::from(&[1; 64]), Key::from(&[2; 64]));
        let signed = sign(&key, SESSION, "7");
        assert_eq!(verify(&key, SESSION, &signed).as_deref(), Some("7"));
        assert_eq!(verify(&other, SESSION, &signed), None);
        assert_eq!(verify(&key, PASS, &signed), None);
        assert_eq!(verify(&key, SESSION, &signed.replace('7', "8")), None);
        assert_eq!(verify(&key, SESSION, "7"), None);
    }
}
