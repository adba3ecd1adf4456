//! Rows on their way in: from the bytes of a COPY FROM to groups of values, and which line an error is about.
//!
//! The context of an error names the table, the line, and the column with its value or else the line itself, as PostgreSQL does it.
//! The beginnings of a group's lines are kept for that. A row that breaks a unique constraint is named by its number alone, as there.

use super::{CopyFormat, CopyStmt, bad_data, binary, csv, text};
use crate::exec::{Each, ExecContext};
use crate::types::{OutputSettings, binary as binary_values, cast, text as text_values};
use base::{ColumnType, Error, Result, SqlState, Value};
use txn::{Stop, Txn};

/// Rows of a group at most, and bytes of them as they came: no more are taken into it then. Long rows that come slowly do not
/// keep what is wrong with the first of them from the client.
const GROUP: usize = 500;
const GROUP_BYTES: usize = 64 << 10;
/// Bytes of a line or a value that an error shows.
const SHOWN: usize = 100;

/// A COPY FROM on its way.
pub struct Load {
    each: Each,
    types: Vec<ColumnType>,
    names: Vec<String>,
    table: String,
    /// Lines taken so far.
    line: u64,
    pub line_ends: text::LineEnds,
    rows: Vec<Vec<Value>>,
    /// What they were in the data.
    bytes: usize,
    /// Emptied rows, to be filled again.
    spare: Vec<Vec<Value>>,
    lines: Vec<u64>,
    /// How the group's lines begin, and where each ends in it.
    heads: String,
    ends: Vec<usize>,
    /// Rows that are in.
    pub total: u64,
}

/// What was at the front of the data.
pub enum Taken {
    /// A row or the header, of so many bytes.
    Bytes(usize),
    More,
    End,
}

