//! URLs of servers.

use std::borrow::Cow;

use url::Url;

use super::endpoint::{Endpoint, Login, Servers, Service};
use crate::connection::address::Address;
use crate::error::Error;

/// The parts after `://`. The `url` crate does not accept a URL with several hosts.
pub(super) struct Parts<'a> {
    /// In lower case.
    pub(super) scheme: String,
    /// Includes its `@`; empty if there is none.
    credentials: &'a str,
    pub(super) hosts: Vec<&'a str>,
    /// From the first `/`, `?` or `#`.
    pub(super) behind: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        // A user, a password and a host end at the first of these, whatever was meant.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, behind) = rest.split_at(end);
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        let (credentials, hosts) = authority.split_at(host);
        Some(Self {
            scheme,
            credentials,
            hosts: hosts.split(',').collect(),
            behind,
        })
    }
}

pub(super) const PARSE: &str = "parse the redis URL";
const SENTINEL: &str = "+sentinel";
const CLUSTER: &str = "+cluster";
const PORT: u16 = 6379;
pub(super) const SENTINEL_PORT: u16 = 26379;

impl Endpoint {
    /// Parses `redis://[user[:password]@]host[:port][,host[:port]…][/db]`,
    /// `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/service[/db]`,
    /// `redis+cluster://[user[:password]@]host[:port][,host[:port]…]`, all with `rediss` for TLS, or `redis+unix:///path[?db=N&user=U&pass=P]` (also `unix://`).
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        // The text may contain a password, so errors repeat no part of it.
        parse(text).map_err(|why| Error::bad_input(PARSE, why))
    }
}

fn parse(text: &str) -> Result<Endpoint, String> {
    no_mistake(text)?;
    let parts = Parts::of(text).ok_or(FORM)?;
    match &*parts.scheme {
        "redis" | "rediss" => {
            let (addresses, login, path) = servers(&parts, &parts.scheme, PORT)?;
            let db = database(path.trim_start_matches('/'))?;
            Ok(Endpoint {
                servers: Servers::of(addresses),
                login: Login { db, ..login },
            })
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let scheme = parts.scheme.trim_end_matches(SENTINEL);
            let (sentinels, login, path) = servers(&parts, scheme, SENTINEL_PORT)?;
            let path = path.strip_prefix('/').unwrap_or(&path);
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            let name = decode(name).filter(|name| !name.is_empty());
            let missing = || format!("the name of the service is missing; {SENTINEL_FORM}");
            let name = name.ok_or_else(missing)?;
            let db = database(db)?;
            Ok(Endpoint {
                servers: Servers::Service(Service { name, sentinels }),
                login: Login { db, ..login },
            })
        }
        "unix" | "redis+unix" => unix(&url(text)?),
        "redis+cluster" | "rediss+cluster" => {
            let scheme = parts.scheme.trim_end_matches(CLUSTER);
            let (nodes, login, path) = servers(&parts, scheme, PORT)?;
            if database(path.trim_start_matches('/'))? != 0 {
                return Err("a cluster has no other database than 0".into());
            }
            Ok(Endpoint {
                servers: Servers::Cluster(nodes),
                login,
            })
        }
        _ => {
            let why = "unknown scheme; expected redis, rediss, redis+cluster, rediss+cluster, \
                       redis+sentinel, rediss+sentinel, redis+unix or unix";
            Err(why.into())
        }
    }
}

fn url(text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| format!("{error}; {FORM}"))
}

/// The addresses, the login without its database, and the path.
pub(super) fn servers(
    parts: &Parts<'_>,
    scheme: &str,
    port: u16,
) -> Result<(Vec<Address>, Login, String), String> {
    let mut addresses = Vec::with_capacity(parts.hosts.len());
    let mut rest = (Login::default(), String::new());
    let (credentials, behind) = (parts.credentials, parts.behind);
    for host in &parts.hosts {
        if host.is_empty() {
            return Err("the host is missing".into());
        }
        let url = url(&format!("{scheme}://{credentials}{host}{behind}"))?;
        let (host, port) = host_and_port(&url, port)?;
        let tls = scheme == "rediss";
        if tls && cfg!(not(feature = "tls")) {
            return Err("rediss:// needs the feature `tls`".into());
        }
        let address = Address::Tcp { host, port, tls };
        if addresses.contains(&address) {
            return Err("the same server is in the URL twice".into());
        }
        addresses.push(address);
        if url.query().is_some_and(|query| !query.is_empty()) {
            return Err(format!(
                "unknown parameter: there are none behind a ?; {FORM}"
            ));
        }
        rest = (login(&url)?, url.path().to_owned());
    }
    let (login, path) = rest;
    Ok((addresses, login, path))
}

