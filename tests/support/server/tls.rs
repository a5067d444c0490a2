//! Certificates for one server, signed by an authority made for it.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) ca_pem: String,
}

impl Certificates {
    /// Writes `ca.pem`, `server.pem` and `server.key` into the directory.
    pub(super) fn create(directory: &Path) -> Self {
        let ca_key = KeyPair::generate().expect("a key can be made");
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name
            .push(DnType::CommonName, "redlock-rt test authority");
        let ca_pem = ca
            .self_signed(&ca_key)
            .expect("the authority signs itself")
            .pem();

        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut server = CertificateParams::new(names).expect("the names are valid");
        server
            .distinguished_name
            .push(DnType::CommonName, "redlock-rt test server");
        let server_key = KeyPair::generate().expect("a key can be made");
        let issuer = Issuer::new(ca, ca_key);
        let signed = server
            .signed_by(&server_key, &issuer)
            .expect("the authority signs");

        let write = |name: &str, text: &str| {
            fs::write(directory.join(name), text).expect("the server's directory is writable");
        };
        let mut client = CertificateParams::default();
        client
            .distinguished_name
            .push(DnType::CommonName, "redlock-rt test client");
        let client_key = KeyPair::generate().expect("a key can be made");
        let client = client
            .signed_by(&client_key, &issuer)
            .expect("the authority signs");
        write("client.pem", &client.pem());
        write("client.key", &client_key.serialize_pem());
        write("ca.pem", &ca_pem);
        write("server.pem", &signed.pem());
        write("server.key", &server_key.serialize_pem());
        Self { ca_pem }
    }
}

impl Certificates {
    /// Takes the files of another server's directory.
    pub(super) fn copy(from: &Path, to: &Path) -> Self {
        for file in [
            "client.pem",
            "client.key",
            "ca.pem",
            "server.pem",
            "server.key",
        ] {
            fs::copy(from.join(file), to.join(file)).expect("the other server has certificates");
        }
        let ca_pem = fs::read_to_string(to.join("ca.pem")).expect("it was copied");
        Self { ca_pem }
    }
}

/// With the certificate in a server's directory.
pub(super) fn acceptor(directory: &Path) -> TlsAcceptor {
    let certificates = CertificateDer::pem_file_iter(directory.join("server.pem"))
        .expect("the certificate is there")
        .collect::<Result<_, _>>()
        .expect("it is one");
    let key = PrivateKeyDer::from_pem_file(directory.join("server.key")).expect("the key is there");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}
