//! Servers that are listed one by one.

use super::endpoint::{Endpoint, Login, Servers, Service};
use super::url::{PARSE, Parts, SENTINEL_PORT, database, no_mistake, servers};
use crate::connection::address::Address;
use crate::error::Error;

impl Endpoint {
    /// The cluster of these nodes.
    pub(crate) fn of_cluster(urls: &[impl AsRef<str>]) -> Result<Self, Error> {
        let listed = listed("one cluster", urls, true, |url| {
            let Self { servers, login } = Self::parse(url)?;
            let why = match servers {
                Servers::One(Address::Unix(_)) => "the nodes of a cluster have a host and a port",
                Servers::Service(_) => "a cluster has no sentinels: it fails over by itself",
                _ if login.db != 0 => "a cluster has no other database than 0",
                _ => return Ok((servers.addresses().to_vec(), login)),
            };
            Err(refused(why))
        })?;
        let (nodes, login) = listed.ok_or_else(|| refused("the cluster has no nodes"))?;
        let servers = Servers::Cluster(nodes);
        Ok(Self { servers, login })
    }

    /// These servers, of which one is the master and the others its replicas.
    pub(crate) fn of_several(urls: &[impl AsRef<str>]) -> Result<Self, Error> {
        let listed = listed("one master and its replicas", urls, false, |url| {
            let Self { servers, login } = Self::parse(url)?;
            let why = match servers {
                Servers::One(Address::Unix(_)) => {
                    "a master and its replicas have a host and a port"
                }
                Servers::Cluster(_) => "nodes of a cluster have slots: name them with cluster",
                Servers::Service(_) => SERVICE_TWICE,
                _ => return Ok((servers.addresses().to_vec(), login)),
            };
            Err(refused(why))
        })?;
        let (addresses, login) = listed.ok_or_else(|| refused("urls names no server"))?;
        let servers = Servers::of(addresses);
        Ok(Self { servers, login })
    }

    /// The master that these sentinels name, each of which has a URL or a host and perhaps a port.
    pub(crate) fn of_sentinels(
        sentinels: &[impl AsRef<str>],
        service: &str,
    ) -> Result<Self, Error> {
        let listed = listed("the sentinels of one service", sentinels, false, |text| {
            sentinel(text).map_err(|why| Error::bad_input(PARSE, why))
        })?;
        let (sentinels, login) = listed.ok_or_else(|| refused("no sentinel is named"))?;
        if service.is_empty() {
            return Err(refused("the name of the service is missing"));
        }
        let name = service.to_owned();
        let servers = Servers::Service(Service { name, sentinels });
        Ok(Self { servers, login })
    }
}

const SERVICE_TWICE: &str = "the URL of sentinels names their service too: write it as the one url";

fn refused(why: &'static str) -> Error {
    Error::bad_input(PARSE, why)
}

/// The addresses and the common login; `None`: the list is empty. `of`: what they are together;
/// `twice`: whether one may be listed twice.
fn listed(
    of: &str,
    urls: &[impl AsRef<str>],
    twice: bool,
    read: impl Fn(&str) -> Result<(Vec<Address>, Login), Error>,
) -> Result<Option<(Vec<Address>, Login)>, Error> {
    let mut all: Vec<Address> = Vec::new();
    let mut login: Option<Login> = None;
    for url in urls {
        let (addresses, more) = read(url.as_ref())?;
        if *login.get_or_insert_with(|| more.clone()) != more {
            let why = format!("the URLs of {of} have different logins or databases");
            return Err(Error::bad_input(PARSE, why));
        }
        for address in addresses {
            if all
                .first()
                .is_some_and(|first| first.is_tls() != address.is_tls())
            {
                let why = format!("some URLs of {of} have TLS, and others have not");
                return Err(Error::bad_input(PARSE, why));
            }
            match all.contains(&address) {
                false => all.push(address),
                true if twice => {}
                true => return Err(refused("the same server is in the list twice")),
            }
        }
    }
    Ok(login.map(|login| (all, login)))
}

