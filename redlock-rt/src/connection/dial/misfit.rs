//! Failures to connect that last until the configuration changes.

use std::io;

/// The error texts of resolvers for an unknown name: glibc, musl, macOS and the BSDs, Windows. The
/// standard library keeps the text and drops the code. An unreachable resolver gives another text,
/// and that fault passes.
const UNKNOWN_HOST: [&str; 6] = [
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "Name has no usable address",
    "nodename nor servname provided, or not known",
    "No such host is known",
];

/// The advice about a failure to open a stream, if it lasts: the host name is unknown, or the two sides cannot
/// agree on TLS. `None`: it may be temporary. So may an unknown name be if the server was `reached` before, as in
/// an environment whose names come and go with their servers.
pub(in crate::connection) fn misfit(error: &io::Error, reached: bool) -> Option<&'static str> {
    #[cfg(feature = "tls")]
    if let Some(hint) = super::tls::misfit_of(error) {
        return Some(hint);
    }
    let text = error.to_string();
    let unknown = UNKNOWN_HOST.iter().any(|known| text.contains(known));
    (unknown && !reached).then_some("no such host name")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of which a name server cannot be asked may be known to it.
    #[test]
    fn a_name_that_is_not_known_is_told_from_a_resolver_that_does_not_answer() {
        let of = |text: &str| {
            let text = format!("failed to lookup address information: {text}");
            misfit(&io::Error::other(text), false)
        };
        assert_eq!(of("Name or service not known"), Some("no such host name"));
        assert_eq!(of("Temporary failure in name resolution"), None);
        assert_eq!(of("Try again"), None);
        assert_eq!(
            misfit(&io::ErrorKind::ConnectionRefused.into(), false),
            None
        );
    }
}
