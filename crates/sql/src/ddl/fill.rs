//! Changes that write every row of a table anew: a column whose default differs from row to row (serial, identity,
//! `gen_random_uuid()`), a column whose type changes, and a new primary key over rows that this transaction has changed.
//!
//! ```text
//! read the rows -> put the table with new, empty storage -> insert the rows as they shall be
//! ```
//!
//! The rows travel as ordinary inserts of the statement's transaction, so recovery and replicas need to know nothing of it, and
//! inserting checks every constraint. The values of a new sequence are counted here, and its definition then says where it
//! goes on: nobody else can have used it yet.
//!
//! Left out on purpose: doing it without holding the table's rows in memory.

use super::DdlContext;
use super::expr_text;
use super::work::change_id;
use crate::types::{OutputSettings, cast};
use base::schema::{Change, Object, SequenceDef, TableDef};
use base::{ColumnIdx, ColumnType, Error, Oid, Result, SqlState, Type, Value};
use sqlparser::ast::Expr;
use txn::{Access, Direction, OnCommit, Scan, Stop, TableHandle, Txn};

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

/// Makes the changes; tables whose rows must be written anew are.
pub(super) fn apply(
    txn: &mut Txn,
    ctx: &DdlContext<'_>,
    fills: Vec<Fill>,
    mut changes: Vec<Change>,
    on_commit: Option<(Oid, OnCommit)>,
) -> Result<(), Stop> {
    let before = txn.catalog();
    let mut reloads: Vec<(Oid, Vec<Vec<Value>>)> = vec![];
    let mut hidden: Vec<Change> = vec![];
    for c in &mut changes {
        let Change::Put(Object::Table(def)) = c else {
            continue;
        };
        let Some(old) = before.table(def.id) else {
            continue;
        };
        let filled = fills.iter().any(|f| f.table == def.id);
        // Rows that are copied as they stand would leave their further records behind.
        let apart = txn.has_pending(old) || old.has_further_records();
        let moves = def.rewrite_of.is_some() && apart;
        if !filled && !moves {
            continue;
        }
        let rows = read(txn, old, def)?;
        if rows.is_empty() && !moves && def.rewrite_of.is_none() {
            continue;
        }
        def.rewrite_of = None;
        def.storage = txn.new_oid();
        let old = Some(&old.table.def);
        hidden.extend(base::split_records::settle_records(def, old, &mut || {
            txn.new_oid()
        }));
        reloads.push((def.id, rows));
    }
    for h in hidden {
        changes.retain(|c| change_id(c) != change_id(&h));
        changes.push(h);
    }
    for f in fills {
        let Some((_, rows)) = reloads.iter_mut().find(|r| r.0 == f.table) else {
            continue;
        };
        let next = f.run(txn, ctx, &changes, rows)?;
        for c in &mut changes {
            if let (Change::Put(Object::Sequence(s)), Some(next)) = (c, &next)
                && s.id == next.id
            {
                s.restart = next.restart;
            }
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let reloaded: Vec<Oid> = reloads.iter().map(|r| r.0).collect();
    let unchecked = without_unchecked(&mut changes, &reloaded);
    put(txn, changes, on_commit)?;
    let after = txn.catalog();
    for (table, rows) in reloads {
        let table = after.table(table).expect("just put").clone();
        for row in rows {
            txn.check_interrupt()?;
            txn.insert(&table, &row)?;
        }
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

/// The table's rows in the columns of its new definition, dropped ones NULL, new ones as rows without them read.
fn read(txn: &mut Txn, table: &TableHandle, def: &TableDef) -> Result<Vec<Vec<Value>>, Stop> {
    let added: Vec<Value> = def.columns[table.table.def.columns.len()..]
        .iter()
        .map(|c| match &c.missing {
            Some(bytes) => base::row::decode_value(c.ty().ty, bytes).unwrap_or_default(),
            None => Value::Null,
        })
        .collect();
    let dropped: Vec<usize> = (0..def.columns.len())
        .filter(|i| def.columns[*i].dropped)
        .collect();
    let mut rows = vec![];
    let mut scan = Scan::new(Access::Primary, base::KeyRange::all(), Direction::Forward);
    while txn.scan(table, &mut scan, 256, &mut |_, row| {
        let mut values = row.values();
        values.extend_from_slice(&added);
        dropped.iter().for_each(|i| values[*i] = Value::Null);
        rows.push(values);
        Ok(())
    })? {}
    Ok(rows)
}

impl Fill {
    /// Writes the column of the rows; the sequence as it stands then.
    fn run(
        self,
        txn: &Txn,
        ctx: &DdlContext<'_>,
        changes: &[Change],
        rows: &mut [Vec<Value>],
    ) -> Result<Option<SequenceDef>> {
        let at = self.column as usize;
        match self.with {
            With::Sequence(mut s) => {
                let ty = Type::from_oid(s.type_oid).unwrap_or(Type::Int8);
                for row in rows {
                    row[at] = next(&mut s, ty)?;
                }
                Ok(Some(s))
            }
            With::Default(text) => {
                let def = changes.iter().find_map(|c| match c {
                    Change::Put(Object::Table(t)) if t.id == self.table => Some(t),
                    _ => None,
                });
                let column = &def.expect("it is being changed").columns[at];
                let e = expr_text::parse(&text)?;
                let schema = txn.catalog().schema.clone();
                for row in rows {
                    let path = ctx.search_path;
                    row[at] = ctx.analyzer.evaluate_volatile(&schema, path, column, &e)?;
                }
                Ok(None)
            }
            With::Computed => Ok(None),
            With::Using(e, before) => {
                let def = changes.iter().find_map(|c| match c {
                    Change::Put(Object::Table(t)) if t.id == self.table => Some(t),
                    _ => None,
                });
                let column = (&*before, &def.expect("it is being changed").columns[at]);
                let schema = txn.catalog().schema.clone();
                let path = ctx.search_path;
                let values = ctx.analyzer.transform(&schema, path, column, &e, rows)?;
                for (row, v) in rows.iter_mut().zip(values) {
                    row[at] = v;
                }
                Ok(None)
            }
            With::Cast(from, to) => {
                let settings = OutputSettings::default();
                for row in rows {
                    row[at] =
                        cast::apply(std::mem::take(&mut row[at]), from, to, false, &settings)?;
                }
                Ok(None)
            }
        }
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
