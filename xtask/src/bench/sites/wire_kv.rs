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
//! Statements are prepared with their first run, as drivers do it, without a round trip of its own.
//!
//! Left out on purpose: BEGIN and COMMIT, which are the caller's.

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

/// `a = $1 AND b = $2` of these columns; the first has the number behind `before`.
fn equals(table: &Table, columns: &[usize], before: usize, between: &str) -> String {
    let mut out = String::new();
    for (n, column) in columns.iter().enumerate() {
        out += if n > 0 { between } else { "" };
        let _ = write!(out, "{} = ${}", table.columns[*column].0, before + n + 1);
    }
    out
}

/// `$1, $2` and so on.
fn places(many: usize) -> String {
    let all: Vec<String> = (1..=many).map(|n| format!("${n}")).collect();
    all.join(", ")
}

fn texts(cells: &[Cell<'_>]) -> Vec<Option<String>> {
    let text = |cell: &Cell<'_>| match cell {
        Cell::Null => None,
        Cell::Int(n) => Some(n.to_string()),
        Cell::Text(s) => Some((*s).to_owned()),
    };
    cells.iter().map(text).collect()
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
        let of = equals(t, &t.key[..key.len()], 0, " AND ");
        let sql = format!("SELECT * FROM {} WHERE {of}", t.name);
        let rows = self.connection.run(&sql, &texts(key))?.rows;
        Ok(rows.into_iter().next().map(|row| read(&Came(row))))
    }

    fn update(
        &mut self,
        table: usize,
        key: &[Cell<'_>],
        set: &[(usize, Cell<'_>)],
    ) -> Result<bool, Error> {
        let t = &self.tables[table];
        let (columns, mut cells): (Vec<usize>, Vec<Cell<'_>>) = set.iter().copied().unzip();
        let set = equals(t, &columns, 0, ", ");
        let of = equals(t, &t.key[..key.len()], cells.len(), " AND ");
        let sql = format!("UPDATE {} SET {set} WHERE {of}", t.name);
        cells.extend(key);
        Ok(self.connection.run(&sql, &texts(&cells))?.changed > 0)
    }

    fn put(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let key: Vec<Cell<'_>> = self.tables[table].key.iter().map(|c| row[*c]).collect();
        self.delete(table, &key)?;
        self.insert(table, row)
    }

    fn insert(&mut self, table: usize, row: &[Cell<'_>]) -> Result<(), Error> {
        let Some(all) = &mut self.collected else {
            let (name, all) = (self.tables[table].name, places(row.len()));
            let insert = format!("INSERT INTO {name} VALUES ({all})");
            return self.connection.run(&insert, &texts(row)).map(drop);
        };
        let rows = &mut all[table];
        *rows += if rows.is_empty() { "" } else { ", " };
        *rows += &values(row);
        match rows.len() > TOGETHER {
            true => self.send(table),
            false => Ok(()),
        }
    }

    fn delete(&mut self, table: usize, key: &[Cell<'_>]) -> Result<bool, Error> {
        let t = &self.tables[table];
        let of = equals(t, &t.key[..key.len()], 0, " AND ");
        let sql = format!("DELETE FROM {} WHERE {of}", t.name);
        Ok(self.connection.run(&sql, &texts(key))?.changed > 0)
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
        let of = equals(t, &columns[..prefix.len()], 0, " AND ");
        let order = names(t, columns);
        let sql = format!("SELECT * FROM {} WHERE {of} ORDER BY {order}", t.name);
        for row in self.connection.run(&sql, &texts(prefix))?.rows {
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
        assert_eq!(
            texts(&row),
            [Some("-1".into()), Some("it's".into()), None],
            "as a value it stands for itself"
        );
    }

    #[test]
    fn values_are_numbered_from_the_first_column_on() {
        let of = equals(&TABLES[CUSTOMER], &[0, 1], 2, " AND ");
        assert_eq!(of, "c_w_id = $3 AND c_d_id = $4");
        assert_eq!(places(3), "$1, $2, $3");
    }
}
