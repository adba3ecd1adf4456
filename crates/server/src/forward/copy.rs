//! COPY FROM STDIN on its way to the primary: data goes up, and nothing comes down before its end but notices and an error.
//!
//! Whoever waits here waits for all that may happen: more from the client, room at the primary or a word of it, the end of the session.

use super::upstream::{Broken, Upstream};
use crate::connections::wire::{Stream, Wire, gone};
use base::{Error, SqlState};
use protocol::frontend;
use sql::session::{Client, Handle, Reason};

/// Passes COPY data on, until it ends or the primary has had enough of it. What is left is in `up`, to be sent or to be read.
pub async fn copy_in<S: Stream>(
    wire: &mut Wire<S>,
    up: &mut Upstream,
    handle: &Handle,
) -> Result<(), Broken> {
    loop {
        match up.message() {
            Some((b'N' | b'S', len)) => {
                wire.out.buf.extend_from_slice(&up.input.bytes()[..len]);
                up.input.take(len);
                wire.flush().await.map_err(Broken::Client)?;
                continue;
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let frame = frontend::frame(wire.input.bytes()).map_err(Broken::Client)?;
        let Some((kind, len)) = frame.filter(|_| !up.is_full()) else {
            let Wire { input, stream, .. } = &mut *wire;
            tokio::select! {
                biased;
                () = handle.interruption() => interrupted(handle, up)?,
                n = input.fill(stream), if !up.is_full() => match n {
                    Ok(0) => return Err(Broken::Client(gone(&std::io::ErrorKind::UnexpectedEof.into()))),
                    Ok(_) => {}
                    Err(e) => return Err(Broken::Client(gone(&e))),
                },
                r = up.step() => r.map_err(Broken::Primary)?,
            }
            continue;
        };
        match kind {
            b'd' | b'c' | b'f' => up.pass(&wire.input.bytes()[..len]),
            b'H' | b'S' => {}
            b'X' => {
                let e = Error::new(
                    SqlState::CONNECTION_FAILURE,
                    "connection closed during COPY",
                );
                return Err(Broken::Client(e));
            }
            t => {
                let e = format!("unexpected message type 0x{t:02X} during COPY from stdin");
                return Err(Broken::Client(frontend::violation(e)));
            }
        }
        wire.input.take(len);
        if kind == b'c' || kind == b'f' {
            return Ok(());
        }
    }
}

/// What an interruption of the session means for what runs at the primary.
pub fn interrupted(handle: &Handle, up: &mut Upstream) -> Result<(), Broken> {
    match handle.interrupted() {
        Some(Reason::Terminate) => Err(Broken::Client(Error::new(
            SqlState::ADMIN_SHUTDOWN,
            "terminating connection due to administrator command",
        ))),
        Some(Reason::Memory) => Err(Broken::Client(base::memory::total_error())),
        Some(Reason::StatementTimeout) => {
            let why = "the primary did not answer within the statement's time limit";
            Err(Broken::Primary(Error::new(
                SqlState::CONNECTION_FAILURE,
                why,
            )))
        }
        Some(Reason::Cancel) => {
            up.cancel();
            handle.forget_cancel();
            Ok(())
        }
        None => {
            handle.end_wait();
            Ok(())
        }
    }
}
