//! Everything on disk read at once, to find all that is wrong with it, not only the first.
//!
//! A start stops at the first damage: nothing behind it may be used. Here the reading goes on in the next segment, or the next block, and all of
//! it is written down. What counts as damage is what the reader of a start calls so (`reader`), and beside it what a start takes on trust:
//!
//! | of a group | |
//! |---|---|
//! | commits | as many as the header says; readable as records; positions ascend from *first* to *last* |
//! | term | one of the history's, and the positions lie where that term ruled |
//!
//! Left out on purpose: what rows mean (`node::verify`), and any change of what is read.

use crate::checkpoint::{CheckpointReader, Manifest};
use crate::error::Error;
use crate::group::Group;
use crate::reader::{CutTail, LogReader};
use crate::segment::{SEGMENT_HEADER, SegmentHeader, SegmentName};
use crate::source::{SegmentBytes, SegmentSource};
use base::Position;
use base::record::Commit;
use env::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: PathBuf,
    pub offset: u64,
    pub what: String,
}

impl Finding {
    pub fn new(file: &Path, offset: u64, what: impl Into<String>) -> Finding {
        Finding {
            file: file.to_owned(),
            offset,
            what: what.into(),
        }
    }

    /// Of an error, without the advice that a start gives.
    pub fn of(e: &Error, file: &Path) -> Finding {
        match e {
            Error::Corrupt {
                file,
                offset,
                reason,
            } => Finding::new(file, *offset, reason.clone()),
            Error::Io { path, .. } => Finding::new(path, 0, e.to_string()),
            _ => Finding::new(file, 0, e.to_string()),
        }
    }
}

/// What a log should be like.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Id of the history.
    pub stream: u128,
    /// Terms and their starts; empty: any.
    pub terms: Vec<(u64, Position)>,
    /// Every segment is whole, the last one too.
    pub finished: bool,
}

/// What a log holds.
#[derive(Clone, Debug, Default)]
pub struct LogFacts {
    pub segments: usize,
    pub groups: u64,
    pub commits: u64,
    pub bytes: u64,
    /// The position before the first group.
    pub after: Position,
    pub last: Position,
    /// Terms as the groups show them, each with the position before its first group.
    pub terms: Vec<(u64, Position)>,
    /// A torn end, which is the normal end of a crash.
    pub cut: Option<CutTail>,
}

/// Some of the segments of a source.
struct Part {
    source: Arc<dyn SegmentSource>,
    names: Vec<SegmentName>,
}

impl SegmentSource for Part {
    fn segments(&self) -> crate::Result<Vec<SegmentName>> {
        Ok(self.names.clone())
    }

    fn open(&self, name: SegmentName) -> crate::Result<Box<dyn SegmentBytes>> {
        self.source.open(name)
    }

    fn describe(&self, name: SegmentName) -> PathBuf {
        self.source.describe(name)
    }
}

/// Reads all segments. `progress` is told of the bytes of each group.
pub fn verify_log(
    source: &Arc<dyn SegmentSource>,
    wanted: &Wanted,
    progress: &mut dyn FnMut(u64),
    findings: &mut Vec<Finding>,
) -> LogFacts {
    let mut facts = LogFacts::default();
    let names = match source.segments() {
        Ok(names) => names,
        Err(e) => {
            findings.push(Finding::of(&e, Path::new("wal")));
            return facts;
        }
    };
    facts.segments = names.len();
    for pair in names.windows(2) {
        let (a, b) = (pair[0].number + 1, pair[1].number);
        if a != b {
            let what = match b - a {
                1 => format!("segment {a}, which should come before it, is missing"),
                _ => format!(
                    "segments {a} to {}, which should come before it, are missing",
                    b - 1
                ),
            };
            findings.push(Finding::new(&source.describe(pair[1]), 0, what));
        }
    }
    let mut at = 0;
    while at < names.len() {
        // A run without holes, from a segment whose header can be read.
        let hole = names[at..]
            .windows(2)
            .position(|p| p[0].number + 1 != p[1].number);
        let end = hole.map_or(names.len(), |n| at + n + 1);
        let last_run = end == names.len();
        at = run(
            source,
            &names[at..end],
            last_run,
            wanted,
            progress,
            findings,
            &mut facts,
        )
        .map_or(end, |n| at + n);
    }
    facts
}

