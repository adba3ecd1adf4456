//! Which UPDATEs change split columns by deltas.
//!
//! `UPDATE stock SET qty = qty - $1 WHERE id = $2 AND qty >= $1` is a delta with a guard. An UPDATE is one when
//!
//! - every column that it sets is split, and set to itself plus or minus an amount that no row decides;
//! - each condition that speaks of such a column is a lower bound of one of them with a side that no row decides (`qty > 0`, `qty - 3 >= 0`): its *guard*;
//! - it returns nothing, and has no other table beside it.
//!
//! The guards leave the statement's filter, so that the scan does not look at the split columns: what others add to them is no conflict.
//!
//! ON CONFLICT DO UPDATE is one likewise ([`of_conflict`]), with amounts of `excluded`, where the primary key arbitrates and there is no WHERE.
//!
//! Left out on purpose: upper bounds as guards; guards of ON CONFLICT DO UPDATE, which writes exactly then.

use crate::expr::{CmpOp, Expr, Slot};
use crate::functions::Volatility;
use crate::logical::write::{ColumnSource, Guard, SplitDelta, SplitUpdate};
use base::Type;
use base::schema::Table;
use txn::TableHandle;

/// Without the casts that the statement does not spell and that only make a number another kind of number.
fn number(e: &Expr) -> &Expr {
    let exact = |t: Type| matches!(t, Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric);
    match e {
        Expr::Cast(c) if !c.explicit && exact(c.from.ty) && exact(c.to.ty) => number(&c.arg),
        e => e,
    }
}

fn is_slot(e: &Expr, slot: Slot) -> bool {
    matches!(number(e), Expr::Slot(s) if *s == slot)
}

/// The same for every row of a run.
fn is_steady(e: &Expr) -> bool {
    e.is_fixed() && !e.has_subquery() && e.volatility() != Volatility::Volatile
}

/// `slot + amount`, `amount + slot`, `slot - amount`: the amount, and whether it is taken away.
fn moved(e: &Expr, slot: Slot, is_steady: &dyn Fn(&Expr) -> bool) -> Option<(Expr, bool)> {
    let Expr::Call(call) = number(e) else {
        return None;
    };
    let [a, b] = &call.args[..] else { return None };
    let (amount, negative) = match call.op.as_deref()? {
        "+" if is_slot(a, slot) => (b, false),
        "+" if is_slot(b, slot) => (a, false),
        "-" if is_slot(a, slot) => (b, true),
        _ => return None,
    };
    is_steady(amount).then(|| (amount.clone(), negative))
}

/// A lower bound of the column in this slot.
fn guard(e: &Expr, slot: Slot) -> Option<Guard> {
    let Expr::Compare(op, sides) = e else {
        return None;
    };
    let (column, bound, strict) = match op {
        CmpOp::Ge => (&sides.0, &sides.1, false),
        CmpOp::Gt => (&sides.0, &sides.1, true),
        CmpOp::Le => (&sides.1, &sides.0, false),
        CmpOp::Lt => (&sides.1, &sides.0, true),
        CmpOp::Eq | CmpOp::Ne => return None,
    };
    if !is_steady(bound) {
        return None;
    }
    let offset = match is_slot(column, slot) {
        true => None,
        false => Some(moved(column, slot, &is_steady)?),
    };
    Some(Guard {
        bound: bound.clone(),
        strict,
        offset,
        whole: e.clone(),
    })
}

/// The UPDATE as deltas, and what is left of its filter; none: it writes exactly.
pub(super) fn of_update(
    handle: &TableHandle,
    columns: &[ColumnSource],
    row: &[Slot],
    filter: &[Expr],
) -> Option<(SplitUpdate, Vec<Expr>)> {
    let mut deltas = Vec::new();
    for (at, c) in columns.iter().enumerate() {
        let ColumnSource::Expr(e) = c else { continue };
        handle.split(at)?;
        let (amount, negative) = moved(e, row[at], &is_steady)?;
        deltas.push(SplitDelta {
            column: at,
            amount,
            negative,
            guards: vec![],
        });
    }
    if deltas.is_empty() {
        return None;
    }
    let (mut rest, mut looked_at) = (vec![], vec![]);
    let mut conditions = vec![];
    filter
        .iter()
        .for_each(|f| f.clone().conjuncts(&mut conditions));
    for e in conditions {
        if e.has_subquery() {
            return None;
        }
        let mut slots = vec![];
        e.slots(&mut |s| slots.push(s));
        let mut set = deltas.iter_mut().filter(|d| slots.contains(&row[d.column]));
        match (set.next(), set.next()) {
            (None, _) => {
                let places = row.iter().enumerate();
                let read = places.filter(|(_, s)| slots.contains(s));
                looked_at.extend(read.map(|(at, _)| at as u16));
                rest.push(e);
            }
            (Some(d), None) => d.guards.push(guard(&e, row[d.column])?),
            _ => return None,
        }
    }
    let looked_at = match looked_at.is_empty() {
        true => 0,
        false => txn::column_set(&looked_at),
    };
    Some((SplitUpdate { deltas, looked_at }, rest))
}

/// What DO UPDATE adds to split columns, by amounts that only the proposed row decides; empty: it writes exactly.
pub(super) fn of_conflict(
    table: &Table,
    columns: &[ColumnSource],
    row: &[Slot],
    excluded: &[Slot],
) -> Vec<SplitDelta> {
    let is_steady = |e: &Expr| {
        let mut known = true;
        e.slots(&mut |s| known &= excluded.contains(&s));
        known && !e.has_subquery() && e.volatility() != Volatility::Volatile
    };
    let mut deltas = Vec::new();
    for (at, c) in columns.iter().enumerate() {
        let ColumnSource::Expr(e) = c else { continue };
        let amount = match table.def.columns[at].split {
            Some(_) => moved(e, row[at], &is_steady),
            None => None,
        };
        let Some((amount, negative)) = amount else {
            return vec![];
        };
        deltas.push(SplitDelta {
            column: at,
            amount,
            negative,
            guards: vec![],
        });
    }
    deltas
}
