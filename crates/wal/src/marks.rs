//! Small facts that a primary must not forget: where it went on after each start, which replicas it has had, and what it was told to accept.
//!
//! ```text
//! DIR/CANON_LIVES       a line "TERM END FIRST" per start of a primary: its log ended at END, and it gives no position before FIRST
//! DIR/CANON_REPLICAS    a line "ADDRESS NAME" per replica that has followed, the newest last; ADDRESS is "-" where it is not known
//! DIR/CANON_ACCEPTED    a line "END POSITION TERM MICROSECONDS" each time that a log was accepted which ended at END, before its anchor
//! ```
//! **Lives.** A primary that comes back leaves positions out (`Position::after_restart`). So none between END and FIRST is in its log, and a replica
//! of the same term that stands there holds what this log has lost. Without the line that would show only until the primary has
//! written again, and so passed the replica. A node that starts as a replica drops the lines of lives that wrote nothing: it is sent
//! what they skipped.
//!
//! **Replicas** are asked how far they are before a primary serves again. Each file is written whole under another name first.
//!
//! Left out on purpose: who asks, and what is made of it (`replica::ship::standing`).

use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::terms;
use base::Position;
use std::io;

const LIVES: &str = "CANON_LIVES";
const REPLICAS: &str = "CANON_REPLICAS";
const ACCEPTED: &str = "CANON_ACCEPTED";

/// Most lines of a file; the oldest go.
const MOST_LIVES: usize = 1000;
const MOST_REPLICAS: usize = 64;

/// A start of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub term: u64,
    /// The last position in the log then.
    pub end: Position,
    /// It gives no position between `end` and this one.
    pub first: Position,
}

/// A replica that has followed this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    /// Where it takes clients: host and port.
    pub address: Option<String>,
}

impl DataDir {
    /// The file's lines, each read so; none without the file.
    fn lines<T>(&self, file: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
        let path = self.path().join(file);
        let bytes = match self.disk.read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(|e| Error::io("reading", &path, e))?,
        };
        let text = std::str::from_utf8(&bytes).ok();
        let all: Option<Vec<T>> = text.and_then(|t| t.lines().map(read).collect());
        all.ok_or_else(|| Error::corrupt(&path, 0, "a line of the file is not readable"))
    }

    fn write_lines(&self, file: &str, lines: &[String]) -> Result<()> {
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        terms::replace(&*self.disk, self.path(), file, text.as_bytes())
    }

    /// Where primaries went on here, oldest first.
    pub fn lives(&self) -> Result<Vec<Life>> {
        self.lines(LIVES, |line| {
            let mut words = line.split(' ');
            Some(Life {
                term: words.next()?.parse().ok()?,
                end: words.next()?.parse().ok()?,
                first: words.next()?.parse().ok()?,
            })
        })
    }

    /// A primary goes on here; durable when it returns. Comes before it gives a position.
    pub fn begin_life(&self, life: Life) -> Result<()> {
        let mut all = self.lives()?;
        if all.last() == Some(&life) {
            return Ok(());
        }
        all.push(life);
        self.write_lives(&all)
    }

    fn write_lives(&self, all: &[Life]) -> Result<()> {
        let from = all.len().saturating_sub(MOST_LIVES);
        let line = |l: &Life| format!("{} {} {}", l.term, l.end, l.first);
        let lines: Vec<String> = all[from..].iter().map(line).collect();
        self.write_lines(LIVES, &lines)
    }

    /// This node follows, and its log ends here: what a primary of its own skipped behind that comes from another node, and is no gap any more.
    pub fn follow_from(&self, end: Position) -> Result<()> {
        let mut all = self.lives()?;
        let before = all.len();
        all.retain(|l| l.first <= end);
        match all.len() == before {
            true => Ok(()),
            false => self.write_lives(&all),
        }
    }

    /// Replicas that have followed this node, the newest last.
    pub fn known_replicas(&self) -> Result<Vec<Known>> {
        self.lines(REPLICAS, |line| {
            let (address, name) = line.split_once(' ')?;
            Some(Known {
                name: name.to_owned(),
                address: (address != "-").then(|| address.to_owned()),
            })
        })
    }

    /// A replica follows, and will be asked at the next start; durable when it returns.
    pub fn know_replica(&self, replica: &Known) -> Result<()> {
        let mut all = self.known_replicas()?;
        if all.contains(replica) {
            return Ok(());
        }
        all.retain(|k| k.name != replica.name);
        all.push(replica.clone());
        let from = all.len().saturating_sub(MOST_REPLICAS);
        let line = |k: &Known| format!("{} {}", k.address.as_deref().unwrap_or("-"), k.name);
        let lines: Vec<String> = all[from..].iter().map(line).collect();
        self.write_lines(REPLICAS, &lines)
    }

    /// Logs that were accepted: their ends, and the positions that the anchor asked for.
    pub fn accepted(&self) -> Result<Vec<(Position, Position)>> {
        self.lines(ACCEPTED, |line| {
            let mut words = line.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
    }

    /// A log is accepted that ends here, before its anchor; durable when it returns. Comes before the anchor is lowered.
    pub fn accept(&self, end: Position, unix_micros: i64) -> Result<()> {
        let anchor = self.anchor().unwrap_or_default();
        let mut lines = self.lines(ACCEPTED, |l| Some(l.to_owned()))?;
        let (position, term) = (anchor.position, anchor.term);
        lines.push(format!("{end} {position} {term} {unix_micros}"));
        self.write_lines(ACCEPTED, &lines)
    }
}
