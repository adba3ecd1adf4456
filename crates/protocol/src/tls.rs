//! TLS at a server: files of certificates, read again while the server runs, and the handshake.
//!
//! ```text
//! Files { certificate, key, client_ca } ──▶ Acceptor: what new connections get ──▶ accept: 'S', handshake ──▶ Line::Secured
//!                  ▲                            │
//!                  └── SIGHUP, or another file ─┘   files that are wrong change nothing, and are told once
//! ```
//! `rustls` speaks TLS 1.2 and 1.3 only, with `ring`. A client may show a certificate where `client_ca` is given: one that no authority of
//! it has signed, or that has expired, ends the handshake. Sessions of TLS are not resumed, so each handshake looks at certificates anew.
//! A client that names protocols (ALPN) has to name `postgresql`, so that a connection that was meant for another service is not taken.
//! The pages of the server take the same certificate at their own port, without SSLRequest and under `http/1.1` ([`Acceptor::accept_page`]).
//!
//! Left out on purpose: lists of revoked certificates, keys with a passphrase, several certificates by name; PostgreSQL's TLS without SSLRequest.

use crate::certificate::end_point;
use crate::line::{Io, Line};
use base::{Error, Result, SqlState};
use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsStream};

/// How often files are looked at without being told.
const LOOK: Duration = Duration::from_secs(10);
/// The protocol's name where a client says in its handshake what is to follow.
pub const ALPN: &[u8] = b"postgresql";
/// The same of the server's pages.
const PAGES: &[u8] = b"http/1.1";

/// The files of a server's identity, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those of authorities between it and one that clients know.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities that sign clients' certificates.
    pub client_ca: Option<PathBuf>,
}

/// What new connections get.
struct Identity {
    config: Arc<ServerConfig>,
    /// The same for the server's pages.
    pages: Arc<ServerConfig>,
    end_point: Option<Vec<u8>>,
}

/// When a file was written, and its size.
type Stamp = Option<(SystemTime, u64)>;

/// See the head of the file.
pub struct Acceptor {
    files: Files,
    identity: RwLock<Arc<Identity>>,
    /// Of the files that were tried last.
    tried: Mutex<Vec<Stamp>>,
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// 22023.
fn bad(path: &Path, why: impl Display) -> Error {
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("{}: {why}", path.display()),
    )
}

/// The certificates of a file; 22023 where it has none.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(path).map_err(|e| bad(path, e))?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|e| bad(path, format!("a malformed certificate ({e})")))?;
    match all.is_empty() {
        true => Err(bad(path, "no certificate in it (PEM is wanted)")),
        false => Ok(all),
    }
}

/// The certificates of a file as authorities that are trusted.
pub fn authorities(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for c in certificates(path)? {
        roots
            .add(c)
            .map_err(|e| bad(path, format!("a certificate that is no authority's ({e})")))?;
    }
    Ok(Arc::new(roots))
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = std::fs::read(path).map_err(|e| bad(path, e))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        bad(
            path,
            "no private key in it (PEM without a passphrase is wanted)",
        )
    })
}

impl Files {
    fn read(&self) -> Result<Identity> {
        let chain = certificates(&self.certificate)?;
        let end_point = chain.first().and_then(|c| end_point(c));
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&self.certificate, e))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .allow_unauthenticated()
                    .build()
                    .map_err(|e| bad(path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key(&self.key)?)
            .map_err(|e| {
                let what = format!("not the key of {} ({e})", self.certificate.display());
                bad(&self.key, what)
            })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let mut pages = config.clone();
        pages.alpn_protocols = vec![PAGES.to_vec()];
        Ok(Identity {
            config: Arc::new(config),
            pages: Arc::new(pages),
            end_point,
        })
    }

    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let m = std::fs::metadata(path).ok()?;
            Some((m.modified().ok()?, m.len()))
        };
        let all = [&self.certificate, &self.key].into_iter();
        all.chain(&self.client_ca).map(stamp).collect()
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

impl Acceptor {
    /// 22023 for a file that cannot be read, is none, or does not belong to the other.
    pub fn new(files: Files) -> Result<Acceptor> {
        let tried = files.stamps();
        let identity = RwLock::new(Arc::new(files.read()?));
        Ok(Acceptor {
            files,
            identity,
            tried: Mutex::new(tried),
        })
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Reads the files again, if others are there than were tried last or `told` says so. Whether new connections get what is in them. An
    /// error: what was there stays.
    pub fn renew(&self, told: bool) -> Result<bool> {
        let stamps = self.files.stamps();
        {
            let mut tried = self.tried.lock().expect("no panic holds it");
            if !told && *tried == stamps {
                return Ok(false);
            }
            *tried = stamps;
        }
        let identity = Arc::new(self.files.read()?);
        *self.identity.write().expect("no panic holds it") = identity;
        Ok(true)
    }

    /// Looks at the files for ever, at each SIGHUP and every ten seconds; what came of them goes to `say`.
    pub async fn keep(self: Arc<Self>, say: impl Fn(Result<()>)) {
        let mut hang_up =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
        loop {
            let told = tokio::select! {
                Some(()) = async { hang_up.as_mut()?.recv().await } => true,
                () = tokio::time::sleep(LOOK) => false,
            };
            match self.renew(told) {
                Ok(false) => {}
                Ok(true) => say(Ok(())),
                Err(e) => say(Err(e)),
            }
        }
    }

    /// Says 'S' to a client that has asked for TLS, and shakes hands. The caller has made sure that nothing has come behind the request.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        line: &mut Line<S>,
    ) -> io::Result<()> {
        let identity = self.identity.read().expect("no panic holds it").clone();
        let mut socket = line.take().ok_or(io::ErrorKind::NotConnected)?;
        socket.write_all(b"S").await?;
        socket.flush().await?;
        let acceptor = TlsAcceptor::from(identity.config.clone());
        let socket: Box<dyn Io> = Box::new(socket);
        let stream = TlsStream::from(acceptor.accept(socket).await?);
        *line = Line::secured(stream, identity.end_point.clone());
        Ok(())
    }

    /// Shakes hands with a browser or a scraper, which begins with TLS at once.
    pub async fn accept_page<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        socket: S,
    ) -> io::Result<tokio_rustls::server::TlsStream<S>> {
        let identity = self.identity.read().expect("no panic holds it").clone();
        TlsAcceptor::from(identity.pages.clone())
            .accept(socket)
            .await
    }
}
