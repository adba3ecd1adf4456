//! The workloads' door ([`KvTxn`]) over a transaction of the engine.
//!
//! Keys and rows are built in buffers that live as long as the transaction. An update reads the row, replaces columns and
//! writes the whole row back, which is what the engine asks for.

use base::schema::{BOOTSTRAP_ROLE, Change, Column, Index, IndexColumn, Object, PUBLIC, TableDef};
use base::{Error, KeyRange, Oid, RowRef, Type, Value};
use node::Node;
use std::sync::Arc;
use txn::{Access, Direction, Scan, TableHandle, Txn, TxnOptions};
use workload::kv::{Cell, KvTxn, RowView, Table};

/// Creates the tables of a workload and gives their handles, in order.
pub fn create(node: &Node, tables: &[Table]) -> Result<Vec<Arc<TableHandle>>, Error> {
    let mut txn = node.begin(TxnOptions::default(), false);
    txn.begin_statement()?;
    txn.lock_schema()?;
    let ids: Vec<Oid> = (0..tables.len()).map(|i| 20_000 + 100 * i as Oid).collect();
    let made = ids
        .iter()
        .zip(tables)
        .map(|(id, t)| Change::Put(Object::Table(definition(*id, t))));
    txn.change_schema(made.collect())?;
    let position = node.commit(txn)?;
    futures::executor::block_on(node.published(position));
    let catalog = node.manager().catalog();
    Ok(ids
        .iter()
        .map(|id| catalog.table(*id).expect("just made").clone())
        .collect())
}

fn definition(id: Oid, table: &Table) -> TableDef {
    let column = |(place, (name, kind)): (usize, &(&str, workload::kv::Column))| Column {
        name: (*name).into(),
        type_oid: match kind {
            workload::kv::Column::Int => Type::Int8,
            workload::kv::Column::Text => Type::Text,
        }
        .oid(),
        typmod: -1,
        not_null: table.key.contains(&place),
        default: None,
        identity: None,
        dropped: false,
        missing: None,
    };
    let index = |place: usize, columns: &[usize], primary: bool| Index {
        id: id + 2 + place as Oid,
        name: format!("{}_{place}", table.name),
        columns: columns
            .iter()
            .map(|c| IndexColumn {
                column: *c as u16,
                desc: false,
                nulls_first: false,
            })
            .collect(),
        unique: primary,
        primary,
        constraint: primary,
        constraint_oid: 0,
        nulls_not_distinct: false,
    };
    let mut indexes = Vec::new();
    if !table.key.is_empty() {
        indexes.push(index(0, table.key, true));
    }
    for (i, columns) in table.indexes.iter().enumerate() {
        indexes.push(index(i + 1, columns, false));
    }
    TableDef {
        id,
        storage: id + 1,
        namespace: PUBLIC,
        name: table.name.into(),
        owner: BOOTSTRAP_ROLE,
        row_version: 0,
        columns: table.columns.iter().enumerate().map(column).collect(),
        indexes,
        checks: vec![],
        foreign_keys: vec![],
        acl: vec![],
        rewrite_of: None,
    }
}

/// A transaction over the tables of a workload.
pub struct Kv<'a> {
    txn: Txn,
    tables: &'a [Arc<TableHandle>],
    key: Vec<u8>,
}

impl<'a> Kv<'a> {
    pub fn begin(
        node: &Node,
        tables: &'a [Arc<TableHandle>],
        options: TxnOptions,
    ) -> Result<Kv<'a>, Error> {
        let mut txn = node.begin(options, false);
        txn.begin_statement()?;
        Ok(Kv {
            txn,
            tables,
            key: Vec::new(),
        })
    }

    /// The engine's transaction, ready to commit.
    pub fn finish(mut self) -> Result<Txn, Error> {
        self.txn.end_statement()?;
        Ok(self.txn)
    }

    /// Leaves the key (or a prefix of it) of index `place` in `self.key`.
    fn encode(&mut self, table: usize, place: usize, key: &[Cell<'_>]) {
        self.key.clear();
        for (cell, column) in key.iter().zip(&self.tables[table].table.keys[place]) {
            column.encode(&value(cell), &mut self.key);
        }
    }
}

fn value(cell: &Cell<'_>) -> Value {
    match cell {
        Cell::Null => Value::Null,
        Cell::Int(n) => Value::Int8(*n),
        Cell::Text(s) => Value::Text((*s).into()),
    }
}

struct View<'a>(RowRef<'a>);

impl RowView for View<'_> {
    fn int(&self, column: usize) -> i64 {
        i64::from_le_bytes(self.0.raw(column).try_into().expect("an int8 column"))
    }

    fn text(&self, column: usize) -> &str {
        std::str::from_utf8(self.0.raw(column)).expect("a text column")
    }
}

impl KvTxn for Kv<'_> {
    type Error = Error;

    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>, Error> {
        self.encode(table, 0, key);
        self.txn
            .get(&self.tables[table], &self.key, |row| read(&View(row)))
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool, Error> {
        self.encode(table, 0, key);
        let handle = &self.tables[table];
        let Some(mut row) = self.txn.get(handle, &self.key, |row| row.values())? else {
            return Ok(false);
        };
        for (column, cell) in set {
            row[*column] = value(cell);
        }
        self.txn.update(handle, &self.key, &row)?;
        Ok(true)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let values: Vec<Value> = row.iter().map(value).collect();
        self.key.clear();
        self.tables[table].primary_key(&values, &mut self.key)?;
        let handle = &self.tables[table];
        match self.txn.get(handle, &self.key, |_| ())? {
            Some(()) => self.txn.update(handle, &self.key, &values),
            None => self.txn.insert(handle, &values),
        }
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let values: Vec<Value> = row.iter().map(value).collect();
        self.txn.insert(&self.tables[table], &values)
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, Error> {
        self.encode(table, 0, key);
        self.txn.delete(&self.tables[table], &self.key)
    }

    fn scan(
        &mut self,
        table: usize,
        index: usize,
        prefix: &[Cell<'_>],
        mut visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<(), Error> {
        self.encode(table, index, prefix);
        let access = match index {
            0 => Access::Primary,
            n => Access::Index(n),
        };
        let mut scan = Scan::new(access, KeyRange::prefix(&self.key), Direction::Forward);
        let mut wanted = true;
        // Batches of one: a scan is in the footprint as far as it was read.
        while wanted
            && self
                .txn
                .scan(&self.tables[table], &mut scan, 1, &mut |_, row| {
                    wanted = visit(&View(row));
                    Ok(())
                })?
        {}
        Ok(())
    }
}
