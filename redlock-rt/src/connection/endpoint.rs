//! The address, credentials and database of a URL.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use crate::error::Error;

/// The address part of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(feature = "tls")]
    Tls {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl Address {
    /// The address as an identity of the server: host names ignore upper and lower case.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Tcp { host, port } => format!("{}:{port}", host.to_ascii_lowercase()),
            #[cfg(feature = "tls")]
            Self::Tls { host, port } => format!("{}:{port}", host.to_ascii_lowercase()),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

/// User, password and database of a connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

/// A server and how to log in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) address: Address,
    pub(super) login: Login,
}

impl Endpoint {
    /// Parses `redis://[user[:password]@]host[:port][/db]`, `rediss://` likewise, or
    /// `redis+unix:///path[?db=N&user=U&pass=P]` (also `unix://`).
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // The text may contain a password, so errors repeat no part of it.
        let refuse = |why: String| Err(Error::bad_input("parse the redis URL", why));
        if let Some(mistake) = mistake(text) {
            return refuse(mistake);
        }
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return refuse(format!("{error}; {FORM}")),
        };
        match url.scheme() {
            "redis" | "rediss" => {
                let address = match host_and_port(&url) {
                    Ok((host, port)) if url.scheme() == "redis" => Address::Tcp { host, port },
                    #[cfg(feature = "tls")]
                    Ok((host, port)) => Address::Tls { host, port },
                    #[cfg(not(feature = "tls"))]
                    Ok(_) => return refuse("rediss:// needs the feature `tls`".into()),
                    Err(why) => return refuse(why.into()),
                };
                if url.query().is_some_and(|query| !query.is_empty()) {
                    return refuse(format!(
                        "unknown parameter: there are none behind a ?; {FORM}"
                    ));
                }
                let db = match url.path().trim_start_matches('/') {
                    "" => 0,
                    db => match parse_db(db) {
                        Ok(db) => db,
                        Err(why) => return refuse(why),
                    },
                };
                let Some(user) = decode(url.username()) else {
                    return refuse(format!("the user name is not UTF-8; {PERCENT}"));
                };
                let password = match url.password().map(decode) {
                    Some(None) => return refuse(format!("the password is not UTF-8; {PERCENT}")),
                    Some(password) => password,
                    None => None,
                };
                let user = Some(user).filter(|user| !user.is_empty());
                Ok(Self {
                    address,
                    login: Login { user, password, db },
                })
            }
            "unix" | "redis+unix" => {
                if url.host_str().is_some_and(|host| !host.is_empty()) {
                    return refuse("a unix URL has three slashes before the path".into());
                }
                let Some(path) = decode(url.path()).filter(|path| path.len() > 1) else {
                    return refuse("the path of the unix socket is missing".into());
                };
                let mut login = Login::default();
                for (key, value) in url.query_pairs() {
                    match &*key {
                        "db" => match parse_db(&value) {
                            Ok(db) => login.db = db,
                            Err(why) => return refuse(why),
                        },
                        "user" => login.user = Some(value.into_owned()),
                        "pass" => login.password = Some(value.into_owned()),
                        _ => {
                            let why = "unknown parameter; there are db, user and pass, and an & in \
                                       one of them is written %26";
                            return refuse(why.into());
                        }
                    }
                }
                Ok(Self {
                    address: Address::Unix(path.into()),
                    login,
                })
            }
            scheme => refuse(format!(
                "unknown scheme {scheme:?}; expected redis, rediss, redis+unix or unix"
            )),
        }
    }
}

/// The form of a URL, for errors.
const FORM: &str =
    "expected redis://[user[:password]@]host[:port][/db], as in redis://127.0.0.1:6379";
const PERCENT: &str = "a % that begins no code is written %25";

/// Known mistakes with URLs in configurations, and the correct form.
fn mistake(text: &str) -> Option<String> {
    let text = text.trim();
    let quotes = [
        '"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}',
    ];
    if text.starts_with(quotes) || text.ends_with(quotes) {
        let why = "the URL is in quotes, which belong to the file or the shell that it comes from; \
                   write redis://127.0.0.1:6379 without any";
        return Some(why.into());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let example = match is_host_and_port(text) {
            true => text,
            false => "[user[:password]@]host[:port][/db]",
        };
        return Some(format!(
            "the scheme is missing; write \"redis://{example}\""
        ));
    };
    // A user, a password and a host end at the first of these, whatever was meant.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    if matches!(scheme, "redis" | "rediss") {
        if behind.contains('@') {
            let why = "a / ? or # ends the password; percent-encode it: / is %2F, ? is %3F, # is \
                       %23, @ is %40, % is %25";
            return Some(why.into());
        }
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.contains(',') {
            let why =
                "several servers in one URL; a client has one (a Quorum takes several clients)";
            return Some(why.into());
        }
    }
    if text.contains('#') {
        return Some("a # ends the URL; in a password it is written %23".into());
    }
    None
}

/// Whether a text is a host with or without a port and a database: then it contains no password and
/// may be repeated.
fn is_host_and_port(text: &str) -> bool {
    let (place, db) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place, "6379"),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let of_a_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    !host.is_empty()
        && host.bytes().all(of_a_host)
        && (host.starts_with('[') || !host.contains(':'))
        && !port.is_empty()
        && digits(port)
        && digits(db)
}

fn host_and_port(url: &Url) -> Result<(String, u16), &'static str> {
    let host = match url.host_str() {
        Some(host) if !host.is_empty() => host.trim_start_matches('[').trim_end_matches(']'),
        _ => return Err("the host is missing"),
    };
    match url.port() {
        Some(0) => Err("port 0 cannot be connected to"),
        port => Ok((host.to_owned(), port.unwrap_or(6379))),
    }
}

