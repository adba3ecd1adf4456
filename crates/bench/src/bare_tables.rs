//! The workloads' door ([`KvTxn`]) onto the index and the rows alone: what a transaction cannot be faster than.
//!
//! The same keys, rows and versions as the library's, in the same trees, by one thread that locks the record, pushes the version and frees
//! the old one at once. A record is looked up once, and named ones are fetched ahead, as in the library. There is no snapshot, no write
//! set, no validation, no order, and no way back: what a NewOrder with an unknown item has written stays.
//!
//! Left out on purpose: more than one thread (who locks wins here, so nothing would be compared but the memory).

use base::key::{KeyColumn, encode_value, prefix_end};
use base::record::{CommitBuilder, RecordKind};
use base::{Error, Position, RelId, Result, RowLayout, RowRef, Type, Value};
use std::ops::Bound;
use store::tree::Direction;
use store::{Guard, IndexSpec, NewVersion, Record, SecondaryIndex, Storage, Store};
use workload::kv::{Cell, Column, KvTxn, RowView};

struct Table {
    storage: Storage,
    layout: RowLayout,
    key: &'static [usize],
    indexes: Vec<SecondaryIndex>,
}

/// A workload's tables, empty at first.
pub struct BareTables {
    tables: Vec<Table>,
    store: Store,
}

fn column_type(c: Column) -> Type {
    match c {
        Column::Int => Type::Int8,
        Column::Text => Type::Text,
    }
}

impl BareTables {
    pub fn new(tables: &'static [workload::kv::Table]) -> BareTables {
        let table = |(i, t): (usize, &workload::kv::Table)| {
            let types = t.columns.iter().map(|c| column_type(c.1));
            let layout = RowLayout::new(types);
            let index = |(n, columns): (usize, &&[usize])| {
                let column = |c: &usize| {
                    let key = KeyColumn {
                        ty: column_type(t.columns[*c].1),
                        desc: false,
                        nulls_first: false,
                        nullable: false,
                    };
                    (*c, key)
                };
                SecondaryIndex::new(IndexSpec {
                    id: (100 * (i + 1) + n) as RelId,
                    unique: false,
                    nulls_not_distinct: false,
                    layout: layout.clone(),
                    columns: columns.iter().map(column).collect(),
                })
            };
            Table {
                storage: Storage::new(i as RelId + 1),
                key: t.key,
                indexes: t.indexes.iter().enumerate().map(index).collect(),
                layout,
            }
        };
        BareTables {
            tables: tables.iter().enumerate().map(table).collect(),
            store: Store::default(),
        }
    }
}

/// Buffers that one transaction leaves to the next.
pub struct Buffers {
    /// Of the newest version.
    pub position: Position,
    key: Vec<u8>,
    row: Vec<u8>,
    values: Vec<Value>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            position: Position::new(1, 0),
            key: Vec::new(),
            row: Vec::new(),
            values: Vec::new(),
        }
    }
}

/// One transaction's operations.
pub struct BareKv<'g> {
    all: &'g BareTables,
    guard: &'g Guard,
    buffers: &'g mut Buffers,
    /// Whether keys that the workload names are fetched ahead.
    ahead: bool,
    /// What becomes the log's record, if there is a log.
    pub record: Option<CommitBuilder>,
    /// Records looked up ahead, with their tables.
    named: Vec<(usize, &'g Record)>,
    used: usize,
    last: Option<(usize, &'g Record)>,
}

fn encode_key<'a>(cells: impl IntoIterator<Item = &'a Cell<'a>>, out: &mut Vec<u8>) {
    out.clear();
    for c in cells {
        match c {
            Cell::Int(x) => out.extend_from_slice(&((*x as u64) ^ (1 << 63)).to_be_bytes()),
            other => encode_value(&value(other), out),
        }
    }
}

fn value(c: &Cell<'_>) -> Value {
    match c {
        Cell::Null => Value::Null,
        Cell::Int(x) => Value::Int8(*x),
        Cell::Text(s) => Value::text(s),
    }
}

