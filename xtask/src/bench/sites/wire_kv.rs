//! The workloads' door ([`KvTxn`]) onto a connection: each read and each write is one statement, whose answer is waited for.
//!
//! ```text
//! get       SELECT * FROM t WHERE key            one round trip
//! update    UPDATE t SET … WHERE key             one round trip
//! insert    INSERT INTO t VALUES (…)             one round trip; while tables are filled, many rows together
//! scan      SELECT * … ORDER BY the index        one round trip
//! ```
//! So a transaction over a distance costs what an application's does that thinks between its statements.
//!
//! Left out on purpose: BEGIN and COMMIT, which are the caller's, and prepared statements.

use crate::wire::{Connection, Error};
use std::fmt::Write;
use workload::kv::{Cell, Column, KvTxn, RowView, Table};

/// Bytes of text that are collected before they are sent, while tables are filled.
const TOGETHER: usize = 100_000;

pub struct Wire<'a> {
    connection: &'a mut Connection,
    tables: &'static [Table],
    /// Rows of each table that are not sent yet; none: each is sent at once.
    collected: Option<Vec<String>>,
}

/// One statement for each table, and one for each of its further indexes.
pub fn create(tables: &[Table]) -> Vec<String> {
    let mut all = Vec::new();
    for t in tables {
        let mut parts: Vec<String> = Vec::new();
        for (name, column) in t.columns {
            let ty = match column {
                Column::Int => "bigint",
                Column::Text => "text",
            };
            parts.push(format!("{name} {ty}"));
        }
        if !t.key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", names(t, t.key)));
        }
        all.push(format!("CREATE TABLE {} ({})", t.name, parts.join(", ")));
        for columns in t.indexes {
            all.push(format!(
                "CREATE INDEX ON {} ({})",
                t.name,
                names(t, columns)
            ));
        }
    }
    all
}

fn names(table: &Table, columns: &[usize]) -> String {
    let all: Vec<&str> = columns.iter().map(|c| table.columns[*c].0).collect();
    all.join(", ")
}

fn literal(out: &mut String, cell: &Cell<'_>) {
    let _ = match cell {
        Cell::Null => write!(out, "NULL"),
        Cell::Int(n) => write!(out, "{n}"),
        Cell::Text(s) => write!(out, "'{}'", s.replace('\'', "''")),
    };
}

fn values(row: &[Cell<'_>]) -> String {
    let mut out = String::from("(");
    for (n, cell) in row.iter().enumerate() {
        out += if n > 0 { ", " } else { "" };
        literal(&mut out, cell);
    }
    out + ")"
}

/// `a = 1 AND b = 2` of the first columns.
fn equals(table: &Table, columns: &[usize], key: &[Cell<'_>], between: &str) -> String {
    let mut out = String::new();
    for (n, (column, cell)) in columns.iter().zip(key).enumerate() {
        out += if n > 0 { between } else { "" };
        let _ = write!(out, "{} = ", table.columns[*column].0);
        literal(&mut out, cell);
    }
    out
}

/// A row that came, as text.
struct Came(Vec<Option<String>>);

impl RowView for Came {
    fn int(&self, column: usize) -> i64 {
        let text = self.text(column);
        text.parse().expect("an integer")
    }

    fn text(&self, column: usize) -> &str {
        self.0[column].as_deref().expect("not NULL")
    }
}

impl<'a> Wire<'a> {
    pub fn new(connection: &'a mut Connection, tables: &'static [Table]) -> Wire<'a> {
        Wire {
            connection,
            tables,
            collected: None,
        }
    }

    /// One that fills tables: rows go together, and the last ones with [`Wire::flush`].
    pub fn filling(connection: &'a mut Connection, tables: &'static [Table]) -> Wire<'a> {
        Wire {
            collected: Some(vec![String::new(); tables.len()]),
            ..Wire::new(connection, tables)
        }
    }

    pub fn flush(&mut self) -> Result<(), Error> {
        for table in 0..self.tables.len() {
            self.send(table)?;
        }
        Ok(())
    }

    fn send(&mut self, table: usize) -> Result<(), Error> {
        let Some(rows) = self.collected.as_mut().map(|all| &mut all[table]) else {
            return Ok(());
        };
        let rows = std::mem::take(rows);
        if rows.is_empty() {
            return Ok(());
        }
        let name = self.tables[table].name;
        let insert = format!("INSERT INTO {name} VALUES {rows}");
        self.connection.query(&insert).map(drop)
    }
}

