//! The door a benchmark needs: a transaction over tables of typed columns, by key and by range.
//!
//! Tables are numbered by their place in the workload's `TABLES`; a key is the values of the key
//! columns in order, a prefix of them in a scan. Index 0 of a table is its primary key, index `n`
//! is `indexes[n - 1]`. Values travel as [`Cell`]s that borrow, so a transaction needs no
//! allocation to build a key, to change two columns of a wide row or to read one of them.
//!
//! Left out on purpose: predicates, expressions and anything that a planner would do.

/// A column's type. Integers are 64 bits wide (money in cents, times in microseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Int,
    Text,
}

/// A table of a workload: how to create it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Column)],
    /// Column numbers of the primary key; none: the table has no key, rows are only added.
    pub key: &'static [usize],
    /// Column numbers of each secondary index (not unique).
    pub indexes: &'static [&'static [usize]],
}

/// One value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a str),
}

/// A row being read; it stands still while the reader looks at it.
pub trait RowView {
    /// The integer in column `column`; panics if the column holds no integer.
    fn int(&self, column: usize) -> i64;
    /// The text in column `column`; panics if the column holds no text.
    fn text(&self, column: usize) -> &str;
    /// The bytes of that text, which nobody has to check.
    fn bytes(&self, column: usize) -> &[u8] {
        self.text(column).as_bytes()
    }
}

/// One transaction, as a workload sees it. The first error ends it: the workload returns it at
/// once, and the runner decides whether to run the transaction again.
pub trait KvTxn {
    type Error;

    /// Reads the row under the whole primary key; `None` if there is none.
    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>, Self::Error>;

    /// Says which rows (whole primary keys) will be read soon. A hint, which may be ignored.
    fn expect(&mut self, _table: usize, _keys: &[&[Cell<'_>]]) {}

    /// Sets columns of the row under the key; false if there is none. Never a key column.
    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool, Self::Error>;

    /// Adds to the integer in a column of the row under the key; false if there is none.
    fn add(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        column: usize,
        amount: i64,
    ) -> Result<bool, Self::Error> {
        match self.get(table, key, |row| row.int(column))? {
            Some(now) => self.update(table, key, &[(column, Cell::Int(now + amount))]),
            None => Ok(false),
        }
    }

    /// Inserts or replaces a whole row.
    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Self::Error>;

    /// Inserts a whole row; a row that is there already is an error.
    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Self::Error>;

    /// Deletes the row under the key; false if there is none.
    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, Self::Error>;

    /// Visits rows whose key in index `index` begins with `prefix`, in key order, until `visit`
    /// returns false.
    fn scan(
        &mut self,
        table: usize,
        index: usize,
        prefix: &[Cell<'_>],
        visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<(), Self::Error>;
}

/// How a transaction's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Commit,
    /// The workload wants it undone (TPC-C's 1 % of NewOrders with an unknown item).
    Rollback,
}

/// A mirror for tests: ordered maps, no concurrency, undo by copy.
#[cfg(test)]
pub mod mirror {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Owned {
        Null,
        Int(i64),
        Text(String),
    }

    fn own(cell: &Cell<'_>) -> Owned {
        match cell {
            Cell::Null => Owned::Null,
            Cell::Int(n) => Owned::Int(*n),
            Cell::Text(s) => Owned::Text((*s).to_owned()),
        }
    }

    pub type Row = Vec<Owned>;

    #[derive(Clone)]
    pub struct Mirror {
        pub tables: &'static [Table],
        pub rows: Vec<BTreeMap<Row, Row>>,
    }

    impl RowView for Row {
        fn int(&self, column: usize) -> i64 {
            match &self[column] {
                Owned::Int(n) => *n,
                other => panic!("column {column} holds {other:?}"),
            }
        }
        fn text(&self, column: usize) -> &str {
            match &self[column] {
                Owned::Text(s) => s,
                other => panic!("column {column} holds {other:?}"),
            }
        }
    }

    impl Mirror {
        pub fn new(tables: &'static [Table]) -> Mirror {
            Mirror {
                tables,
                rows: tables.iter().map(|_| BTreeMap::new()).collect(),
            }
        }

        fn key_of(&self, table: usize, row: &Row) -> Row {
            let def = &self.tables[table];
            assert_eq!(
                row.len(),
                def.columns.len(),
                "{} has {} columns",
                def.name,
                row.len()
            );
            for (cell, (name, column)) in row.iter().zip(def.columns) {
                let fits = matches!(
                    (cell, column),
                    (Owned::Int(_), Column::Int)
                        | (Owned::Text(_), Column::Text)
                        | (Owned::Null, _)
                );
                assert!(fits, "{}.{name} is {column:?}, got {cell:?}", def.name);
            }
            if def.key.is_empty() {
                return vec![Owned::Int(self.rows[table].len() as i64)];
            }
            def.key.iter().map(|&c| row[c].clone()).collect()
        }
    }

    #[derive(Debug)]
    pub struct Duplicate;

    impl KvTxn for Mirror {
        type Error = Duplicate;

        fn get<R>(
            &mut self,
            table: usize,
            key: &[Cell<'_>],
            read: impl FnOnce(&dyn RowView) -> R,
        ) -> Result<Option<R>, Duplicate> {
            assert_eq!(key.len(), self.tables[table].key.len());
            let key: Row = key.iter().map(own).collect();
            Ok(self.rows[table].get(&key).map(|row| read(row)))
        }

        fn update(
            &mut self,
            table: usize,
            key: &[Cell<'_>],
            set: &[(usize, Cell<'_>)],
        ) -> Result<bool, Duplicate> {
            let key: Row = key.iter().map(own).collect();
            let Some(row) = self.rows[table].get_mut(&key) else {
                return Ok(false);
            };
            for (column, cell) in set {
                assert!(!self.tables[table].key.contains(column));
                row[*column] = own(cell);
            }
            Ok(true)
        }

        fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Duplicate> {
            let row: Row = row.iter().map(own).collect();
            let key = self.key_of(table, &row);
            self.rows[table].insert(key, row);
            Ok(())
        }

        fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Duplicate> {
            let row: Row = row.iter().map(own).collect();
            let key = self.key_of(table, &row);
            match self.rows[table].insert(key, row) {
                None => Ok(()),
                Some(_) => Err(Duplicate),
            }
        }

        fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, Duplicate> {
            let key: Row = key.iter().map(own).collect();
            Ok(self.rows[table].remove(&key).is_some())
        }

        fn scan(
            &mut self,
            table: usize,
            index: usize,
            prefix: &[Cell<'_>],
            mut visit: impl FnMut(&dyn RowView) -> bool,
        ) -> Result<(), Duplicate> {
            let def = &self.tables[table];
            let columns = if index == 0 {
                def.key
            } else {
                def.indexes[index - 1]
            };
            let prefix: Row = prefix.iter().map(own).collect();
            let mut found: Vec<(Row, &Row)> = self.rows[table]
                .values()
                .map(|row| {
                    (
                        columns.iter().map(|&c| row[c].clone()).collect::<Row>(),
                        row,
                    )
                })
                .filter(|(key, _)| key.starts_with(&prefix))
                .collect();
            found.sort();
            for (_, row) in found {
                if !visit(row) {
                    break;
                }
            }
            Ok(())
        }
    }
}
