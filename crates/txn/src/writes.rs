//! A transaction's own writes: private until commit, seen by its own later statements, undone by savepoints.
//!
//! One net change per row. Rows stand in key order so that scans can merge them; each secondary index has its own order
//! over the rows that are there after the transaction. An undo list holds what each change replaced; a savepoint is a length
//! of that list. Changes of the schema stand in it, too: what was written before one is undone under the table's handle of then.

use base::footprint::FoundBy;
use base::{Position, RelId};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::handle::TableHandle;

/// What will become of a row.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The new row, or none: deleted.
    pub row: Option<Box<[u8]>>,
    /// Position of the version that it follows, tombstones too; ZERO for none.
    pub saw: Position,
    /// Whether a committed row is replaced or deleted; false for an insert.
    pub existed: bool,
    /// Which of the records that the view keeps is likely its own: saves the commit a look-up.
    pub kept: Option<usize>,
    /// The row changes by deltas alone. `row` and `saw` are then the row as the transaction sees it at a snapshot; the commit adds the
    /// deltas to the newest version ([`crate::split`]).
    pub moved: Option<Box<Moved>>,
}

/// A row that changes by deltas.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The deltas, net, by column, in units.
    pub net: Box<[(u16, i128)]>,
    /// In the mode `rows`: what the deltas have taken from which records.
    pub places: Box<[Place]>,
    /// By column, the least committed value that the guards of the transaction's statements accept.
    pub needs: Box<[(u16, i128)]>,
    /// What the row says from now on of how many further records its values have: the column that counts, and the number. A worker's.
    pub counts: Box<[(u16, u16)]>,
    /// At a site: the rows that the statements found, and by which columns ([`base::footprint::FoundBy`]). Elsewhere the row's lock keeps them.
    pub found_by: Box<[FoundBy]>,
    /// The snapshot at which the row was made. At another one it is made anew when it is read.
    pub at: Position,
}

/// What deltas in the mode `rows` add to one record, which the transaction has locked.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub column: u16,
    /// 0: the row.
    pub record: u16,
    pub amount: i128,
    /// The record's share and the position of its version, as they were read under the lock.
    pub share: i128,
    pub saw: Position,
}

/// Changes to one table.
pub struct TableWrites {
    pub table: Arc<TableHandle>,
    pub rows: BTreeMap<Box<[u8]>, Pending>,
    /// For each index: index key -> primary key, of the rows that are there.
    pub by_index: Vec<BTreeMap<Box<[u8]>, Box<[u8]>>>,
}

enum Undo {
    Row {
        table: usize,
        key: Box<[u8]>,
        before: Option<Pending>,
        /// What the change added to [`Writes::bytes`].
        bytes: usize,
    },
    /// The last of the tables had no changes before.
    FirstOf,
    /// A change of the schema begins.
    Schema,
    /// The table's handle gave way to another.
    Table { table: usize, before: TableWrites },
}

/// What a row of a temporary table takes of the memory.
fn row_bytes(key: &[u8], p: &Pending) -> usize {
    160 + key.len() + p.row.as_ref().map_or(0, |r| r.len())
}

impl Pending {
    /// What the next transaction finds: a row, without a word of how it came.
    fn settle(&mut self) {
        (self.saw, self.existed) = (Position::ZERO, false);
        (self.kept, self.moved) = (None, None);
    }
}

impl TableWrites {
    /// What the rows of a temporary table take of the memory.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|(k, p)| row_bytes(k, p)).sum()
    }

    /// Settles a row of a temporary table after a commit; what it takes of the memory.
    fn settle(&mut self, key: &[u8]) -> usize {
        match self.rows.get_mut(key) {
            Some(p) if p.row.is_some() => {
                p.settle();
                row_bytes(key, p)
            }
            Some(_) => {
                self.rows.remove(key);
                0
            }
            None => 0,
        }
    }

    fn settle_all(&mut self) {
        self.rows.retain(|_, p| p.row.is_some());
        self.rows.values_mut().for_each(Pending::settle);
    }

    fn none(table: Arc<TableHandle>) -> TableWrites {
        TableWrites {
            by_index: table.indexes.iter().map(|_| BTreeMap::new()).collect(),
            rows: BTreeMap::new(),
            table,
        }
    }
}

/// The rows of temporary tables, parted from the writes that are committed.
pub struct Parted {
    /// As they stood among the writes, the others without rows.
    tables: Vec<TableWrites>,
    undo: Vec<Undo>,
}

