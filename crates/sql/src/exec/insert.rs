//! INSERT, with ON CONFLICT.
//!
//! A row that ON CONFLICT DO UPDATE meets twice in one statement is 21000: the keys that this statement wrote in the
//! arbiter indexes are remembered.

use super::Rt;
use super::dml::{Refused, check, open, push_returning, refused, set_row};
use super::scan::holds;
use super::simple::eval_all;
use super::state::RowStore;
use crate::plan::node::{ColumnSource, ConflictUpdate, Insert, OnConflict};
use crate::types::value_bytes;
use base::{Error, SqlState, Value};
use foldhash::HashSet;
use txn::{InsertOutcome, Result, Stop};

/// Runs the statement: the rows of RETURNING, and how many rows were inserted or updated.
pub fn run(node: &Insert, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    let mut out = RowStore::new(node.returning.as_ref().map_or(0, |r| r.outputs.len()));
    if node.buffer {
        let new = read(node, 1, |_| Ok(()), rt)?;
        let n = put_all(node, new, Some(&mut out), rt)?;
        return Ok((out, n));
    }
    let mut op = open(&node.input, 1, rt)?;
    let mut written = Written::default();
    let mut n = 0;
    while op.next(rt)? {
        let row = eval_all(&node.columns, rt)?;
        if let Some(row) = put(node, row, &mut written, rt)? {
            if let Some(c) = &node.checks {
                check(c, &node.handle, (0, &row), &None, rt)?;
            }
            give(node, &row, &mut out, rt)?;
            n += 1;
        }
    }
    Ok((out, n))
}

/// What an INSERT will write.
#[derive(Clone, Default)]
pub(super) struct New {
    pub rows: Vec<Vec<Value>>,
    refused: Refused,
}

