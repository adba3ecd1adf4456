//! A node's copy made anew from another's checkpoint, and what it sets aside before.
//!
//! ```text
//! DIR/checkpoint/….tmp                   the checkpoint that is arriving, beside what is here
//! DIR/CANON_SWITCH                       it is here whole: the rest is void. Or: the log ends at this place
//! DIR/CANON_HEARD                        the newest term that this node has heard of, when its history is of an older one; with a checksum
//! DIR/CANON_DIVERGED                     the term whose history does not have all that is here, and where they parted, while it is so
//! DIR/CANON_LED                          this node has led: what it wrote may be nowhere else, until a primary that it follows has it
//! DIR/set-aside/TERM-EPOCH.ORDER.log     groups above that position that the cluster's history does not have, one after the other
//! DIR/set-aside/TERM-EPOCH.ORDER.txt     what they were, for a person
//! DIR/set-aside/TERM-EPOCH.ORDER.ckpt    only when the log no longer reached back to the position
//! DIR/set-aside/TERM-EPOCH.ORDER.base    the rows that they wrote over, as they stood at that position, and the schema then (`aside`)
//! ```
//! **Making a copy** takes nothing away before it is whole: what is here may be one of the copies that an acknowledged commit was promised.
//! The checkpoint arrives under another name; when every byte is there and every checksum holds, `CANON_SWITCH` is made durable, with its number
//! and the terms of its history. From then on the new copy counts: the old checkpoints and the old log go, the new one gets its
//! name, the terms are written, the file goes. A crash before leaves the old history, a crash behind it is finished by the next start.
//! While both are there they take the room of both.
//!
//! **Cutting back** is for a node that holds commits which the cluster's history does not: what it shares with it stays, so that it has to
//! receive only what comes after. `CANON_SWITCH` names the place where the log ends from now on. Where that cannot be, `CANON_DIVERGED`
//! says so until a copy has come, or a new term begins with what is here: nobody may be shown what the cluster does not have.
//!
//! **Setting aside** comes before either: the files are durable before the first byte of the log goes. Twice is no harm.
//!
//! A node does not forget how new a primary it has heard of, also when a copy does not arrive.
//!
//! Left out on purpose: giving the commits that were set aside back to the cluster. A person decides that (`canon set-aside`).

use crate::anchor::Anchor;
use crate::checkpoint::{CheckpointReader, Manifest, file_name};
use crate::data_dir::DataDir;
use crate::error::{Error, Result};
use crate::group::{Group, GroupHeader};
use crate::reader::LogReader;
use crate::terms;
use crate::writer::LogPoint;
use base::record::{self, RecordKind};
use base::{MAX_TERM, Position};
use env::{DiskFile, OpenMode, fault};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const MARK: &str = "CANON_SWITCH";

const HEARD: &str = "CANON_HEARD";

pub(crate) const DIVERGED: &str = "CANON_DIVERGED";

const LED: &str = "CANON_LED";

/// What a directory changes to, when that is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// To the checkpoint of this number, which has arrived, and a history with these terms.
    Copy {
        number: u64,
        terms: Vec<(u64, Position)>,
    },
    /// To the log up to this place.
    Cut { segment: u64, offset: u64 },
}

impl Switch {
    fn text(&self) -> String {
        match self {
            Switch::Copy { number, terms } => format!("copy {number}\n{}", terms::text(terms)),
            Switch::Cut { segment, offset } => format!("cut {segment} {offset}\n"),
        }
    }

    /// The reverse; `None` for anything else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Switch> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (first, rest) = text.split_once('\n')?;
        let mut words = first.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        match kind {
            "copy" => Some(Switch::Copy {
                number: number()?,
                terms: terms::parse(rest.as_bytes())?,
            }),
            "cut" => Some(Switch::Cut {
                segment: number()?,
                offset: number()?,
            }),
            _ => None,
        }
    }

    /// The file in which a checkpoint has arrived.
    pub(crate) fn arrived(&self) -> Option<String> {
        match self {
            Switch::Copy { number, .. } => {
                let path = Path::new(&file_name(*number)).with_extension("tmp");
                Some(path.to_string_lossy().into_owned())
            }
            Switch::Cut { .. } => None,
        }
    }
}

