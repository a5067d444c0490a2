//! How a byte stream to a server is made: the URL, the look-up of the host name, TLS, and the
//! credentials for the login.

mod credentials;
mod dialer;
mod endpoint;
#[cfg(feature = "serde")]
mod joined;
mod look_up;
mod misfit;
mod panics;
#[cfg(feature = "redis-1")]
mod redis_crate;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod url_lists;

pub(crate) use self::credentials::CredentialSource;
pub use self::credentials::Credentials;
pub(super) use self::credentials::Expiry;
pub(super) use self::dialer::{BoxStream, LIB_NAME, LIB_VERSION, Target};
pub(crate) use self::dialer::{Connector, Dialer, ServerId};
pub(crate) use self::endpoint::Endpoint;
pub(super) use self::endpoint::{Servers, Service};
pub(super) use self::misfit::misfit;
#[cfg(feature = "redis-1")]
pub(crate) use self::redis_crate::RedisSettings;
