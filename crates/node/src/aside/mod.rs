//! What a node set aside, understood: its commits as changes of rows, and what each change followed.
//!
//! ```text
//! the base:        schema and rows where the histories part
//! the groups:      commits, each a number of rows put or deleted     ─▶  per row a line of versions: base, 1st write, 2nd write, …
//! the checkpoint:  rows of commits that the log had let go
//! ```
//! [`keep_base`] makes the base while the log still tells how the rows stood; [`read()`] reads all of it back; [`judge()`] says of a write
//! whether it may be put back where the row stands as it does now. The last is pure: the command asks it, and its tests need no server.
//!
//! The schema moves with the commits, so that each row is read with the columns that it was written with.
//!
//! Left out on purpose: rows of tables that the lost commits have rewritten (ADD PRIMARY KEY): what their first writes followed stands in no
//! log record, and is *unknown*. Tables without a primary key: nothing names their rows to the cluster.

mod base_rows;
mod judge;

pub use base_rows::keep_base;
pub use judge::{Stood, Verdict, Why, judge};

use crate::recovery::SECTION_SCHEMA;
use crate::sequences::Logged;
use ::base::record::{Commit, RecordKind};
use ::base::schema::{Change, Object, Relation, Schema, Table, decode_changes};
use ::base::{Error, Oid, Position, RelId, Result, SqlState, Value};
use env::Disk;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use wal::CheckpointReader;
use wal::aside::{AsideFiles, AsideGroups, AsideName};

/// Section of a base: the rows of which is not known how they stood.
pub(crate) const SECTION_UNKNOWN: u32 = 16;

/// A row, by the storage that it is in and its key there.
pub(crate) type RowName = (RelId, Box<[u8]>);

/// All of one file that was set aside.
pub struct Aside {
    pub name: AsideName,
    /// The schema where the histories part; none: it was set aside by a version that kept no base, and tables have no names.
    pub schema: Option<Arc<Schema>>,
    pub commits: Vec<AsideCommit>,
    pub lines: Vec<Line>,
    /// Groups of the log.
    pub groups: u64,
    /// Some commits are known by the rows alone that a checkpoint had of them.
    pub partial: bool,
}

/// One commit.
pub struct AsideCommit {
    pub position: Position,
    /// Which group it stood in, counted from 1; none: a checkpoint had its rows.
    pub group: Option<u64>,
    /// Changes of the schema, in words.
    pub schema: Vec<String>,
    /// Sequences, and up to where their numbers were drawn.
    pub sequences: Vec<(String, i64)>,
    pub writes: Vec<Write>,
}

/// A row put or deleted: the version `step` of a line. What it followed is the version before.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub line: usize,
    pub step: usize,
}

/// A row through the lost commits. The first version is the base's.
pub struct Line {
    pub storage: RelId,
    pub versions: Vec<Version>,
}

/// A row as it stood, and the table's definition then.
pub struct Version {
    pub row: Stood<Vec<Value>>,
    pub table: Option<Arc<Table>>,
}

impl Line {
    /// The newest definition of its table.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.versions.iter().rev().find_map(|v| v.table.as_ref())
    }

    /// Values of one of its versions, to tell its key by.
    pub fn known_row(&self) -> Option<(&Arc<Table>, &[Value])> {
        self.versions.iter().rev().find_map(|v| match &v.row {
            Stood::Row(values) => Some((v.table.as_ref()?, &**values)),
            _ => None,
        })
    }
}

impl Aside {
    /// The table of a write.
    pub fn table(&self, w: Write) -> Option<&Arc<Table>> {
        let line = &self.lines[w.line];
        let here = line.versions[w.step].table.as_ref();
        here.or_else(|| line.table())
    }

    /// Rows that were put or deleted.
    pub fn rows(&self) -> usize {
        self.commits.iter().map(|c| c.writes.len()).sum()
    }

