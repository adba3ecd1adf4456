//! A client's way to a server: TCP, and TLS as `sslmode` asks for it.
//!
//! ```text
//! disable       plain
//! prefer        SSLRequest ──▶ 'S': TLS, whatever certificate is shown ──▶ 'N': plain
//! require       TLS, or an error; with sslrootcert as verify-ca
//! verify-ca     and an authority of sslrootcert has signed the certificate
//! verify-full   and the certificate is for this host
//! ```
//! `prefer` does not come back without TLS after a handshake that failed, as libpq does: only a server that says 'N' gets a plain
//! connection. The files are read for each connection, so new ones count without a start. One byte answers the request: what comes with it
//! was not protected, and ends the connection.
//!
//! Left out on purpose: the authorities of the operating system, lists of revoked certificates.

use crate::certificate::end_point;
use crate::conninfo::{Conninfo, SslMode};
use crate::line::{Io, Line};
use crate::startup::SSL_REQUEST;
use crate::tls::{ALPN, authorities, certificates, key, provider};
use base::{Error, Result, SqlState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
};
use tokio_rustls::{TlsConnector, TlsStream};

/// A peer that does not acknowledge for so long what was sent is gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// A node whose clients' sessions run here is gone where it does not acknowledge for so long what was sent.
const LOST: Duration = Duration::from_secs(30);

/// Connects, within the time that the server's address says. 08006; 53000 where this process has no file for a connection, which says nothing of
/// the server.
pub async fn dial(server: &Conninfo) -> Result<Line<TcpStream>> {
    let late = || no_answer(server, "it took too long");
    let dialed = tokio::time::timeout(server.connect_timeout, connect(server));
    dialed.await.map_err(|_| late())?
}

/// 08006.
pub(crate) fn no_answer(server: &Conninfo, why: &str) -> Error {
    Error::new(
        SqlState::CONNECTION_FAILURE,
        format!("no connection to {server}: {why}"),
    )
}

/// Lets the kernel ask a silent peer whether it is there. One that went without a word (its host is down, a cable is cut) is noticed within a
/// minute that way, and what it holds here goes with its connection: locks, places, a replica's connections.
///
/// The kernel asks only while nothing is under way to the peer. What was sent and is not acknowledged is sent again, for about 15 minutes
/// (`net.ipv4.tcp_retries2`). [`dial`] has a limit for that. A server has none for its clients: that limit would also end a client that is there and
/// does not read for a minute.
pub fn keep_alive<'a, S>(stream: &'a S)
where
    socket2::SockRef<'a>: From<&'a S>,
{
    let often = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3);
    _ = socket2::SockRef::from(stream).set_tcp_keepalive(&often);
}

/// Notices within half a minute that a node is gone that works here for its clients: what they have locked keeps other clients waiting. A client there that does
/// not read for so long loses its session, too.
pub fn notice_loss<'a, S>(stream: &'a S)
where
    socket2::SockRef<'a>: From<&'a S>,
{
    let often = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let socket = socket2::SockRef::from(stream);
    _ = socket.set_tcp_keepalive(&often);
    _ = socket.set_tcp_user_timeout(Some(LOST));
}

/// What ended an attempt to connect: the server, or a want of files here.
fn not_connected(server: &Conninfo, e: &io::Error) -> Error {
    use rustix::io::Errno;
    let out = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    match e.raw_os_error().is_some_and(|n| out.contains(&n)) {
        true => Error::new(
            SqlState::INSUFFICIENT_RESOURCES,
            format!("no connection to {server}: {e}"),
        )
        .hint("Raise the limit of open files (ulimit -n)."),
        false => no_answer(server, &e.to_string()),
    }
}