/// What `CANON_HEARD` holds: the term, and the checksum (CRC-32C) of its digits.
fn heard_text(term: u64) -> String {
    let digits = term.to_string();
    format!("term {digits} {:08x}\n", crc32c::crc32c(digits.as_bytes()))
}

/// The reverse. Directories of older builds have no checksum there.
fn parse_heard(bytes: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (digits, sum) = match line.strip_prefix("term ") {
        Some(rest) => rest.split_once(' ').map(|(d, s)| (d, Some(s)))?,
        None => (line, None),
    };
    let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    let whole = sum.is_none_or(|s| s == format!("{:08x}", crc32c::crc32c(digits.as_bytes())));
    let term = digits.parse().ok().filter(|t| *t <= MAX_TERM)?;
    (plain && whole).then_some(term)
}

/// Bytes of an arriving checkpoint between syncs.
const SYNC_EVERY: u64 = 8 << 20;

/// What was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The groups; none when there were none.
    pub file: Option<PathBuf>,
    /// What a person reads.
    pub report: PathBuf,
    /// The checkpoint, when the log no longer reached back far enough.
    pub checkpoint: Option<PathBuf>,
    pub groups: u64,
    /// Commits that wrote something, and the rows that they put or deleted.
    pub commits: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Last position that was here.
    pub last: Position,
}