/// All rows to insert; `first`: the number of the input's node. `before`: does the writes that will have been done by the time these are.
pub(super) fn read(
    node: &Insert,
    first: usize,
    before: impl Fn(&mut Rt<'_>) -> Result<()>,
    rt: &mut Rt<'_>,
) -> Result<New> {
    let mut op = open(&node.input, first, rt)?;
    let mut rows = Vec::new();
    while op.next(rt)? {
        let row = eval_all(&node.columns, rt)?;
        rt.charge(24 + row.iter().map(value_bytes).sum::<usize>())?;
        rows.push(row);
    }
    drop(op);
    let mut new = New {
        rows,
        refused: None,
    };
    if node.checks.as_ref().is_some_and(|c| c.early) {
        new.refused = refused_of(node, &mut new.rows, before, rt)?;
    }
    Ok(new)
}

/// The first row that a view refuses. What ON CONFLICT makes of a row is found out by a trial, behind the writes that come before.
fn refused_of(
    node: &Insert,
    rows: &mut [Vec<Value>],
    before: impl Fn(&mut Rt<'_>) -> Result<()>,
    rt: &mut Rt<'_>,
) -> Result<Refused> {
    if node.conflict.is_none() {
        for row in rows.iter_mut() {
            rt.txn()?.generate(&node.handle, row)?;
        }
        let each = rows.iter().map(|row| &row[..]).enumerate();
        return refused(node.checks.as_ref(), &node.handle, each, rt);
    }
    let trial = rt.txn()?.begin_trial();
    before(rt)?;
    let (mut written, mut made) = (Written::default(), vec![]);
    for (at, row) in rows.iter().enumerate() {
        rt.tick()?;
        if let Some(row) = put(node, row.clone(), &mut written, rt)? {
            made.push((at, row));
        }
    }
    rt.txn()?.end_trial(trial);
    let each = made.iter().map(|(at, row)| (*at, &row[..]));
    refused(node.checks.as_ref(), &node.handle, each, rt)
}

/// Inserts these rows, RETURNING into `out`; how many were inserted or updated.
pub(super) fn put_all(
    node: &Insert,
    new: New,
    mut out: Option<&mut RowStore>,
    rt: &mut Rt<'_>,
) -> Result<u64> {
    let mut written = Written::default();
    let mut n = 0;
    for (at, row) in new.rows.into_iter().enumerate() {
        rt.tick()?;
        if let Some(row) = put(node, row, &mut written, rt)? {
            if let Some(c) = &node.checks {
                check(c, &node.handle, (at, &row), &new.refused, rt)?;
            }
            if let Some(out) = &mut out {
                give(node, &row, out, rt)?;
            }
            n += 1;
        }
    }
    Ok(n)
}

/// What the rows will give back, before they are inserted; and how many will be written, where ON CONFLICT makes that a question. `before`: does the
/// writes that will have been done by then.
pub(super) fn returned(
    node: &Insert,
    new: &mut New,
    before: impl Fn(&mut Rt<'_>) -> Result<()>,
    rt: &mut Rt<'_>,
) -> Result<(RowStore, Option<u64>)> {
    let mut out = RowStore::new(node.returning.as_ref().map_or(0, |r| r.outputs.len()));
    if node.conflict.is_some() {
        let trial = rt.txn()?.begin_trial();
        before(rt)?;
        let n = put_all(node, new.clone(), Some(&mut out), rt)?;
        rt.txn()?.end_trial(trial);
        return Ok((out, Some(n)));
    }
    for row in &mut new.rows {
        rt.tick()?;
        rt.txn()?.generate(&node.handle, row)?;
        give(node, row, &mut out, rt)?;
    }
    Ok((out, None))
}

/// A row's RETURNING list.
fn give(node: &Insert, row: &[Value], out: &mut RowStore, rt: &mut Rt<'_>) -> Result<()> {
    match &node.returning {
        None => Ok(()),
        Some(r) => {
            set_row(row, &r.row, rt);
            push_returning(r, out, rt)
        }
    }
}

/// Keys of arbiter indexes that this statement wrote.
#[derive(Default)]
struct Written(HashSet<(usize, Vec<u8>)>);

/// Inserts one row or resolves its conflict; the row that was written.
fn put(
    node: &Insert,
    mut row: Vec<Value>,
    written: &mut Written,
    rt: &mut Rt<'_>,
) -> Result<Option<Vec<Value>>> {
    if node.handle.generates() {
        rt.txn()?.generate(&node.handle, &mut row)?;
    }
    let final_row = match &node.conflict {
        None => {
            rt.txn()?.insert(&node.handle, &row)?;
            row
        }
        Some(c) => {
            if add_instead(node, c, &row, written, rt)? {
                return Ok(Some(row));
            }
            let outcome = rt
                .txn()?
                .insert_unless_conflict(&node.handle, &row, &c.arbiters)?;
            if let Some(s) = node.updated {
                let there = matches!(outcome, InsertOutcome::Conflict { .. });
                rt.st.env[s as usize] = Value::Oid(u32::from(there));
            }
            match (outcome, &c.update) {
                (InsertOutcome::Inserted, None) => row,
                (InsertOutcome::Inserted, Some(_)) => {
                    remember(node, c, &row, written);
                    row
                }
                (InsertOutcome::Conflict { .. }, None) => return Ok(None),
                (InsertOutcome::Conflict { key }, Some(u)) => {
                    check_first_time(node, c, &row, written)?;
                    match update(node, u, &key, &row, rt)? {
                        Some(new) => {
                            remember(node, c, &row, written);
                            remember(node, c, &new, written);
                            new
                        }
                        None => return Ok(None),
                    }
                }
            }
        }
    };
    Ok(Some(final_row))
}

fn check_first_time(node: &Insert, c: &OnConflict, row: &[Value], written: &Written) -> Result<()> {
    if arbiter_keys(node, c, row).any(|k| written.0.contains(&k)) {
        return Err(Error::new(
            SqlState::CARDINALITY_VIOLATION,
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
        )
        .hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.").into());
    }
    Ok(())
}

/// DO UPDATE by deltas, where a row has the key already; whether that is done.
fn add_instead(
    node: &Insert,
    c: &OnConflict,
    row: &[Value],
    written: &mut Written,
    rt: &mut Rt<'_>,
) -> Result<bool> {
    let Some(u) = c.update.as_ref().filter(|u| !u.deltas.is_empty()) else {
        return Ok(false);
    };
    check_first_time(node, c, row, written)?;
    set_row(row, &u.excluded, rt);
    let done = super::split::on_conflict(&node.handle, &u.deltas, row, rt)?;
    if done {
        remember(node, c, row, written);
    }
    Ok(done)
}

fn remember(node: &Insert, c: &OnConflict, row: &[Value], written: &mut Written) {
    written.0.extend(arbiter_keys(node, c, row));
}

/// The row's key in each arbiter index; none where a column is NULL.
fn arbiter_keys<'a>(
    node: &'a Insert,
    c: &'a OnConflict,
    row: &'a [Value],
) -> impl Iterator<Item = (usize, Vec<u8>)> + 'a {
    let t = &node.handle.table;
    c.arbiters.iter().filter_map(move |&i| {
        let mut key = Vec::new();
        for (ic, kc) in t.def.indexes[i].columns.iter().zip(&t.keys[i]) {
            let v = &row[ic.column as usize];
            if v.is_null() {
                return None;
            }
            kc.encode(v, &mut key);
        }
        Some((i, key))
    })
}

/// DO UPDATE of the row with this key; the new row, or none when its WHERE says no.
fn update(
    node: &Insert,
    u: &ConflictUpdate,
    key: &[u8],
    proposed: &[Value],
    rt: &mut Rt<'_>,
) -> Result<Option<Vec<Value>>> {
    let old = rt
        .txn()?
        .get(&node.handle, key, |row| row.values())?
        // The row in the way is newer than the snapshot.
        .ok_or(Stop::Restart)?;
    set_row(&old, &u.existing, rt);
    set_row(proposed, &u.excluded, rt);
    if !holds(&u.condition, rt)? {
        return Ok(None);
    }
    let mut new = Vec::with_capacity(old.len());
    for (c, v) in u.columns.iter().zip(old) {
        new.push(match c {
            ColumnSource::Keep => v,
            ColumnSource::Expr(e) => e.eval(rt)?,
        });
    }
    rt.txn()?.generate(&node.handle, &mut new)?;
    rt.txn()?.update(&node.handle, key, &new)?;
    Ok(Some(new))
}
