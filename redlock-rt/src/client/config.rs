//! The settings of a client, for configuration files.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::ClientBuilder;
use crate::connection::Credentials;

/// The settings of a [`Client`](crate::Client), for a reader of configuration files (`config`, `figment`, `toml`).
///
/// A field that is not set has the default of the [`ClientBuilder`] method with the same name. Durations are texts with
/// a unit, such as `"30s"` or `"1m 30s"`. Unknown fields are refused. `Debug` prints no password, and no error of this
/// type does; the error of a reader may show the line of the file.
///
/// # Examples
///
/// ```
/// use redlock_rt::{ClientBuilder, ClientConfig};
///
/// let config: ClientConfig = serde_json::from_str(
///     r#"{ "url": "redis://10.0.0.1", "password": "secret", "namespace": "shop", "lease": "10s" }"#,
/// )?;
/// assert!(!format!("{config:?}").contains("secret"));
/// let client = ClientBuilder::from(config).build()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ClientConfig {
    /// As [`ClientBuilder::url`]: one server, a master and its replicas, sentinels, or a cluster.
    #[serde(deserialize_with = "secret")]
    pub url: Option<String>,
    /// The user, if the URL names none: that of the [`password`](Self::password), or of the password in the URL.
    pub user: Option<String>,
    /// The password, if the URL has none: a secret may come from another place than the URL. It is that of the
    /// [`user`](Self::user), or of the user in the URL.
    #[serde(deserialize_with = "secret")]
    pub password: Option<String>,
    /// As [`ClientBuilder::namespace`].
    pub namespace: Option<String>,
    /// As [`ClientBuilder::client_name`].
    pub client_name: Option<String>,
    /// As [`ClientBuilder::identity`].
    pub identity: Option<String>,
    /// As [`ClientBuilder::server_name`].
    pub server_name: Option<String>,
    /// As [`ClientBuilder::lease`].
    #[serde(with = "humantime_serde")]
    pub lease: Option<Duration>,
    /// As [`ClientBuilder::default_wait`], but never without a limit.
    #[serde(with = "humantime_serde")]
    pub default_wait: Option<Duration>,
    /// As [`ClientBuilder::poll_interval`].
    #[serde(with = "humantime_serde")]
    pub poll_interval: Option<Duration>,
    /// As [`ClientBuilder::response_timeout`].
    #[serde(with = "humantime_serde")]
    pub response_timeout: Option<Duration>,
    /// As [`ClientBuilder::connect_timeout`].
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Option<Duration>,
    /// As [`ClientBuilder::waiter_timeout`].
    #[serde(with = "humantime_serde")]
    pub waiter_timeout: Option<Duration>,
    /// As [`ClientBuilder::hand_over`]; `"0s"` for none.
    #[serde(with = "humantime_serde")]
    pub hand_over: Option<Duration>,
    /// As [`ClientBuilder::dedicated_thread`].
    pub dedicated_thread: Option<bool>,
    /// As [`ClientBuilder::tracking`].
    pub tracking: Option<bool>,
    /// As [`ClientBuilder::sharded_pubsub`].
    pub sharded_pubsub: Option<bool>,
}

/// A text whose error does not repeat what stands in its place.
fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::deserialize(deserializer);
    text.map_err(|_| {
        D::Error::custom("expected a text for the url or the password: put it in quotes")
    })
}

impl ClientConfig {
    /// The credentials, unless the URL has both parts, and the URL. If the URL and the fields have one part each, the
    /// returned URL has no credentials.
    fn login(&self) -> (Option<Credentials>, Option<String>) {
        // An empty environment variable counts as not set.
        let user = self.user.as_deref().filter(|user| !user.is_empty());
        let password = self
            .password
            .as_deref()
            .filter(|password| !password.is_empty());
        let url = self.url.as_deref();
        if let Some((whole, rest)) = url.and_then(|url| Credentials::joined(url, user, password)) {
            return (Some(whole), Some(rest));
        }
        let is_said = user.is_some() || password.is_some();
        let credentials = is_said.then(|| {
            let credentials = Credentials::new(password.unwrap_or_default());
            match user {
                Some(user) => credentials.user(user),
                None => credentials,
            }
        });
        (credentials, self.url.clone())
    }
}

impl From<ClientConfig> for ClientBuilder {
    fn from(config: ClientConfig) -> Self {
        let mut builder = Self::new();
        let (credentials, url) = config.login();
        if let Some(credentials) = credentials {
            builder = builder.credentials(move || ready(Ok::<_, Infallible>(credentials.clone())));
        }
        if let Some(url) = url {
            builder = builder.url(&url);
        }
        macro_rules! set {
            ($($setting:ident)+) => {
                $(if let Some(value) = config.$setting {
                    builder = builder.$setting(value);
                })+
            };
        }
        set!(namespace client_name identity server_name lease default_wait poll_interval);
        set!(response_timeout connect_timeout waiter_timeout hand_over dedicated_thread tracking);
        set!(sharded_pubsub);
        builder
    }
}

impl fmt::Debug for ClientConfig {
    /// As the builder, which has no passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let builder = ClientBuilder::from(self.clone());
        f.debug_tuple("ClientConfig").field(&builder).finish()
    }
}