impl DataDir {
    /// Whether there is no history here.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.log().list()?.is_empty() && self.checkpoint_numbers()?.is_empty())
    }

    /// This node has heard of a primary of this term, and will not forget it, whatever comes of it. Several threads may call it at once: the
    /// greatest term stays.
    pub fn hear(&self, term: u64) -> Result<()> {
        let _one = self.hearing.lock();
        if term > self.heard_term()? {
            if term > MAX_TERM {
                let what = format!("is told of term {term}, and none is greater than {MAX_TERM}");
                return Err(Error::NotOurs {
                    path: self.path().to_owned(),
                    reason: what,
                });
            }
            let text = heard_text(term);
            terms::replace(&*self.disk, self.path(), HEARD, text.as_bytes())?;
        }
        Ok(())
    }

    /// What is here goes beyond `at`, where the history of `term` left it; until that is cut back, or replaced, or begins a term.
    pub fn diverge(&self, term: u64, at: Position) -> Result<()> {
        if fault::planted("wal.diverged_forgotten") {
            return Ok(());
        }
        let text = terms::text(&[(term, at)]);
        terms::replace(&*self.disk, self.path(), DIVERGED, text.as_bytes())
    }

    /// Which history does not have all that is here: its term, and the position that both have.
    pub fn diverged(&self) -> Result<Option<(u64, Position)>> {
        let path = self.path().join(DIVERGED);
        match self.disk.read(&path) {
            Ok(bytes) => {
                let parted = terms::parse(&bytes).and_then(|t| t.first().copied());
                let bad = || Error::corrupt(&path, 0, "the file should hold a term and a position");
                parted.ok_or_else(bad).map(Some)
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("reading", &path, e)),
        }
    }

    /// All that is here is in the history that counts.
    pub fn agree(&self) -> Result<()> {
        self.forget(DIVERGED)
    }

    /// This node writes commits of its own from here on, and some of them may be nowhere else. Durable when this returns; comes before the
    /// first of them.
    pub fn lead(&self) -> Result<()> {
        match self.has_led()? {
            true => Ok(()),
            false => terms::replace(&*self.disk, self.path(), LED, b""),
        }
    }

    /// Whether commits that are here may have come from nobody.
    pub fn has_led(&self) -> Result<bool> {
        let path = self.path().join(LED);
        match self.disk.read(&path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io("reading", &path, e)),
        }
    }

    /// The primary that this node follows has all that is here: the node leads no more.
    pub fn follow(&self) -> Result<()> {
        self.unseal()?;
        self.agree()?;
        self.forget(LED)
    }

    fn forget(&self, file: &str) -> Result<()> {
        let path = self.path().join(file);
        match self.disk.remove(&path) {
            Ok(()) => {
                let path = self.path();
                self.disk.sync_dir(path).map_err(|e| Error::sync(path, e))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("removal", &path, e)),
        }
    }

    /// A copy of the history with these terms will be received: this node has heard of its newest. What is here stays.
    pub fn begin_copy(&self, terms: &[(u64, Position)]) -> Result<()> {
        self.hear(terms.last().map_or(0, |t| t.0))?;
        if fault::planted("wal.copy_empties_first") {
            self.clear(None)?;
        }
        Ok(())
    }

    /// The newest term that this node has heard of.
    pub fn heard_term(&self) -> Result<u64> {
        let known = self.terms().last().expect("never empty").0;
        let path = self.path().join(HEARD);
        match self.disk.read(&path) {
            Ok(bytes) => {
                let wanted = "the file should hold a term and its checksum; a newer primary tells this node again if it is removed";
                let bad = || Error::corrupt(&path, 0, wanted);
                Ok(parse_heard(&bytes).ok_or_else(bad)?.max(known))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(known),
            Err(e) => Err(Error::io("reading", &path, e)),
        }
    }

    /// Ends the log before the first group with commits above `at`. False, and nothing is changed, when that cannot be: the checkpoint
    /// here holds commits above it, or a group holds such on both sides. Nobody may use the log meanwhile; [`DataDir::set_aside`] comes before.
    pub fn cut_back(&self, at: Position) -> Result<bool> {
        if fault::planted("wal.copy_empties_first") {
            return Ok(false);
        }
        let manifest = self.latest_checkpoint()?.map(|c| *c.manifest());
        let start = manifest.map_or(Position::ZERO, |m| m.start);
        let mut reader = match LogReader::open(self.log().clone(), self.cluster(), start) {
            Err(Error::Missing { .. }) => return Ok(false),
            opened => opened?,
        };
        let (end, group) = loop {
            // The reader passes over groups that end at or below `start`.
            let end = reader.last().max(start);
            match reader.next_group()? {
                Some(g) if g.header().last <= at => {}
                Some(g) if g.header().first <= at => return Ok(false),
                found => break (end, found),
            }
        };
        if start > at || manifest.is_some_and(|m| m.end > end) {
            return Ok(false);
        }
        let Some(group) = group else {
            return Ok(true);
        };
        let GroupHeader {
            segment, offset, ..
        } = *group.header();
        self.lower_anchor(end, LogPoint { segment, offset })?;
        self.switch(Switch::Cut { segment, offset })?;
        Ok(true)
    }

    /// Makes it durable that this is to be done, and does it.
    fn switch(&self, to: Switch) -> Result<()> {
        terms::replace(&*self.disk, self.path(), MARK, to.text().as_bytes())?;
        fault::point("wal.switch.after_mark");
        self.finish_switch(to)
    }

    /// Does, or finishes, what the mark says. Any part of it may have been done before.
    pub(crate) fn finish_switch(&self, to: Switch) -> Result<()> {
        match to {
            Switch::Cut { segment, offset } => {
                self.log().cut(segment, offset)?;
                self.agree()?;
            }
            Switch::Copy { number, terms } => {
                let dir = self.checkpoints();
                let kept = dir.join(file_name(number));
                let arrived = kept.with_extension("tmp");
                let here = self.names(&dir)?;
                // The last thing to be done with it is its name: without the other one the rest was done.
                if here.contains(&arrived) {
                    self.clear(Some(&arrived))?;
                    self.disk
                        .rename(&arrived, &kept)
                        .map_err(|e| Error::io("renaming", &arrived, e))?;
                    self.disk.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))?;
                }
                self.set_terms(&terms)?;
                // Its log begins anew.
                let position = self.latest_checkpoint()?.map(|c| c.manifest().start);
                self.set_anchor(Anchor {
                    term: terms.last().map_or(0, |t| t.0),
                    position: position.unwrap_or_default(),
                    point: None,
                    checkpoint: number,
                })?;
            }
        }
        let mark = self.path().join(MARK);
        self.disk
            .remove(&mark)
            .map_err(|e| Error::io("removal", &mark, e))?;
        let path = self.path();
        self.disk.sync_dir(path).map_err(|e| Error::sync(path, e))
    }

    fn names(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let names = self.disk.list(dir);
        let names = names.map_err(|e| Error::io("listing", dir, e))?;
        Ok(names.into_iter().map(|n| dir.join(n)).collect())
    }

    /// Removes log and checkpoints, but for this file.
    fn clear(&self, but: Option<&Path>) -> Result<()> {
        let dir = self.checkpoints();
        for path in self.names(&dir)? {
            if Some(&*path) != but {
                self.disk
                    .remove(&path)
                    .map_err(|e| Error::io("removal", &path, e))?;
            }
        }
        self.disk.sync_dir(&dir).map_err(|e| Error::sync(&dir, e))?;
        self.log().clear()
    }

    /// Begins to receive a checkpoint of this number and size. One at a time, behind [`DataDir::begin_copy`].
    pub fn receive_checkpoint(
        self: &Arc<DataDir>,
        number: u64,
        bytes: u64,
    ) -> Result<CheckpointReceiver> {
        let temporary = self
            .checkpoints()
            .join(file_name(number))
            .with_extension("tmp");
        let file = self
            .disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", &temporary, e))?;
        Ok(CheckpointReceiver {
            dir: self.clone(),
            temporary,
            file,
            number,
            bytes,
            received: 0,
            unsynced: 0,
        })
    }

    /// Copies every group with commits above `after` into a file of its own and writes what they were beside it, durably; `term`
    /// is the one that began at `after`. `describe` may add a line on each group to the report. Nothing is removed yet:
    /// [`DataDir::cut_back`] or a copy comes next. Nobody may write the log meanwhile.
    pub fn set_aside(
        &self,
        term: u64,
        after: Position,
        mut describe: impl FnMut(&Group, &mut String),
    ) -> Result<SetAside> {
        let dir = self.path().join("set-aside");
        self.disk
            .create_dir_all(&dir)
            .map_err(|e| Error::io("creation", &dir, e))?;
        let name = format!("{term}-{after}");
        let open = |from| LogReader::open(self.log().clone(), self.cluster(), from);
        let (mut reader, keep_checkpoint) = match open(after) {
            Err(Error::Missing { oldest, .. }) => (open(oldest)?, true),
            other => (other?, self.log().list()?.is_empty()),
        };
        let path = dir.join(format!("{name}.log"));
        let temporary = dir.join(format!("{name}.log.tmp"));
        let file = self
            .disk
            .open(&temporary, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", &temporary, e))?;
        let mut report = format!(
            "These commits were made here after position {after}, where term {term} began elsewhere, and are not part of\n\
             the cluster's history. They were set aside on the way back into the cluster; nothing else was done with them.\n\n"
        );
        let mut done = SetAside {
            file: None,
            report: dir.join(format!("{name}.txt")),
            checkpoint: None,
            groups: 0,
            commits: 0,
            rows: 0,
            bytes: 0,
            last: after,
        };
        while let Some(group) = reader.next_group()? {
            let h = *group.header();
            file.write_all_at(group.as_bytes(), done.bytes)
                .map_err(|e| Error::io("writing", &temporary, e))?;
            done.bytes += h.len();
            done.groups += 1;
            let (commits, rows) = count(&group, after);
            done.commits += commits;
            done.rows += rows;
            done.last = done.last.max(h.last);
            let _ = writeln!(
                report,
                "{} to {}: {commits} commits of {rows} rows, of term {}, {} bytes",
                h.first,
                h.last,
                h.term,
                h.len()
            );
            describe(&group, &mut report);
        }
        if done.groups > 0 {
            file.sync_data().map_err(|e| Error::sync(&temporary, e))?;
            self.disk
                .rename(&temporary, &path)
                .map_err(|e| Error::io("renaming", &temporary, e))?;
            done.file = Some(path);
        } else {
            self.disk
                .remove(&temporary)
                .map_err(|e| Error::io("removal", &temporary, e))?;
        }
        if keep_checkpoint
            && let Some(checkpoint) = self.latest_checkpoint()?
            && checkpoint.manifest().end > after
        {
            let kept = dir.join(format!("{name}.ckpt"));
            self.copy_checkpoint(&checkpoint, &kept)?;
            done.last = done.last.max(checkpoint.manifest().end);
            let _ = writeln!(
                report,
                "The log did not reach back to {after} any more. The whole state up to {} is in {}.",
                checkpoint.manifest().end,
                kept.display()
            );
            done.checkpoint = Some(kept);
        }
        let _ = writeln!(
            report,
            "\n{} commits of {} rows in {} groups, {} bytes; the last position here was {}.",
            done.commits, done.rows, done.groups, done.bytes, done.last
        );
        terms::replace(&*self.disk, &dir, &format!("{name}.txt"), report.as_bytes())?;
        self.disk
            .sync_dir(self.path())
            .map_err(|e| Error::sync(self.path(), e))?;
        Ok(done)
    }

    /// Commits and rows that were ever set aside here, as the reports say.
    pub fn set_aside_before(&self) -> Result<(u64, u64)> {
        let dir = self.path().join("set-aside");
        let names = match self.disk.list(&dir) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((0, 0)),
            names => names.map_err(|e| Error::io("listing", &dir, e))?,
        };
        let mut sum = (0, 0);
        for name in names.iter().filter(|n| n.ends_with(".txt")) {
            let path = dir.join(name);
            let text = self.disk.read(&path);
            let text = text.map_err(|e| Error::io("reading", &path, e))?;
            let text = String::from_utf8_lossy(&text);
            let last = text.lines().last().unwrap_or("");
            let mut numbers = last.split(' ').filter_map(|w| w.parse::<u64>().ok());
            sum.0 += numbers.next().unwrap_or(0);
            sum.1 += numbers.next().unwrap_or(0);
        }
        Ok(sum)
    }

    fn copy_checkpoint(&self, from: &CheckpointReader, to: &std::path::Path) -> Result<()> {
        let file = self
            .disk
            .open(to, OpenMode::Truncate)
            .map_err(|e| Error::io("creation", to, e))?;
        let mut at = 0;
        while at < from.len() {
            let part = from.read_at(at, 1 << 20)?;
            file.write_all_at(&part, at)
                .map_err(|e| Error::io("writing", to, e))?;
            at += part.len() as u64;
        }
        file.sync_data().map_err(|e| Error::sync(to, e))
    }
}

