//! How far the log reaches, around a node's life: asked at its start, written down while it runs.
//!
//! ```text
//! start   found ── recovery ── whole (start_check) ── begin: the anchor, and where a primary goes on      life
//!                                                                     every half second, or each segment: Anchors
//! ```
//! **A shorter log that is accepted** is what a forced promotion is: what is lost may be at other nodes, under positions of this term. So a
//! primary begins a term of its own there, and those nodes set aside what it does not have. A node that does not lead (a replica, one
//! that has handed over or has heard of a newer term) begins none: it follows, and is sent what is missing.
//!
//! Left out on purpose: the decision, which is `start_check`'s.

use base::{Error, Position, Result, SqlState};
use env::Env;
use replica::ship::next_term;
use wal::{Anchor, DataDir, Life, LogEnd, LogPoint, Recovered};

use crate::errors::failed;
use crate::start_check::{self, End, Found, Missing, Verdict};

/// What the operator asks of a start.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub env: &'a Env,
    /// Whether the node follows.
    pub replica: bool,
    /// The end of the log that is accepted.
    pub accept: Option<Position>,
}

/// What is in the directory, before anything of the log is read. A hole is refused at once.
pub fn found(dir: &DataDir) -> Result<Found> {
    let newest = dir.latest_checkpoint().map_err(failed)?;
    let segments = dir.log().list().map_err(failed)?;
    let found = Found {
        segments: segments.iter().map(|s| s.number).collect(),
        checkpoint: newest.map_or((0, Position::ZERO), |c| {
            (c.manifest().number, c.manifest().start)
        }),
        // A header that a crash has cut short is recovery's to judge.
        begins_after: dir.log().reaches_back_to().unwrap_or(None),
    };
    match start_check::hole(&found) {
        None => Ok(found),
        Some(what) => Err(start_check::refusal(
            dir.path(),
            &what,
            dir.anchor().as_ref(),
            None,
        )),
    }
}

/// What the start found is all that there was, or was accepted without the rest: what is missing then.
pub fn whole(
    dir: &DataDir,
    found: &Found,
    recovered: &mut Recovered,
    asked: Asked<'_>,
) -> Result<Option<Missing>> {
    let mut end = End::of(recovered);
    let anchor = dir.anchor();
    let wanted = asked.accept;
    let used = match wanted {
        // One that broke off half-way is done again; one that is done already asks for nothing.
        Some(at) => {
            let now = anchor.map_or(Position::ZERO, |a| a.position);
            let all = dir.accepted().map_err(failed)?;
            all.iter().any(|(end, asked)| *end == at && *asked != now)
        }
        None => false,
    };
    match start_check::check(anchor.as_ref(), found, end, wanted.filter(|_| !used)) {
        Verdict::Whole if wanted.is_none() || used => Ok(None),
        Verdict::Whole => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!(
                "--accept-log-end was given, but the log in {} is whole: it ends at {}",
                dir.path().display(),
                end.position
            ),
        )
        .hint("Start without it.")),
        Verdict::Accepted(what) => {
            let now = asked.env.clock.unix_micros();
            dir.accept(end.position, now).map_err(failed)?;
            // Numbers of segments are given again.
            dir.log().give_up_spares();
            if recovered.end.written < recovered.last {
                // Only the checkpoint has what is between: the log begins anew behind it, so that no replica is sent over the gap.
                dir.begin_log_anew().map_err(failed)?;
                recovered.end = LogEnd {
                    term: recovered.end.term,
                    ..LogEnd::empty(recovered.last)
                };
                end.point = None;
            }
            let lowered = Anchor {
                term: anchor.map_or(0, |a| a.term),
                position: end.position,
                point: end.point,
                checkpoint: found.checkpoint.0,
            };
            env::say!(
                "canon: accepted as the operator asked: {what}. The log ends at {}; by its anchor it had reached {}",
                end.position,
                anchor.map_or(Position::ZERO, |a| a.position)
            );
            begin_term(dir, recovered, asked)?;
            dir.set_anchor(lowered).map_err(failed)?;
            Ok(Some(what))
        }
        Verdict::Refused(what) => {
            let e = start_check::refusal(dir.path(), &what, anchor.as_ref(), Some(end.position));
            Err(match (used, wanted) {
                (true, Some(at)) => e.detail(format!(
                    "--accept-log-end {at} was used once before, as CANON_ACCEPTED says, and log was lost again since. To use it again \
                     take that line out of the file."
                )),
                (_, Some(at)) if at != end.position => e.detail(format!(
                    "--accept-log-end {at} was given, but what is here ends at {}. No file was changed.",
                    end.position
                )),
                _ => e,
            })
        }
    }
}

/// A primary that goes on with less than it had begins a term: see the module.
fn begin_term(dir: &DataDir, recovered: &Recovered, asked: Asked<'_>) -> Result<()> {
    let known = dir.terms().last().map_or(1, |t| t.0);
    let known = known.max(recovered.end.term);
    let heard = dir.heard_term().map_err(failed)?;
    let sealed = dir.sealed_for().map_err(failed)?.is_some();
    if asked.replica || sealed || heard > known || recovered.last == Position::ZERO {
        return Ok(());
    }
    let env = asked.env;
    let term = next_term(known, env.clock.unix_micros(), env.random.next_u64());
    let term = term.ok_or_else(|| {
        let what = format!("no term is left above {known}, which this node has begun");
        base::Error::new(base::SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, what)
    })?;
    dir.add_term(term, recovered.last).map_err(failed)?;
    env::say!("canon: term {term} begins after {}", recovered.last);
    Ok(())
}

/// The log is taken as it is. The first position that a primary gives; durable, so that a replica that stands before it is known to hold
/// what was lost.
pub fn begin(dir: &DataDir, recovered: &Recovered, term: u64, replica: bool) -> Result<Position> {
    let end = recovered.last;
    let point = recovered.end.segment.filter(|(_, offset, _)| *offset > 0);
    let point = point.map(|(name, offset, _)| LogPoint {
        segment: name.number,
        offset,
    });
    let anchor = Anchor {
        term,
        position: end,
        // A segment without a group is gone by now.
        point: point.filter(|p| p.offset > wal::segment::SEGMENT_HEADER),
        checkpoint: recovered.checkpoint.map_or(0, |c| c.number),
    };
    if_room(dir.raise_anchor(anchor))?;
    // A term that began here and has nothing in the log: as after the promotion that began it.
    let begun = dir.terms().last().copied();
    let first =
        match begun.filter(|t| t.1 == end && t.0 > recovered.end.term && t.1 > Position::ZERO) {
            Some((term, _)) => end.after_promotion(term).after_restart(),
            None => end.after_restart(),
        };
    match replica {
        true => if_room(dir.follow_from(end))?,
        false if end > Position::ZERO => if_room(dir.begin_life(Life { term, end, first }))?,
        false => {}
    }
    Ok(first)
}

/// A node starts on a full disk, too, to be read and to be made room on: then what is written down about it is older, or missing.
fn if_room(written: wal::Result<()>) -> Result<()> {
    match written {
        Err(e) if e.is_retryable() => {
            env::say!("canon: how far the log reaches could not be written down: {e}");
            Ok(())
        }
        other => other.map_err(failed),
    }
}

#[cfg(test)]
mod tests;
