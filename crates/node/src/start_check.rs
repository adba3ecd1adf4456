//! What a start demands of a log: that it holds what its anchor asks for. Facts in, a verdict out; no disk, no clock.
//!
//! ```text
//! what is there            what the anchor says                     verdict
//! whole                    reached, or less                         Whole: a torn end above the anchor is the normal end of a crash
//! shorter                  more                                     Refused, with what is missing
//! shorter, ends at P       more; the operator accepts the end P     Accepted, once
//! a hole                   -                                        Refused, whatever is accepted
//! ```
//! What the anchor cannot see, because it is a moment old, a replica's position shows (`replica::ship::standing`).
//!
//! Left out on purpose: repair. A log that has lost something is made whole by a replica, a backup, or the decision to go on without.

use base::{Error, Position, SqlState};
use replica::ship::evidence::{NOT_SHOWN, Unproven, proven};
use replica::ship::{Ours, Stands, stands};
use std::fmt;
use std::path::Path;
use wal::{Anchor, Around, LogPoint, Recovered};

/// What a start has found in a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Numbers of the segments, ascending.
    pub segments: Vec<u64>,
    /// Number of the newest checkpoint, and where it begins; 0 and ZERO without one.
    pub checkpoint: (u64, Position),
    /// The log begins after this position; none where that is not known, or without a segment.
    pub begins_after: Option<Position>,
}

/// Where what is there ends, when all of it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Of the log and the checkpoint.
    pub position: Position,
    /// Of the log alone. It is `position` where there is no segment.
    pub written: Position,
    pub point: Option<LogPoint>,
}

impl End {
    /// Where a recovery has found it.
    pub fn of(recovered: &Recovered) -> End {
        End {
            position: recovered.last,
            written: recovered.end.written,
            point: recovered.end.segment.map(|(name, offset, _)| LogPoint {
                segment: name.number,
                offset,
            }),
        }
    }
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// All segments, and perhaps the folder.
    Log,
    /// Those from this one on.
    Segments(u64),
    /// A segment with others behind it, or those between the checkpoint and the first one.
    Hole(u64),
    Beginning(Position),
    /// The newest checkpoint, of this number.
    Checkpoint(u64),
    /// The last groups of a segment.
    Tail(u64),
    /// The same, and the newest checkpoint begins above what is left, which ends here.
    Below(u64, Position),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Log => write!(f, "the whole log is gone: wal/ holds no segment"),
            Missing::Segments(n) => write!(
                f,
                "segment {n} of the log (wal/{n:016x}-….wal) is missing, and all behind it"
            ),
            Missing::Hole(n) => write!(
                f,
                "segment {n} of the log (wal/{n:016x}-….wal) is missing, and later ones are there"
            ),
            Missing::Beginning(after) => write!(
                f,
                "the first segments of the log are missing: it begins after {after}"
            ),
            Missing::Checkpoint(n) => {
                write!(f, "checkpoint {n} (checkpoint/{n:016x}.ckpt) is missing")
            }
            Missing::Tail(n) => write!(
                f,
                "the end of segment {n} of the log (wal/{n:016x}-….wal) is missing"
            ),
            Missing::Below(n, ends) => write!(
                f,
                "the end of segment {n} of the log (wal/{n:016x}-….wal) is missing: it ends at {ends}, below the newest checkpoint"
            ),
        }
    }
}

/// What is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Whole,
    /// It ends where the operator said that it does.
    Accepted(Missing),
    Refused(Missing),
}

/// A hole in what is there, which no end that is accepted makes good. Known before anything is read.
pub fn hole(found: &Found) -> Option<Missing> {
    let pairs = found.segments.windows(2);
    let gap = pairs.filter(|w| w[1] != w[0] + 1).map(|w| w[0] + 1).next();
    if let Some(n) = gap {
        return Some(Missing::Hole(n));
    }
    let (_, start) = found.checkpoint;
    let begins = found.begins_after.filter(|after| *after > start);
    begins.map(Missing::Beginning)
}

/// Whether what is there is what the checkpoint and the anchor ask for. `accepted`: the end that the operator accepts.
pub fn check(
    anchor: Option<&Anchor>,
    found: &Found,
    end: End,
    accepted: Option<Position>,
) -> Verdict {
    let anchor = anchor.filter(|_| !env::fault::planted("node.anchor_unchecked"));
    let missing = anchor.and_then(|a| missing(a, found, end));
    match missing.or_else(|| below_checkpoint(found, end)) {
        None => Verdict::Whole,
        Some(what) if accepted == Some(end.position) => Verdict::Accepted(what),
        Some(what) => Verdict::Refused(what),
    }
}

