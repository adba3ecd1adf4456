//! `WAIT FOR LSN 'x/y' [WITH (MODE 'm', TIMEOUT 't', NO_THROW)]`, as PostgreSQL 19 has it, over positions.
//!
//! ```text
//! standby_replay (default)   until a replica shows the position        standby_write, standby_flush   has it, has it on disk
//! primary_flush              until a primary has it on disk
//! ```
//! It gives one row: `success`, or with NO_THROW also `timeout` and `not in recovery` instead of errors.
//!
//! Left out on purpose: tokens. `canon.min_token` says of whose history a position is, and reads wait by themselves; this is for
//! clients that already do it PostgreSQL's way.

use super::Session;
use super::client::Client;
use super::parse::Fault;
use super::run::interruption;
use super::settings::milliseconds_of;
use super::utility::{Utility, Words};
use crate::cluster_status::{lsn, parse_lsn};
use crate::engine::Engine;
use base::{CommitWait, Error, Position, Result, SqlState};
use futures::future::{Either, select};
use sqlparser::tokenizer::Token;
use std::pin::pin;
use std::time::Duration;
use txn::{Isolation, Txn};

/// What is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Replay,
    Write,
    Flush,
    PrimaryFlush,
}

impl Mode {
    fn is_standby(self) -> bool {
        self != Mode::PrimaryFlush
    }

    /// What has happened to the position, and the name of the watermark.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Mode::Replay => ("replayed", "replay"),
            Mode::Write => ("written", "write"),
            Mode::Flush | Mode::PrimaryFlush => ("flushed", "flush"),
        }
    }
}

/// The statement.
#[derive(Clone, Debug)]
pub struct WaitFor {
    at: Position,
    mode: Mode,
    /// None: for ever.
    timeout: Option<Duration>,
    no_throw: bool,
}

/// How often a wait looks whether the node was promoted, and how often at watermarks that wake nobody.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_OFTEN: Duration = Duration::from_millis(2);

/// Reads it after its first word.
pub(super) fn parse(p: &mut Words<'_>) -> Result<Utility, Fault> {
    p.expect("for")?;
    p.expect("lsn")?;
    let mut w = WaitFor {
        at: parse_lsn(&p.string()?)?,
        mode: Mode::default(),
        timeout: None,
        no_throw: false,
    };
    if p.opt(&["with"]) {
        p.expect_token(&Token::LParen)?;
        let mut seen: Vec<String> = Vec::new();
        loop {
            let option = p.word()?;
            if seen.contains(&option) {
                return Err(
                    Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options").into(),
                );
            }
            match option.as_str() {
                "mode" => w.mode = mode(&p.string()?)?,
                "timeout" => w.timeout = timeout(p)?,
                "no_throw" => w.no_throw = true,
                o => {
                    let what = format!("option \"{o}\" not recognized");
                    return Err(Error::new(SqlState::SYNTAX_ERROR, what).into());
                }
            }
            seen.push(option);
            if !p.opt_token(&Token::Comma) {
                break;
            }
        }
        p.expect_token(&Token::RParen)?;
    }
    Ok(Utility::WaitFor(Box::new(w)))
}

fn mode(text: &str) -> Result<Mode> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "standby_replay" => Mode::Replay,
        "standby_write" => Mode::Write,
        "standby_flush" => Mode::Flush,
        "primary_flush" => Mode::PrimaryFlush,
        _ => {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("unrecognized value for WAIT option \"mode\": \"{text}\""),
            ));
        }
    })
}

fn timeout(p: &mut Words<'_>) -> Result<Option<Duration>, Fault> {
    let text = match p.peek() {
        Some(Token::Number(..) | Token::Minus | Token::Plus) => p.integer()?.to_string(),
        _ => p.string()?,
    };
    if text.trim_start().starts_with('-') {
        let e = Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "timeout cannot be negative",
        );
        return Err(e.into());
    }
    let time = milliseconds_of(&text).ok_or_else(|| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid timeout value: \"{text}\""),
        )
    })?;
    Ok(Some(time).filter(|t| !t.is_zero()))
}

