//! What each long-running program of Canon has beside its work: a runtime, the signals that stop it, probes and metrics.
//!
//! ```text
//! http.rs     /healthz, /readyz and /metrics
//! page.rs     metrics in Prometheus' text format
//! room.rs     connections of strangers, so many at most
//! secret.rs   files with secrets, which others must not be able to read
//! ```
//! Left out on purpose: what the numbers mean; each program says that itself.

pub mod http;
pub mod page;
pub mod room;
pub mod secret;

use base::{Error, Result, SqlState};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// 58000: the system did not do what was asked of it.
pub fn system(what: impl std::fmt::Display) -> Error {
    Error::new(SqlState::SYSTEM_ERROR, what.to_string())
}

/// The runtime of what is not a server's connection: listeners, clocks, HTTP, a proxy's sessions.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("canon-aside")
        .on_thread_stop(base::memory::flush)
        .build()
        .map_err(system)
}

/// Waits for SIGTERM or SIGINT; SIGHUP means nothing.
pub async fn stop_signal() -> Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(system)?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok("SIGTERM"),
            _ = interrupt.recv() => return Ok("SIGINT"),
            // Certificates are read again then (`protocol::tls`); nothing else is.
            _ = hang_up.recv() => info!("SIGHUP"),
        }
    }
}