impl Parted {
    /// The rows as the transaction leaves them, settled; and by how many bytes ([`TableWrites::bytes`]) they have grown. None: count them.
    pub fn kept(mut self) -> (Vec<TableWrites>, Option<isize>) {
        let undo = std::mem::take(&mut self.undo);
        let plain = |u: &Undo| matches!(u, Undo::Row { .. } | Undo::FirstOf);
        let mut grown = undo.iter().all(plain).then_some(0);
        let mut seen: HashSet<(usize, &[u8])> = HashSet::new();
        match &mut grown {
            // Only the rows that were written need a look.
            Some(grown) => {
                for u in &undo {
                    if let Undo::Row {
                        table, key, before, ..
                    } = u
                        && self.tables[*table].table.temporary
                        && seen.insert((*table, key))
                    {
                        *grown -= before.as_ref().map_or(0, |p| row_bytes(key, p) as isize);
                        *grown += self.tables[*table].settle(key) as isize;
                    }
                }
            }
            None => self.tables.iter_mut().for_each(TableWrites::settle_all),
        }
        let tables = self.tables.into_iter();
        (tables.filter(|t| t.table.temporary).collect(), grown)
    }

    /// The rows as they were when the transaction began.
    pub fn undone(self) -> impl Iterator<Item = TableWrites> {
        let mut all = Writes {
            tables: self.tables,
            undo: self.undo,
            bytes: usize::MAX / 2,
            moved: false,
        };
        all.rollback(0);
        all.tables.into_iter().filter(|t| t.table.temporary)
    }
}

/// All changes.
#[derive(Default)]
pub struct Writes {
    pub tables: Vec<TableWrites>,
    undo: Vec<Undo>,
    bytes: usize,
    /// A row has been changed by deltas, which may have been undone since.
    moved: bool,
}

impl Writes {
    /// Whether there is nothing to commit: rows of temporary tables are not committed.
    pub fn is_empty(&self) -> bool {
        let mut all = self.tables.iter();
        all.all(|t| t.rows.is_empty() || t.table.temporary)
    }

    /// How many rows change, and the bytes of their keys and new rows.
    pub fn size(&self) -> (usize, usize) {
        let rows = self.tables.iter().flat_map(|t| &t.rows);
        rows.fold((0, 0), |(n, bytes), (key, p)| {
            (
                n + 1,
                bytes + key.len() + p.row.as_ref().map_or(0, |r| r.len()),
            )
        })
    }

    /// Memory taken, near enough.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the rows of temporary tables in, or back, which is no change of them.
    pub fn lend(&mut self, rows: Vec<TableWrites>) {
        assert!(
            self.undo.is_empty() || rows.is_empty(),
            "lent before the first write"
        );
        self.tables.extend(rows);
    }

    /// Parts the rows of temporary tables from the rest. Nothing can be undone here afterwards.
    pub fn part(&mut self) -> Parted {
        let mut parted = Parted {
            tables: Vec::with_capacity(self.tables.len()),
            undo: std::mem::take(&mut self.undo),
        };
        for t in std::mem::take(&mut self.tables) {
            if t.table.temporary {
                parted.tables.push(t);
            } else {
                parted.tables.push(TableWrites::none(t.table.clone()));
                self.tables.push(t);
            }
        }
        parted
    }

    fn place(&self, storage: RelId) -> Option<usize> {
        self.tables
            .iter()
            .position(|t| t.table.storage.id == storage)
    }

    /// The changes to the table with this storage.
    #[inline]
    pub fn of(&self, storage: RelId) -> Option<&TableWrites> {
        if self.tables.is_empty() {
            return None;
        }
        self.place(storage).map(|i| &self.tables[i])
    }

    /// The change to this row.
    #[inline]
    pub fn get(&self, storage: RelId, key: &[u8]) -> Option<&Pending> {
        self.of(storage)?.rows.get(key)
    }

    /// Puts a change. `shared` gives the table's handle when this is the first change to it.
    pub fn put(
        &mut self,
        table: &TableHandle,
        shared: impl FnOnce() -> Arc<TableHandle>,
        key: &[u8],
        change: Pending,
    ) {
        let i = self.place(table.storage.id).unwrap_or_else(|| {
            self.tables.push(TableWrites::none(shared()));
            self.undo.push(Undo::FirstOf);
            self.tables.len() - 1
        });
        let bytes = 160 + key.len() + change.row.as_ref().map_or(0, |r| r.len());
        self.bytes += bytes;
        self.moved |= change.moved.is_some();
        let before = self.set(i, key, Some(change));
        self.undo.push(Undo::Row {
            table: i,
            key: key.into(),
            before,
            bytes,
        });
    }