impl<'g> BareKv<'g> {
    pub fn new(
        all: &'g BareTables,
        guard: &'g Guard,
        buffers: &'g mut Buffers,
        ahead: bool,
        logged: bool,
    ) -> BareKv<'g> {
        BareKv {
            all,
            guard,
            buffers,
            ahead,
            record: logged.then(|| CommitBuilder::with_capacity(16, 2048)),
            named: Vec::new(),
            used: 0,
            last: None,
        }
    }

    fn find(&mut self, table: usize, key: &[Cell<'_>]) -> Option<&'g Record> {
        encode_key(key, &mut self.buffers.key);
        let key = &self.buffers.key[..];
        let its = |r: &(usize, &Record)| r.0 == table && r.1.key() == key;
        if self.last.as_ref().is_some_and(its) {
            return self.last.map(|r| r.1);
        }
        let n = self.named.len();
        let mut places = (self.used..n).chain(0..self.used);
        let record = match places.find(|&i| its(&self.named[i])) {
            Some(i) => {
                self.used = i + 1;
                self.named[i].1
            }
            None => self.all.tables[table]
                .storage
                .primary
                .get(key, self.guard)?,
        };
        self.last = Some((table, record));
        Some(record)
    }

    fn row(&self, table: usize, record: &'g Record) -> Option<RowRef<'g>> {
        let row = record.newest(self.guard)?.row()?;
        Some(self.all.tables[table].layout.row(row))
    }

    /// Pushes a version with the row in the buffer, or a tombstone.
    fn write(&mut self, table: usize, record: &Record, deleted: bool) {
        let t = &self.all.tables[table];
        let (store, at) = (&self.all.store, self.buffers.position.next());
        self.buffers.position = at;
        let row = (!deleted).then_some(&self.buffers.row[..]);
        let version = NewVersion::new(row);
        store.memory.add(version.rounded());
        record.try_lock().expect("there is one thread");
        record.set_ordering();
        record.set_holder(at);
        record.push(version, at, 0);
        store.trim_long(&t.storage, record, 1, || at, self.guard);
        record.unlock();
        if let Some(b) = &mut self.record {
            let kind = if deleted {
                RecordKind::Delete
            } else {
                RecordKind::Put
            };
            b.push(kind, t.storage.id, record.key(), row.unwrap_or_default());
        }
    }
}

struct View<'a>(RowRef<'a>);

impl RowView for View<'_> {
    fn int(&self, column: usize) -> i64 {
        i64::from_le_bytes(self.0.raw(column).try_into().expect("an int8 column"))
    }

    fn text(&self, column: usize) -> &str {
        std::str::from_utf8(self.bytes(column)).expect("a text column")
    }

    fn bytes(&self, column: usize) -> &[u8] {
        self.0.raw(column)
    }
}