impl Load {
    /// Into a table of this name, with the rows' columns.
    pub fn new(each: Each, names: Vec<String>, table: &str) -> Load {
        Load {
            types: each.types(),
            each,
            names,
            table: table.to_owned(),
            line: 0,
            line_ends: text::LineEnds::default(),
            rows: Vec::with_capacity(GROUP),
            bytes: 0,
            spare: Vec::new(),
            lines: Vec::with_capacity(GROUP),
            heads: String::new(),
            ends: Vec::with_capacity(GROUP),
            total: 0,
        }
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= GROUP || self.bytes >= GROUP_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Inserts the group; how many rows went in. It stays here, because it may have to be inserted again.
    pub fn insert(&mut self, txn: &mut Txn, cx: &ExecContext<'_>) -> Result<u64, Stop> {
        let inserted = self.each.insert(&mut self.rows, txn, cx);
        inserted.map_err(|(row, stop)| {
            let from = row.checked_sub(1).map_or(0, |r| self.ends[r]);
            let at = format!("COPY {}, line {}", self.table, self.lines[row]);
            let head = &self.heads[from..self.ends[row]];
            stop.map_error(|e| e_context(e, at, head))
        })
    }

    /// The group is in.
    pub fn done(&mut self, rows: u64) {
        self.total += rows;
        self.bytes = 0;
        // Long values are not kept until others take their places.
        self.rows.iter_mut().for_each(Vec::clear);
        self.spare.append(&mut self.rows);
        self.lines.clear();
        self.heads.clear();
        self.ends.clear();
    }

    /// An error about the line that was taken last.
    pub fn error(&self, e: Error) -> Error {
        e.context(format!("COPY {}, line {}", self.table, self.line))
    }

    fn line_error(&self, e: Error, line: &str) -> Error {
        let at = format!(
            "COPY {}, line {}: \"{}\"",
            self.table,
            self.line,
            short(line)
        );
        e.context(at)
    }

    /// Takes one row, or the header, from the front of `buf`.
    pub fn take(
        &mut self,
        buf: &[u8],
        copy: &CopyStmt,
        head: &mut bool,
        settings: &OutputSettings,
    ) -> Result<Taken> {
        let o = &copy.options;
        if o.format == CopyFormat::Binary {
            return self.take_binary(buf, head, settings);
        }
        let found = match o.format {
            CopyFormat::Csv => csv::record(buf, o, &mut self.line_ends),
            _ => text::line(buf, &mut self.line_ends),
        };
        let found = found.map_err(|e| {
            self.line += 1;
            self.error(e)
        })?;
        let Some((end, next)) = found else {
            return Ok(Taken::More);
        };
        self.line += 1;
        let line = base::text(&buf[..end]).map_err(|e| self.error(e))?;
        if line == "\\." {
            return Ok(Taken::End);
        }
        let n = self.names.len();
        let mut fields = Vec::with_capacity(n);
        let split = match o.format {
            CopyFormat::Csv => csv::fields(line, o, &self.names, &mut fields),
            _ if n == 0 && line.is_empty() => Ok(()),
            _ => text::fields(line, o, &mut fields),
        };
        split.map_err(|e| self.line_error(e, line))?;
        if std::mem::take(head) {
            csv::check_header(&fields, &self.names, o).map_err(|e| self.line_error(e, line))?;
            return Ok(Taken::Bytes(next));
        }
        self.count(fields.len(), line)?;
        let mut values = self.row();
        for (i, f) in fields.iter().enumerate() {
            values.push(self.value(f.as_deref(), i, settings)?);
        }
        self.heads.push_str(start(line));
        self.push(values, next);
        Ok(Taken::Bytes(next))
    }

    /// An empty row.
    fn row(&mut self) -> Vec<Value> {
        self.spare.pop().unwrap_or_default()
    }

    fn push(&mut self, values: Vec<Value>, bytes: usize) {
        self.rows.push(values);
        self.bytes += bytes;
        self.lines.push(self.line);
        self.ends.push(self.heads.len());
    }

    fn count(&self, fields: usize, line: &str) -> Result<()> {
        let n = self.names.len();
        let e = if fields < n {
            bad_data(format!(
                "missing data for column \"{}\"",
                self.names[fields]
            ))
        } else if fields > n {
            bad_data("extra data after last expected column")
        } else {
            return Ok(());
        };
        Err(self.line_error(e, line))
    }

    fn value(&self, f: Option<&str>, i: usize, settings: &OutputSettings) -> Result<Value> {
        let Some(s) = f else {
            return Ok(Value::Null);
        };
        text_values::input(s, self.types[i], settings).map_err(|e| {
            let (table, line, column) = (&self.table, self.line, &self.names[i]);
            let value = short(s);
            e.context(format!(
                "COPY {table}, line {line}, column {column}: \"{value}\""
            ))
        })
    }

    fn take_binary(
        &mut self,
        buf: &[u8],
        head: &mut bool,
        settings: &OutputSettings,
    ) -> Result<Taken> {
        if *head {
            return Ok(match binary::header(buf)? {
                Some(n) => {
                    *head = false;
                    Taken::Bytes(n)
                }
                None => Taken::More,
            });
        }
        let row = binary::row(buf, self.names.len());
        match row.map_err(|e| {
            let (table, line) = (&self.table, self.line + 1);
            e.context(format!("COPY {table}, line {line}"))
        })? {
            binary::Row::More => Ok(Taken::More),
            binary::Row::End => Ok(Taken::End),
            binary::Row::Fields(fields, n) => {
                self.line += 1;
                let mut values = self.row();
                for (i, f) in fields.iter().enumerate() {
                    values.push(match f {
                        None => Value::Null,
                        Some(b) => of_type(b, self.types[i], settings).map_err(|e| {
                            let (table, line, column) = (&self.table, self.line, &self.names[i]);
                            e.context(format!("COPY {table}, line {line}, column {column}"))
                        })?,
                    });
                }
                self.push(values, n);
                Ok(Taken::Bytes(n))
            }
        }
    }
}

/// A value in the binary format, with its length and scale.
fn of_type(b: &[u8], ty: ColumnType, settings: &OutputSettings) -> Result<Value> {
    let v = binary_values::decode(b, ty.ty)?;
    match ty.typmod {
        -1 => Ok(v),
        _ => cast::apply(v, ColumnType::plain(ty.ty), ty, false, settings),
    }
}

/// With the line that is wrong, unless it is wrong only beside other rows.
fn e_context(e: Error, at: String, head: &str) -> Error {
    if e.code() == SqlState::UNIQUE_VIOLATION || head.is_empty() {
        return e.context(at);
    }
    e.context(format!("{at}: \"{}\"", short(head)))
}

/// So much of a text that [`short`] of it is as of the whole.
fn start(s: &str) -> &str {
    &s[..s.ceil_char_boundary((SHOWN + 1).min(s.len()))]
}

/// A text as errors show it.
fn short(s: &str) -> String {
    if s.len() <= SHOWN {
        return s.to_owned();
    }
    format!("{}...", &s[..s.floor_char_boundary(SHOWN)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::one;
    use super::*;
    use crate::testing::TestDb;

    #[test]
    fn a_group_has_a_bound_in_rows_and_in_bytes_and_leaves_no_values() {
        let db = TestDb::new();
        db.run("CREATE TABLE t (v text)").unwrap();
        let insert = db.prepare("INSERT INTO t (v) VALUES ($1)", &[]).unwrap();
        let each = Each::new(insert).unwrap();
        let mut load = Load::new(each, vec!["v".into()], "t");
        let copy = one("COPY t FROM STDIN").unwrap();
        let settings = OutputSettings::default();
        // (bytes of a row, rows of a group)
        for (bytes, rows) in [(10, GROUP), (GROUP_BYTES / 4, 4), (2 * GROUP_BYTES, 1)] {
            let line = "x".repeat(bytes - 1) + "\n";
            let mut taken = 0;
            while !load.is_full() {
                let row = load.take(line.as_bytes(), &copy, &mut false, &settings);
                assert!(matches!(row, Ok(Taken::Bytes(n)) if n == bytes));
                taken += 1;
            }
            assert_eq!(taken, rows);
            load.done(rows as u64);
            assert!(load.is_empty() && load.spare.iter().all(Vec::is_empty));
        }
        assert_eq!(load.total, GROUP as u64 + 5);
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let exact = "é".repeat(SHOWN / 2);
        assert_eq!(short(&exact), exact);
        for more in ["x", "é", "éé", "xéé"] {
            let long = format!("{exact}{more}");
            assert_eq!(short(&long), format!("{exact}..."));
            assert_eq!(short(start(&long)), short(&long));
        }
        let odd = format!("x{exact}");
        assert_eq!(short(&odd), format!("x{}...", "é".repeat(SHOWN / 2 - 1)));
        assert_eq!(start(&exact), exact);
    }
}