/// A sentinel, or several with one login.
fn sentinel(text: &str) -> Result<(Vec<Address>, Login), String> {
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("redis://{}", text.trim()),
    };
    no_mistake(&whole)?;
    let form = "expected host:port, redis://host:port or rediss://host:port for a sentinel";
    let parts = Parts::of(&whole).ok_or(form)?;
    match &*parts.scheme {
        "redis" | "rediss" => {}
        "redis+sentinel" | "rediss+sentinel" => return Err(SERVICE_TWICE.into()),
        _ => return Err(format!("unknown scheme; {form}")),
    }
    let (sentinels, login, path) = servers(&parts, &parts.scheme, SENTINEL_PORT)?;
    let db = database(path.trim_start_matches('/'))?;
    Ok((sentinels, Login { db, ..login }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Endpoint {
        Endpoint::parse(text).unwrap()
    }

    #[track_caller]
    fn assert_says(outcome: Result<Endpoint, Error>, says: &str) {
        let error = outcome.unwrap_err();
        let (shown, debug) = (error.to_string(), format!("{error:?}"));
        assert!(shown.contains(says), "{shown}");
        assert!(!(shown + &debug).contains("hunter2"));
    }

    #[test]
    fn a_list_of_nodes_is_as_one_url() {
        let of = |urls: &[&str]| Endpoint::of_cluster(urls);
        let whole = parsed("redis+cluster://u:hunter2@h:1,i:2");
        let each = ["redis://u:hunter2@h:1", "redis://u:hunter2@i:2"];
        assert_eq!(of(&each).unwrap(), whole);
        // A node that is named twice is one node.
        assert_eq!(of(&[each[0], each[1], each[0]]).unwrap(), whole);
        let again = of(&["redis+cluster://u:hunter2@h:1,i:2"]);
        assert_eq!(again.unwrap(), whole);
        for (urls, says) in [
            (
                &["redis://h", "redis://u:hunter2@i"][..],
                "different logins",
            ),
            (&["redis://h/2"], "no other database"),
            (&["unix:///s"], "a host and a port"),
            (&["redis+sentinel://h/m"], "no sentinels"),
            (&[], "no nodes"),
        ] {
            assert_says(of(urls), says);
        }
    }

    #[test]
    fn a_list_of_a_master_and_its_replicas_is_as_one_url() {
        let of = |urls: &[&str]| Endpoint::of_several(urls);
        let whole = parsed("redis://u:hunter2@h,i:2/3");
        let each = ["redis://u:hunter2@h/3", "redis://u:hunter2@i:2/3"];
        assert_eq!(of(&each).unwrap(), whole);
        assert_eq!(of(&["redis://h:1"]).unwrap(), parsed("redis://h:1"));
        for (urls, says) in [
            (
                &["redis://h", "redis://u:hunter2@i"][..],
                "different logins",
            ),
            (
                &["redis://h", "redis://i/1"],
                "different logins or databases",
            ),
            (&["redis://h", "redis://h:6379"], "twice"),
            (&["redis://h", "unix:///s"], "a host and a port"),
            (
                &["redis+sentinel://:hunter2@h/m"],
                "write it as the one url",
            ),
            (&["redis+cluster://h", "redis+cluster://i"], "with cluster"),
            (&["h:1"], "the scheme is missing"),
            (&["redis://:hunter2@h:x"], "port"),
            (&[], "no server"),
        ] {
            assert_says(of(urls), says);
        }
    }

    #[test]
    fn a_list_of_sentinels_is_as_one_url() {
        let of = |list: &[&str]| Endpoint::of_sentinels(list, "my master");
        let whole = parsed("redis+sentinel://h,i:7000/my%20master");
        for list in [
            &["h", "i:7000"][..],
            &["redis://h", "redis://i:7000"],
            &["h:26379", "redis://i:7000/0"],
            &["h,i:7000"],
        ] {
            assert_eq!(of(list).unwrap(), whole, "{list:?}");
        }
        // The login and the database are those of the master, as in one URL.
        let login = of(&["redis://u:hunter2@h/3", "redis://u:hunter2@i:7000/3"]);
        let whole = parsed("redis+sentinel://u:hunter2@h,i:7000/my%20master/3");
        assert_eq!(login.unwrap(), whole);
        for (list, says) in [
            (&["h", "redis://u:hunter2@i"][..], "different logins"),
            (&["h", "redis://h:26379"], "twice"),
            (&["h:x"], "port"),
            (&[""], "the host is missing"),
            (&["\"h:1\""], "in quotes"),
            (&["unix:///s"], "unknown scheme"),
            (
                &["redis+sentinel://:hunter2@h/m"],
                "write it as the one url",
            ),
            (&["redis://:hunter/2@h:1"], "percent-encode it"),
            (&["redis://h/m"], "the database is not a number"),
            (&[], "no sentinel"),
        ] {
            assert_says(of(list), says);
        }
        assert_says(Endpoint::of_sentinels(&["h"], ""), "the service is missing");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn all_of_a_list_have_tls_or_none_has() {
        let mixed = ["redis://h", "rediss://i"];
        for outcome in [
            Endpoint::of_cluster(&mixed),
            Endpoint::of_several(&mixed),
            Endpoint::of_sentinels(&mixed, "m"),
        ] {
            assert_says(outcome, "have TLS, and others have not");
        }
        let sentinels = Endpoint::of_sentinels(&["rediss://h", "rediss://i"], "m");
        assert_eq!(sentinels.unwrap(), parsed("rediss+sentinel://h,i/m"));
    }
}