/// A checkpoint is written when the log has all that is in it. So a log that ends before has lost something: the node has it all the same,
/// in the checkpoint, but a replica that reads the log would be sent over the gap.
fn below_checkpoint(found: &Found, end: End) -> Option<Missing> {
    let last = found.segments.last()?;
    let planted = env::fault::planted("node.below_checkpoint");
    (end.written < end.position && !planted).then_some(Missing::Below(*last, end.written))
}

fn missing(anchor: &Anchor, found: &Found, end: End) -> Option<Missing> {
    if anchor.checkpoint > found.checkpoint.0 {
        return Some(Missing::Checkpoint(anchor.checkpoint));
    }
    if let Some(point) = anchor.point {
        let Some(last) = found.segments.last().copied() else {
            return Some(Missing::Log);
        };
        if last < point.segment {
            return Some(Missing::Segments(last + 1));
        }
        if end.point < Some(point) {
            let short = end.point.map_or(point.segment, |p| p.segment);
            return Some(Missing::Tail(short));
        }
    }
    let last = found.segments.last();
    (end.position < anchor.position).then_some(last.map_or(Missing::Log, |n| Missing::Tail(*n)))
}

/// The ways out of a log that is shorter than it was, the one that loses nothing first.
pub fn ways_out(replica: Option<&str>, accept: Option<Position>) -> String {
    let server = replica.unwrap_or("REPLICA");
    let mut ways = format!(
        "Ways out. Loses nothing: if a replica has the log, make it the primary (canon promote --force --old-primary-is-down \
         --server {server}), and start this node with --replica-of it on an empty data directory. If this node is a replica: start it on \
         an empty data directory, and it is filled from its primary. Else put back what is missing, or a whole backup"
    );
    match accept {
        Some(at) => {
            ways += &format!(". Loses what was above {at}: canon start --accept-log-end {at}")
        }
        None => ways += "; a log with a hole is not accepted",
    }
    ways + "."
}

/// XX001, in words for a person: what is missing, how far the log went, and the ways out.
pub fn refusal(
    path: &Path,
    missing: &Missing,
    anchor: Option<&Anchor>,
    end: Option<Position>,
) -> Error {
    let what = format!("log is missing in {}: {missing}", path.display());
    let mut detail = String::new();
    if let Some(a) = anchor {
        detail = format!(
            "By its anchor (CANON_ANCHOR) this node had everything up to {} of term {} on its disk",
            a.position, a.term
        );
        if let Some(p) = a.point {
            detail += &format!(", in segment {} up to offset {}", p.segment, p.offset);
        }
        if a.checkpoint > 0 {
            detail += &format!(", and checkpoint {}", a.checkpoint);
        }
        detail += ". ";
    }
    if let Some(end) = end {
        detail += &format!("What is here ends at {end}. ");
    }
    detail += "No file was changed.";
    Error::new(SqlState::DATA_CORRUPTED, what)
        .detail(detail)
        .hint(ways_out(None, end))
}

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub name: String,
    /// Where it takes clients.
    pub address: Option<String>,
    pub terms: Vec<(u64, Position)>,
    pub last: Position,
    /// What its log holds around this primary's end, if it says that it is ahead; none: it has not shown it.
    pub shown: Option<Around>,
}

/// A replica that holds what a primary has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub replica: String,
    pub address: Option<String>,
    pub ours: Position,
    pub theirs: Position,
}

/// A replica that says it is ahead and has not shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubted {
    pub replica: String,
    pub ours: Position,
    pub theirs: Position,
    pub why: Unproven,
}

/// The replica that is farthest ahead of a primary in the history that both share, of those that have shown it; none: the primary may serve, as far as
/// these know. And those that say so and are not believed. `here` reads what the primary's own log holds around a position.
pub fn ahead<E>(
    ours: Ours<'_>,
    cluster: u128,
    here: impl Fn(Position) -> Result<Around, E>,
    answers: &[Answer],
) -> Result<(Option<Ahead>, Vec<Doubted>), E> {
    let (mut farthest, mut doubted): (Option<Ahead>, _) = (None, Vec::new());
    for a in answers {
        let Stands::Ahead { ours: end, theirs } = stands(ours, &a.terms, a.last) else {
            continue;
        };
        if env::fault::planted("node.nobody_asked") {
            continue;
        }
        let shown = match &a.shown {
            _ if env::fault::planted("ship.bare_word") => Ok(()),
            Some(shown) => proven(ours, cluster, end, &here(end)?, shown),
            None => Err(NOT_SHOWN),
        };
        let replica = a.name.clone();
        match shown {
            Ok(()) if farthest.as_ref().is_some_and(|f| f.theirs > theirs) => {}
            Ok(()) => {
                farthest = Some(Ahead {
                    replica,
                    address: a.address.clone(),
                    ours: end,
                    theirs,
                });
            }
            Err(why) => doubted.push(Doubted {
                replica,
                ours: end,
                theirs,
                why,
            }),
        }
    }
    Ok((farthest, doubted))
}

