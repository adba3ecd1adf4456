//! How a connection of a replica begins: the one command that it takes, and the step over to CopyBoth.

use super::commands;
use super::copy_both::CopyBoth;
use crate::connections::wire::{Stream, Wire, gone};
use base::{Error, Result, SqlState};
use protocol::Line;
use protocol::frontend::{self, Frontend};

/// Goes over to CopyBoth.
pub(super) async fn copy_both<S: Stream>(wire: &mut Wire<S>) -> Result<CopyBoth<&mut Line<S>>> {
    // CopyBothResponse: binary, no columns.
    wire.out.message(b'W', |b| b.extend_from_slice(&[1, 0, 0]));
    wire.send().await.map_err(|e| gone(&e))?;
    let input = wire.input.bytes().to_vec();
    wire.input.take(input.len());
    Ok(CopyBoth::new(&mut wire.stream, input))
}

/// What a connection of a replica is for.
#[derive(PartialEq, Eq)]
pub(super) enum Asked {
    Log,
    Region,
    Holds,
    Commits,
}

/// Longest query that begins it all, near enough.
const LONGEST: usize = 4 << 10;

/// Waits for the query that begins it all.
pub(super) async fn command<S: Stream>(wire: &mut Wire<S>) -> Result<Asked> {
    loop {
        if frontend::wanted(wire.input.bytes()).is_some_and(|w| w > LONGEST) {
            return Err(frontend::violation("invalid message length"));
        }
        if let Some((kind, len)) = frontend::frame(wire.input.bytes())? {
            let body = &wire.input.bytes()[5..len];
            let asked = match frontend::decode(kind, body)? {
                Frontend::Query(q) => {
                    let q = q.trim().trim_end_matches(';');
                    let all = [
                        (commands::LOG, Asked::Log),
                        (commands::REGION, Asked::Region),
                        (commands::HOLDS, Asked::Holds),
                        (commands::COMMITS, Asked::Commits),
                    ];
                    all.into_iter().find(|(c, _)| q.eq_ignore_ascii_case(c))
                }
                Frontend::Terminate => return Err(gone(&std::io::ErrorKind::UnexpectedEof.into())),
                _ => None,
            };
            wire.input.take(len);
            return asked.map(|a| a.1).ok_or_else(|| {
                let what = format!(
                    "a connection with replication=canon takes {}, {}, {} or {} and nothing else",
                    commands::LOG,
                    commands::REGION,
                    commands::HOLDS,
                    commands::COMMITS
                );
                Error::new(SqlState::SYNTAX_ERROR, what)
            });
        }
        match wire.input.fill(&mut wire.stream).await {
            Ok(0) => return Err(gone(&std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {}
            Err(e) => return Err(gone(&e)),
        }
    }
}
