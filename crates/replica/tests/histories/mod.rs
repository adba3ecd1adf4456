//! Histories for replay: random commits over a few tables with indexes and schema changes, the groups that ship them, and a model that
//! says what every position shows.
#![allow(dead_code)]

use base::key::{KeyColumn, encode_value};
use base::record::{CommitBuilder, RecordKind};
use base::{Position, Result, RowLayout, Type, Value};
use env::{Env, MemDisk, SeededRandom};
use parking_lot::Mutex;
use replica::{Build, ReplicaMarks, SchemaSink};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use store::{IndexSpec, SecondaryIndex, Storage, Store, pin};
use wal::{Commit, DataDir, DirOptions, Group, LogEnd, LogOptions, LogReader, LogWriter};

/// splitmix64: the same numbers for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5bd1_e995)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `0..n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub fn layout() -> RowLayout {
    RowLayout::new([Type::Int4, Type::Int4, Type::Text])
}

pub fn key(k: i32) -> Vec<u8> {
    let mut out = Vec::new();
    encode_value(&Value::Int4(k), &mut out);
    out
}

pub fn row(k: i32, value: i32, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let values = [Value::Int4(k), Value::Int4(value), Value::Text(text.into())];
    layout().encode(1, &values, &mut out).unwrap();
    out
}

/// The indexed column's value in a row.
fn indexed(row: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let layout = layout();
    KeyColumn {
        ty: Type::Int4,
        desc: false,
        nulls_first: false,
        nullable: true,
    }
    .encode(&layout.row(row).get(1), &mut out);
    out
}

fn index(id: u32) -> Arc<SecondaryIndex> {
    let column = KeyColumn {
        ty: Type::Int4,
        desc: false,
        nulls_first: false,
        nullable: true,
    };
    Arc::new(SecondaryIndex::new(IndexSpec {
        id,
        unique: false,
        nulls_not_distinct: false,
        layout: layout(),
        columns: vec![(1, column)],
    }))
}

/// A change of the schema in these tests' own words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ddl {
    Table(u32),
    Index {
        table: u32,
        id: u32,
    },
    /// Changes nothing, and needs all before it installed.
    Rewrite,
}

impl Ddl {
    fn encode(self) -> Vec<u8> {
        let (kind, a, b) = match self {
            Ddl::Table(t) => (0, t, 0),
            Ddl::Index { table, id } => (1, table, id),
            Ddl::Rewrite => (2, 0, 0),
        };
        vec![kind, a as u8, b as u8]
    }

    fn decode(b: &[u8]) -> Ddl {
        match b[0] {
            0 => Ddl::Table(b[1].into()),
            1 => Ddl::Index {
                table: b[1].into(),
                id: b[2].into(),
            },
            _ => Ddl::Rewrite,
        }
    }
}

/// What a position shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub rows: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    /// (table, index)
    pub indexes: BTreeSet<(u32, u32)>,
    pub tables: BTreeSet<u32>,
}

/// What a commit does.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub ddl: Option<Ddl>,
    pub writes: Vec<(u32, i32, Option<(i32, String)>)>,
    pub sequence: bool,
}

/// A shipped history with its model.
pub struct History {
    /// Groups, and what is known to be all up to where.
    pub groups: Vec<(Group, Position)>,
    /// Ascending; the first is the empty state at position 0.
    pub states: Vec<(Position, State)>,
    pub last: Position,
}

/// Builds a history commit by commit.
pub struct Writer {
    commits: Vec<Commit>,
    ends: Vec<usize>,
    states: Vec<(Position, State)>,
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            commits: vec![],
            ends: vec![],
            states: vec![(Position::ZERO, State::default())],
        }
    }
}

impl Writer {
    pub fn commit(&mut self, at: Position, change: &Change) {
        let mut state = self.states.last().unwrap().1.clone();
        let mut b = CommitBuilder::new();
        if let Some(ddl) = change.ddl {
            b.push(RecordKind::Schema, 0, &[], &ddl.encode());
            match ddl {
                Ddl::Table(t) => drop(state.tables.insert(t)),
                Ddl::Index { table, id } => drop(state.indexes.insert((table, id))),
                Ddl::Rewrite => {}
            }
        }
        for (table, k, to) in &change.writes {
            let key = key(*k);
            match to {
                Some((value, text)) => {
                    let row = row(*k, *value, text);
                    b.push(RecordKind::Put, *table, &key, &row);
                    state.rows.insert((*table, key), row);
                }
                None => {
                    b.push(RecordKind::Delete, *table, &key, &[]);
                    state.rows.remove(&(*table, key));
                }
            }
        }
        if change.sequence {
            b.push(RecordKind::Sequence, 77, &[], &at.as_u64().to_le_bytes());
        }
        let (heads, data) = b.finish(at, 0);
        self.commits.push(Commit {
            position: at,
            heads,
            data,
        });
        self.states.push((at, state));
    }