/// The newest term that began elsewhere, of those that these know: this primary's history has ended.
pub fn newer_term(ours: Ours<'_>, answers: &[Answer]) -> Option<u64> {
    let own = ours.terms.last().map_or(0, |t| t.0);
    let newest = answers.iter().filter_map(|a| a.terms.last());
    newest.map(|t| t.0).max().filter(|t| *t > own)
}

/// Why a primary does not serve that has met a replica ahead of it.
pub fn lost_log(ahead: &Ahead, term: u64) -> Error {
    let Ahead {
        replica,
        address,
        ours,
        theirs,
    } = ahead;
    let at = address.as_deref().map(|a| format!(" at {a}"));
    let what = format!(
        "this primary has lost log: replica {replica}{} holds its history, of term {term}, up to {theirs}, and here nothing is left of it \
         above {ours}",
        at.unwrap_or_default()
    );
    let server = address.as_deref().unwrap_or("REPLICA");
    Error::new(SqlState::DATA_CORRUPTED, what)
        .detail("What is between the two may have been acknowledged. This node serves nobody.")
        .hint(format!(
            "Ways out. Loses nothing of it: make the replica the primary (canon promote --force --old-primary-is-down --server {server}), \
             and start this node with --replica-of it. Else put back what this node has lost. Loses what is between {ours} and {theirs}: \
             start the replica on an empty data directory, then this node again."
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(n: u32) -> Position {
        Position::new(1, n)
    }

    fn point(segment: u64, offset: u64) -> Option<LogPoint> {
        Some(LogPoint { segment, offset })
    }

    const CLUSTER: u128 = 7;

    /// What a node shows that holds a checkpoint which begins here, and no log.
    fn above(start: Position) -> Around {
        let env = env::Env {
            disk: std::sync::Arc::new(env::MemDisk::new()),
            ..env::Env::os()
        };
        let options = wal::DirOptions {
            cluster: Some(CLUSTER),
            ..wal::DirOptions::default()
        };
        let dir = wal::DataDir::open(&env, Path::new("/d"), options).expect("a directory");
        let checkpoint = dir.begin_checkpoint(start).expect("begun");
        checkpoint.finish(start).expect("written");
        dir.around(p(40)).expect("read")
    }

    fn anchor() -> Anchor {
        Anchor {
            term: 2,
            position: p(40),
            point: point(5, 900),
            checkpoint: 3,
        }
    }

    fn found() -> Found {
        Found {
            segments: vec![3, 4, 5],
            checkpoint: (3, p(10)),
            begins_after: Some(p(5)),
        }
    }

    fn end(n: u32, segment: u64, offset: u64) -> End {
        End {
            position: p(n),
            written: p(n),
            point: point(segment, offset),
        }
    }

    fn refused(found: &Found, at: End) -> Missing {
        match check(Some(&anchor()), found, at, None) {
            Verdict::Refused(what) => what,
            v => panic!("{v:?}"),
        }
    }

    #[test]
    fn what_reaches_the_anchor_or_goes_beyond_is_whole() {
        for at in [end(40, 5, 900), end(41, 5, 1000), end(60, 6, 400)] {
            assert_eq!(check(Some(&anchor()), &found(), at, None), Verdict::Whole);
        }
        // A directory that no start with anchors has served.
        let nothing = Found::default();
        assert_eq!(check(None, &nothing, End::default(), None), Verdict::Whole);
    }

    #[test]
    fn what_is_missing_has_a_name() {
        assert_eq!(refused(&found(), end(39, 5, 800)), Missing::Tail(5));
        assert_eq!(refused(&found(), end(20, 4, 300)), Missing::Tail(4));
        let mut f = found();
        f.segments.pop();
        assert_eq!(refused(&f, end(30, 4, 4000)), Missing::Segments(5));
        f.segments.clear();
        let only_rows = End {
            position: p(10),
            written: p(10),
            point: None,
        };
        assert_eq!(refused(&f, only_rows), Missing::Log);
        let mut f = found();
        f.checkpoint = (2, p(8));
        assert_eq!(refused(&f, end(40, 5, 900)), Missing::Checkpoint(3));
        // A checkpoint that is newer than the anchor does not make good a log that is gone.
        let mut f = found();
        (f.checkpoint, f.segments) = ((4, p(50)), vec![]);
        let at = End {
            position: p(50),
            written: p(50),
            point: None,
        };
        assert_eq!(refused(&f, at), Missing::Log);
    }

    #[test]
    fn holes_are_seen_before_anything_is_read() {
        assert_eq!(hole(&found()), None);
        let mut f = found();
        f.segments = vec![3, 5];
        assert_eq!(hole(&f), Some(Missing::Hole(4)));
        f.segments = vec![4, 5];
        f.begins_after = Some(p(11));
        assert_eq!(hole(&f), Some(Missing::Beginning(p(11))));
        assert_eq!(hole(&Found::default()), None);
    }

    #[test]
    fn only_the_end_that_is_there_is_accepted() {
        let at = end(30, 4, 4000);
        let take = |accepted| check(Some(&anchor()), &found(), at, accepted);
        assert_eq!(take(Some(p(30))), Verdict::Accepted(Missing::Tail(4)));
        for other in [p(29), p(31), p(40)] {
            assert_eq!(take(Some(other)), Verdict::Refused(Missing::Tail(4)));
        }
    }

    #[test]
    fn the_replica_that_has_most_is_named() {
        let terms = vec![(1, Position::ZERO), (2, p(20))];
        let ours = Ours {
            terms: &terms,
            lives: &[],
            last: p(40),
        };
        let answer = |name: &str, last| Answer {
            name: name.into(),
            address: None,
            terms: terms.clone(),
            last,
            // A checkpoint alone, which lies above.
            shown: (last > p(41)).then(|| above(last)),
        };
        let all = [
            answer("a", p(40)),
            answer("b", p(44)),
            answer("c", p(42)),
            answer("e", p(41)),
        ];
        let none = |_| Ok::<_, ()>(Around::default());
        let (found, doubted) = ahead(ours, CLUSTER, none, &all).expect("read");
        let found = found.expect("two are ahead");
        assert_eq!(doubted.len(), 1, "{doubted:?}");
        assert_eq!((&*doubted[0].replica, doubted[0].theirs), ("e", p(41)));
        assert_eq!(
            (&*found.replica, found.ours, found.theirs),
            ("b", p(40), p(44))
        );
        let (no, _) = ahead(ours, CLUSTER, none, &all[..1]).expect("read");
        assert_eq!(no, None);
        let other = CLUSTER + 1;
        let (no, doubted) = ahead(ours, other, none, &all).expect("read");
        assert_eq!(
            (no, doubted.len()),
            (None, 3),
            "another cluster's checkpoints"
        );
        assert_eq!(newer_term(ours, &all), None);
        let mut newer = answer("d", p(30));
        newer.terms.push((7, p(25)));
        assert_eq!(newer_term(ours, &[all[0].clone(), newer]), Some(7));
        let words = lost_log(&found, 2);
        let f = words.fields();
        assert!(
            f.message.contains("1.44") && f.message.contains("1.40"),
            "{}",
            f.message
        );
        assert!(
            f.hint.find("canon promote") < f.hint.find("empty data directory"),
            "{}",
            f.hint
        );
    }

    #[test]
    fn the_way_that_loses_nothing_comes_first() {
        let e = refusal(
            Path::new("/x"),
            &Missing::Tail(5),
            Some(&anchor()),
            Some(p(30)),
        );
        let (f, at) = (e.fields(), |part: &str| e.fields().hint.find(part));
        assert!(f.message.contains("end of segment 5"), "{}", f.message);
        assert!(f.detail.contains("1.40 of term 2"), "{}", f.detail);
        assert!(at("canon promote").unwrap() < at("--accept-log-end 1.30").unwrap());
    }

    #[test]
    fn a_log_that_ends_below_the_checkpoint_is_refused_whatever_the_anchor_says() {
        let found = Found {
            segments: vec![4, 5],
            checkpoint: (3, p(60)),
            begins_after: Some(p(5)),
        };
        let short = End {
            position: p(60),
            written: p(45),
            point: point(5, 950),
        };
        let lost = Missing::Below(5, p(45));
        for anchor in [Some(&anchor()), None] {
            let verdict = check(anchor, &found, short, None);
            assert_eq!(verdict, Verdict::Refused(lost.clone()));
            let accepted = check(anchor, &found, short, Some(p(60)));
            assert_eq!(accepted, Verdict::Accepted(lost.clone()));
        }
        let whole = End {
            written: p(60),
            ..short
        };
        assert_eq!(check(None, &found, whole, None), Verdict::Whole);
        // A copy that has just come: no log is needed behind a checkpoint.
        let copied = Found {
            segments: Vec::new(),
            ..found
        };
        assert_eq!(check(None, &copied, short, None), Verdict::Whole);
    }
}
