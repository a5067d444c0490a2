//! The server's INFO at the start of a connection.

use crate::connection::address::is_host;
use crate::wire::Value;

/// The relevant lines of `INFO`; empty if an ACL forbids the command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::connection) struct Info {
    /// Identifies the server process; a restarted process has another id.
    pub(in crate::connection) run_id: Option<String>,
    pub(in crate::connection) version: Option<String>,
    /// `standalone`, `cluster` or `sentinel`.
    mode: Option<String>,
    /// `master` or `slave`.
    pub(in crate::connection) role: Option<String>,
    /// For a replica: the address of its master.
    master: Option<String>,
    /// The number of connected replicas that are in step.
    pub(in crate::connection) replicas: Option<u32>,
    /// Whether it is a node of a cluster that has sharded channels (since Redis 7.0), as far as this
    /// user may know, and the client may use them.
    pub(in crate::connection) has_shard_channels: bool,
}

/// Why a server is refused behind the URL of a cluster.
pub(in crate::connection) const NOT_A_NODE: &str =
    "it is not a node of a cluster; the URL of a single server is redis://host:port";

/// Why a server is unsuitable for locks, and what to use instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The server stays unsuitable until the configuration changes.
    Always(String),
    /// After a failover the server may become suitable, or the address may lead to another server.
    Replica(String),
}

impl Info {
    pub(in crate::connection) fn of(replies: &[Value]) -> Self {
        let text = |reply: &Value| match reply {
            Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        let texts: Vec<String> = replies.iter().map(text).collect();
        let field = |name: &str| {
            let lines = texts.iter().flat_map(|text| text.lines());
            let mut fields = lines.filter_map(|line| line.split_once(':'));
            let (_, value) = fields.find(|(key, _)| *key == name)?;
            // A broken server may say anything, and what is said is kept.
            let said = |value: &String| (1..=128).contains(&value.len());
            Some(value.trim().to_owned()).filter(said)
        };
        let role = || match replies.last() {
            Some(Value::List(parts)) => parts.first().map(text),
            _ => None,
        };
        let host = field("master_host").filter(|host| is_host(host));
        let master = host.zip(field("master_port").and_then(|port| port.parse().ok()));
        // `slave0:ip=…,port=…,state=…`: a replica that is being synchronized is not `online`.
        let lines = texts.iter().flat_map(|text| text.lines());
        let late = lines.filter(|line| line.contains(",state=") && !line.contains(",state=online"));
        let late = u32::try_from(late.count()).unwrap_or(u32::MAX);
        let replicas = field("connected_slaves").and_then(|replicas| replicas.parse().ok());
        Self {
            run_id: field("run_id"),
            version: field("redis_version"),
            mode: field("redis_mode"),
            role: field("role").or_else(role),
            replicas: replicas.map(|replicas: u32| replicas.saturating_sub(late)),
            master: master.map(|(host, port): (_, u16)| format!("{host}:{port}")),
            has_shard_channels: false,
        }
    }

    /// Whether it is a master; `None`: unknown.
    pub(super) fn is_master(&self) -> Option<bool> {
        self.role.as_deref().map(|role| role == "master")
    }

    /// `clustered`: it should be a node of a cluster.
    pub(super) fn unfit(&self, clustered: bool) -> Option<Unfit> {
        match self.mode.as_deref() {
            Some("sentinel") => {
                let why = "it is a sentinel, which keeps no locks; the URL of the master that it \
                           watches is redis+sentinel://host:port/service";
                return Some(Unfit::Always(why.into()));
            }
            Some("cluster") if !clustered => {
                let why = "it is a node of a cluster: other nodes have other locks; the URL of a \
                           cluster is redis+cluster://host:port,host:port";
                return Some(Unfit::Always(why.into()));
            }
            Some("standalone") if clustered => return Some(Unfit::Always(NOT_A_NODE.into())),
            _ => {}
        }
        if !matches!(self.role.as_deref(), Some("slave" | "replica")) {
            return None;
        }
        let master = match &self.master {
            Some(master) => format!("connect to its master, {master:?}"),
            None => "connect to its master".to_owned(),
        };
        Some(Unfit::Replica(format!(
            "it is a replica, which takes no locks; {master}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> Info {
        let replies = texts.iter().map(|text| Value::Text((*text).into()));
        Info::of(&replies.collect::<Vec<_>>())
    }

    #[test]
    fn lines_of_info_are_found() {
        let text = "# Server\r\nredis_version:7.0.15\r\nrun_id:0f1e\r\ntcp_port:1\r\n";
        assert_eq!(said(&[text]).run_id.as_deref(), Some("0f1e"));
        assert_eq!(said(&["run_id:\r\n"]), Info::default());
        let long = format!("run_id:{}\r\n", "x".repeat(129));
        assert_eq!(said(&[&long]), Info::default());
        assert_eq!(Info::of(&[Value::Okay, Value::Nil]), Info::default());
        assert_eq!(Info::default().unfit(false), None);
        assert_eq!(Info::default().unfit(true), None);
        assert_eq!(Info::default().is_master(), None);
        let role = Value::List(vec![Value::Text("slave".into()), Value::Int(1)]);
        assert_eq!(Info::of(&[Value::Nil, role]).is_master(), Some(false));
    }

    #[test]
    fn replicas_that_are_being_synchronized_are_not_in_step() {
        let text = "role:master\r\nconnected_slaves:3\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=7,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
                    slave2:ip=127.0.0.1,port=3,state=send_bulk,offset=0,lag=0\r\n";
        assert_eq!(said(&[text]).replicas, Some(1));
        assert_eq!(said(&["connected_slaves:0\r\n"]).replicas, Some(0));
    }

    #[test]
    fn servers_that_are_not_to_be_locked_on_are_called_by_name() {
        let master = "role:master\r\nconnected_slaves:1\r\n";
        let fit = said(&["redis_mode:standalone\r\n", master]);
        assert_eq!(fit.unfit(false), None);
        let why = Some(Unfit::Always(NOT_A_NODE.into()));
        assert_eq!(fit.unfit(true), why);
        let node = said(&["redis_mode:cluster\r\n", master]);
        assert_eq!(node.unfit(true), None);
        let unfit = |texts: &[&str], what: &str, instead: &str| {
            let unfit = said(texts).unfit(false);
            let Some(Unfit::Always(why) | Unfit::Replica(why)) = &unfit else {
                panic!("{texts:?} is fit");
            };
            assert!(why.contains(what) && why.contains(instead), "{why}");
            matches!(unfit, Some(Unfit::Always(_)))
        };
        assert!(unfit(
            &["redis_mode:sentinel\r\n", ""],
            "a sentinel",
            "redis+sentinel://"
        ));
        assert!(unfit(
            &["redis_mode:cluster\r\n", master],
            "a cluster",
            "redis+cluster://"
        ));
        let replica = "role:slave\r\nmaster_host:10.0.0.7\r\nmaster_port:6380\r\n";
        assert!(!unfit(
            &["redis_mode:standalone\r\n", replica],
            "a replica",
            "10.0.0.7:6380"
        ));
    }
}