    /// `schema.table` as the base has it.
    pub fn qualified(&self, table: &Table) -> (String, String) {
        let schema = self.schema.as_ref();
        let namespace = schema.and_then(|s| s.namespace(table.def.namespace));
        let namespace = namespace.map_or("public".to_owned(), |n| n.name.clone());
        (namespace, table.def.name.clone())
    }
}

pub(crate) fn damaged(what: &str) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, what)
}

struct Raw {
    position: Position,
    group: Option<u64>,
    records: Vec<(RecordKind, RelId, Box<[u8]>, Box<[u8]>)>,
}

/// Reads the files of one.
pub fn read(disk: &dyn Disk, files: &AsideFiles) -> Result<Aside> {
    let failed = crate::errors::failed;
    let after = files.name.after;
    let mut raw: Vec<Raw> = Vec::new();
    let mut groups = 0;
    if let Some(path) = &files.log {
        let mut reader = AsideGroups::open(disk, path).map_err(failed)?;
        while let Some(g) = reader.next_group().map_err(failed)? {
            groups += 1;
            let (mut heads, mut data) = (g.heads(), g.data());
            for _ in 0..g.header().count {
                let c = Commit::take(&mut heads, &mut data)?;
                if c.position <= after {
                    continue;
                }
                let mut records = Vec::new();
                for r in c.iter() {
                    let r = r?;
                    records.push((r.kind, r.storage, r.key.into(), r.row.into()));
                }
                raw.push(Raw {
                    position: c.position,
                    group: Some(groups),
                    records,
                });
            }
        }
    }
    let mut unknown: HashSet<RowName> = HashSet::new();
    let mut base: HashMap<RowName, Box<[u8]>> = HashMap::new();
    let mut schema = None;
    if let Some(path) = &files.base {
        let file = CheckpointReader::open(disk, path).map_err(failed)?;
        for s in file.sections() {
            let bytes = file.read_section(s).map_err(failed)?;
            match s.tag {
                SECTION_SCHEMA => schema = Some(Arc::new(read_schema(&bytes)?)),
                SECTION_UNKNOWN => unknown = read_names(&bytes)?,
                _ => {
                    return Err(damaged(
                        "the base has a section that this version does not know",
                    ));
                }
            }
        }
        for chunk in file.chunks() {
            let chunk = file.read_chunk(chunk).map_err(failed)?;
            for e in chunk.iter() {
                if let Some(row) = e.row {
                    base.insert((chunk.table(), e.key.into()), row.into());
                }
            }
        }
    }
    let mut partial = false;
    if let Some(path) = &files.checkpoint {
        let file = CheckpointReader::open(disk, path).map_err(failed)?;
        partial = true;
        if schema.is_none() {
            let section = file.sections().iter().find(|s| s.tag == SECTION_SCHEMA);
            if let Some(s) = section {
                let bytes = file.read_section(s).map_err(failed)?;
                schema = Some(Arc::new(read_schema(&bytes)?));
            }
        }
        let whole: HashSet<Position> = raw.iter().map(|r| r.position).collect();
        let mut parts: HashMap<Position, Raw> = HashMap::new();
        for chunk in file.chunks() {
            let chunk = file.read_chunk(chunk).map_err(failed)?;
            for e in chunk.iter().filter(|e| e.position > after) {
                if whole.contains(&e.position) {
                    continue;
                }
                let kind = match e.row {
                    Some(_) => RecordKind::Put,
                    None => RecordKind::Delete,
                };
                unknown.insert((chunk.table(), e.key.into()));
                let record = (
                    kind,
                    chunk.table(),
                    e.key.into(),
                    e.row.unwrap_or_default().into(),
                );
                let part = parts.entry(e.position).or_insert_with(|| Raw {
                    position: e.position,
                    group: None,
                    records: Vec::new(),
                });
                part.records.push(record);
            }
        }
        raw.extend(parts.into_values());
    }
    raw.sort_by_key(|r| r.position);
    let known = schema.is_some() && files.base.is_some();
    let mut lines = Lines {
        names: HashMap::new(),
        lines: Vec::new(),
        base,
        unknown,
        known,
        made: HashSet::new(),
        tables: HashMap::new(),
    };
    let mut now = schema.clone().unwrap_or_default();
    lines.tables_of(&now);
    let mut commits = Vec::new();
    for r in raw {
        let mut commit = AsideCommit {
            position: r.position,
            group: r.group,
            schema: Vec::new(),
            sequences: Vec::new(),
            writes: Vec::new(),
        };
        for (kind, storage, key, row) in r.records {
            match kind {
                RecordKind::Schema => {
                    let changes = decode_changes(&row)
                        .ok_or_else(|| damaged("a schema change is not readable"))?;
                    commit.schema.extend(changes.iter().map(|c| words(&now, c)));
                    lines.made_by(&now, &changes);
                    now = Arc::new(now.apply(&changes));
                    lines.tables_of(&now);
                }
                RecordKind::Sequence => {
                    let logged = Logged::decode(&row)
                        .ok_or_else(|| damaged("a sequence's record is not readable"))?;
                    commit
                        .sequences
                        .push((relation_name(&now, storage), logged.value));
                }
                RecordKind::Put => commit.writes.push(lines.write(storage, key, Some(&row))),
                RecordKind::Delete => commit.writes.push(lines.write(storage, key, None)),
                // It is no content, and was heard or will not be.
                RecordKind::Notify => {}
            }
        }
        let quiet = commit.writes.is_empty() && commit.schema.is_empty();
        if !(quiet && commit.sequences.is_empty()) {
            commits.push(commit);
        }
    }
    Ok(Aside {
        name: files.name,
        schema,
        commits,
        lines: lines.lines,
        groups,
        partial,
    })
}