/// User and password.
fn login(url: &Url) -> Result<Login, String> {
    let Some(user) = decode(url.username()) else {
        return Err(format!("the user name is not UTF-8; {PERCENT}"));
    };
    let password = match url.password().map(decode) {
        Some(None) => return Err(format!("the password is not UTF-8; {PERCENT}")),
        password => password.flatten(),
    };
    Ok(Login {
        user: Some(user).filter(|user| !user.is_empty()),
        password,
        db: 0,
    })
}

fn unix(url: &Url) -> Result<Endpoint, String> {
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err("a unix URL has three slashes before the path".into());
    }
    let Some(path) = decode(url.path()).filter(|path| path.len() > 1) else {
        return Err("the path of the unix socket is missing".into());
    };
    let mut login = Login::default();
    for (key, value) in url.query_pairs() {
        match &*key {
            "db" => login.db = number(&value)?,
            // An empty environment variable counts as not set.
            "user" | "pass" if value.is_empty() => {}
            // The replacement for bytes that are not UTF-8.
            "user" | "pass" if value.contains(char::REPLACEMENT_CHARACTER) => {
                return Err(format!("the {key} is not UTF-8; {PERCENT}"));
            }
            "user" => login.user = Some(value.into_owned()),
            "pass" => login.password = Some(value.into_owned()),
            _ => {
                let why = "unknown parameter; there are db, user and pass, and an & in one of \
                           them is written %26";
                return Err(why.into());
            }
        }
    }
    Ok(Endpoint {
        servers: Servers::One(Address::Unix(path.into())),
        login,
    })
}

/// The form of a URL, for errors.
const FORM: &str =
    "expected redis://[user[:password]@]host[:port][/db], as in redis://127.0.0.1:6379";
const SENTINEL_FORM: &str = "expected redis+sentinel://[user[:password]@]host:port,host:port/service[/db], as in \
     redis+sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster";
const PERCENT: &str = "a % that begins no code is written %25";

/// Refuses known mistakes with URLs in configurations, with the correct form.
pub(super) fn no_mistake(text: &str) -> Result<(), String> {
    let text = text.trim();
    let quotes = [
        '"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}',
    ];
    if text.starts_with(quotes) || text.ends_with(quotes) {
        let why = "the URL is in quotes, which belong to the file or the shell that it comes from; \
                   write redis://127.0.0.1:6379 without any";
        return Err(why.into());
    }
    let Some(Parts { scheme, behind, .. }) = Parts::of(text) else {
        // The text may be a bare password.
        return Err(format!("the scheme is missing; {FORM}"));
    };
    let plain = scheme.trim_end_matches(SENTINEL).trim_end_matches(CLUSTER);
    if matches!(plain, "redis" | "rediss") && behind.contains('@') {
        let why = "a / ? or # ends the password; percent-encode it: / is %2F, ? is %3F, # is %23, \
                   @ is %40, % is %25";
        return Err(why.into());
    }
    if text.contains('#') {
        return Err("a # ends the URL; in a password it is written %23".into());
    }
    Ok(())
}

fn host_and_port(url: &Url, default: u16) -> Result<(String, u16), &'static str> {
    let host = match url.host_str() {
        Some(host) if !host.is_empty() => host.trim_start_matches('[').trim_end_matches(']'),
        _ => return Err("the host is missing"),
    };
    match url.port() {
        Some(0) => Err("port 0 cannot be connected to"),
        port => Ok((host.to_owned(), port.unwrap_or(default))),
    }
}

/// The database after the host; none means the first.
pub(super) fn database(text: &str) -> Result<i64, String> {
    match text {
        "" => Ok(0),
        text => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(db @ 0..) => Ok(db),
        _ => {
            Err("the database is not a number; expected one as in redis://127.0.0.1:6379/0".into())
        }
    }
}

