//! A connection's bytes, plain or inside of TLS.
//!
//! ```text
//! Plain(socket) ── SSLRequest, 'S', handshake ──▶ Secured(TLS over the socket)
//!       └──────────── the handshake failed ──▶ Gone
//! ```
//! An enum and no trait object: a plain connection pays one branch for each read and write, none for each byte. A write into TLS is done
//! when the socket has taken what it became, so that nothing waits in between where a caller does not flush. A caller whose write was not
//! done writes the same bytes again, as `write_all` does. Below TLS the socket is in a box, so that a connection
//! that was made on one runtime can go on with a socket of another ([`Line::over`]).
//!
//! Left out on purpose: `close_notify` from the other end as a condition of an orderly end. PostgreSQL's own message Terminate says so.

use crate::certificate::{Subject, subject};
use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::{CommonState, ProtocolVersion};

/// A socket below TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send + Any {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Any> Io for T {}

/// A connection. `S` is its socket.
pub enum Line<S> {
    Plain(S),
    Secured(Box<Secured>),
    /// A handshake is on, or has failed.
    Gone,
}

/// A connection inside of TLS.
pub struct Secured {
    stream: TlsStream<Box<dyn Io>>,
    /// Bytes of a write that TLS has taken and the socket has not.
    taken: usize,
    /// The binding of the server's certificate, which a login by SCRAM-SHA-256-PLUS proves to have seen.
    end_point: Option<Vec<u8>>,
}

/// What a connection inside of TLS is like, in PostgreSQL's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// `TLSv1.3`
    pub version: &'static str,
    /// `TLS_AES_256_GCM_SHA384`
    pub cipher: String,
    /// Bits of the cipher's key.
    pub bits: i32,
    /// The client's certificate, if it has shown one. It was signed by an authority of `client_ca`, and is valid.
    pub client: Option<Subject>,
}

impl<S> Line<S> {
    pub(crate) fn secured(stream: TlsStream<Box<dyn Io>>, end_point: Option<Vec<u8>>) -> Line<S> {
        Line::Secured(Box::new(Secured {
            stream,
            taken: 0,
            end_point,
        }))
    }

    pub fn is_secured(&self) -> bool {
        matches!(self, Line::Secured(_))
    }

    /// The socket. `S` is the type that the connection was made with. None: a handshake has failed.
    pub fn socket(&self) -> Option<&S>
    where
        S: 'static,
    {
        match self {
            Line::Plain(s) => Some(s),
            Line::Secured(secured) => {
                let socket: &dyn Any = &**secured.stream.get_ref().0;
                socket.downcast_ref()
            }
            Line::Gone => None,
        }
    }

    /// The binding that both ends can name: `None` of a plain connection.
    pub fn end_point(&self) -> Option<&[u8]> {
        match self {
            Line::Secured(s) => s.end_point.as_deref(),
            Line::Plain(_) | Line::Gone => None,
        }
    }

    /// How the connection is protected, as its server sees it.
    pub fn protection(&self) -> Option<Protection> {
        let Line::Secured(s) = self else { return None };
        let state: &CommonState = s.stream.get_ref().1;
        let suite = state.negotiated_cipher_suite();
        let cipher = suite.map_or_else(String::new, |s| format!("{:?}", s.suite()));
        let certificate = state.peer_certificates().and_then(|c| c.first());
        Some(Protection {
            version: match state.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "",
            },
            bits: if cipher.contains("AES_128") { 128 } else { 256 },
            cipher: cipher.replacen("TLS13_", "TLS_", 1),
            client: certificate.map(|c| subject(c).unwrap_or_default()),
        })
    }

    /// The same connection over what `f` makes of its socket. `S` is the type that the connection was made with.
    pub fn over<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        f: impl FnOnce(S) -> io::Result<T>,
    ) -> io::Result<Line<T>>
    where
        S: 'static,
    {
        match self {
            Line::Plain(s) => Ok(Line::Plain(f(s)?)),
            Line::Secured(mut secured) => {
                let place = secured.stream.get_mut().0;
                let none: Box<dyn Io> = Box::new(tokio::io::empty());
                let old: Box<dyn Io> = std::mem::replace(place, none);
                let old: Box<dyn Any> = old;
                let socket = old.downcast::<S>().expect("the socket of this connection");
                *place = Box::new(f(*socket)?);
                Ok(Line::Secured(secured))
            }
            Line::Gone => Err(gone()),
        }
    }

    /// Takes the connection for a handshake; `None` where there is none to take.
    pub(crate) fn take(&mut self) -> Option<S> {
        match std::mem::replace(self, Line::Gone) {
            Line::Plain(s) => Some(s),
            other => {
                *self = other;
                None
            }
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Line<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(s) => Pin::new(s).poll_read(cx, buf),
            Line::Secured(s) => match Pin::new(&mut s.stream).poll_read(cx, buf) {
                // The other end has closed without close_notify: an end like any other.
                Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok(()))
                }
                read => read,
            },
            Line::Gone => Poll::Ready(Err(gone())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Line<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Line::Plain(s) => Pin::new(s).poll_write(cx, bytes),
            Line::Secured(s) => {
                if s.taken == 0 {
                    s.taken = ready!(Pin::new(&mut s.stream).poll_write(cx, bytes))?;
                }
                ready!(Pin::new(&mut s.stream).poll_flush(cx))?;
                Poll::Ready(Ok(std::mem::take(&mut s.taken).min(bytes.len())))
            }
            Line::Gone => Poll::Ready(Err(gone())),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(s) => Pin::new(s).poll_flush(cx),
            Line::Secured(s) => Pin::new(&mut s.stream).poll_flush(cx),
            Line::Gone => Poll::Ready(Err(gone())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(s) => Pin::new(s).poll_shutdown(cx),
            Line::Secured(s) => Pin::new(&mut s.stream).poll_shutdown(cx),
            Line::Gone => Poll::Ready(Ok(())),
        }
    }
}
