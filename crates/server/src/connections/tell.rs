//! What a client is told beside its rows: an error, notifications, columns, that the server is ready.
//!
//! Left out on purpose: when it is told (`connection`, and `forward::relay` for what runs at the primary).

use super::wire::{Stream, Wire, describe};
use base::{Error, Result, SqlState};
use protocol::backend::Replies;
use sql::engine::Engine;
use sql::session::{Column, Format, Session, Severity};

/// Ends what failed, and tells why: this error, or that nobody can say any more whether what it may tell of stays. One that ends the
/// connection is given back.
pub async fn error<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
    e: &Error,
) -> Result<()> {
    match session.failed(wire, e).await {
        Ok(()) => wire.out.error(Severity::Error, e),
        Err(e) if e.code() == SqlState::ADMIN_SHUTDOWN => return Err(e),
        Err(e) => wire.out.error(Severity::Error, &e),
    }
    Ok(())
}

/// Tells the client what the session has heard, if it may be told now.
pub fn notifications<S: Stream, E: Engine>(
    wire: &mut Wire<S>,
    session: &mut Session<E>,
) -> Result<()> {
    for n in session.notifications()? {
        wire.out.notification(&n);
    }
    Ok(())
}

/// ReadyForQuery, with all that goes before it. The caller sends it.
pub fn ready<S: Stream, E: Engine>(wire: &mut Wire<S>, session: &mut Session<E>) -> Result<()> {
    session.idle();
    notifications(wire, session)?;
    if let Some(state) = session.returned() {
        wire.out.message(b'a', |b| b.extend_from_slice(&state));
    }
    wire.out.ready(session.status());
    Ok(())
}

/// The columns of what gives rows; none: it gives none.
pub fn columns(out: &mut Replies, columns: Option<&[Column]>, format: impl Fn(usize) -> Format) {
    match columns {
        Some(columns) => describe(out, columns, format),
        None => out.plain(b'n'),
    }
}
