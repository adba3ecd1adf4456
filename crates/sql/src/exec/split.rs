//! UPDATE of split columns by deltas.
//!
//! The amounts and guards are computed once. A row whose deltas cannot be reserved beside those of others, or that the transaction has
//! written otherwise, is written exactly: locked, read, its guards asked as conditions, its columns computed.
//!
//! Left out on purpose: amounts that are no whole number of the column's units, which make every row an exact write.

use super::Rt;
use super::dml::{key_of, open, set_row};
use super::state::RowStore;
use crate::plan::node::{self, ColumnSource, SplitDelta, SplitUpdate};
use base::Value;
use base::split::Units;
use txn::{Delta, LockMode, Outcome, Result, TableHandle, WaitPolicy};

/// What a delta comes to in this run.
enum Amount {
    Delta(Delta),
    /// A guard is NULL: it takes no row.
    NoRow,
    /// It is no number of whole units.
    Exact,
}

fn amount(d: &SplitDelta, units: &Units, rt: &mut Rt<'_>) -> Result<Amount> {
    let value = d.amount.eval(rt)?;
    let Some(amount) = units.units(&value) else {
        return Ok(Amount::Exact);
    };
    let mut need = None;
    for g in &d.guards {
        let bound = g.bound.eval(rt)?;
        let offset = match &g.offset {
            None => Value::Int4(0),
            Some((e, _)) => e.eval(rt)?,
        };
        if bound.is_null() || offset.is_null() {
            return Ok(Amount::NoRow);
        }
        // column > b is column >= the next whole unit above b.
        let bound = match g.strict {
            false => units.round(&bound, true),
            true => units.round(&bound, false).map(|b| b + 1),
        };
        let (Some(bound), Some(offset)) = (bound, units.units(&offset)) else {
            return Ok(Amount::Exact);
        };
        let least = match g.offset {
            Some((_, false)) => bound - offset,
            _ => bound + offset,
        };
        need = Some(need.map_or(least, |n: i128| n.max(least)));
    }
    Ok(Amount::Delta(Delta {
        column: d.column,
        amount: if d.negative { -amount } else { amount },
        need,
    }))
}

/// DO UPDATE by deltas, for the proposed row whose slots are set; whether it is done.
pub(super) fn on_conflict(
    handle: &TableHandle,
    split: &[SplitDelta],
    proposed: &[Value],
    rt: &mut Rt<'_>,
) -> Result<bool> {
    let mut deltas = Vec::with_capacity(split.len());
    for d in split {
        let Some(units) = handle.split(d.column).copied() else {
            return Ok(false);
        };
        match amount(d, &units, rt)? {
            Amount::Delta(one) => deltas.push(one),
            Amount::NoRow | Amount::Exact => return Ok(false),
        }
    }
    let outcome = rt.txn()?.add_to_conflicting(handle, proposed, &deltas)?;
    Ok(outcome == Outcome::Done)
}

pub(super) fn update(
    u: &node::Update,
    split: &SplitUpdate,
    rt: &mut Rt<'_>,
) -> Result<(RowStore, u64)> {
    let mut op = open(&u.input, 1, rt)?;
    let (mut targets, mut n): (Vec<Box<[u8]>>, u64) = (vec![], 0);
    while op.next(rt)? {
        let key = key_of(u.key_slot, false, rt)?;
        rt.charge(key.len() + 16)?;
        targets.push(key);
    }
    if targets.is_empty() {
        return Ok((RowStore::new(0), 0));
    }
    let mut deltas = Some(Vec::with_capacity(split.deltas.len()));
    for d in &split.deltas {
        let units = *u.handle.split(d.column).expect("planned over this handle");
        match amount(d, &units, rt)? {
            Amount::Delta(one) => {
                if let Some(all) = &mut deltas {
                    all.push(one);
                }
            }
            Amount::NoRow => return Ok((RowStore::new(0), 0)),
            Amount::Exact => deltas = None,
        }
    }
    for key in &targets {
        rt.tick()?;
        let outcome = match &deltas {
            Some(all) => rt.txn()?.add_to(&u.handle, key, all, split.looked_at)?,
            None => Outcome::Exact,
        };
        n += match outcome {
            Outcome::Done => 1,
            Outcome::Refused => 0,
            Outcome::Exact => u64::from(write_exactly(u, split, key, rt)?),
        };
    }
    Ok((RowStore::new(0), n))
}

/// Whether the row satisfies the guards; then it is written.
fn write_exactly(
    u: &node::Update,
    split: &SplitUpdate,
    key: &[u8],
    rt: &mut Rt<'_>,
) -> Result<bool> {
    rt.txn()?
        .lock_row(&u.handle, key, LockMode::NoKeyUpdate, WaitPolicy::Wait)?;
    let Some(row) = rt.txn()?.get(&u.handle, key, |r| r.values())? else {
        return Ok(false);
    };
    set_row(&row, &u.row, rt);
    for g in split.deltas.iter().flat_map(|d| &d.guards) {
        if !matches!(g.whole.eval(rt)?, Value::Bool(true)) {
            rt.txn()?.leave_row(&u.handle, key);
            return Ok(false);
        }
    }
    let mut new = Vec::with_capacity(row.len());
    for (c, old) in u.columns.iter().zip(row) {
        new.push(match c {
            ColumnSource::Keep => old,
            ColumnSource::Expr(e) => e.eval(rt)?,
        });
    }
    rt.txn()?.update(&u.handle, key, &new)?;
    Ok(true)
}
