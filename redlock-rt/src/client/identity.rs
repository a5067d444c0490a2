//! What a client says of itself.

use crate::wire::ClientIdentity;

const LONGEST: usize = 1024;

/// That of this process.
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

/// Why a name is refused, if it is. It stands in the note of a theft before a NUL.
pub(super) fn flaw(identity: &ClientIdentity) -> Option<&'static str> {
    match &*identity.name {
        name if name.trim().is_empty() => Some("the identity is empty or blank"),
        name if name.contains('\0') => Some("the identity contains a NUL character"),
        name if name.len() > LONGEST => Some("the identity is longer than 1024 bytes"),
        _ => None,
    }
}
