//! The base of what is set aside: how the rows that the lost commits write stood where the histories part, and the schema then.
//!
//! One pass over the log up to there, and over the newest checkpoint if the log does not reach back to the beginning; only the rows that were
//! written are kept. The checkpoint may be newer than the parting: then some of those rows are known in their later form only, and are
//! named as unknown.

use super::{RowName, SECTION_UNKNOWN, damaged, names_bytes};
use crate::recovery::SECTION_SCHEMA;
use base::record::{Commit, RecordKind};
use base::schema::{Schema, decode_changes, encode_changes};
use base::{Position, RelId};
use std::collections::{HashMap, HashSet};
use wal::aside::AsideName;
use wal::{CheckpointReader, DataDir, Error, Group, LogReader, Result};

/// A row's newest version at or below the parting.
type Newest = (Position, Option<Box<[u8]>>);

struct Found {
    touched: HashSet<RowName>,
    schema: Schema,
    rows: HashMap<RowName, Newest>,
    /// A checkpoint has them in a form above the parting.
    beyond: HashSet<RowName>,
}

impl Found {
    fn take(&mut self, name: RowName, position: Position, row: Option<&[u8]>) {
        let newer = self.rows.get(&name).is_none_or(|r| r.0 < position);
        if newer {
            self.rows.insert(name, (position, row.map(Into::into)));
        }
    }

    fn checkpoint(&mut self, file: &CheckpointReader, at: Position) -> Result<()> {
        for s in file.sections().iter().filter(|s| s.tag == SECTION_SCHEMA) {
            let what = "the checkpoint's schema is not readable";
            let changes = decode_changes(&file.read_section(s)?);
            let changes = changes.ok_or_else(|| Error::Apply(damaged(what)))?;
            self.schema = Schema::default().apply(&changes);
        }
        for chunk in file.chunks() {
            let chunk = file.read_chunk(chunk)?;
            for e in chunk.iter() {
                let name = (chunk.table(), Box::from(e.key));
                match self.touched.contains(&name) {
                    false => {}
                    true if e.position <= at => self.take(name, e.position, e.row),
                    true => _ = self.beyond.insert(name),
                }
            }
        }
        Ok(())
    }

    /// A commit of the log. The schema has all changes up to `known`.
    fn commit(&mut self, c: &Commit<'_>, known: Position) -> base::Result<()> {
        for r in c.iter() {
            let r = r?;
            match r.kind {
                RecordKind::Schema if c.position > known => {
                    let what = "a schema change in the log is not readable";
                    let changes = decode_changes(r.row).ok_or_else(|| damaged(what))?;
                    self.schema = self.schema.apply(&changes);
                }
                RecordKind::Put | RecordKind::Delete => {
                    let name = (r.storage, Box::from(r.key));
                    if self.touched.contains(&name) {
                        let row = (r.kind == RecordKind::Put).then_some(r.row);
                        self.take(name, c.position, row);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn each_commit(g: &Group, mut each: impl FnMut(Commit<'_>) -> base::Result<()>) -> Result<()> {
    let (mut heads, mut data) = (g.heads(), g.data());
    for _ in 0..g.header().count {
        let commit = Commit::take(&mut heads, &mut data);
        commit.and_then(&mut each).map_err(Error::Apply)?;
    }
    Ok(())
}

/// Writes the base of what was just set aside under this name, durably. Comes before the log is cut. How many rows it tells of. Nothing is
/// written when no row was set aside.
pub fn keep_base(dir: &DataDir, name: AsideName) -> Result<u64> {
    let Some(files) = dir.aside_files(name)? else {
        return Ok(0);
    };
    let mut touched: HashSet<RowName> = HashSet::new();
    let mut commits = 0;
    if let Some(path) = &files.log {
        let mut groups = dir.aside_groups(path)?;
        while let Some(g) = groups.next_group()? {
            each_commit(&g, |c| {
                if c.position <= name.after {
                    return Ok(());
                }
                commits += 1;
                for r in c.iter() {
                    let r = r?;
                    if matches!(r.kind, RecordKind::Put | RecordKind::Delete) {
                        touched.insert((r.storage, r.key.into()));
                    }
                }
                Ok(())
            })?;
        }
    }
    if let Some(path) = &files.checkpoint {
        let file = dir.aside_checkpoint(path)?;
        for chunk in file.chunks() {
            let chunk = file.read_chunk(chunk)?;
            for e in chunk.iter().filter(|e| e.position > name.after) {
                commits += 1;
                touched.insert((chunk.table(), e.key.into()));
            }
        }
    }
    if commits == 0 {
        return Ok(0);
    }
    let mut found = Found {
        touched,
        schema: Schema::default(),
        rows: HashMap::new(),
        beyond: HashSet::new(),
    };
    // A log that is whole tells more than a checkpoint, which may be newer than the parting.
    let reaches = dir.log().reaches_back_to()?;
    let checkpoint = match reaches {
        Some(Position::ZERO) => None,
        _ => dir.latest_checkpoint()?,
    };
    if let Some(file) = &checkpoint {
        found.checkpoint(file, name.after)?;
    }
    if let Some(from) = reaches {
        let known = checkpoint.map_or(Position::ZERO, |c| c.manifest().start);
        let mut log = LogReader::open(dir.log().clone(), dir.cluster(), from)?;
        while let Some(group) = log.next_group()? {
            if group.header().first > name.after {
                break;
            }
            each_commit(&group, |c| match c.position <= name.after {
                true => found.commit(&c, known),
                false => Ok(()),
            })?;
        }
    }
    let mut file = dir.begin_base(name)?;
    file.section(SECTION_SCHEMA, &encode_changes(&found.schema.dump()))?;
    let unknown = found.beyond.iter().filter(|n| !found.rows.contains_key(*n));
    file.section(SECTION_UNKNOWN, &names_bytes(unknown))?;
    let mut rows: Vec<(RowName, Newest)> = found.rows.into_iter().collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let mut told = 0;
    for ((storage, key), (position, row)) in rows {
        if let Some(row) = row {
            told += 1;
            let storage: RelId = storage;
            file.put(storage, position, &key, Some(&row))?;
        }
    }
    file.finish(name.after)?;
    Ok(told)
}
