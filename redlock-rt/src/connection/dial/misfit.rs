//! Failures to connect that last until the configuration changes.

use std::io;

/// The conclusion from a failure to open a stream about the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Misfit {
    /// The host name is unknown. The name may come and go with the server.
    UnknownHost,
    /// The two sides cannot agree on TLS.
    #[cfg(feature = "tls")]
    Tls(&'static str),
}

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

impl Misfit {
    /// `None`: it may be temporary.
    pub(in crate::connection) fn of(error: &io::Error) -> Option<Self> {
        #[cfg(feature = "tls")]
        if let Some(hint) = super::tls::misfit_of(error) {
            return Some(Self::Tls(hint));
        }
        let text = error.to_string();
        let unknown = UNKNOWN_HOST.iter().any(|known| text.contains(known));
        unknown.then_some(Self::UnknownHost)
    }

    /// The advice for the error.
    pub(in crate::connection) fn hint(self) -> &'static str {
        match self {
            Self::UnknownHost => "no such host name",
            #[cfg(feature = "tls")]
            Self::Tls(hint) => hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of which a name server cannot be asked may be known to it.
    #[test]
    fn a_name_that_is_not_known_is_told_from_a_resolver_that_does_not_answer() {
        let of = |text: &str| {
            let text = format!("failed to lookup address information: {text}");
            Misfit::of(&io::Error::other(text))
        };
        assert_eq!(of("Name or service not known"), Some(Misfit::UnknownHost));
        assert_eq!(of("Temporary failure in name resolution"), None);
        assert_eq!(of("Try again"), None);
        assert_eq!(Misfit::of(&io::ErrorKind::ConnectionRefused.into()), None);
    }
}