fn read_schema(bytes: &[u8]) -> Result<Schema> {
    let changes = decode_changes(bytes).ok_or_else(|| damaged("the schema is not readable"))?;
    Ok(Schema::default().apply(&changes))
}

struct Lines {
    names: HashMap<RowName, usize>,
    lines: Vec<Line>,
    base: HashMap<RowName, Box<[u8]>>,
    unknown: HashSet<RowName>,
    /// There is a base: what is not in it was not there.
    known: bool,
    /// Storages that a lost commit made out of the rows of another.
    made: HashSet<RelId>,
    tables: HashMap<RelId, Arc<Table>>,
}

impl Lines {
    fn tables_of(&mut self, schema: &Schema) {
        for t in schema.tables() {
            self.tables.insert(t.def.storage, t.clone());
        }
    }

    fn made_by(&mut self, before: &Schema, changes: &[Change]) {
        for c in changes {
            if let Change::Put(Object::Table(def)) = c {
                let old = before.table(def.id).map(|t| t.def.storage);
                if def.rewrite_of.is_some() && old != Some(def.storage) {
                    self.made.insert(def.storage);
                }
            }
        }
    }

    fn stood(&self, table: Option<&Arc<Table>>, row: &[u8]) -> Stood<Vec<Value>> {
        match table {
            Some(t) if t.layout.check(row) => Stood::Row(t.layout.row(row).values()),
            _ => Stood::Unknown,
        }
    }