    fn set(&mut self, table: usize, key: &[u8], change: Option<Pending>) -> Option<Pending> {
        let TableWrites {
            table: handle,
            rows,
            by_index,
        } = &mut self.tables[table];
        if handle.indexes.iter().any(Option::is_some) {
            let mut index_key = Vec::new();
            let old_row = rows.get(key).and_then(|p| p.row.as_deref());
            let new_row = change.as_ref().and_then(|p| p.row.as_deref());
            for (index, order) in handle.indexes.iter().zip(by_index) {
                let Some(index) = index else { continue };
                if let Some(r) = old_row {
                    index.spec.key_of(r, key, &mut index_key);
                    order.remove(&index_key[..]);
                }
                if let Some(r) = new_row {
                    index.spec.key_of(r, key, &mut index_key);
                    order.insert(index_key[..].into(), key.into());
                }
            }
        }
        match change {
            Some(c) => rows.insert(key.into(), c),
            None => rows.remove(key),
        }
    }

    /// Whether a row may change by deltas. Asked before reads, so no row is looked at.
    #[inline]
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// The row changes by deltas, and was made so at another snapshot than this one.
    pub fn stale(
        &self,
        storage: RelId,
        key: &[u8],
        at: Position,
    ) -> Option<(&TableWrites, &Moved)> {
        let table = self.of(storage)?;
        let moved = table.rows.get(key)?.moved.as_deref()?;
        (moved.at != at).then_some((table, moved))
    }

    /// A row that changes by deltas is shown so at the snapshot `at`. No undo is noted: an older change that comes back is stale itself.
    pub fn refresh(
        &mut self,
        storage: RelId,
        key: &[u8],
        (row, saw): (Box<[u8]>, Position),
        at: Position,
    ) {
        let Some(i) = self.place(storage) else { return };
        if let Some(p) = self.tables[i].rows.get_mut(key)
            && let Some(moved) = &mut p.moved
        {
            moved.at = at;
            p.row = Some(row);
            p.saw = saw;
        }
    }

    /// A mark to come back to.
    pub fn mark(&self) -> usize {
        self.undo.len()
    }

    /// The rows that were changed since the mark, as they will be.
    pub fn since(&self, mark: usize) -> impl Iterator<Item = (&TableWrites, &[u8], &Pending)> {
        self.undo.iter().skip(mark).filter_map(|u| {
            let Undo::Row { table, key, .. } = u else {
                return None;
            };
            let t = &self.tables[*table];
            Some((t, &key[..], t.rows.get(key)?))
        })
    }

    /// What rows had of deltas at any time since the mark.
    pub fn moved_since(
        &self,
        mark: usize,
    ) -> impl Iterator<Item = (&Arc<TableHandle>, &[u8], &Moved)> {
        let changed = self.undo.iter().skip(mark).filter_map(|u| match u {
            Undo::Row {
                table, key, before, ..
            } => Some((&self.tables[*table], &key[..], before)),
            _ => None,
        });
        changed.flat_map(|(t, key, before)| {
            let all = before.iter().chain(t.rows.get(key));
            let moved = all.filter_map(|p| p.moved.as_deref());
            moved.map(move |m| (&t.table, key, m))
        })
    }

    /// Undoes everything since the mark.
    pub fn rollback(&mut self, mark: usize) {
        while self.undo.len() > mark {
            match self.undo.pop().expect("longer than the mark") {
                Undo::Row {
                    table,
                    key,
                    before,
                    bytes,
                } => {
                    self.bytes -= bytes;
                    self.set(table, &key, before);
                }
                Undo::FirstOf => _ = self.tables.pop(),
                Undo::Schema => {}
                Undo::Table { table, before } => self.tables[table] = before,
            }
        }
    }

    /// The mark of a change of the schema, which no later savepoint shares.
    pub fn mark_schema(&mut self) -> usize {
        self.undo.push(Undo::Schema);
        self.undo.len() - 1
    }

    /// A change of the schema gave the table a new handle (and maybe new storage: then `rekey` gives each row its new key).
    pub fn replace_table(
        &mut self,
        old: RelId,
        new: &Arc<TableHandle>,
        rekey: Option<&dyn Fn(&[u8]) -> Vec<u8>>,
    ) {
        let Some(i) = self.place(old) else { return };
        let now = TableWrites::none(new.clone());
        let before = std::mem::replace(&mut self.tables[i], now);
        for (key, change) in &before.rows {
            let change = change.clone();
            match (rekey, &change.row) {
                (None, _) => {
                    self.set(i, key, Some(change));
                }
                (Some(f), Some(row)) => {
                    let key = f(row);
                    self.set(
                        i,
                        &key,
                        Some(Pending {
                            existed: false,
                            saw: Position::ZERO,
                            ..change
                        }),
                    );
                }
                (Some(_), None) => {}
            }
        }
        self.undo.push(Undo::Table { table: i, before });
    }
}
