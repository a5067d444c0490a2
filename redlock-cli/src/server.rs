//! The server, and the login.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use redlock_rt::{Client, ClientBuilder, Credentials};
use url::Url;

use crate::exit::Failure;
use crate::output::warn;
use crate::span::span;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// The server: redis://host, redis://master,replica, redis+sentinel://hosts/service,
    /// redis+cluster://hosts, redis+unix:///path; with TLS rediss://…
    #[arg(
        long,
        global = true,
        env = "REDIS_URL",
        hide_env_values = true,
        default_value = "redis://localhost"
    )]
    pub(crate) url: String,
    /// Reads the password from this file, anew for each connection
    #[arg(long, global = true, value_name = "FILE", env = "REDIS_PASSWORD_FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// The user of the password in the file
    #[arg(long, global = true, env = "REDLOCK_USER", requires = "password_file")]
    pub(crate) user: Option<String>,
    /// Reads the password of the sentinels from this file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "REDIS_SENTINEL_PASSWORD_FILE"
    )]
    pub(crate) sentinel_password_file: Option<PathBuf>,
    /// Trusts the certificates of this PEM file, too
    #[arg(long, global = true, value_name = "FILE", env = "REDIS_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Presents the certificate of this PEM file, to servers that ask for one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "REDIS_TLS_CERT",
        requires = "tls_key"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of that certificate, a PEM file
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "REDIS_TLS_KEY",
        requires = "tls_cert"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Puts this and a colon before each key, as the services do
    #[arg(long, global = true, env = "REDLOCK_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The longest time for connecting, and for a reply
    #[arg(long, global = true, value_name = "TIME", value_parser = span, default_value = "3s")]
    pub(crate) timeout: Duration,
}

impl Server {
    /// The builder of the client, with all these options.
    pub(crate) fn builder(&self) -> Result<ClientBuilder, Failure> {
        self.warn_of_passwords();
        let mut builder = Client::builder()
            .url(&self.url)
            .connect_timeout(self.timeout)
            .response_timeout(self.timeout);
        if let Some(namespace) = &self.namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(roots) = self.roots()? {
            builder = builder.tls_roots(roots);
        }
        if let Some([certificates, key]) = self.tls_identity()? {
            builder = builder.tls_identity(certificates, key);
        }
        if let Some(password) = self.sentinel_password()? {
            builder = builder.sentinel_credentials(None, password);
        }
        if self.password_file.is_some() {
            // Done here, so that a missing file is a wrong argument and not an outage.
            self.login()?;
            let server = self.clone();
            builder = builder.credentials(move || {
                let login = server.login();
                async move {
                    let (user, password) =
                        login.map_err(|failure| io::Error::other(failure.message))?;
                    let credentials = Credentials::new(password);
                    Ok::<_, io::Error>(match user {
                        Some(user) => credentials.user(user),
                        None => credentials,
                    })
                }
            });
        }
        Ok(builder)
    }

    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(self.builder()?.connect().await?)
    }

    /// The certificates to trust, in PEM form.
    pub(crate) fn roots(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.tls_ca.as_deref().map(content).transpose()
    }

    /// The certificates to present, and their key, in PEM form.
    pub(crate) fn tls_identity(&self) -> Result<Option<[Vec<u8>; 2]>, Failure> {
        let both = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        both.map(|(certificates, key)| Ok([content(certificates)?, content(key)?]))
            .transpose()
    }

    /// User and password of the file.
    pub(crate) fn login(&self) -> Result<(Option<String>, String), Failure> {
        let Some(path) = &self.password_file else {
            return Err(Failure::usage("no --password-file"));
        };
        Ok((self.user.clone(), password_in(path)?))
    }

    pub(crate) fn sentinel_password(&self) -> Result<Option<String>, Failure> {
        self.sentinel_password_file
            .as_deref()
            .map(password_in)
            .transpose()
    }

    /// The URL without the login, for people.
    pub(crate) fn place(&self) -> String {
        let url = self.url.trim();
        let parts = url.split_once("://");
        let is_url = Client::builder().url(url).build().is_ok();
        let Some((scheme, rest)) = parts.filter(|_| is_url) else {
            // A part in the wrong place may be a password.
            return "the URL".to_owned();
        };
        // The path of a socket may contain an @.
        let path = rest.find('/').unwrap_or(rest.len());
        let hosts = rest[..path].rfind('@').map_or(0, |at| at + 1);
        let place = rest[hosts..].split('?').next().unwrap_or_default();
        format!("{scheme}://{place}")
    }

    /// The name of a key in Redis.
    pub(crate) fn full_name(&self, key: &str) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}:{key}"),
            None => key.to_owned(),
        }
    }

    /// Every user of the machine can read the arguments of a process.
    fn warn_of_passwords(&self) {
        let has_password = match Url::parse(&self.url) {
            Ok(url) => {
                let in_query = url.query_pairs().any(|(key, _)| key == "pass");
                url.password().is_some() || in_query
            }
            // The parser does not accept several hosts in a URL.
            Err(_) => self.url.split_once('@').is_some_and(|(login, _)| {
                login
                    .rsplit_once("//")
                    .is_some_and(|(_, login)| login.contains(':'))
            }),
        };
        let is_argument = |argument: OsString| argument.to_string_lossy().contains(&self.url);
        if has_password && std::env::args_os().any(is_argument) {
            warn("the password is visible in ps: use REDIS_URL or --password-file");
        }
    }
}

fn content(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::usage(format!("{}: {error}", path.display()));
    fs::read(path).map_err(failed)
}

fn password_in(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Cli;

    #[test]
    fn the_place_had_the_password_of_a_socket_whose_path_or_password_contains_an_at() {
        for (url, place) in [
            (
                "redis+unix:///run/redis@1.sock?pass=secret",
                "redis+unix:///run/redis@1.sock",
            ),
            (
                "unix:///run/redis.sock?pass=p@secret",
                "unix:///run/redis.sock",
            ),
            (
                "UNIX:///run/redis.sock?pass=p@secret",
                "UNIX:///run/redis.sock",
            ),
            (" redis://me:p@secret@a,b:1/2", "redis://a,b:1/2"),
            (
                "redis+sentinel://me:secret@a/service",
                "redis+sentinel://a/service",
            ),
            ("redis://h?", "redis://h"),
        ] {
            assert_place(url, place);
        }
    }

    #[test]
    fn the_place_was_a_password_without_a_url_or_in_a_wrong_part_of_one() {
        for url in [
            "secret",
            "me:secret@a",
            "redis://h/0?password=p@secret",
            "redis://me:secret?secret@a,b:1/2",
            "redis://me:p@secret@a?secret",
            "redis://h/secret",
            "redis://h#secret",
            "redis://me:p/secret@h",
            "unix://me:secret@/run/redis.sock",
            "secret://h",
        ] {
            assert_place(url, "the URL");
        }
    }

    #[track_caller]
    fn assert_place(url: &str, place: &str) {
        let cli = Cli::parse_from(["redlock", "--url", url, "doctor"]);
        assert_eq!(cli.server.place(), place, "{url}");
    }
}
