//! ADD COLUMN with a default that differs from row to row: serial, identity, `gen_random_uuid()`.
//!
//! ```text
//! put the table with the bare column -> write each row's value -> put the table as it shall be (NOT NULL, keys …)
//! ```
//!
//! All of it happens inside the statement's transaction, by ordinary updates; rolled back, nothing stays. The values of a new
//! sequence are counted here, and its definition then says where it goes on: nobody else can have used it yet.
//!
//! Left out on purpose: filling without holding the rows' keys in memory.

use super::DdlContext;
use super::expr_text;
use base::schema::{Change, Object, SequenceDef, TableDef};
use base::{ColumnIdx, Error, Result, SqlState, Type, Value};
use txn::{Access, Direction, Scan, Txn};

/// A column to fill.
pub(super) struct Fill {
    /// The table with the bare column.
    pub table: TableDef,
    pub column: ColumnIdx,
    pub text: String,
    /// The sequence that was made for it.
    pub sequence: Option<SequenceDef>,
}

impl Fill {
    /// Fills the column; the sequence as it stands then.
    pub fn run(&self, txn: &mut Txn, ctx: &DdlContext<'_>) -> Result<Option<SequenceDef>> {
        txn.change_schema(vec![Change::Put(Object::Table(self.table.clone()))])?;
        let catalog = txn.catalog();
        let table = catalog.table(self.table.id).expect("just put").clone();
        let mut rows: Vec<(Box<[u8]>, Vec<Value>)> = vec![];
        let mut scan = Scan::new(Access::Primary, base::KeyRange::all(), Direction::Forward);
        while txn.scan(&table, &mut scan, 256, &mut |key, row| {
            rows.push((key.into(), row.values()));
            Ok(())
        })? {}
        let column = &self.table.columns[self.column as usize];
        let e = expr_text::parse(&self.text)?;
        let mut sequence = self.sequence.clone();
        for (key, mut row) in rows {
            txn.check_interrupt()?;
            row[self.column as usize] = match &mut sequence {
                Some(s) => next(s, column.ty().ty)?,
                None => {
                    ctx.analyzer
                        .evaluate_volatile(&catalog.schema, ctx.search_path, column, &e)?
                }
            };
            txn.update(&table, &key, &row)?;
        }
        Ok(sequence)
    }
}

/// The sequence's next value; `restart` keeps the one after it.
fn next(s: &mut SequenceDef, ty: Type) -> Result<Value> {
    let v = s.restart.unwrap_or(s.start);
    let limit = |what: &str, bound: i64| {
        Error::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "nextval: reached {what} value of sequence \"{}\" ({bound})",
                s.name
            ),
        )
    };
    if v > s.max {
        return Err(limit("maximum", s.max));
    }
    if v < s.min {
        return Err(limit("minimum", s.min));
    }
    s.restart = Some(v.saturating_add(s.increment));
    Ok(match ty {
        Type::Int2 => Value::Int2(v as i16),
        Type::Int4 => Value::Int4(v as i32),
        _ => Value::Int8(v),
    })
}
