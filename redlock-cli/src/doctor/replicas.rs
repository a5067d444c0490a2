//! What a failover can lose.

use super::facts::Facts;
use super::{Said, error, note, ok, warning};

/// Seconds since a replica last reported. Replicas report every second.
const LATE: u64 = 3;

/// Bytes behind the master.
const FAR: u64 = 1 << 20;

pub(super) fn check(facts: &Facts) -> Vec<Said> {
    match facts.info("role") {
        None => return vec![note("not known: INFO is not allowed")],
        Some("master") => {}
        Some(role) => {
            let message = format!("it is a {role}, which refuses writes");
            return vec![error(
                message,
                "name the master, all servers, or the sentinels in the URL",
            )];
        }
    }
    let offset: u64 = facts.number("master_repl_offset").unwrap_or(0);
    let mut replicas: Vec<_> = facts
        .lines("slave")
        .filter_map(|(_, line)| Replica::read(line))
        .collect();
    replicas.sort_by(|one, other| one.address.cmp(&other.address));
    if replicas.is_empty() {
        return vec![note(
            "there are no replicas: while this server is away nobody locks",
        )];
    }
    let mut said: Vec<_> = replicas
        .iter()
        .map(|replica| replica.check(offset))
        .collect();
    match facts.config("min-replicas-to-write") {
        None => said.push(note("min-replicas-to-write is not known: CONFIG is not allowed")),
        Some("0") => said.push(warning(
            "min-replicas-to-write is 0: a master that is cut off goes on giving locks that the new one gives again",
            "CONFIG SET min-replicas-to-write 1, or acquire with --ack (replica_ack)",
        )),
        Some(least) => said.push(ok(format!("min-replicas-to-write is {least}"))),
    }
    said
}

/// `slave0:ip=…,port=…,state=online,offset=…,lag=…`
struct Replica {
    address: String,
    is_online: bool,
    offset: u64,
    lag: u64,
}

impl Replica {
    fn read(line: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = line.split(',').filter_map(|field| field.split_once('='));
            fields.find_map(|(key, value)| (key == name).then_some(value))
        };
        Some(Self {
            address: format!("{}:{}", field("ip")?, field("port")?),
            is_online: field("state")? == "online",
            offset: field("offset")?.parse().ok()?,
            lag: field("lag")?.parse().unwrap_or(0),
        })
    }

    fn check(&self, offset: u64) -> Said {
        let (address, lag) = (&self.address, self.lag);
        let behind = offset.saturating_sub(self.offset);
        let remedy =
            "look at its log and its network: a failover to it loses the locks that it has not got";
        match (self.is_online, lag, behind) {
            (false, ..) => error(format!("the replica {address} is not in step yet"), remedy),
            (_, LATE.., _) => error(
                format!("the replica {address} was last heard {lag} s ago"),
                remedy,
            ),
            (.., FAR..) => warning(
                format!("the replica {address} is {behind} bytes behind"),
                remedy,
            ),
            _ => ok(format!("the replica {address} is {behind} bytes behind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn replicas_that_are_not_in_step() {
        for (line, severity) in [
            ("state=online,offset=2000000,lag=1", Severity::Ok),
            ("state=online,offset=100,lag=0", Severity::Warning),
            ("state=online,offset=2000000,lag=3", Severity::Error),
            ("state=wait_bgsave,offset=0,lag=0", Severity::Error),
        ] {
            let info =
                format!("role:master\nmaster_repl_offset:2000000\nslave0:ip=h,port=1,{line}");
            assert_eq!(
                check(&Facts::with_info(&info))[0].severity,
                severity,
                "{line}"
            );
        }
    }
}