    /// The commits so far, after the last end, are a group.
    pub fn end_group(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.commits.len() {
            self.ends.push(self.commits.len());
        }
    }

    pub fn finish(mut self, dice: &mut Dice) -> History {
        self.end_group();
        let last = self.commits.last().unwrap().position;
        let disk: Arc<dyn env::Disk> = Arc::new(MemDisk::new());
        let env = Env {
            random: Arc::new(SeededRandom::new(1)),
            ..Env::os().with_disk(disk)
        };
        let options = DirOptions {
            log: LogOptions {
                segment_size: 1 << 20,
                spares: 0,
            },
            cluster: Some(7),
        };
        let dir = DataDir::open(&env, Path::new("/h"), options).unwrap();
        let end = LogEnd::empty(Position::ZERO);
        let mut log = LogWriter::resume(dir.log().clone(), &end, 1).unwrap();
        let mut from = 0;
        for &end in &self.ends {
            // *Published* is at or below what the group before brought, or in it.
            let some = self.commits[dice.below(end as u64) as usize].position;
            log.append_group(&self.commits[from..end], some).unwrap();
            from = end;
        }
        log.sync().unwrap();
        let mut reader = LogReader::open(dir.log().clone(), 7, Position::ZERO).unwrap();
        let mut groups = Vec::new();
        while let Some(g) = reader.next_group().unwrap() {
            let upto = match self.ends.get(groups.len() + 1) {
                // Holes after the group's last commit are known sometimes.
                Some(_) if dice.one_in(2) => self.commits[self.ends[groups.len()]].position.prev(),
                _ => g.header().last,
            };
            groups.push((g, upto));
        }
        assert_eq!(groups.len(), self.ends.len());
        History {
            groups,
            states: self.states,
            last,
        }
    }
}

pub const TABLES: [u32; 3] = [10, 11, 12];

impl History {
    /// Random commits. The first creates the tables.
    pub fn random(seed: u64) -> History {
        let mut dice = Dice::new(seed);
        let mut w = Writer::default();
        let mut at = Position::new(1, 0);
        let mut step = |dice: &mut Dice| {
            at = match dice.below(12) {
                0 => at.next_epoch(),
                n => Position::from_u64(at.as_u64() + 1 + n / 8 * n),
            };
            at
        };
        for t in TABLES {
            let change = Change {
                ddl: Some(Ddl::Table(t)),
                ..Change::default()
            };
            w.commit(step(&mut dice), &change);
        }
        for (table, id) in [(10, 20), (10, 21), (11, 22)] {
            let ddl = Some(Ddl::Index { table, id });
            let change = Change {
                ddl,
                ..Change::default()
            };
            w.commit(step(&mut dice), &change);
        }
        let keys = [3, 20, 200][dice.below(3) as usize];
        let commits = 20 + dice.below(80);
        let mut indexes = 30;
        for _ in 0..commits {
            let mut change = Change::default();
            let wanted = match dice.below(16) {
                0 => 40,
                1..=4 => 1,
                _ => 1 + dice.below(6),
            };
            let mut seen = HashSet::new();
            for _ in 0..wanted {
                let table = TABLES[dice.below(3) as usize];
                let k = dice.below(keys) as i32;
                if seen.insert((table, k)) {
                    let to = (!dice.one_in(4)).then(|| {
                        let text = "x".repeat(dice.below(30) as usize);
                        (dice.below(5) as i32, text)
                    });
                    change.writes.push((table, k, to));
                }
            }
            match dice.below(24) {
                0 => {
                    let table = TABLES[dice.below(3) as usize];
                    indexes += 1;
                    change.ddl = Some(Ddl::Index { table, id: indexes });
                }
                1 => change.ddl = Some(Ddl::Rewrite),
                2 => change.sequence = true,
                3 => change.writes.clear(),
                _ => {}
            }
            w.commit(step(&mut dice), &change);
            if dice.one_in(5) {
                w.end_group();
            }
        }
        w.finish(&mut dice)
    }

    /// The state that `at` shows.
    pub fn state(&self, at: Position) -> &State {
        let next = self.states.partition_point(|s| s.0 <= at);
        &self.states[next - 1].1
    }
}

/// A replica's store under test.
pub struct World {
    pub store: Arc<Store>,
    pub marks: Arc<ReplicaMarks>,
    pub sink: Arc<Sink>,
}

/// Changes the store as the node would; remembers what it was told.
pub struct Sink {
    store: Arc<Store>,
    pub visible: Mutex<Vec<Position>>,
    pub sequences: Mutex<Vec<Position>>,
    pub schemas: Mutex<Vec<Position>>,
}

impl World {
    pub fn new(from: Position) -> World {
        let store = Arc::new(Store::default());
        World {
            sink: Arc::new(Sink {
                store: store.clone(),
                visible: Mutex::default(),
                sequences: Mutex::default(),
                schemas: Mutex::default(),
            }),
            marks: Arc::new(ReplicaMarks::new(from)),
            store,
        }
    }

