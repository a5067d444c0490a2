//! The identity of a client that others can read.

use crate::wire::ClientIdentity;

/// The identity of this process.
pub(super) fn of_process(name: String) -> ClientIdentity {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    ClientIdentity {
        name,
        host: host.map_or_else(String::new, |host| host.trim().to_owned()),
        pid: std::process::id(),
        since: 0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
