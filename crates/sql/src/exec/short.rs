//! Short ranges of one table: all rows found first, where they stand in the store, then sorted, made distinct or added up in place,
//! and sent from their own bytes. No operators, no slots, no copies.
//!
//! Made for what OLTP asks of ranges: plain columns, ORDER BY of columns, DISTINCT of the columns that the order names, and
//! aggregates over columns. A range that has more than [`MOST`] rows takes the general way, which streams.
//!
//! Left out on purpose: filters beyond the range, LIMIT, types whose equal values may have unequal bytes.

use super::keys::{is_empty, ranges};
use super::{ExecContext, RowView, Rt, State};
use crate::plan::node::{Plan, Short, ShortKey, Then};
use base::{RowRef, Type, Value};
use std::cmp::Ordering;
use txn::{Result, Txn};

/// Rows that are looked at together, and given together, at most.
pub const MOST: usize = 256;

/// Runs the statement and gives its rows to `f`; how many there were. None: nothing was given, and the general way must be taken.
pub fn run(
    short: &Short,
    plan: &Plan,
    st: &mut State,
    txn: &mut Txn,
    cx: &ExecContext<'_>,
    f: &mut dyn FnMut(RowView<'_>) -> Result<()>,
) -> Result<Option<u64>> {
    st.prepare(plan);
    let mut ranges = ranges(&short.scan, &mut Rt::new(txn, cx, st, plan))?;
    let range = match ranges.len() {
        0 => None,
        1 => ranges.pop().filter(|r| !is_empty(r)),
        _ => return Ok(None),
    };
    let Some(range) = range else {
        return finish(short, cx, &mut [], f);
    };
    let scan = &short.scan;
    let found = txn.range(
        scan.handle(),
        (scan.access, scan.direction),
        range,
        &short.reads,
        MOST,
        |rows| finish(short, cx, rows, f),
    )?;
    Ok(found.flatten())
}

fn finish(
    short: &Short,
    cx: &ExecContext<'_>,
    rows: &mut [RowRef<'_>],
    f: &mut dyn FnMut(RowView<'_>) -> Result<()>,
) -> Result<Option<u64>> {
    let mut given = 0;
    let mut give = |row: &RowRef<'_>| {
        given += 1;
        f(RowView::Stored {
            row: *row,
            columns: &short.columns,
        })
    };
    match &short.then {
        Then::Give => rows.iter().try_for_each(&mut give)?,
        Then::Sort { keys, distinct } => {
            let newer = |k: &ShortKey| rows.iter().any(|r| r.is_missing(k.column as usize));
            if keys.iter().any(newer) {
                return Ok(None);
            }
            let mut sorted: Vec<(u64, RowRef<'_>)> =
                rows.iter().map(|r| (prefix(&keys[0], r), *r)).collect();
            // Stable: rows with equal keys keep the order of the index.
            sorted.sort_by(|a, b| {
                let o = a.0.cmp(&b.0);
                o.then_with(|| compare_all(keys, &a.1, &b.1))
            });
            let mut last: Option<&(u64, RowRef<'_>)> = None;
            for s in &sorted {
                let again =
                    |l: &(u64, RowRef<'_>)| l.0 == s.0 && compare_all(keys, &l.1, &s.1).is_eq();
                if *distinct && last.is_some_and(again) {
                    continue;
                }
                last = Some(s);
                give(&s.1)?;
            }
        }
        Then::Aggregate(aggs) => {
            let mut values = Vec::with_capacity(aggs.len());
            for a in aggs {
                let mut acc = a.id.accumulator(&a.types, cx.settings);
                match a.column {
                    Some(c) => rows
                        .iter()
                        .try_for_each(|r| acc.add(&[r.get(c as usize)]))?,
                    None => rows.iter().try_for_each(|_| acc.add(&[]))?,
                }
                values.push(acc.finish()?);
            }
            let outputs: Vec<Value> = short
                .columns
                .iter()
                .map(|i| values[*i as usize].clone())
                .collect();
            f(RowView::Values(&outputs))?;
            given = 1;
        }
    }
    Ok(Some(given))
}

/// What decides most comparisons: the first eight characters. The same for all rows where that says nothing.
fn prefix(key: &ShortKey, row: &RowRef<'_>) -> u64 {
    let c = key.column as usize;
    let text = matches!(
        key.ty,
        Type::Text | Type::Varchar | Type::Bpchar | Type::Name
    );
    if !text || !key.not_null || key.desc || row.is_null(c) {
        return 0;
    }
    let raw = row.raw(c);
    let mut first = [0; 8];
    let n = raw.len().min(8);
    first[..n].copy_from_slice(&raw[..n]);
    u64::from_be_bytes(first)
}

fn compare_all(keys: &[ShortKey], a: &RowRef<'_>, b: &RowRef<'_>) -> Ordering {
    for k in keys {
        let c = k.column as usize;
        let o = match (a.is_null(c), b.is_null(c)) {
            (true, true) => Ordering::Equal,
            (true, false) if k.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if k.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if k.desc => compare(k.ty, b.raw(c), a.raw(c)),
            (false, false) => compare(k.ty, a.raw(c), b.raw(c)),
        };
        if o.is_ne() {
            return o;
        }
    }
    Ordering::Equal
}

/// Orders two stored values.
fn compare(ty: Type, a: &[u8], b: &[u8]) -> Ordering {
    let int2 = |x: &[u8]| i16::from_le_bytes(x.try_into().expect("two bytes"));
    let int4 = |x: &[u8]| i32::from_le_bytes(x.try_into().expect("four bytes"));
    let int8 = |x: &[u8]| i64::from_le_bytes(x.try_into().expect("eight bytes"));
    match ty {
        Type::Int2 => int2(a).cmp(&int2(b)),
        Type::Int4 | Type::Date => int4(a).cmp(&int4(b)),
        Type::Int8 | Type::Timestamp | Type::TimestampTz => int8(a).cmp(&int8(b)),
        _ => a.cmp(b),
    }
}
