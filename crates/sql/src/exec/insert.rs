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
        if let Some(row) = put(node, row, None, &mut written, rt)?.row() {
            if let Some(c) = &node.checks {
                check(c, &node.handle, (0, row), &None, rt)?;
            }
            give(node, row, &mut out, rt)?;
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
    /// What became of each row on trial; empty: there was none. The rows come to the same when they are written, also where DO UPDATE calls what
    /// gives something else each time.
    tried: Vec<Made>,
}

/// What became of a row.
#[derive(Clone)]
enum Made {
    Inserted(Vec<Value>),
    Updated(Vec<Value>),
    Nothing,
}

impl Made {
    /// The row that was written.
    fn row(&self) -> Option<&[Value]> {
        match self {
            Made::Inserted(row) | Made::Updated(row) => Some(row),
            Made::Nothing => None,
        }
    }

    fn bytes(&self) -> usize {
        24 + self
            .row()
            .into_iter()
            .flatten()
            .map(value_bytes)
            .sum::<usize>()
    }
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
        ..New::default()
    };
    if node.checks.as_ref().is_some_and(|c| c.early) {
        new.refused = refused_of(node, &mut new, before, rt)?;
    }
    Ok(new)
}

/// The first row that a view refuses. What ON CONFLICT makes of a row is found out by a trial, behind the writes that come before.
fn refused_of(
    node: &Insert,
    new: &mut New,
    before: impl Fn(&mut Rt<'_>) -> Result<()>,
    rt: &mut Rt<'_>,
) -> Result<Refused> {
    if node.conflict.is_none() {
        for row in &mut new.rows {
            rt.txn()?.generate(&node.handle, row)?;
        }
        let each = new.rows.iter().map(|row| &row[..]).enumerate();
        return refused(node.checks.as_ref(), &node.handle, each, rt);
    }
    let trial = rt.txn()?.begin_trial();
    before(rt)?;
    let mut written = Written::default();
    for row in &new.rows {
        rt.tick()?;
        let made = put(node, row.clone(), None, &mut written, rt)?;
        rt.charge(made.bytes())?;
        new.tried.push(made);
    }
    rt.txn()?.end_trial(trial);
    let made = new.tried.iter().enumerate();
    let each = made.filter_map(|(at, made)| Some((at, made.row()?)));
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
        if let Some(row) = put(node, row, new.tried.get(at), &mut written, rt)?.row() {
            if let Some(c) = &node.checks {
                check(c, &node.handle, (at, row), &new.refused, rt)?;
            }
            if let Some(out) = &mut out {
                give(node, row, out, rt)?;
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
        let (mut written, mut tried) = (Written::default(), vec![]);
        let mut n = 0;
        for (at, row) in new.rows.iter().enumerate() {
            rt.tick()?;
            let made = put(node, row.clone(), new.tried.get(at), &mut written, rt)?;
            rt.charge(made.bytes())?;
            if let Some(row) = made.row() {
                if let Some(c) = &node.checks {
                    check(c, &node.handle, (at, row), &new.refused, rt)?;
                }
                give(node, row, &mut out, rt)?;
                n += 1;
            }
            tried.push(made);
        }
        rt.txn()?.end_trial(trial);
        new.tried = tried;
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

/// Inserts one row or resolves its conflict; what became of it. `tried`: what became of it on trial, which it comes to again.
fn put(
    node: &Insert,
    mut row: Vec<Value>,
    tried: Option<&Made>,
    written: &mut Written,
    rt: &mut Rt<'_>,
) -> Result<Made> {
    if node.handle.generates() {
        rt.txn()?.generate(&node.handle, &mut row)?;
    }
    match &node.conflict {
        None => {
            rt.txn()?.insert(&node.handle, &row)?;
            Ok(Made::Inserted(row))
        }
        Some(c) => {
            if add_instead(node, c, &row, written, rt)? {
                return Ok(Made::Updated(row));
            }
            let outcome = rt
                .txn()?
                .insert_unless_conflict(&node.handle, &row, &c.arbiters)?;
            if let Some(s) = node.updated {
                let there = matches!(outcome, InsertOutcome::Conflict { .. });
                rt.st.env[s as usize] = Value::Oid(u32::from(there));
            }
            let inserted = matches!(outcome, InsertOutcome::Inserted);
            if tried.is_some_and(|t| matches!(t, Made::Inserted(_)) != inserted) {
                return Err(Stop::Restart);
            }
            match (outcome, &c.update) {
                (InsertOutcome::Inserted, None) => Ok(Made::Inserted(row)),
                (InsertOutcome::Inserted, Some(_)) => {
                    remember(node, c, &row, written);
                    Ok(Made::Inserted(row))
                }
                (InsertOutcome::Conflict { .. }, None) => Ok(Made::Nothing),
                (InsertOutcome::Conflict { key }, Some(u)) => {
                    check_first_time(node, c, &row, written)?;
                    let new = match tried {
                        None => update(node, u, &key, &row, rt)?,
                        Some(tried) => {
                            let new = tried.row().map(<[Value]>::to_vec);
                            if let Some(new) = &new {
                                rt.txn()?.update(&node.handle, &key, new)?;
                            }
                            new
                        }
                    };
                    let Some(new) = new else {
                        return Ok(Made::Nothing);
                    };
                    remember(node, c, &row, written);
                    remember(node, c, &new, written);
                    Ok(Made::Updated(new))
                }
            }
        }
    }
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