/// Undoes percent-encoding; `None` if the bytes are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only server of a URL.
    fn only(text: &str) -> Address {
        match Endpoint::parse(text).unwrap().servers {
            Servers::One(address) => address,
            servers => panic!("{servers:?}"),
        }
    }

    #[test]
    fn good_urls() {
        let parse = |text| Endpoint::parse(text).unwrap();
        assert_eq!(only("redis://localhost"), Address::tcp("localhost", 6379));
        assert_eq!(only("redis://[::1]:7000/3"), Address::tcp("::1", 7000));
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
        assert_eq!(
            unix.servers,
            Servers::One(Address::Unix("/run/redis.sock".into()))
        );
        assert_eq!(
            (unix.login.db, unix.login.password.as_deref()),
            (2, Some("x"))
        );
    }

    #[test]
    fn a_url_with_a_blank_before_it_or_an_upper_case_scheme_was_refused() {
        for url in [
            " redis://h:1",
            "\tredis://h:1\n",
            "REDIS://h:1",
            "Redis://h:1",
        ] {
            assert_eq!(only(url), Address::tcp("h", 1), "{url:?}");
        }
        let secret = "REDIS://:hunter/2@h:1";
        assert_says(secret, "percent-encode it");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_urls() {
        let address = only("rediss://h");
        assert_eq!(
            address,
            Address::Tcp {
                host: "h".into(),
                port: 6379,
                tls: true
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
            "redis+unix:///s?pass=%ff",
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

    /// Checks the text of an error, which must name the mistake, and no secret.
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
        for url in [
            "",
            "127.0.0.1:6379",
            "[::1]",
            "default:hunter2",
            ":hunter2@h:1",
            "u:s3cret@h",
            "h:1/s3cret",
            "hunter2",
            "hunter2:6379",
            "::1",
        ] {
            assert_says(url, "the scheme is missing; expected redis://[user");
        }
    }

    /// A text in the wrong place may be a password. The error repeated it.
    #[test]
    fn an_error_about_a_url_repeats_no_part_of_it() {
        assert_says("hunter2://x", "unknown scheme; expected redis");
        let error = Endpoint::of_sentinels(&["hunter2://x"], "s").unwrap_err();
        assert!(!error.to_string().contains("hunter"), "{error}");
        // It has the password in place of the user.
        let shown = format!("{:?}", Endpoint::parse("redis://hunter2@h").unwrap());
        assert!(!shown.contains("hunter"), "{shown}");
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
        // Texts that need no correction.
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
    fn several_servers_are_a_master_and_its_replicas() {
        let endpoint = Endpoint::parse("redis://u:p%2C@a,b:7000,[::1]:7001/2").unwrap();
        let several = vec![
            Address::tcp("a", 6379),
            Address::tcp("b", 7000),
            Address::tcp("::1", 7001),
        ];
        assert_eq!(endpoint.servers, Servers::Several(several));
        let Login { user, password, db } = endpoint.login;
        assert_eq!(
            (user.as_deref(), password.as_deref()),
            (Some("u"), Some("p,"))
        );
        assert_eq!(db, 2);
        let (one, other) = ("redis://B:1,a:2", "redis://a:2,b:1/0");
        let place = |text| Endpoint::parse(text).unwrap().servers.place();
        assert_eq!(place(one), place(other));
        assert_says("redis://:hunter2@a:1,b:x", "invalid port number");
        assert_says("redis://:hunter2@a:1,", "the host is missing");
        assert_says(
            "redis://:hunter2@a:1,a:1",
            "the same server is in the URL twice",
        );
    }

    #[test]
    fn sentinels_and_the_service_they_watch() {
        let endpoint = Endpoint::parse("redis+sentinel://u:p@a,b:7000/my%20master/3").unwrap();
        let service = Service {
            name: "my master".into(),
            sentinels: vec![Address::tcp("a", 26379), Address::tcp("b", 7000)],
        };
        let place = "my master at the sentinels a:26379,b:7000";
        assert_eq!(endpoint.servers.place(), place);
        assert_eq!(endpoint.servers, Servers::Service(service));
        assert_eq!(endpoint.login.db, 3);
        assert_eq!(endpoint.login.user.as_deref(), Some("u"));
        for url in ["redis+sentinel://h:1", "redis+sentinel://:hunter2@h:1//2"] {
            assert_says(url, "the name of the service is missing");
        }
        assert_says("redis+sentinel://:hunter2@h:1/m/s3cret", "not a number");
        assert_says("redis+sentinel://:hunter/2@h:1/m", "percent-encode it");
    }

    #[test]
    fn nodes_of_a_cluster() {
        let parse = |text| Endpoint::parse(text).unwrap();
        let endpoint = parse("redis+cluster://u:hunter2@h:1,i:2");
        let nodes = Servers::Cluster(vec![Address::tcp("h", 1), Address::tcp("i", 2)]);
        assert_eq!(endpoint.servers, nodes);
        assert_eq!(endpoint.login.password.as_deref(), Some("hunter2"));
        let one = Servers::Cluster(vec![Address::tcp("h", 6379)]);
        assert_eq!(parse("redis+cluster://h/0").servers, one);
        assert_says("redis+cluster://h/1", "no other database");
        assert_says("redis+cluster://h,h", "twice");
    }

    #[test]
    fn a_password_is_never_printed() {
        let endpoint = Endpoint::parse("redis://u:hunter2@h").unwrap();
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let error = Endpoint::parse("redis://u:hunter2@h:x").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
}
