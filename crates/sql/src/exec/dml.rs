//! UPDATE, DELETE and row locks. The read phase ends before the first write: a statement does not see its own writes.

use super::build::build;
use super::scan::holds;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::plan::node::{self, ColumnSource, Node, Returning, RowChecks};
use crate::types::text::failing_row;
use crate::types::value_bytes;
use base::{Error, SqlState, Value};
use foldhash::HashSet;
use std::sync::Arc;
use txn::{Result, TableHandle};

pub struct LockOp {
    pub node: Arc<node::Lock>,
    pub input: Box<dyn Operator>,
}

impl Operator for LockOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        'rows: while self.input.next(rt)? {
            for t in &self.node.tables {
                let key = take_key(t.key_slot, rt)?;
                let locked = rt.txn()?.lock_row(&t.handle, &key, t.mode, t.wait)?;
                rt.st.env[t.key_slot as usize] = Value::Bytea(key);
                if !locked {
                    let key = take_key(t.key_slot, rt)?;
                    rt.txn()?.pass_over(&t.handle, &key, reader(t.key_slot));
                    continue 'rows;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// The number of a scan that gives its rows' keys in this slot, among those of the statement.
pub fn reader(key_slot: u32) -> u32 {
    key_slot + 1
}

fn take_key(slot: u32, rt: &mut Rt<'_>) -> Result<Box<[u8]>> {
    match std::mem::take(&mut rt.st.env[slot as usize]) {
        Value::Bytea(k) => Ok(k),
        _ => Err(Error::internal("a target row has no key").into()),
    }
}

/// A target row's key. In a join the same row may stand there for the next match.
pub(super) fn key_of(slot: u32, joined: bool, rt: &mut Rt<'_>) -> Result<Box<[u8]>> {
    let key = take_key(slot, rt)?;
    if joined {
        rt.st.env[slot as usize] = Value::Bytea(key.clone());
    }
    Ok(key)
}

/// Starts the operators of a statement's input, whose first node has this number.
pub fn open(input: &Node, first: usize, rt: &mut Rt<'_>) -> Result<Box<dyn Operator>> {
    let mut first = rt.st.stats.is_some().then_some(first);
    let mut op = build(input, &mut first);
    op.open(rt)?;
    Ok(op)
}

/// Computes a row's RETURNING list into `rows`, from the slots.
pub fn push_returning(r: &Returning, rows: &mut RowStore, rt: &mut Rt<'_>) -> Result<()> {
    for (s, e) in &r.exprs {
        let v = e.eval(rt)?;
        rt.st.env[*s as usize] = v;
    }
    rows.push(rt, &r.outputs)
}

/// Puts a row in the slots that RETURNING reads.
pub fn set_row(row: &[Value], slots: &[u32], rt: &mut Rt<'_>) {
    for (&s, v) in slots.iter().zip(row) {
        rt.st.env[s as usize].clone_from(v);
    }
}

/// The first of a statement's rows that a view refuses, found before any is written: its place, and the error.
pub(super) type Refused = Option<(usize, Error)>;

/// WITH CHECK OPTION, after the row in this place is written, so that the constraints of its table speak first: 44000 when a view that the row
/// was written through does not show it. The row's slots hold it from then on.
pub(super) fn check(
    c: &RowChecks,
    handle: &TableHandle,
    (at, row): (usize, &[Value]),
    refused: &Refused,
    rt: &mut Rt<'_>,
) -> Result<()> {
    let error = match (c.early, refused) {
        (false, _) => violation(c, handle, row, rt)?,
        (true, Some((first, error))) if *first == at => Some(error.clone()),
        (true, _) => {
            set_row(row, &c.row, rt);
            None
        }
    };
    error.map_or(Ok(()), |e| Err(e.into()))
}

/// The first of these rows that a view refuses, where that is asked before the statement writes.
pub(super) fn refused<'r>(
    c: Option<&RowChecks>,
    handle: &TableHandle,
    rows: impl Iterator<Item = (usize, &'r [Value])>,
    rt: &mut Rt<'_>,
) -> Result<Refused> {
    let Some(c) = c.filter(|c| c.early) else {
        return Ok(None);
    };
    for (at, row) in rows {
        rt.tick()?;
        if let Some(error) = violation(c, handle, row, rt)? {
            return Ok(Some((at, error)));
        }
    }
    Ok(None)
}

/// 44000, if a view does not show the row.
fn violation(
    c: &RowChecks,
    handle: &TableHandle,
    row: &[Value],
    rt: &mut Rt<'_>,
) -> Result<Option<Error>> {
    set_row(row, &c.row, rt);
    for v in &c.views {
        if holds(&v.conditions, rt)? {
            continue;
        }
        let columns = handle.table.def.columns.iter();
        let shown = row.iter().zip(columns).filter(|(_, c)| !c.dropped);
        let detail = failing_row(shown.map(|(v, _)| v), rt.cx.settings);
        let what = format!("new row violates check option for view \"{}\"", v.view);
        let e = Error::new(SqlState::WITH_CHECK_OPTION_VIOLATION, what).detail(detail);
        let def = &handle.table.def;
        let catalog = rt.txn()?.catalog();
        let namespace = catalog.schema.namespace(def.namespace);
        // It says whose rows the detail shows (`session::told`).
        let e = e.table(namespace.map_or("", |n| &n.name), &def.name);
        return Ok(Some(e));
    }
    Ok(None)
}

pub fn update(u: &node::Update, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    if let Some(split) = &u.split {
        return super::split::update(u, split, rt);
    }
    if u.in_place {
        return set_columns(u, rt);
    }
    let mut seen = HashSet::default();
    let (new, rows) = read_update(u, 1, u.joined.then_some(&mut seen), rt)?;
    let n = write_all(u, &new, rt)?;
    Ok((rows, n))
}

/// New rows by their keys.
type Targets = Vec<(Box<[u8]>, Vec<Value>)>;

/// What an UPDATE will write.
pub(super) struct New {
    rows: Targets,
    refused: Refused,
}

/// The rows of an UPDATE as they will be, and those of RETURNING. A key in `seen` is passed over; `first`: the number of the input's node.
pub(super) fn read_update(
    u: &node::Update,
    first: usize,
    mut seen: Option<&mut HashSet<Box<[u8]>>>,
    rt: &mut Rt<'_>,
) -> Result<(New, RowStore)> {
    let mut op = open(&u.input, first, rt)?;
    let mut targets = Targets::new();
    let mut rows = RowStore::new(u.returning.as_ref().map_or(0, |r| r.outputs.len()));
    while op.next(rt)? {
        let key = key_of(u.key_slot, u.joined, rt)?;
        if let Some(seen) = &mut seen
            && !seen.insert(key.clone())
        {
            continue;
        }
        let mut row = Vec::with_capacity(u.columns.len());
        for (c, &s) in u.columns.iter().zip(&u.row) {
            row.push(match c {
                ColumnSource::Keep => rt.st.env[s as usize].clone(),
                ColumnSource::Expr(e) => e.eval(rt)?,
            });
        }
        if u.returning.is_some() || u.checks.is_some() {
            rt.txn()?.generate(&u.handle, &mut row)?;
        }
        if let Some(r) = &u.returning {
            set_row(&row, &r.row, rt);
            push_returning(r, &mut rows, rt)?;
        }
        rt.charge(key.len() + 40 + row.iter().map(value_bytes).sum::<usize>())?;
        targets.push((key, row));
    }
    let each = targets.iter().map(|(_, row)| &row[..]).enumerate();
    let refused = refused(u.checks.as_ref(), &u.handle, each, rt)?;
    let new = New {
        rows: targets,
        refused,
    };
    Ok((new, rows))
}

/// Writes what [`read_update`] gave; how many rows.
pub(super) fn write_all(u: &node::Update, new: &New, rt: &mut Rt<'_>) -> Result<u64> {
    for (at, (key, row)) in new.rows.iter().enumerate() {
        rt.tick()?;
        rt.txn()?.update(&u.handle, key, row)?;
        if let Some(c) = &u.checks {
            check(c, &u.handle, (at, row), &new.refused, rt)?;
        }
    }
    Ok(new.rows.len() as u64)
}

/// UPDATE of columns that can be set in the bytes of the rows.
fn set_columns(u: &node::Update, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    let mut op = open(&u.input, 1, rt)?;
    let mut targets: Vec<(Box<[u8]>, Vec<(usize, Value)>)> = Vec::new();
    let mut seen: HashSet<Box<[u8]>> = HashSet::default();
    while op.next(rt)? {
        let key = key_of(u.key_slot, u.joined, rt)?;
        if u.joined && !seen.insert(key.clone()) {
            continue;
        }
        let mut set = Vec::new();
        let mut bytes = key.len() + 40;
        for (i, c) in u.columns.iter().enumerate() {
            if let ColumnSource::Expr(e) = c {
                let v = e.eval(rt)?;
                bytes += 8 + value_bytes(&v);
                set.push((i, v));
            }
        }
        rt.charge(bytes)?;
        targets.push((key, set));
    }
    for (key, set) in &targets {
        rt.tick()?;
        if !rt.txn()?.update_columns(&u.handle, key, set)? {
            return Err(Error::internal("a row that was read is not there").into());
        }
    }
    Ok((RowStore::new(0), targets.len() as u64))
}

pub fn delete(d: &node::Delete, rt: &mut Rt<'_>) -> Result<(RowStore, u64)> {
    let mut seen = HashSet::default();
    let (keys, rows) = read_delete(d, 1, d.joined.then_some(&mut seen), rt)?;
    let n = delete_all(d, &keys, rt)?;
    Ok((rows, n))
}

/// The keys of a DELETE's rows, and the rows of RETURNING. A key in `seen` is passed over; `first`: the number of the input's node.
pub(super) fn read_delete(
    d: &node::Delete,
    first: usize,
    mut seen: Option<&mut HashSet<Box<[u8]>>>,
    rt: &mut Rt<'_>,
) -> Result<(Vec<Box<[u8]>>, RowStore)> {
    let mut op = open(&d.input, first, rt)?;
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    let mut rows = RowStore::new(d.returning.as_ref().map_or(0, |r| r.outputs.len()));
    while op.next(rt)? {
        let key = key_of(d.key_slot, d.joined, rt)?;
        if let Some(seen) = &mut seen
            && !seen.insert(key.clone())
        {
            continue;
        }
        if let Some(r) = &d.returning {
            push_returning(r, &mut rows, rt)?;
        }
        rt.charge(key.len() + 16)?;
        keys.push(key);
    }
    Ok((keys, rows))
}

/// Deletes the rows of these keys; how many were there.
pub(super) fn delete_all(d: &node::Delete, keys: &[Box<[u8]>], rt: &mut Rt<'_>) -> Result<u64> {
    let mut n = 0;
    for key in keys {
        rt.tick()?;
        n += u64::from(rt.txn()?.delete(&d.handle, key)?);
    }
    Ok(n)
}