    /// Compares everything that a snapshot at `at` (which is registered) sees with the model.
    pub fn check(&self, history: &History, at: Position) -> Result<(), String> {
        let want = history.state(at);
        let guard = pin();
        let mut rows = BTreeMap::new();
        for &table in &want.tables {
            let storage = self.store.storage(table);
            let storage = storage.ok_or(format!("{at}: table {table} is not there"))?;
            storage.for_each(&guard, |r| {
                if let Some(row) = r.row_at(at, &guard) {
                    rows.insert((table, r.key().to_vec()), row.to_vec());
                }
            });
        }
        if rows != want.rows {
            let differs = rows
                .iter()
                .find(|(k, v)| want.rows.get(*k) != Some(v))
                .map(|(k, _)| k);
            let missing = want.rows.keys().find(|k| !rows.contains_key(*k));
            return Err(format!(
                "{at}: rows differ: shown and wrong {differs:?}, not shown {missing:?}"
            ));
        }
        for (table, id) in &want.indexes {
            let storage = self.store.storage(*table).expect("checked above");
            let indexes = storage.indexes();
            let index = indexes.iter().find(|i| i.spec.id == *id);
            let index = index.ok_or(format!("{at}: index {id} is not there"))?;
            let mut found = BTreeSet::new();
            let mut cursor = index.tree.cursor(
                std::ops::Bound::Unbounded,
                std::ops::Bound::Unbounded,
                store::tree::Direction::Forward,
                &guard,
            );
            let mut batch = Vec::new();
            loop {
                batch.clear();
                let more = cursor.next_batch(64, &mut batch);
                for e in &batch {
                    let record = e.record(&guard);
                    if let Some(row) = record.row_at(at, &guard)
                        && index.matches(e, row, &mut Vec::new())
                    {
                        found.insert((e.columns().to_vec(), record.key().to_vec()));
                    }
                }
                if !more {
                    break;
                }
            }
            let rows = want.rows.iter().filter(|((t, _), _)| t == table);
            let all: BTreeSet<_> = rows.map(|((_, k), v)| (indexed(v), k.clone())).collect();
            if found != all {
                return Err(format!("{at}: index {id} of table {table} differs"));
            }
        }
        Ok(())
    }

    /// Reclaims until nothing more goes, and finds one version per row.
    pub fn check_nothing_left_over(&self, history: &History) -> Result<(), String> {
        let at = self.marks.visible.get();
        loop {
            let done = self.store.reclaim(at);
            if done.waiting == 0 && done.versions == 0 && done.records == 0 {
                break;
            }
        }
        let guard = pin();
        let (mut versions, mut live) = (0, 0);
        for s in self.store.all() {
            live += s.live_rows();
            s.for_each(&guard, |r| {
                let mut v = r.newest(&guard);
                while let Some(x) = v {
                    versions += 1;
                    v = x.older(&guard);
                }
            });
        }
        let want = history.state(at).rows.len();
        if versions != want || live != want as u64 {
            return Err(format!(
                "{want} rows, but {versions} versions and a count of {live} live rows"
            ));
        }
        Ok(())
    }
}

impl SchemaSink for Sink {
    fn schema(&self, at: Position, changes: &[u8]) -> Result<Vec<Build>> {
        self.schemas.lock().push(at);
        match Ddl::decode(changes) {
            Ddl::Table(t) => self.store.add(Arc::new(Storage::new(t))),
            Ddl::Rewrite => {}
            Ddl::Index { table, id } => {
                let storage = self.store.storage(table).expect("its table comes first");
                let new = index(id);
                let mut all = storage.indexes();
                all.push(new.clone());
                storage.set_indexes(all);
                let store = self.store.clone();
                return Ok(vec![Box::new(move || {
                    let guard = pin();
                    let mut key = Vec::new();
                    storage.for_each(&guard, |r| {
                        loop {
                            match r.try_lock() {
                                Ok(()) => break,
                                Err(true) => return,
                                Err(false) => std::thread::yield_now(),
                            }
                        }
                        let mut v = r.newest(&guard);
                        while let Some(x) = v {
                            if let Some(row) = x.row() {
                                new.spec.key_of(row, r.key(), &mut key);
                                new.link(&key, r, &store.memory, &guard);
                            }
                            v = x.older(&guard);
                        }
                        r.unlock();
                    });
                    Ok(())
                })]);
            }
        }
        Ok(vec![])
    }

    fn needs_barrier(&self, changes: &[u8]) -> Result<bool> {
        Ok(Ddl::decode(changes) == Ddl::Rewrite)
    }

    fn sequence(&self, at: Position, id: u32, state: &[u8]) -> Result<()> {
        assert_eq!((id, state), (77, &at.as_u64().to_le_bytes()[..]));
        self.sequences.lock().push(at);
        Ok(())
    }

    fn visible(&self, to: Position) {
        let mut all = self.visible.lock();
        assert!(all.last().is_none_or(|l| *l < to), "visible only grows");
        all.push(to);
    }
}