fn parse_db(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(db @ 0..) => Ok(db),
        _ => {
            Err("the database is not a number; expected one as in redis://127.0.0.1:6379/0".into())
        }
    }
}

/// Undoes percent-encoding; `None` where the bytes are no UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let hex = |at: usize| {
            tail.get(at)
                .and_then(|&digit| char::from(digit).to_digit(16))
        };
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).ok()?);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, password, db } = self;
        f.debug_struct("Login")
            .field("user", user)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("db", db)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn good_urls() {
        let parse = |text| Endpoint::parse(text).unwrap();
        assert_eq!(parse("redis://localhost").address, tcp("localhost", 6379));
        assert_eq!(parse("redis://[::1]:7000/3").address, tcp("::1", 7000));
        assert_eq!(parse("redis://[::1]:7000/3").login.db, 3);
        let login = parse("redis://app:p%40ss@h:1").login;
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref()),
            (Some("app"), Some("p@ss"))
        );
        let login = parse("redis://:secret@h").login;
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref()),
            (None, Some("secret"))
        );
        let unix = parse("redis+unix:///run/redis.sock?db=2&pass=x");
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(
            (unix.login.db, unix.login.password.as_deref()),
            (2, Some("x"))
        );
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_urls() {
        let address = Endpoint::parse("rediss://h").unwrap().address;
        assert_eq!(
            address,
            Address::Tls {
                host: "h".into(),
                port: 6379
            }
        );
    }

    #[test]
    fn bad_urls_are_refused() {
        for bad in [
            "",
            "localhost:6379",
            "http://localhost",
            "redis://",
            "redis://host:0",
            "redis://host:99999",
            "redis://host/abc",
            "redis://host/-1",
            "redis://host?protocol=9",
            "redis+unix://relative/path",
            "redis+unix:///",
            "unix:///s?db=x",
            "unix:///s?what=x",
        ] {
            assert!(
                Endpoint::parse(bad).is_err_and(|error| error.is_bad_input()),
                "{bad:?}"
            );
        }
    }

    /// What an error says; it must name the mistake, and no secret.
    #[track_caller]
    fn assert_says(url: &str, says: &str) {
        let error = Endpoint::parse(url).unwrap_err();
        let (shown, debug) = (error.to_string(), format!("{error:?}"));
        assert!(
            error.is_bad_input() && shown.contains(says),
            "{url}: {shown}"
        );
        for secret in ["hunter", "s3cret"] {
            assert!(
                !shown.contains(secret) && !debug.contains(secret),
                "{url}: {debug}"
            );
        }
    }

    #[test]
    fn a_url_without_a_scheme_said_relative_url_without_a_base() {
        for (url, write) in [
            ("127.0.0.1:6379", "write \"redis://127.0.0.1:6379\""),
            ("localhost:6379", "write \"redis://localhost:6379\""),
            ("localhost", "write \"redis://localhost\""),
            (
                "redis.internal:6379/2",
                "write \"redis://redis.internal:6379/2\"",
            ),
            ("[::1]:6379", "write \"redis://[::1]:6379\""),
            ("[::1]", "write \"redis://[::1]\""),
            (" cache_1:6380\n", "write \"redis://cache_1:6380\""),
        ] {
            assert_says(url, write);
        }
        let form = "write \"redis://[user[:password]@]host[:port][/db]\"";
        for url in [
            "",
            "default:hunter2",
            ":hunter2@h:1",
            "u:s3cret@h",
            "h:1/s3cret",
            "::1",
        ] {
            assert_says(url, form);
        }
    }

    #[test]
    fn a_url_in_quotes_said_relative_url_without_a_base() {
        for url in [
            "\"redis://:hunter2@h:1\"",
            "'redis://h'",
            "redis://h\"",
            "\u{201c}redis://h\u{201d}",
        ] {
            assert_says(url, "in quotes");
            assert_says(url, "write redis://127.0.0.1:6379 without any");
        }
    }

    #[test]
    fn a_password_that_is_not_percent_encoded_was_taken_for_a_port_or_a_database() {
        for url in [
            "redis://:hunter/2@h:6379",
            "redis://user:12/hunter@h:6379",
            "redis://user:hunter?s3cret@h",
            "redis://:hunter#s3cret@h",
            "rediss://u:1#hunter@h/1",
            "redis://u:a@b/hunter@h",
        ] {
            assert_says(
                url,
                "percent-encode it: / is %2F, ? is %3F, # is %23, @ is %40, % is %25",
            );
        }
        assert_says(
            "redis://u:hunter%ff@h",
            "a % that begins no code is written %25",
        );
        assert_says(
            "redis+unix:///s?pass=hunter#s3cret",
            "in a password it is written %23",
        );
        assert_says(
            "redis+unix:///s?pass=a&hunter2=1",
            "an & in one of them is written %26",
        );
        assert_says("redis://h/s3cret", "as in redis://127.0.0.1:6379/0");
        assert_says("redis://h?s3cret=1", "unknown parameter");
        // What is clear enough as it is.
        for (url, password) in [
            ("redis://:p@ss@h", "p@ss"),
            ("redis://:50%off@h", "50%off"),
            ("redis://:a:b@h", "a:b"),
        ] {
            let login = Endpoint::parse(url).unwrap().login;
            assert_eq!(login.password.as_deref(), Some(password), "{url}");
        }
    }

    #[test]
    fn several_servers_in_one_url_are_told_apart_from_a_wrong_port() {
        assert_says("redis://:hunter2@a:1,b:2", "several servers in one URL");
    }

    #[test]
    fn a_password_is_never_printed() {
        let endpoint = Endpoint::parse("redis://u:hunter2@h").unwrap();
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let error = Endpoint::parse("redis://u:hunter2@h:x").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