/// Commits of a group above `after` that wrote something, and their rows. One that is not readable as records counts as a commit.
fn count(group: &Group, after: Position) -> (u64, u64) {
    let (mut heads, mut data) = (group.heads(), group.data());
    let (mut commits, mut rows) = (0, 0);
    for n in 0..group.header().count {
        let Ok(commit) = record::Commit::take(&mut heads, &mut data) else {
            return (commits + u64::from(group.header().count - n), rows);
        };
        if commit.position <= after {
            continue;
        }
        let (mut any, mut written) = (false, 0);
        for r in commit.iter() {
            any = true;
            let kind = r.map(|r| r.kind);
            written += u64::from(matches!(kind, Ok(RecordKind::Put | RecordKind::Delete)));
        }
        commits += u64::from(any);
        rows += written;
    }
    (commits, rows)
}

/// A checkpoint on its way in. Dropped unfinished, its bytes go at the next start.
pub struct CheckpointReceiver {
    dir: Arc<DataDir>,
    temporary: PathBuf,
    file: Arc<dyn DiskFile>,
    number: u64,
    bytes: u64,
    received: u64,
    unsynced: u64,
}

impl CheckpointReceiver {
    /// Bytes received and bytes in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.received, self.bytes)
    }

    /// Writes the next bytes: they begin where the last ended.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(
            offset == self.received && offset + bytes.len() as u64 <= self.bytes,
            "bytes of a checkpoint come in order and end where it does"
        );
        fault::fallible("wal.switch.copying")
            .and_then(|()| self.file.write_all_at(bytes, offset))
            .map_err(|e| Error::io("writing", &self.temporary, e))?;
        self.received += bytes.len() as u64;
        self.unsynced += bytes.len() as u64;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.file
                .sync_data()
                .map_err(|e| Error::io("sync", &self.temporary, e))?;
        }
        Ok(())
    }

    /// Reads everything back and checks it; then it is what is here, with these terms, and what was here before is gone. Nobody may use the
    /// log meanwhile. `Corrupt`: it did not arrive as it was sent, or was damaged there; all is as it was.
    pub fn finish(self, terms: &[(u64, Position)]) -> Result<Manifest> {
        let disk = &*self.dir.disk;
        let damaged = |reason: &str| Error::corrupt(&self.temporary, self.received, reason);
        if self.received != self.bytes {
            return Err(damaged("the checkpoint has not arrived whole"));
        }
        self.file
            .sync_data()
            .map_err(|e| Error::io("sync", &self.temporary, e))?;
        let reader = CheckpointReader::open(disk, &self.temporary)?;
        let manifest = *reader.manifest();
        if manifest.cluster != self.dir.cluster() || manifest.number != self.number {
            return Err(damaged(
                "the checkpoint is another one than was announced, or of another cluster",
            ));
        }
        for section in reader.sections() {
            reader.read_section(section)?;
        }
        for chunk in reader.chunks() {
            reader.read_chunk(chunk)?;
        }
        drop(reader);
        let checkpoints = self.dir.checkpoints();
        disk.sync_dir(&checkpoints)
            .map_err(|e| Error::sync(&checkpoints, e))?;
        self.dir.switch(Switch::Copy {
            number: self.number,
            terms: terms.to_vec(),
        })?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_that_was_heard_of_is_read_whole_or_not_at_all() {
        for term in [1, 7, 115_000_000_123_456, MAX_TERM] {
            let text = heard_text(term);
            assert_eq!(parse_heard(text.as_bytes()), Some(term));
            assert_eq!(
                parse_heard(format!("{term}\n").as_bytes()),
                Some(term),
                "of an older build"
            );
            // Each byte, with each bit wrong: some other term must not come of it.
            for at in 0..text.len() {
                for bit in 0..8 {
                    let mut bytes = text.clone().into_bytes();
                    bytes[at] ^= 1 << bit;
                    assert_eq!(parse_heard(&bytes), None, "{at} {bit} {text:?}");
                }
            }
            for cut in 0..text.len() {
                assert_eq!(parse_heard(&text.as_bytes()[..cut]), None, "{cut}");
            }
        }
        for bad in [
            "",
            "\n",
            "-1\n",
            "x\n",
            "07\n",
            "18446744073709551615\n",
            "1 \n",
            "1  0\n",
        ] {
            assert_eq!(parse_heard(bad.as_bytes()), None, "{bad:?}");
        }
        let above = heard_text(MAX_TERM + 1);
        assert_eq!(parse_heard(above.as_bytes()), None);
    }
}