impl KvTxn for BareKv<'_> {
    type Error = Error;

    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>> {
        let row = self.find(table, key).and_then(|r| self.row(table, r));
        Ok(row.map(|row| read(&View(row))))
    }

    fn expect(&mut self, table: usize, keys: &[&[Cell<'_>]]) {
        if !self.ahead {
            return;
        }
        for keys in keys.chunks(16) {
            let mut bytes = [[0; 16]; 16];
            let mut named = [&[][..]; 16];
            for ((name, bytes), key) in named.iter_mut().zip(&mut bytes).zip(keys) {
                encode_key(*key, &mut self.buffers.key);
                let len = self.buffers.key.len();
                bytes[..len].copy_from_slice(&self.buffers.key);
                *name = &bytes[..len];
            }
            let mut found = [None; 16];
            let storage = &self.all.tables[table].storage;
            let n = storage.look_ahead(&named[..keys.len()], &mut found, self.guard);
            let found = found[..n].iter().flatten();
            self.named.extend(found.map(|r| (table, *r)));
        }
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool> {
        let Some(record) = self.find(table, key) else {
            return Ok(false);
        };
        let Some(old) = self.row(table, record) else {
            return Ok(false);
        };
        let mut new = [const { (0, Value::Null) }; 8];
        for (to, (column, cell)) in new.iter_mut().zip(set) {
            *to = (*column, value(cell));
        }
        assert!(set.len() <= new.len(), "a workload sets few columns");
        let new = &new[..set.len()];
        let layout = &self.all.tables[table].layout;
        let row = &mut self.buffers.row;
        row.clear();
        if !layout.patch(1, old, new, row) {
            let mut values = old.values();
            for (column, value) in new {
                values[*column] = value.clone();
            }
            layout.encode(1, &values, row)?;
        }
        self.write(table, record, false);
        Ok(true)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<()> {
        let (t, all) = (&self.all.tables[table], self.all);
        match t.key {
            [] => {
                let id = t.storage.new_row_id();
                self.buffers.key.clear();
                self.buffers.key.extend_from_slice(&id.to_be_bytes());
            }
            key => encode_key(key.iter().map(|&c| &row[c]), &mut self.buffers.key),
        }
        let b = &mut *self.buffers;
        b.values.clear();
        b.values.extend(row.iter().map(value));
        b.row.clear();
        t.layout.encode(1, &b.values, &mut b.row)?;
        let record = t
            .storage
            .find_or_create(&b.key, &all.store.memory, self.guard);
        for index in &t.indexes {
            let mut key = Vec::new();
            index.spec.key_of(&b.row, record.key(), &mut key);
            index.link(&key, record, &all.store.memory, self.guard);
        }
        self.write(table, record, false);
        Ok(())
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<()> {
        self.put(table, row)
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool> {
        let Some(record) = self.find(table, key) else {
            return Ok(false);
        };
        let there = self.row(table, record).is_some();
        if there {
            self.write(table, record, true);
        }
        Ok(there)
    }

    fn scan(
        &mut self,
        table: usize,
        index: usize,
        prefix: &[Cell<'_>],
        mut visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<()> {
        let t = &self.all.tables[table];
        let mut low = Vec::new();
        encode_key(prefix, &mut low);
        let mut high = low.clone();
        let high = match prefix_end(&mut high) {
            true => Bound::Excluded(&high[..]),
            false => Bound::Unbounded,
        };
        let low = Bound::Included(&low[..]);
        let mut see = |r: &'_ Record| {
            let row = r.newest(self.guard).and_then(|v| v.row());
            row.is_none_or(|row| visit(&View(t.layout.row(row))))
        };
        let g = self.guard;
        let mut more = true;
        if index == 0 {
            let mut cursor = t.storage.primary.cursor(low, high, Direction::Forward, g);
            let mut batch = Vec::new();
            while more {
                batch.clear();
                more = cursor.next_batch(64, &mut batch);
                more &= batch.iter().all(|r| see(r));
            }
        } else {
            let tree = &t.indexes[index - 1].tree;
            let mut cursor = tree.cursor(low, high, Direction::Forward, g);
            let mut batch = Vec::new();
            while more {
                batch.clear();
                more = cursor.next_batch(64, &mut batch);
                more &= batch.iter().all(|e| see(e.record(g)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::rng::Rng;
    use workload::tpcc::{self, Tpcc};

    /// What is compared with the library must do the library's work.
    #[test]
    fn the_workload_s_conditions_hold_without_transactions() {
        let tpcc = Tpcc {
            warehouses: 2,
            districts: 2,
            customers: 30,
            items: 100,
            split: false,
        };
        let all = BareTables::new(tpcc::TABLES);
        let (mut rng, mut params) = (Rng::new(7), tpcc::Params::default());
        let mut buffers = Buffers::default();
        let mut puts = 0;
        for step in tpcc.load_steps() {
            let guard = store::pin();
            let mut kv = BareKv::new(&all, &guard, &mut buffers, false, false);
            tpcc.load(&mut kv, &mut rng, 0, step).unwrap();
        }
        for i in 0..400 {
            let guard = store::pin();
            let mut kv = BareKv::new(&all, &guard, &mut buffers, i % 2 == 0, true);
            if rng.percent(50) {
                tpcc.draw_payment(&mut rng, 1 + i % 2, i, &mut params);
                tpcc.payment(&mut kv, &mut params).unwrap();
            } else {
                tpcc.draw_new_order(&mut rng, 1 + i % 2, i, &mut params);
                // Nothing is taken back here.
                if params.new_order.lines.iter().all(|l| l.0 > 0) {
                    tpcc.new_order(&mut kv, &mut params).unwrap();
                }
            }
            puts += kv.record.take().map_or(0, |b| b.records());
        }
        let guard = store::pin();
        let mut kv = BareKv::new(&all, &guard, &mut buffers, false, false);
        tpcc::check(&mut kv, &tpcc).unwrap().unwrap();
        assert!(puts > 400 * 4, "{puts} rows for the log");
    }
}
