//! The parts of a URL.

use percent_encoding::percent_decode_str;
use url::Url;

/// The kind of the hosts of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One server, or a master and its replicas.
    Servers,
    Sentinels {
        service: String,
    },
    Cluster,
    Socket(String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) form: Form,
    pub(super) tls: bool,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

impl Place {
    /// `None`: the library says what is wrong with it.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let url = url.trim();
        let (scheme, rest) = url.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (kind, form) = scheme.split_once('+').unwrap_or((&scheme, ""));
        if form == "unix" || kind == "unix" {
            return Self::socket(url);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path
            .split(['?', '#'])
            .next()
            .unwrap_or("")
            .trim_start_matches('/');
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (form, database, port) = match form {
            "" => (Form::Servers, path, 6379),
            "cluster" => (Form::Cluster, "", 6379),
            "sentinel" => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                let service = decoded(service)?;
                (Form::Sentinels { service }, database, 26379)
            }
            _ => return None,
        };
        Some(Self {
            form,
            tls: kind == "rediss",
            hosts: hosts
                .split(',')
                .map(|host| host_and_port(host, port))
                .collect::<Option<_>>()?,
            user: decoded(user),
            password: decoded(password),
            database: if database.is_empty() {
                0
            } else {
                database.parse().ok()?
            },
        })
    }

    fn socket(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        let of = |name: &str| {
            let mut pairs = url.query_pairs();
            pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
        };
        Some(Self {
            form: Form::Socket(decoded(url.path())?),
            tls: false,
            hosts: Vec::new(),
            user: of("user").filter(|user| !user.is_empty()),
            password: of("pass").filter(|password| !password.is_empty()),
            database: of("db").map_or(Some(0), |number| number.parse().ok())?,
        })
    }
}

fn host_and_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (text, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((
        if host.is_empty() { "localhost" } else { host }.to_owned(),
        port,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms() {
        let place = Place::parse("redis://u:p%40@h:1,[::1],h2:3/4").unwrap();
        let hosts =
            [("h", 1), ("::1", 6379), ("h2", 3)].map(|(host, port)| (host.to_owned(), port));
        assert_eq!(
            (place.form, place.tls, place.database),
            (Form::Servers, false, 4)
        );
        assert_eq!(place.hosts, hosts);
        assert_eq!(
            (place.user.as_deref(), place.password.as_deref()),
            (Some("u"), Some("p@"))
        );

        let place = Place::parse("rediss+sentinel://:p@a,b:2/service/1").unwrap();
        let service = "service".to_owned();
        assert_eq!(
            (place.form, place.tls, place.database),
            (Form::Sentinels { service }, true, 1)
        );
        assert_eq!(place.hosts[0], ("a".to_owned(), 26379));
        assert_eq!((place.user, place.password.as_deref()), (None, Some("p")));

        assert_eq!(
            Place::parse("redis+cluster://a").unwrap().form,
            Form::Cluster
        );
        let place = Place::parse("redis+unix:///run/redis.sock?db=2&pass=p").unwrap();
        assert_eq!(place.form, Form::Socket("/run/redis.sock".to_owned()));
        assert_eq!((place.database, place.password.as_deref()), (2, Some("p")));
        assert!(Place::parse(" REDISS://h\n").unwrap().tls);
        for (url, database) in [("redis://h?", 0), ("redis://h#x", 0), ("redis://h//3", 3)] {
            let place = Place::parse(url).unwrap();
            let found = (place.hosts[0].0.as_str(), place.database);
            assert_eq!(found, ("h", database), "{url}");
        }
        let socket = Place::parse("unix:///s?user=&pass=").unwrap();
        assert_eq!(socket.form, Form::Socket("/s".to_owned()));
        assert_eq!((socket.user, socket.password), (None, None));
        for wrong in [
            "localhost",
            "redis+other://h",
            "redis://h:port",
            "redis://h/db",
        ] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