impl<E: Engine> Session<E> {
    /// Runs it; what its row says.
    pub(super) async fn wait_for<C: Client>(
        &mut self,
        c: &mut C,
        w: &WaitFor,
    ) -> Result<&'static str> {
        let stands = |t: &Txn| t.has_snapshot() && t.isolation() != Isolation::ReadCommitted;
        if self.block.txn.as_deref().is_some_and(stands) {
            return Err(Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "WAIT FOR must be called without an active or registered snapshot",
            )
            .detail("WAIT FOR cannot be executed within a transaction with an isolation level higher than READ COMMITTED that has run a query."));
        }
        let host = self.shared.host.clone();
        let end = w
            .timeout
            .map(|t| host.monotonic_millis() + (t.as_millis() as u64).max(1));
        loop {
            let engine = &self.shared.engine;
            if engine.follows() != w.mode.is_standby() {
                return match w.no_throw && w.mode.is_standby() {
                    true => Ok("not in recovery"),
                    false => Err(wrong_role(w.mode)),
                };
            }
            let now = self.reached(w.mode);
            if now >= w.at {
                return Ok("success");
            }
            let left = end.map(|e| e.saturating_sub(host.monotonic_millis()));
            if left == Some(0) {
                if w.no_throw {
                    return Ok("timeout");
                }
                let (done, name) = w.mode.words();
                return Err(Error::new(
                    SqlState::QUERY_CANCELED,
                    format!(
                        "timed out while waiting for target LSN {} to be {done}; current {name} LSN {}",
                        lsn(w.at),
                        lsn(now)
                    ),
                ));
            }
            let look = match w.mode {
                Mode::Write | Mode::Flush => LOOK_OFTEN,
                _ => LOOK,
            };
            let pause = pin!(c.pause(look.min(left.map_or(look, Duration::from_millis))));
            let reached = match w.mode {
                Mode::Replay => engine.published(CommitWait::Published(w.at)),
                Mode::PrimaryFlush => engine.published(CommitWait::Flushed(w.at)),
                Mode::Write | Mode::Flush => Box::pin(std::future::pending()),
            };
            let interrupted = pin!(self.handle.interruption());
            let step = select(select(reached, pause), interrupted).await;
            if let Either::Left((Either::Left((r, _)), _)) = step {
                r?;
            }
            if let Some(why) = self.handle.interrupted() {
                return Err(interruption(why));
            }
        }
    }

    /// Where the watermark of this mode stands.
    fn reached(&self, mode: Mode) -> Position {
        let engine = &self.shared.engine;
        let shown = engine.published_position();
        match mode {
            Mode::Replay => shown,
            Mode::Write => shown.max(engine.cluster_status().received),
            Mode::Flush => {
                let r = engine.cluster_status().receiver;
                r.map_or(Position::ZERO, |r| r.persisted)
            }
            Mode::PrimaryFlush => engine.cluster_status().flushed,
        }
    }
}

fn wrong_role(mode: Mode) -> Error {
    let (what, hint) = if mode.is_standby() {
        (
            "recovery is not in progress",
            format!(
                "Waiting for the {} LSN can only be executed during recovery.",
                mode.words().1
            ),
        )
    } else {
        (
            "recovery is in progress",
            "Waiting for primary_flush can only be done on a primary server. Use standby_flush mode on a standby server."
                .to_owned(),
        )
    };
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Stmt, parse};
    use super::*;

    fn one(sql: &str) -> Result<WaitFor> {
        match &parse(sql)?[0].stmt {
            Stmt::Utility(u) => match &**u {
                Utility::WaitFor(w) => Ok((**w).clone()),
                u => panic!("{sql}: {u:?}"),
            },
            s => panic!("{sql}: {s:?}"),
        }
    }

    #[test]
    fn the_statement_is_read() {
        let w = one("WAIT FOR LSN '0/306EE20'").unwrap();
        assert_eq!((w.mode, w.timeout, w.no_throw), (Mode::Replay, None, false));
        assert_eq!(w.at, Position::from_u64(0x306_ee20));
        let w = one("wait for lsn '1/2' with (MODE 'standby_flush', TIMEOUT '0.1s', NO_THROW)")
            .unwrap();
        assert_eq!(
            (w.mode, w.timeout, w.no_throw),
            (Mode::Flush, Some(Duration::from_millis(100)), true)
        );
        let w = one("WAIT FOR LSN '1/2' WITH (TIMEOUT 50, MODE 'PRIMARY_FLUSH')").unwrap();
        assert_eq!(
            (w.mode, w.timeout),
            (Mode::PrimaryFlush, Some(Duration::from_millis(50)))
        );
        assert_eq!(
            one("WAIT FOR LSN '1/2' WITH (TIMEOUT '0')")
                .unwrap()
                .timeout,
            None
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (sql, code) in [
            ("WAIT FOR LSN 'soon'", "22P02"),
            ("WAIT FOR '0/1'", "42601"),
            ("WAIT FOR LSN '0/1' TIMEOUT 5", "42601"),
            ("WAIT FOR LSN '0/1' WITH ()", "42601"),
            ("WAIT FOR LSN '0/1' WITH (MODE 'replay')", "22023"),
            ("WAIT FOR LSN '0/1' WITH (TIMEOUT '-1s')", "22023"),
            ("WAIT FOR LSN '0/1' WITH (TIMEOUT -1)", "22023"),
            ("WAIT FOR LSN '0/1' WITH (TIMEOUT 'soon')", "22023"),
            ("WAIT FOR LSN '0/1' WITH (NO_THROW, NO_THROW)", "42601"),
            ("WAIT FOR LSN '0/1' WITH (PATIENCE 1)", "42601"),
        ] {
            assert_eq!(one(sql).unwrap_err().code().code(), code, "{sql}");
        }
    }
}