impl KvTxn for Wire<'_> {
    type Error = Error;

    fn get<R>(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        read: impl FnOnce(&dyn RowView) -> R,
    ) -> Result<Option<R>, Error> {
        let t = &self.tables[table];
        let of = equals(t, t.key, key, " AND ");
        let sql = format!("SELECT * FROM {} WHERE {of}", t.name);
        let rows = self.connection.query(&sql)?.rows;
        Ok(rows.into_iter().next().map(|row| read(&Came(row))))
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool, Error> {
        let t = &self.tables[table];
        let (columns, cells): (Vec<usize>, Vec<Cell<'_>>) = set.iter().copied().unzip();
        let set = equals(t, &columns, &cells, ", ");
        let of = equals(t, t.key, key, " AND ");
        let sql = format!("UPDATE {} SET {set} WHERE {of}", t.name);
        Ok(self.connection.query(&sql)?.changed > 0)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let key: Vec<Cell<'_>> = self.tables[table].key.iter().map(|c| row[*c]).collect();
        self.delete(table, &key)?;
        self.insert(table, row)
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let row = values(row);
        let Some(all) = &mut self.collected else {
            let name = self.tables[table].name;
            let insert = format!("INSERT INTO {name} VALUES {row}");
            return self.connection.query(&insert).map(drop);
        };
        let rows = &mut all[table];
        *rows += if rows.is_empty() { "" } else { ", " };
        *rows += &row;
        match rows.len() > TOGETHER {
            true => self.send(table),
            false => Ok(()),
        }
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, Error> {
        let t = &self.tables[table];
        let of = equals(t, t.key, key, " AND ");
        let sql = format!("DELETE FROM {} WHERE {of}", t.name);
        Ok(self.connection.query(&sql)?.changed > 0)
    }

    fn scan(
        &mut self,
        table: usize,
        index: usize,
        prefix: &[Cell<'_>],
        mut visit: impl FnMut(&dyn RowView) -> bool,
    ) -> Result<(), Error> {
        let t = &self.tables[table];
        let columns = match index {
            0 => t.key,
            n => t.indexes[n - 1],
        };
        let (of, order) = (equals(t, columns, prefix, " AND "), names(t, columns));
        let sql = format!("SELECT * FROM {} WHERE {of} ORDER BY {order}", t.name);
        for row in self.connection.query(&sql)?.rows {
            if !visit(&Came(row)) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use workload::tpcc::{CUSTOMER, HISTORY, TABLES};

    #[test]
    fn a_table_has_its_key_and_its_indexes() {
        let all = create(&TABLES[CUSTOMER..=HISTORY]);
        assert_eq!(all.len(), 3);
        assert!(
            all[0].ends_with("c_data text, PRIMARY KEY (c_w_id, c_d_id, c_id))"),
            "{}",
            all[0]
        );
        assert_eq!(
            all[1],
            "CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first)"
        );
        assert!(!all[2].contains("KEY"), "{}", all[2]);
    }

    #[test]
    fn a_quote_stays_inside_of_its_text() {
        let row = [Cell::Int(-1), Cell::Text("it's"), Cell::Null];
        assert_eq!(values(&row), "(-1, 'it''s', NULL)");
        let of = equals(&TABLES[CUSTOMER], &[0, 1], &row[..1], " AND ");
        assert_eq!(of, "c_w_id = -1");
    }
}
