//! Changes that write every row of a table anew.
//!
//! | change | what is written |
//! |---|---|
//! | a column whose default differs from row to row (serial, identity, `gen_random_uuid()`) | the default |
//! | a column's type | the old value in the new type |
//! | an index over an expression, or with a condition | its hidden column |
//! | a new primary key over rows that this transaction has changed | the rows as they are |
//!
//! ```text
//! close the table -> put it with new, empty storage -> read the newest rows of the old one, batch by batch; insert them as they shall be
//! ```
//!
//! The table is closed before the first look at its rows, so no commit can bring a row that the new storage lacks ([`Txn::close_table`]).
//!
//! The rows travel as ordinary inserts of the statement's transaction, so recovery and replicas need to know nothing of it, and
//! inserting checks every constraint. The values of a new sequence are counted here, and its definition then says where it
//! goes on: no other session can have used it yet.
//!
//! Left out on purpose: doing it beside writers; more rows than one commit holds (1 GiB of them, 54000).

use super::DdlContext;
use super::expr_text;
use super::work::change_id;
use crate::types::{OutputSettings, cast};
use base::schema::{Change, Object, Schema, SequenceDef, TableDef};
use base::{ColumnIdx, ColumnType, Error, Oid, Result, SqlState, Type, Value};
use sqlparser::ast::Expr;
use std::sync::Arc;
use txn::{NewestRows, OnCommit, Stop, TableHandle, Txn};

/// Rows that are held at once.
const BATCH: usize = 1024;

/// What becomes of one column of every row.
pub(super) struct Fill {
    pub table: Oid,
    pub column: ColumnIdx,
    pub with: With,
}

pub(super) enum With {
    /// The values of the sequence that was made for the column.
    Sequence(SequenceDef),
    /// A volatile DEFAULT.
    Default(String),
    /// The old value in another type.
    Cast(ColumnType, ColumnType),
    /// An expression over the row of the table as it was.
    Using(Expr, Box<TableDef>),
    /// A generated column: writing the row computes it.
    Computed,
}

/// A table whose rows are written anew.
struct Reload {
    old: Arc<TableHandle>,
    fills: Vec<Fill>,
}

