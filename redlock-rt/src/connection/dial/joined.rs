//! A login with one half in a URL, and the other half in other settings.

use url::Url;

use super::credentials::Credentials;
use super::endpoint::Endpoint;
use super::url::Parts;

impl Credentials {
    /// The whole login, and the URL without its half. `None`: the URL has another half than the one that is
    /// missing here.
    pub(crate) fn joined(
        url: &str,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Option<(Self, String)> {
        let said = Endpoint::parse(url).ok()?.login;
        let (user, password) = match (said.user, said.password, user, password) {
            (Some(user), None, None, Some(password)) => (user, password.to_owned()),
            (None, Some(password), Some(user), None) => (user.to_owned(), password),
            _ => return None,
        };
        Some((Self::new(password).user(user), without_login(url)?))
    }
}

fn without_login(text: &str) -> Option<String> {
    let parts = Parts::of(text)?;
    if !parts.scheme.ends_with("unix") {
        let hosts = parts.hosts.join(",");
        return Some(format!("{}://{hosts}{}", parts.scheme, parts.behind));
    }
    let mut url = Url::parse(text).ok()?;
    let rest = url.query_pairs().filter(|(key, _)| key == "db");
    let rest: Vec<_> = rest.map(|(_, db)| ("db", db.into_owned())).collect();
    url.query_pairs_mut().clear().extend_pairs(&rest);
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_joined(url: &str, user: Option<&str>, password: Option<&str>) {
        let (whole, rest) = Credentials::joined(url, user, password).unwrap();
        let login = (whole.user.as_deref(), &*whole.password);
        assert_eq!(login, (Some("app"), "hunter@2"), "{url}");
        let [before, after] = [url, rest.as_str()].map(|url| Endpoint::parse(url).unwrap());
        assert_eq!(before.servers, after.servers, "{url}");
        assert_eq!(before.login.db, after.login.db, "{url}");
        let left = (after.login.user, after.login.password);
        assert_eq!(left, (None, None), "{url}");
    }

    #[test]
    fn each_kind_of_url_may_say_one_half() {
        for url in [
            "redis://app@h:1/2",
            " REDIS://app@[::1]:1,h ",
            "redis+sentinel://app@h,i:7000/my%20master/3",
            "redis+cluster://app@h:1,i:2",
            "redis+unix:///run/my%20redis?db=1&user=app",
            "unix:///s?user=app",
        ] {
            assert_joined(url, None, Some("hunter@2"));
        }
        for url in [
            "redis://:hunter%402@h:1/2",
            "redis://:hunter@2@h,i",
            "redis+sentinel://:hunter%402@h,i:7000/m",
            "redis+cluster://:hunter%402@h:1,i:2",
            "redis+unix:///s?pass=hunter%402&db=1",
        ] {
            assert_joined(url, Some("app"), None);
        }
    }

    #[test]
    fn what_both_say_and_what_neither_says_is_not_joined() {
        for (url, user, password) in [
            ("redis://h", Some("app"), Some("hunter2")),
            ("redis://h", None, Some("hunter2")),
            ("redis://app@h", None, None),
            ("redis://app@h", Some("app"), None),
            ("redis://app@h", Some("app"), Some("hunter2")),
            ("redis://:hunter2@h", None, Some("hunter2")),
            ("redis://:hunter2@h", Some("app"), Some("hunter2")),
            ("redis://app:hunter2@h", Some("app"), None),
            ("redis://app:hunter2@h", None, Some("hunter2")),
            ("app@h", None, Some("hunter2")),
        ] {
            assert!(Credentials::joined(url, user, password).is_none(), "{url}");
        }
    }
}
