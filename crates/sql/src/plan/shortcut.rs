//! Plans that need no operators: a read of one row by its key, and a short range of one table.

use super::node::{Agg, KeyPart, Node, Point, Scan, Short, ShortAgg, ShortKey, SortKey, Then};
use crate::expr::{Expr, Slot};
use base::{ColumnIdx, Type};
use std::sync::Arc;

/// The plan as a point read, if it is one.
pub(crate) fn point(n: &Node, outputs: &[Slot]) -> Option<Point> {
    let Node::Scan(s) = n else { return None };
    let plain = |p: &KeyPart| matches!(p, KeyPart::Eq(e) if is_plain_key(e));
    if !s.by_key
        || !s.filter.is_empty()
        || s.key_slot.is_some()
        || s.ctid.is_some()
        || !s.fixed.iter().all(plain)
    {
        return None;
    }
    let column = |o: &Slot| s.columns.iter().find(|(_, x)| x == o).map(|(c, _)| *c);
    let columns: Vec<ColumnIdx> = outputs.iter().map(column).collect::<Option<_>>()?;
    Some(Point {
        reads: txn::column_set(&columns),
        columns,
        scan: Arc::clone(s),
    })
}

/// The plan as a short range, if it may be run as one.
pub(crate) fn short(n: &Node, outputs: &[Slot]) -> Option<Short> {
    let scan_of = |n: &Node| match n {
        Node::Scan(s) => {
            let keyless = s.key_slot.is_none() && s.ctid.is_none();
            (!s.by_key && s.filter.is_empty() && keyless).then(|| Arc::clone(s))
        }
        _ => None,
    };
    let column = |s: &Scan, x: &Slot| s.columns.iter().find(|(_, y)| x == y).map(|(c, _)| *c);
    let reads = |s: &Scan| s.columns.iter().map(|(c, _)| *c).collect();
    let plain = |s: &Arc<Scan>| -> Option<Vec<ColumnIdx>> {
        outputs.iter().map(|o| column(s, o)).collect()
    };
    match n {
        Node::Scan(_) => {
            let scan = scan_of(n)?;
            Some(Short {
                columns: plain(&scan)?,
                then: Then::Give,
                reads: reads(&scan),
                scan,
            })
        }
        Node::Sort(sort) if sort.top.is_none() => {
            let (input, unique) = match &sort.input {
                Node::Unique(u) => (&u.input, Some(&u.keys)),
                other => (other, None),
            };
            let scan = scan_of(input)?;
            let key = |k: &SortKey| {
                let Expr::Slot(s) = &k.expr else { return None };
                let c = column(&scan, s)?;
                let def = &scan.table.def.columns[c as usize];
                compares_by_bytes(def.ty().ty).then_some(ShortKey {
                    column: c,
                    ty: def.ty().ty,
                    not_null: def.not_null,
                    desc: k.desc,
                    nulls_first: k.nulls_first,
                })
            };
            let keys: Vec<ShortKey> = sort.keys.iter().map(key).collect::<Option<_>>()?;
            // Equal rows stand side by side only if the order is by all that makes them equal.
            let ordered = |e: &Expr| sort.keys.iter().any(|k| k.expr.same(e));
            if unique.is_some_and(|u| !u.iter().all(ordered)) {
                return None;
            }
            Some(Short {
                columns: plain(&scan)?,
                then: Then::Sort {
                    keys,
                    distinct: unique.is_some(),
                },
                reads: reads(&scan),
                scan,
            })
        }
        Node::Aggregate(a) if a.plain && !a.first_only => {
            let scan = scan_of(&a.input)?;
            let one = |a: &Agg| {
                let plain = !a.distinct && a.filter.is_none() && a.order.is_empty();
                let column = match &a.args[..] {
                    [] => None,
                    [Expr::Slot(s)] => Some(column(&scan, s)?),
                    _ => return None,
                };
                plain.then(|| ShortAgg {
                    id: a.id,
                    types: a.types.clone(),
                    column,
                })
            };
            let aggs = a.aggs.iter().map(one).collect::<Option<_>>()?;
            let place = |o: &Slot| a.aggs.iter().position(|x| x.slot == *o);
            let columns = outputs.iter().map(|o| place(o).map(|i| i as ColumnIdx));
            Some(Short {
                columns: columns.collect::<Option<_>>()?,
                then: Then::Aggregate(aggs),
                reads: reads(&scan),
                scan,
            })
        }
        _ => None,
    }
}

/// Whether an expression may stand in the key of a point read.
fn is_plain_key(e: &Expr) -> bool {
    matches!(e, Expr::Param(_) | Expr::Const(_))
}

/// Whether values of this type are equal exactly when their bytes are, and are compared by a shortcut.
fn compares_by_bytes(ty: Type) -> bool {
    matches!(
        ty,
        Type::Text
            | Type::Varchar
            | Type::Bpchar
            | Type::Name
            | Type::Int2
            | Type::Int4
            | Type::Int8
            | Type::Date
            | Type::Timestamp
            | Type::TimestampTz
    )
}
