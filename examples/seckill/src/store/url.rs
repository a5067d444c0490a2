//! What `--database` may be.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of a database: a file of SQLite, or a PostgreSQL server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseUrl {
    url: String,
    /// The same as one says it on the command line.
    argument: String,
}

impl DatabaseUrl {
    /// What `--database` says. Clap, which would show the whole text with its error, does not ask here: it may have a password.
    pub(crate) fn argument(text: &str) -> Result<Self, String> {
        text.parse()
            .map_err(|problem| format!("--database: {problem}"))
    }

    /// The SQLite file, which is made if there is none.
    pub(crate) fn file(path: &Path) -> Result<Self, String> {
        let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
        let as_url = url::Url::from_file_path(&absolute)
            .map_err(|()| format!("{} is no path", path.display()))?;
        Ok(Self {
            url: format!("sqlite://{}?mode=rwc", as_url.path()),
            argument: absolute.display().to_string(),
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// What another process of this program is given for the same database.
    pub(crate) fn as_argument(&self) -> &str {
        &self.argument
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite:")
    }
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const CHOICES: &str =
            "expected a path to a file, sqlite://PATH or postgres://USER@HOST:PORT/DATABASE";
        match text.split_once("://") {
            None if text.is_empty() => Err(format!("it is empty; {CHOICES}")),
            None => Self::file(&PathBuf::from(text)),
            Some(("sqlite", "")) => Err(format!("it has no path; {CHOICES}")),
            Some(("sqlite", path)) => Self::file(&PathBuf::from(path)),
            Some(("postgres" | "postgresql", _)) => {
                let parsed = url::Url::parse(text).map_err(|error| error.to_string())?;
                match parsed.path().trim_start_matches('/') {
                    "" => Err(format!("it names no database; {CHOICES}")),
                    _ => Ok(Self {
                        url: text.to_owned(),
                        argument: text.to_owned(),
                    }),
                }
            }
            Some((scheme, _)) => Err(format!("{scheme}:// is no database for this; {CHOICES}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_of_sqlite() {
        let url: DatabaseUrl = "/srv/a shop/50%.db".parse().unwrap();
        assert_eq!(url.as_str(), "sqlite:///srv/a%20shop/50%25.db?mode=rwc");
        assert!(url.is_sqlite());
        assert_eq!(url.as_argument().parse(), Ok(url));
        let relative: DatabaseUrl = "shop.db".parse().unwrap();
        assert!(relative.as_str().starts_with("sqlite:///"), "{relative:?}");
        assert_eq!(
            "sqlite:///a.db".parse(),
            DatabaseUrl::file(Path::new("/a.db"))
        );
    }

    #[test]
    fn a_server_is_postgres() {
        let url: DatabaseUrl = "postgres://me@localhost:5433/shop".parse().unwrap();
        assert!(!url.is_sqlite());
        assert_eq!(url.as_str(), "postgres://me@localhost:5433/shop");
    }

    #[test]
    fn whatever_else_is_refused_and_told() {
        for (bad, named) in [
            ("", "empty"),
            ("sqlite://", "no path"),
            ("mysql://localhost/shop", "mysql://"),
            ("redis://localhost", "redis://"),
            ("postgres://localhost", "names no database"),
            ("postgres://localhost:port/shop", "port"),
        ] {
            let refused = bad.parse::<DatabaseUrl>().unwrap_err();
            assert!(refused.contains(named), "{bad:?}: {refused}");
        }
    }
}