/// Reads consecutive segments; none when it came to their end, else from which of them to go on.
fn run(
    source: &Arc<dyn SegmentSource>,
    names: &[SegmentName],
    last_run: bool,
    wanted: &Wanted,
    progress: &mut dyn FnMut(u64),
    findings: &mut Vec<Finding>,
    facts: &mut LogFacts,
) -> Option<usize> {
    let first = source.describe(names[0]);
    let only = Arc::new(Part {
        source: source.clone(),
        names: names.to_vec(),
    });
    let header = header(source, names[0]);
    let after = match header {
        Ok(h) => h.after,
        // The last one may be shorter than its header: a crash while it was begun.
        Err(f) if names.len() == 1 && last_run && f.what == CUT_HEADER && !wanted.finished => {
            return None;
        }
        Err(f) => {
            findings.push(f);
            return Some(1);
        }
    };
    // Where it does not go on behind what was read before, a hole or damage between was told of already.
    if facts.groups == 0 {
        facts.after = after;
    }
    let mut reader = match LogReader::open(only, wanted.stream, after) {
        Ok(reader) => reader,
        Err(e) => {
            findings.push(Finding::of(&e, &first));
            return Some(1);
        }
    };
    loop {
        let before = reader.at();
        match reader.next_group() {
            Ok(Some(g)) => {
                progress(g.header().len());
                facts.groups += 1;
                facts.commits += u64::from(g.header().count);
                facts.bytes += g.header().len();
                let name = names.iter().find(|n| n.number == g.header().segment);
                let file = name.map_or(first.clone(), |n| source.describe(*n));
                for what in group(&g, &wanted.terms) {
                    findings.push(Finding::new(&file, g.header().offset, what));
                }
                if facts.terms.last().is_none_or(|t| t.0 < g.header().term) {
                    facts.terms.push((g.header().term, facts.last.max(after)));
                }
                facts.last = facts.last.max(g.header().last);
            }
            Ok(None) => {
                match reader.cut() {
                    Some(cut) if wanted.finished || !last_run => {
                        findings.push(Finding::new(&cut.file, cut.offset, cut.reason));
                    }
                    cut => facts.cut = cut.cloned(),
                }
                return None;
            }
            Err(e) => {
                let f = Finding::of(&e, &first);
                let damaged = names.iter().position(|n| source.describe(*n) == f.file);
                let now = names.iter().position(|n| n.number == before.segment);
                findings.push(f);
                return Some(damaged.or(now).unwrap_or(0) + 1).filter(|n| *n < names.len());
            }
        }
    }
}

const CUT_HEADER: &str = "the segment's header is cut short";

fn header(source: &Arc<dyn SegmentSource>, name: SegmentName) -> Result<SegmentHeader, Finding> {
    let path = source.describe(name);
    let mut bytes = [0; SEGMENT_HEADER as usize];
    let file = source.open(name).map_err(|e| Finding::of(&e, &path))?;
    let read = file.read_at(&mut bytes, 0);
    let n = read.map_err(|e| Finding::new(&path, 0, format!("reading failed: {e}")))?;
    let decoded = SegmentHeader::decode(&bytes[..n]);
    decoded
        .map(|(h, _)| h)
        .map_err(|what| Finding::new(&path, 0, what))
}

/// What is wrong with a group whose checksums are right.
pub fn group(g: &Group, terms: &[(u64, Position)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let h = g.header();
    let place = terms.iter().position(|t| t.0 == h.term);
    match place {
        None if terms.is_empty() => {}
        None => wrong.push(format!(
            "the group is of term {}, which the history does not have",
            h.term
        )),
        Some(at) => {
            let end = terms.get(at + 1).map_or(Position::MAX, |t| t.1);
            if h.first <= terms[at].1 || h.last > end {
                wrong.push(format!(
                    "positions {} to {} are not where term {} ruled",
                    h.first, h.last, h.term
                ));
            }
        }
    }
    let (mut heads, mut data) = (g.heads(), g.data());
    let mut last: Option<Position> = None;
    for n in 0..h.count {
        let Ok(c) = Commit::take(&mut heads, &mut data) else {
            wrong.push(format!("commit {} of {} is not readable", n + 1, h.count));
            return wrong;
        };
        if c.iter().any(|r| r.is_err()) {
            wrong.push(format!("a record of commit {} is not readable", c.position));
        }
        if last.is_some_and(|l| c.position <= l) || c.position < h.first || c.position > h.last {
            wrong.push(format!("commit {} is out of its place", c.position));
        }
        last = Some(c.position);
    }
    if !heads.is_empty() || !data.is_empty() {
        wrong.push("there is more behind its commits".into());
    }
    if last != Some(h.last) {
        wrong.push(format!("it should end with commit {}", h.last));
    }
    wrong
}

/// Reads a whole file in the format of a checkpoint: what it says of itself, unless that cannot be read.
pub fn verify_checkpoint(
    disk: &dyn Disk,
    path: &Path,
    cluster: u128,
    progress: &mut dyn FnMut(u64),
    findings: &mut Vec<Finding>,
) -> Option<Manifest> {
    let file = match CheckpointReader::open(disk, path) {
        Ok(file) => file,
        Err(e) => {
            findings.push(Finding::of(&e, path));
            return None;
        }
    };
    let manifest = *file.manifest();
    if manifest.cluster != cluster {
        findings.push(Finding::new(path, 0, "it belongs to another cluster"));
    }
    for s in file.sections() {
        if let Err(e) = file.read_section(s) {
            findings.push(Finding::of(&e, path));
        }
        progress(s.len);
    }
    let mut rows = 0;
    for c in file.chunks() {
        match file.read_chunk(c) {
            Ok(chunk) => {
                rows += chunk.len() as u64;
                if chunk.iter().any(|e| e.position > manifest.end) {
                    let what = "a row is newer than the checkpoint's end";
                    findings.push(Finding::new(path, c.offset(), what));
                }
            }
            Err(e) => findings.push(Finding::of(&e, path)),
        }
        progress(c.len);
    }
    for b in file.sections().iter().chain(file.chunks()) {
        match file.has_whole_head(b) {
            Ok(true) => {}
            Ok(false) => findings.push(Finding::new(
                path,
                b.offset(),
                "the head of the block is wrong",
            )),
            Err(e) => findings.push(Finding::of(&e, path)),
        }
    }
    let whole = findings.iter().all(|f| f.file != path);
    if whole && rows != manifest.rows {
        let what = format!("it has {rows} rows, and says that it has {}", manifest.rows);
        findings.push(Finding::new(path, 0, what));
    }
    Some(manifest)
}
