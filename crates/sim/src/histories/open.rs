//! A client's transaction: statements with the engine, and what the client remembers of them.
//!
//! Each statement is compared with the ideal at its snapshot at once. What has to hold at the commit is remembered as the client knows it:
//! the engine's own footprint is never asked.

use base::schema::FkAction;
use base::{Isolation, KeyRange, Position, RowRef};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::pin;
use txn::{
    Access, Delta, Direction, LockMode, Outcome, Scan, Stop, TableHandle, Txn, TxnOptions,
    WaitPolicy,
};

use crate::histories::bench::Bench;
use crate::histories::ideal::{Ideal, Rows, Write};
use crate::histories::tables::{Name, QTY, Row, Table, values};
use crate::schema::key;

/// How often a statement starts anew, as the server's session does.
const TRIES: usize = 3;

/// A statement, with local ids made global.
#[derive(Clone, Debug)]
pub enum Ask {
    Get(Name),
    /// Parents from the one up to below the other.
    Scan(i64, i64),
    /// SELECT FOR UPDATE of a row that is there.
    Lock(Name),
    /// INSERT, or UPDATE of the row that is there.
    Put(Name, Row),
    Delete(Name),
    /// `UPDATE stocks SET qty = qty + by WHERE id = … AND qty >= need`.
    Add(i64, i64, Option<i64>),
}

/// A transaction that a client has open.
pub struct Open {
    pub txn: Txn,
    pub kept: Kept,
}

/// What a client remembers of its transaction.
#[derive(Clone, Debug)]
pub struct Kept {
    pub session: usize,
    pub node: usize,
    pub level: Isolation,
    locking: bool,
    /// Its first snapshot.
    pub first: Position,
    /// Its last one.
    pub snapshot: Position,
    /// What it read of others' rows, none where there was none.
    pub seen: BTreeMap<Name, Option<Row>>,
    /// Rows that it locked, as they were, and where they had changed last.
    pub locked: BTreeMap<Name, (Row, Position)>,
    /// What it does.
    pub writes: BTreeMap<Name, Write>,
    /// The rows that it does this to, as it met them, and the snapshot then.
    pub met: BTreeMap<Name, (Option<Row>, Position)>,
    /// What stocks had to have for it.
    pub needs: Vec<(i64, i64)>,
    /// Rows that a refusal may be for.
    pub used: BTreeSet<Name>,
}

/// Columns behind the key.
fn row_of(row: RowRef<'_>) -> Row {
    let all = row.values();
    let all = all.iter().skip(1);
    all.map(|v| v.as_i64().expect("not NULL")).collect()
}