async fn connect(server: &Conninfo) -> Result<Line<TcpStream>> {
    let failed = |e: io::Error| no_answer(server, &e.to_string());
    // A wrong file is told before anything is sent.
    let wanted = match server.tls.mode {
        SslMode::Disable => None,
        _ => Some(Arc::new(config(server)?)),
    };
    let address = (server.host.as_str(), server.port);
    let socket = TcpStream::connect(address).await;
    let mut socket = socket.map_err(|e| not_connected(server, &e))?;
    _ = socket.set_nodelay(true);
    keep_alive(&socket);
    _ = socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let Some(config) = wanted else {
        return Ok(Line::Plain(socket));
    };
    let mut request = 8u32.to_be_bytes().to_vec();
    request.extend_from_slice(&SSL_REQUEST.to_be_bytes());
    socket.write_all(&request).await.map_err(failed)?;
    // Never more than the one byte: what follows is read inside of TLS.
    match socket.read_u8().await.map_err(failed)? {
        b'S' => {}
        b'N' if server.tls.mode == SslMode::Prefer => return Ok(Line::Plain(socket)),
        b'N' => return Err(no_answer(server, "it has no TLS, and sslmode asks for it")),
        _ => return Err(no_answer(server, "it does not know requests for TLS")),
    }
    let name = ServerName::try_from(server.host.clone())
        .map_err(|_| no_answer(server, "its name cannot be one of a certificate"))?;
    let socket: Box<dyn Io> = Box::new(socket);
    let shaken = TlsConnector::from(config).connect(name, socket).await;
    let stream = TlsStream::from(shaken.map_err(|e| no_answer(server, &format!("TLS: {e}")))?);
    let certificate = stream.get_ref().1.peer_certificates();
    let end_point = certificate.and_then(|c| end_point(c.first()?));
    Ok(Line::secured(stream, end_point))
}

fn config(server: &Conninfo) -> Result<ClientConfig> {
    let (tls, provider) = (&server.tls, provider());
    let wrong = |e: &dyn std::fmt::Display| no_answer(server, &e.to_string());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&e))?;
    let signed_by = |root: &Path| {
        let roots = authorities(root)?;
        WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|e| wrong(&e))
    };
    let root = tls.root.as_deref();
    let needed = || wrong(&"sslmode verify-ca and verify-full need sslrootcert");
    let lenient = |signed| Lenient {
        provider: provider.clone(),
        signed,
    };
    let trusts: Arc<dyn ServerCertVerifier> = match (tls.mode, root) {
        (SslMode::VerifyFull, root) => signed_by(root.ok_or_else(needed)?)?,
        (SslMode::VerifyCa, root) => {
            let signed = signed_by(root.ok_or_else(needed)?)?;
            Arc::new(lenient(Some(signed)))
        }
        (SslMode::Require, Some(root)) => Arc::new(lenient(Some(signed_by(root)?))),
        _ => Arc::new(lenient(None)),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(trusts);
    let mut config = match (&tls.certificate, &tls.key) {
        (Some(chain), Some(path)) => builder
            .with_client_auth_cert(certificates(chain)?, key(path)?)
            .map_err(|e| wrong(&e))?,
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Asks less of a certificate than that it is for this host. The other end has its key in any case.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    /// `verify-ca`: one of these authorities has signed it. None, as `prefer` and `require` have it: any certificate counts.
    signed: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(signed) = &self.signed else {
            return Ok(ServerCertVerified::assertion());
        };
        match signed.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at when all else was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel is asked to end a connection whose peer acknowledges nothing.
    #[tokio::test]
    async fn what_is_sent_has_to_be_acknowledged() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let at = listener.local_addr().expect("an address");
        let text = format!("host=127.0.0.1 port={} sslmode=disable", at.port());
        let server = Conninfo::parse(&text).expect("an address");
        let Line::Plain(socket) = dial(&server).await.expect("connected") else {
            panic!("it is inside of TLS");
        };
        let limit = socket2::SockRef::from(&socket).tcp_user_timeout();
        assert_eq!(limit.expect("Linux has it"), Some(UNACKNOWLEDGED));
    }

    #[test]
    fn a_want_of_files_is_not_the_servers_fault() {
        let server = Conninfo::parse("127.0.0.1:1").expect("an address");
        let code = |e: rustix::io::Errno| not_connected(&server, &e.into()).code();
        for e in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE] {
            assert_eq!(code(e), SqlState::INSUFFICIENT_RESOURCES);
        }
        let refused = rustix::io::Errno::CONNREFUSED;
        assert_eq!(code(refused), SqlState::CONNECTION_FAILURE);
    }
}
