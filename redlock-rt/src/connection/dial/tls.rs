//! TLS over a connected stream.

use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock;
use crate::error::Error;

/// Without a reply to the handshake for this long, a probe checks for Redis without TLS.
const SUSPICIOUS: Duration = Duration::from_millis(500);

/// The server answered in the Redis protocol at once.
#[derive(Debug, thiserror::Error)]
#[error("a PING without TLS is answered, and a TLS handshake is not")]
pub(super) struct WithoutTls;

/// The trusted roots: Mozilla's, and those of the caller.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new(
        extra_roots: Option<&[u8]>,
        identity: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Error> {
        let refuse = |why: String| Error::bad_input("set up TLS", why);
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(pem) = extra_roots {
            let known = roots.len();
            for root in CertificateDer::pem_slice_iter(pem) {
                let root = root.map_err(|error| refuse(error.to_string()))?;
                roots.add(root).map_err(|error| refuse(error.to_string()))?;
            }
            // The path of a file, for example.
            if roots.len() == known {
                let why = "tls_roots has no certificate: it takes the content of a PEM file";
                return Err(refuse(why.to_owned()));
            }
        }
        // The provider is named: rustls has no default one unless some crate of the program
        // sets it.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(error.to_string()))?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let refuse = |why: &dyn fmt::Display| {
                    refuse(format!("the client's certificate or key: {why}"))
                };
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
                let chain = chain.map_err(|error| refuse(&error))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| refuse(&error))?;
                let config = config.with_client_auth_cert(chain, key);
                config.map_err(|error| refuse(&error))?
            }
        };
        Ok(Self(Arc::new(config).into()))
    }

    /// Speaks TLS over a stream that `open` opens, which takes no longer than `within`.
    ///
    /// A Redis without TLS does not answer a handshake, since it waits for the end of a line. So if
    /// no reply comes for a while, another stream asks without TLS.
    pub(super) async fn connect<S, F>(
        &self,
        host: &str,
        open: impl Fn() -> F,
        within: Duration,
    ) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
        F: Future<Output = io::Result<S>>,
    {
        let stream = open().await?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut handshake = pin!(self.0.connect(name, stream));
        let suspicious = SUSPICIOUS.min(within / 4);
        if let Ok(stream) = clock::timeout(suspicious, &mut handshake).await {
            return stream;
        }
        tokio::select! {
            stream = handshake => stream,
            () = answers_without_tls(open()) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, WithoutTls))
            }
        }
    }
}

/// Resolves if Redis answers at once, and otherwise never.
async fn answers_without_tls<S>(stream: impl Future<Output = io::Result<S>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Ok(mut stream) = stream.await
        && stream.write_all(b"PING\r\n").await.is_ok()
        && matches!(stream.read_u8().await, Ok(b'+' | b'-'))
    {
        return;
    }
    pending().await
}

const NO_TLS: &str = "it does not speak TLS; without TLS the URL begins with redis://, \
                      redis+cluster:// or redis+sentinel://";

/// What to do about a connection that fails until the configuration changes; `None`: the fault may
/// pass.
pub(super) fn misfit_of(error: &io::Error) -> Option<&'static str> {
    let error = error.get_ref()?;
    match error.downcast_ref() {
        Some(tls) => misfit(tls),
        None => error.is::<WithoutTls>().then_some(NO_TLS),
    }
}

/// What to do about a handshake that fails until the configuration changes; `None`: the fault may
/// pass.
fn misfit(error: &rustls::Error) -> Option<&'static str> {
    use rustls::AlertDescription as Alert;
    use rustls::CertificateError as Of;
    use rustls::Error as E;
    match error {
        E::InvalidCertificate(Of::Expired | Of::ExpiredContext { .. }) => {
            Some("the server's certificate has expired: the server needs a new one")
        }
        E::InvalidCertificate(Of::NotValidYet | Of::NotValidYetContext { .. }) => {
            Some("the server's certificate is not valid yet; is one of the clocks wrong?")
        }
        E::InvalidCertificate(_) => Some(
            "the server's certificate is not trusted for this name; name the authority that \
             signed it with tls_roots, and the host that it is for in the URL",
        ),
        E::InvalidMessage(_) => Some(NO_TLS),
        E::PeerIncompatible(_) => Some("it has no version or cipher of TLS in common with us"),
        E::AlertReceived(
            Alert::HandshakeFailure
            | Alert::ProtocolVersion
            | Alert::InsufficientSecurity
            | Alert::BadCertificate
            | Alert::CertificateRequired
            | Alert::AccessDenied
            | Alert::UnknownCA
            | Alert::UnrecognisedName,
        ) => Some(
            "it refuses the handshake; it may ask for a certificate of the client (tls_identity)",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

    use super::misfit;

    #[test]
    fn a_handshake_that_cannot_succeed_says_why() {
        let incompatible = PeerIncompatible::NoCipherSuitesInCommon;
        for (error, says) in [
            (Error::PeerIncompatible(incompatible), "in common"),
            (InvalidMessage::InvalidContentType.into(), "not speak TLS"),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "tls_identity",
            ),
        ] {
            let hint = misfit(&error).unwrap();
            assert!(hint.contains(says), "{hint}");
        }
        assert_eq!(misfit(&Error::HandshakeNotComplete), None);
    }

    /// To name another authority does not help.
    #[test]
    fn a_certificate_that_has_expired_said_use_tls_roots() {
        for (why, says) in [
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "not valid yet"),
            (CertificateError::UnknownIssuer, "tls_roots"),
        ] {
            let hint = misfit(&Error::InvalidCertificate(why)).unwrap();
            assert!(hint.contains(says), "{hint}");
            assert_eq!(hint.contains("tls_roots"), says == "tls_roots");
        }
    }
}