/// Makes the changes; tables whose rows must be written anew are.
pub(super) fn apply(
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
    mut fills: Vec<Fill>,
    mut changes: Vec<Change>,
    on_commit: Option<(Oid, OnCommit)>,
) -> Result<(), Stop> {
    let before = txn.catalog();
    let mut reloads: Vec<Reload> = vec![];
    let mut hidden: Vec<Change> = vec![];
    let mut ends: Vec<SequenceDef> = vec![];
    for c in &mut changes {
        let Change::Put(Object::Table(def)) = c else {
            continue;
        };
        let Some(old) = before.table(def.id) else {
            continue;
        };
        let filled = fills.iter().any(|f| f.table == def.id);
        if !filled && def.rewrite_of.is_none() {
            continue;
        }
        txn.close_table(old)?;
        // Rows that are copied as they stand would leave their further records behind.
        let apart = txn.has_pending(old) || old.has_further_records();
        let moves = def.rewrite_of.is_some() && apart;
        if !filled && !moves {
            continue;
        }
        let count = txn.count_newest_rows(old)?;
        // A hidden column in the place of one that is gone: older versions of rows hold something else there.
        let columns = old.table.def.columns.len();
        let reuses = fills.iter().any(|f| {
            f.table == def.id && matches!(f.with, With::Computed) && usize::from(f.column) < columns
        });
        if count == 0 && !moves && !reuses && def.rewrite_of.is_none() {
            continue;
        }
        def.rewrite_of = None;
        def.storage = txn.new_oid();
        hidden.extend(base::split_records::settle_records(
            def,
            Some(&old.table.def),
            &mut || txn.new_oid(),
        ));
        let (of_it, rest) = fills.into_iter().partition(|f| f.table == def.id);
        fills = rest;
        let reload = Reload {
            old: old.clone(),
            fills: of_it,
        };
        for f in &reload.fills {
            ends.extend(f.sequence_after(count)?);
        }
        reloads.push(reload);
    }
    for h in hidden {
        changes.retain(|c| change_id(c) != change_id(&h));
        changes.push(h);
    }
    for c in &mut changes {
        if let Change::Put(Object::Sequence(s)) = c
            && let Some(end) = ends.iter().find(|e| e.id == s.id)
        {
            s.restart = end.restart;
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let reloaded: Vec<Oid> = reloads.iter().map(|r| r.old.table.def.id).collect();
    let unchecked = without_unchecked(&mut changes, &reloaded);
    put(txn, changes, on_commit)?;
    for r in reloads {
        r.run(txn, ctx, &before.schema)?;
    }
    put(txn, unchecked, None)
}

/// Takes the constraints that are NOT VALID out of tables whose rows are inserted anew: the changes that bring them back.
fn without_unchecked(changes: &mut [Change], reloaded: &[Oid]) -> Vec<Change> {
    let mut back = vec![];
    for c in changes {
        let Change::Put(Object::Table(def)) = c else {
            continue;
        };
        let any =
            def.checks.iter().any(|c| c.not_valid) || def.foreign_keys.iter().any(|f| f.not_valid);
        if any && reloaded.contains(&def.id) {
            back.push(Change::Put(Object::Table(def.clone())));
            def.checks.retain(|c| !c.not_valid);
            def.foreign_keys.retain(|f| !f.not_valid);
        }
    }
    back
}

/// Makes the changes, those of temporary objects in the session and the others in the schema.
fn put(
    txn: &mut Txn,
    changes: Vec<Change>,
    on_commit: Option<(Oid, OnCommit)>,
) -> Result<(), Stop> {
    if changes.is_empty() {
        return Ok(());
    }
    let (own, shared): (Vec<Change>, Vec<Change>) = match txn.are_temporary(&changes) {
        true => (changes, vec![]),
        false => changes
            .into_iter()
            .partition(|c| txn.are_temporary(std::slice::from_ref(c))),
    };
    if !own.is_empty() {
        txn.change_temp(&own, on_commit)?;
    }
    if !shared.is_empty() {
        txn.change_schema(shared)?;
    }
    Ok(())
}

impl Reload {
    /// Reads the rows of the old storage and inserts them into the new one. `schema` is that before the change.
    fn run(
        mut self,
        txn: &mut Txn,
        ctx: &DdlContext<'_>,
        schema: &Arc<Schema>,
    ) -> Result<(), Stop> {
        let id = self.old.table.def.id;
        let new = txn.catalog().table(id).expect("just put").clone();
        let def = &new.table.def;
        let added = added(&self.old, def);
        let dropped: Vec<usize> = (0..def.columns.len())
            .filter(|i| def.columns[*i].dropped)
            .collect();
        let mut at = NewestRows::default();
        loop {
            let mut rows: Vec<Vec<Value>> = vec![];
            let more = txn.newest_rows(&self.old, &mut at, BATCH, &mut |row| {
                let mut values = row.values();
                values.extend_from_slice(&added);
                dropped.iter().for_each(|i| values[*i] = Value::Null);
                rows.push(values);
            })?;
            for f in &mut self.fills {
                f.run(ctx, schema, def, &mut rows)?;
            }
            for row in rows {
                txn.check_interrupt()?;
                txn.insert(&new, &row)?;
            }
            if !more {
                return Ok(());
            }
        }
    }
}

/// What the columns that the new definition adds hold in rows without them.
fn added(old: &TableHandle, def: &TableDef) -> Vec<Value> {
    let added = &def.columns[old.table.def.columns.len()..];
    let missing = added.iter().map(|c| match &c.missing {
        Some(bytes) => base::row::decode_value(c.ty().ty, bytes).unwrap_or_default(),
        None => Value::Null,
    });
    missing.collect()
}

impl Fill {
    /// The sequence of the column once so many rows have got their values.
    fn sequence_after(&self, rows: u64) -> Result<Option<SequenceDef>> {
        let With::Sequence(s) = &self.with else {
            return Ok(None);
        };
        let mut s = s.clone();
        for _ in 0..rows {
            next(&mut s, Type::Int8)?;
        }
        Ok(Some(s))
    }

    /// Writes the column of these rows.
    fn run(
        &mut self,
        ctx: &DdlContext<'_>,
        schema: &Arc<Schema>,
        def: &TableDef,
        rows: &mut [Vec<Value>],
    ) -> Result<()> {
        let at = self.column as usize;
        let column = &def.columns[at];
        let path = ctx.search_path;
        match &mut self.with {
            With::Sequence(s) => {
                let ty = Type::from_oid(s.type_oid).unwrap_or(Type::Int8);
                for row in rows {
                    row[at] = next(s, ty)?;
                }
            }
            With::Default(text) => {
                let e = expr_text::parse(text)?;
                for row in rows {
                    row[at] = ctx.analyzer.evaluate_volatile(schema, path, column, &e)?;
                }
            }
            With::Computed => {}
            With::Using(e, before) => {
                let column = (&**before, column);
                let values = ctx.analyzer.transform(schema, path, column, e, rows)?;
                for (row, v) in rows.iter_mut().zip(values) {
                    row[at] = v;
                }
            }
            With::Cast(from, to) => {
                let settings = OutputSettings::default();
                for row in rows {
                    let old = std::mem::take(&mut row[at]);
                    row[at] = cast::apply(old, *from, *to, false, &settings)?;
                }
            }
        }
        Ok(())
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
