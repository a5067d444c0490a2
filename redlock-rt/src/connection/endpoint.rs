//! Where a server is and who we are there, parsed from a URL.

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
    /// The address as it tells servers apart: host names are the same in either case.
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
        let refuse = |why: String| Err(Error::bad_input("parse the redis URL", why));
        let url = match Url::parse(text) {
            Ok(url) => url,
            // The text may hold a password, so it is not repeated.
            Err(error) => return refuse(error.to_string()),
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
                if let Some((key, _)) = url.query_pairs().next() {
                    return refuse(format!("unknown parameter {key:?}"));
                }
                let db = match url.path().trim_start_matches('/') {
                    "" => 0,
                    db => match parse_db(db) {
                        Ok(db) => db,
                        Err(why) => return refuse(why),
                    },
                };
                let Some(user) = decode(url.username()) else {
                    return refuse("the user name is not UTF-8".into());
                };
                let password = match url.password().map(decode) {
                    Some(None) => return refuse("the password is not UTF-8".into()),
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
                        _ => return refuse(format!("unknown parameter {key:?}")),
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
        _ => Err(format!("the database {text:?} is not a number")),
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

    #[test]
    fn a_password_is_never_printed() {
        let endpoint = Endpoint::parse("redis://u:hunter2@h").unwrap();
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let error = Endpoint::parse("redis://u:hunter2@h:x").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
