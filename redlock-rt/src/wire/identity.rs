//! The identity of a client: a hash that lives as long as the client has renewed holds.

use std::time::Duration;

use super::reply::{Malformed, Reply};
use super::script::{Call, millis, script};
use crate::name::LockName;

script!(INTRODUCE = "introduce");
script!(IDENTITY = "identity");

/// The identity that a client reports; see [`Client::identity_of`](crate::Client::identity_of).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientIdentity {
    /// The name given to [`ClientBuilder::identity`](crate::ClientBuilder::identity).
    pub name: String,
    /// The name of the host; empty if the process could not know it.
    pub host: String,
    /// The id of the process.
    pub pid: u32,
    /// Since when the client has reported this without a gap, by the clock of the server: seconds since the
    /// Unix epoch.
    pub since: u64,
    /// The version of this crate.
    pub version: String,
}

impl ClientIdentity {
    /// Stores the identity for `lives`.
    pub(crate) fn introduce(&self, key: &LockName, lives: Duration) -> Call {
        Call::new(&INTRODUCE)
            .key(key.as_str())
            .number(millis(lives))
            .arg(&self.name)
            .arg(&self.host)
            .number(self.pid.into())
            .arg(&self.version)
    }

    /// `None`: the client reports none.
    pub(crate) fn decode(reply: Reply) -> Result<Option<Self>, Malformed> {
        match &reply {
            Reply::Nil => Ok(None),
            // A value of another program is not an identity.
            Reply::List(items) => Ok(Self::read(items)),
            _ => Err(Malformed(reply)),
        }
    }

    fn read(items: &[Reply]) -> Option<Self> {
        let [
            Reply::Text(name),
            Reply::Text(host),
            Reply::Text(pid),
            Reply::Text(since),
            Reply::Text(version),
        ] = items
        else {
            return None;
        };
        Some(Self {
            name: name.clone(),
            host: host.clone(),
            pid: pid.parse().ok()?,
            since: since.parse().ok()?,
            version: version.clone(),
        })
    }
}

/// [`ClientIdentity::decode`] reads the reply.
pub(crate) fn identity(key: &LockName) -> Call {
    Call::new(&IDENTITY).key(key.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::script::headers::assert_agrees;
    use super::*;

    #[test]
    fn calls_agree_with_their_headers() {
        let key = LockName::new(None, "redlock_client:{u}").unwrap();
        let me = ClientIdentity {
            name: "a".to_owned(),
            host: String::new(),
            pid: 7,
            since: 60,
            version: "0.1.0".to_owned(),
        };
        assert_agrees(&me.introduce(&key, Duration::from_secs(1)));
        assert_agrees(&identity(&key));
    }

    #[test]
    fn what_others_have_put_there_is_no_identity() {
        let texts = |items: &[&str]| {
            let texts = items.iter().map(|text| Reply::Text((*text).to_owned()));
            ClientIdentity::decode(Reply::List(texts.collect()))
        };
        let read = texts(&["n", "", "7", "60", "0.1.0"]).unwrap().unwrap();
        assert_eq!((read.pid, read.since), (7, 60));
        assert_eq!(ClientIdentity::decode(Reply::Nil), Ok(None));
        assert!(ClientIdentity::decode(Reply::Int(1)).is_err());
        assert_eq!(texts(&["n", "", "7", "60"]), Ok(None));
        assert_eq!(texts(&["n", "", "-7", "60", "0.1.0"]), Ok(None));
        assert_eq!(texts(&["n", "", "7", "never", "0.1.0"]), Ok(None));
    }
}