impl Kept {
    pub fn new(session: usize, node: usize, options: &TxnOptions) -> Kept {
        Kept {
            session,
            node,
            level: options.isolation,
            locking: options.locking,
            first: Position::ZERO,
            snapshot: Position::ZERO,
            seen: BTreeMap::new(),
            locked: BTreeMap::new(),
            writes: BTreeMap::new(),
            met: BTreeMap::new(),
            needs: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// Runs a statement, and has the transaction back; none: the client gives up.
    pub fn run(
        &mut self,
        mut txn: Txn,
        ask: &Ask,
        bench: &Bench,
        ideal: &Ideal,
        on_delete: FkAction,
    ) -> Option<Txn> {
        let shown = bench.shown(self.node);
        if self.node > 0 && txn.wants_snapshot() {
            txn.set_read_position(shown);
        }
        let before = self.clone();
        for _ in 0..TRIES {
            if txn.awaits() > shown || txn.begin_statement().is_err() {
                return None;
            }
            self.snapshot = txn.snapshot().expect("a statement has begun");
            if self.first == Position::ZERO {
                self.first = self.snapshot;
            }
            let rows = self.view(ideal);
            let ran = self.statement(&mut txn, ask, (ideal, &rows), on_delete);
            match ran.and_then(|()| txn.end_statement()) {
                Ok(()) => return Some(txn),
                Err(Stop::Restart) => {
                    txn.rollback_statement();
                    // A statement that runs again has not been.
                    *self = Kept {
                        first: self.first,
                        ..before.clone()
                    };
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// Tables of which any row may be in the way of what it writes: of unique and foreign keys.
    pub fn constrained(&self) -> Vec<Table> {
        let writes = |t: Table| self.writes.keys().any(|n| n.0 == t);
        let mut tables = Vec::new();
        if writes(Table::Parent) {
            tables.extend([Table::Parent, Table::Child]);
        }
        if writes(Table::Child) {
            tables.push(Table::Parent);
        }
        tables
    }

    /// Whether the other uses a row that may be in this one's way.
    pub fn meets(&self, other: &Kept) -> bool {
        let tables = self.constrained();
        let mut theirs = other.used.iter();
        theirs.any(|n| self.used.contains(n) || tables.contains(&n.0))
    }

    /// What the transaction is to see: its snapshot with its own changes.
    fn view(&self, ideal: &Ideal) -> Rows {
        let mut rows = ideal.at(self.snapshot).clone();
        for (name, write) in &self.writes {
            match write.over(rows.get(name)) {
                Some(row) => drop(rows.insert(*name, row)),
                None => drop(rows.remove(name)),
            }
        }
        rows
    }

    /// Remembers that it has read this.
    fn note(&mut self, name: Name, rows: &Rows) {
        self.used.insert(name);
        if !self.writes.contains_key(&name) {
            let read = rows.get(&name).cloned();
            self.seen.entry(name).or_insert(read);
        }
    }

    /// Remembers that it changes this. A delta has met nothing.
    fn change(&mut self, name: Name, write: Write, ideal: &Ideal) {
        self.used.insert(name);
        let had = self.writes.insert(name, write);
        if matches!(had, None | Some(Write::Add(_))) {
            let row = ideal.at(self.snapshot).get(&name).cloned();
            self.met.insert(name, (row, self.snapshot));
        }
    }

    fn read(&mut self, t: &mut Txn, h: &TableHandle, name: Name, rows: &Rows) -> txn::Result<bool> {
        let found = t.get(h, &key(name.1), row_of)?;
        let ideal = rows.get(&name);
        assert_eq!(
            found.as_ref(),
            ideal,
            "{name:?} read at node {} at {}, {:?}",
            self.node,
            self.snapshot,
            self.level
        );
        self.note(name, rows);
        Ok(found.is_some())
    }

    fn statement(
        &mut self,
        t: &mut Txn,
        ask: &Ask,
        (ideal, rows): (&Ideal, &Rows),
        on_delete: FkAction,
    ) -> txn::Result<()> {
        let catalog = t.catalog();
        let handle = |of: Table| catalog.tables[&of.id()].clone();
        match ask {
            Ask::Get(name) => {
                let h = handle(name.0);
                self.read(t, &h, *name, rows)?;
            }
            Ask::Scan(from, to) => {
                let h = handle(Table::Parent);
                self.scan(t, &h, (*from, *to), rows)?;
            }
            Ask::Lock(name) => {
                let h = handle(name.0);
                // What runs without locks is certified, and asks for none.
                if self.read(t, &h, *name, rows)? && self.locking {
                    t.lock_row(&h, &key(name.1), LockMode::Update, WaitPolicy::Wait)?;
                    if !self.writes.contains_key(name) {
                        let stands = (rows[name].clone(), ideal.last_change(name, self.snapshot));
                        self.locked.entry(*name).or_insert(stands);
                    }
                }
            }
            Ask::Put(name, row) => {
                let h = handle(name.0);
                match self.read(t, &h, *name, rows)? {
                    true => t.update(&h, &key(name.1), &values(name.1, row))?,
                    false => t.insert(&h, &values(name.1, row))?,
                }
                self.change(*name, Write::Put(row.clone()), ideal);
            }
            Ask::Delete(name) => {
                let h = handle(name.0);
                if self.read(t, &h, *name, rows)? {
                    t.delete(&h, &key(name.1))?;
                    self.change(*name, Write::Gone, ideal);
                    if name.0 == Table::Parent && on_delete == FkAction::Cascade {
                        self.delete_children(name.1, (ideal, rows));
                    }
                }
            }
            Ask::Add(id, by, need) => {
                let h = handle(Table::Stock);
                self.add(t, &h, (*id, *by, *need), ideal)?;
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        t: &mut Txn,
        h: &TableHandle,
        (from, to): (i64, i64),
        rows: &Rows,
    ) -> txn::Result<()> {
        let range = KeyRange {
            lo: Bound::Included(key(from).into()),
            hi: Bound::Excluded(key(to).into()),
        };
        let mut scan = Scan::new(Access::Primary, range, Direction::Forward);
        let mut found = Vec::new();
        let mut each = |_: &[u8], r: RowRef<'_>| {
            let id = r.get(0).as_i64().expect("not NULL");
            found.push((id, row_of(r)));
            Ok(())
        };
        while t.scan(h, &mut scan, 2, &mut each)? {}
        let there = rows.range((Table::Parent, from)..(Table::Parent, to));
        let there: Vec<(i64, Row)> = there.map(|(n, r)| (n.1, r.clone())).collect();
        assert_eq!(
            found, there,
            "parents {from} to {to} read at node {} at {}",
            self.node, self.snapshot
        );
        (from..to).for_each(|id| self.note((Table::Parent, id), rows));
        Ok(())
    }

    /// The rows that go with a parent.
    fn delete_children(&mut self, of: i64, (ideal, rows): (&Ideal, &Rows)) {
        let children = rows
            .iter()
            .filter(|(n, r)| n.0 == Table::Child && r[0] == of);
        let names: Vec<Name> = children.map(|c| *c.0).collect();
        for name in names {
            self.change(name, Write::Gone, ideal);
        }
    }

    fn add(
        &mut self,
        t: &mut Txn,
        h: &TableHandle,
        (id, by, need): (i64, i64, Option<i64>),
        ideal: &Ideal,
    ) -> txn::Result<()> {
        let name = (Table::Stock, id);
        self.used.insert(name);
        let found = t.get_columns(h, &key(id), txn::column_set(&[0]), |_| ())?;
        let there = ideal.at(self.snapshot).contains_key(&name) || self.writes.contains_key(&name);
        assert_eq!(
            found.is_some(),
            there,
            "stock {id} at node {} at {}, {:?}",
            self.node,
            self.snapshot,
            self.level
        );
        if !there {
            return Ok(());
        }
        let delta = Delta {
            column: QTY,
            amount: by.into(),
            need: need.map(Into::into),
        };
        if t.add_to(h, &key(id), &[delta], 0)? != Outcome::Done {
            return Ok(());
        }
        let before = match self.writes.get(&name) {
            Some(Write::Add(net)) => *net,
            Some(Write::Put(row)) => {
                let row = vec![row[0] + by];
                self.writes.insert(name, Write::Put(row));
                return Ok(());
            }
            _ => 0,
        };
        self.needs.extend(need.map(|n| (id, n - before)));
        self.change(name, Write::Add(before + by), ideal);
        Ok(())
    }
}

/// What the node shows now is the ideal there, of these rows. Read without a transaction.
pub fn compare(bench: &Bench, node: usize, ideal: &Ideal, names: &[Name]) {
    let at = bench.shown(node);
    let guard = pin();
    for name in names {
        let h = bench.handle(node, name.0);
        let record = h.storage.primary.get(&key(name.1), &guard);
        let row = record.and_then(|r| r.row_at(at, &guard));
        let row = row.map(|r| row_of(h.table.layout.row(r)));
        assert_eq!(
            row.as_ref(),
            ideal.at(at).get(name),
            "{name:?}, which node {node} shows at {at}"
        );
    }
}