    fn write(&mut self, storage: RelId, key: Box<[u8]>, row: Option<&[u8]>) -> Write {
        let table = self.tables.get(&storage).cloned();
        let name = (storage, key);
        let line = match self.names.get(&name) {
            Some(line) => *line,
            None => {
                let first = match self.base.get(&name) {
                    Some(row) => self.stood(table.as_ref(), row),
                    None if self.known
                        && !self.unknown.contains(&name)
                        && !self.made.contains(&storage) =>
                    {
                        Stood::Absent
                    }
                    None => Stood::Unknown,
                };
                self.lines.push(Line {
                    storage,
                    versions: vec![Version {
                        row: first,
                        table: table.clone(),
                    }],
                });
                self.names.insert(name, self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        let row = row.map_or(Stood::Absent, |row| self.stood(table.as_ref(), row));
        let versions = &mut self.lines[line].versions;
        versions.push(Version { row, table });
        Write {
            line,
            step: versions.len() - 1,
        }
    }
}

/// Names of rows: storage, length of the key, key.
pub(crate) fn names_bytes<'a>(names: impl Iterator<Item = &'a RowName>) -> Vec<u8> {
    let mut out = Vec::new();
    for (storage, key) in names {
        out.extend_from_slice(&storage.to_le_bytes());
        out.extend_from_slice(&(key.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
    }
    out
}

fn read_names(mut bytes: &[u8]) -> Result<HashSet<RowName>> {
    let mut names = HashSet::new();
    while !bytes.is_empty() {
        let bad = || damaged("the names of rows in a base are not readable");
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or_else(bad)?;
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let (key, rest) = rest.split_at_checked(number(4) as usize).ok_or_else(bad)?;
        names.insert((number(0), key.into()));
        bytes = rest;
    }
    Ok(names)
}

fn relation_name(schema: &Schema, id: Oid) -> String {
    let Some(r) = schema.relation(id) else {
        return format!("number {id}");
    };
    let namespace = match r {
        Relation::Table(t) => t.def.namespace,
        Relation::Sequence(s) => s.namespace,
        Relation::View(v) => v.namespace,
    };
    let namespace = schema.namespace(namespace).map_or("?", |n| &n.name);
    format!("{namespace}.{}", r.name())
}

/// A change of the schema for a person.
fn words(before: &Schema, change: &Change) -> String {
    let there = |known: bool| if known { "changed" } else { "made" };
    let in_schema = |id: Oid, name: &str| {
        let n = before.namespace(id).map_or("?", |n| &n.name);
        format!("{n}.{name}")
    };
    let known = |id: Oid| there(before.relation(id).is_some());
    match change {
        Change::Put(Object::Namespace(n)) => {
            format!(
                "schema {} was {}",
                n.name,
                there(before.namespace(n.id).is_some())
            )
        }
        Change::Put(Object::Role(r)) => {
            format!("role {} was {}", r.name, there(before.role(r.id).is_some()))
        }
        Change::Put(Object::Table(t)) => {
            let old = before.table(t.id);
            let emptied = old.is_some_and(|o| o.def.storage != t.storage) && t.rewrite_of.is_none();
            let what = if emptied {
                "emptied or changed"
            } else {
                known(t.id)
            };
            format!("table {} was {what}", in_schema(t.namespace, &t.name))
        }
        Change::Put(Object::Sequence(s)) => {
            format!(
                "sequence {} was {}",
                in_schema(s.namespace, &s.name),
                known(s.id)
            )
        }
        Change::Put(Object::View(v)) => {
            format!(
                "view {} was {}",
                in_schema(v.namespace, &v.name),
                known(v.id)
            )
        }
        Change::Put(Object::Type(t)) => {
            let known = there(before.user_type(t.id).is_some());
            format!("type {} was {known}", in_schema(t.namespace, &t.name))
        }
        Change::Put(Object::Comment { on, .. }) => {
            format!(
                "a comment on {} was made or changed",
                relation_name(before, *on)
            )
        }
        Change::Put(Object::Member(_)) => "a membership of a role was changed".into(),
        Change::Put(Object::Extension(e)) => format!("extension {} was made", e.name),
        Change::Put(Object::DefaultAcl(_)) => "default privileges were changed".into(),
        Change::Put(Object::Settings(_)) => "stored settings were changed".into(),
        Change::Drop(id) => {
            let role = before.role(*id).map(|r| format!("role {}", r.name));
            let schema = before.namespace(*id).map(|n| format!("schema {}", n.name));
            let of_type = before.user_type(*id);
            let what = role
                .or(schema)
                .or_else(|| of_type.map(|t| format!("type {}", t.def.name)))
                .unwrap_or_else(|| relation_name(before, *id));
            format!("{what} was dropped")
        }
    }
}
