//! Access paths: which index, and how much of it, a table's conditions allow.
//!
//! The rule: fix the longest prefix of an index's columns by equality (with constants, parameters, columns of relations
//! that are already there, IN lists), then a range on the next column. Candidates are weighed by the rows they would
//! visit, from the table's size alone, and by whether they give the wanted order. A full scan is the last resort also on
//! small tables: a serializable transaction that scans conflicts with every writer.

use super::asked::Asked;
use super::node::{KeyBound, KeyPart, Scan, SortKey};
use super::{DEEP, Planner, Want};
use crate::expr::{CmpOp, Expr, Matcher, Slot, Subquery, SubqueryKind};
use crate::functions::Volatility;
use crate::logical::TableRef;
use crate::logical::from::implied;
use base::Type;
use base::schema::IndexColumn;
use txn::{Access, Direction};

/// Rows of a table of unknown size.
const MIDDLING: f64 = 1000.0;

/// A way to read a table.
pub(crate) struct Path {
    pub access: Access,
    /// Place of the index; none: the rows in their own order, by row id.
    pub index: Option<usize>,
    pub fixed: Vec<KeyPart>,
    pub bounds: Vec<KeyBound>,
    /// See [`Scan::tests`].
    pub tests: Vec<(usize, Expr)>,
    /// Places of the conditions that the range expresses.
    pub used: Vec<usize>,
    pub unique: bool,
    pub by_key: bool,
    /// The direction in which it gives the wanted order.
    pub ordered: Option<Direction>,
    /// Rows it visits.
    pub rows: f64,
    pub cost: f64,
    /// Whether a key part reads another relation.
    pub joins: bool,
}

/// Estimated rows of a table.
pub(crate) fn table_rows(b: &Planner<'_>, t: &TableRef) -> f64 {
    match (b.rows, &t.handle) {
        (Some(f), Some(h)) => (f(h) as f64).max(100.0),
        _ => MIDDLING,
    }
}

/// The column slot under casts that keep the order of integers.
fn key_slot(e: &Expr) -> Option<Slot> {
    let int = |t| matches!(t, Type::Int2 | Type::Int4 | Type::Int8);
    match e {
        Expr::Slot(s) => Some(*s),
        Expr::Cast(c)
            if int(c.from.ty) && int(c.to.ty) && c.to.ty.typlen() >= c.from.ty.typlen() =>
        {
            key_slot(&c.arg)
        }
        _ => None,
    }
}

/// What a condition says about one column.
enum Says {
    Eq(Expr),
    In(Vec<Expr>),
    Any(Expr),
    Null,
    Bound(CmpOp, Expr),
}

/// Reads a condition as a statement about the column in slot `s`; `there` tells whether an expression's slots are known.
fn says(cond: &Expr, s: Slot, there: &dyn Fn(&Expr) -> bool) -> Option<Says> {
    match cond {
        Expr::Compare(op, ab) => {
            let (op, value) = if key_slot(&ab.0) == Some(s) && there(&ab.1) {
                (*op, &ab.1)
            } else if key_slot(&ab.1) == Some(s) && there(&ab.0) {
                (op.swap(), &ab.0)
            } else {
                return None;
            };
            match op {
                CmpOp::Eq => Some(Says::Eq(value.clone())),
                CmpOp::Ne => None,
                op => Some(Says::Bound(op, value.clone())),
            }
        }
        Expr::InList(l)
            if !l.negated && key_slot(&l.arg) == Some(s) && l.items.iter().all(there) =>
        {
            Some(Says::In(l.items.clone()))
        }
        Expr::AnyAll(a) if !a.all && key_slot(&a.left) == Some(s) && there(&a.array) => {
            match a.matcher {
                Matcher::Compare(CmpOp::Eq) => Some(Says::Any(a.array.clone())),
                _ => None,
            }
        }
        Expr::IsNull { arg, not: false } if matches!(**arg, Expr::Slot(x) if x == s) => {
            Some(Says::Null)
        }
        // `column IN (SELECT …)` over a query that runs once: its rows are the keys.
        Expr::Subquery(q) if q.outer.is_empty() => match &q.kind {
            SubqueryKind::AnyAll {
                left,
                all: false,
                hashable: true,
                ..
            } if left.len() == 1 && key_slot(&left[0]) == Some(s) => {
                Some(Says::Any(Expr::Subquery(Box::new(Subquery {
                    plan: q.plan,
                    kind: SubqueryKind::Array(Type::Text),
                    outputs: q.outputs.clone(),
                    outer: vec![],
                }))))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The best path. `there`: whether a slot is known before the table is read.
pub(crate) fn choose(
    b: &Planner<'_>,
    t: &TableRef,
    conditions: &[Expr],
    there: &dyn Fn(Slot) -> bool,
    want: &Want,
) -> Path {
    let rows = table_rows(b, t);
    let rewritten = over_hidden_columns(t, conditions);
    let given = conditions.len();
    let conditions = rewritten.as_deref().unwrap_or(conditions);
    let mut best: Option<Path> = None;
    let n = t.table.def.indexes.len();
    let places = (0..n).map(Some).chain(std::iter::once(None));
    for place in places {
        // Without a primary key the rows are in the order of their ids; with one, that order is the key's.
        if place.is_none() && t.table.primary().is_some() {
            continue;
        }
        let p = path(t, place, conditions, there, want, rows);
        if best.as_ref().is_none_or(|b| p.cost < b.cost) {
            best = Some(p);
        }
    }
    let mut best = best.expect("a table can be read");
    best.used.retain(|at| *at < given);
    best.tests = tests(t, &best, conditions, there);
    best
}

/// The conditions in which the expressions of indexes are their hidden columns, with one more for each partial index whose condition they
/// imply; none for a table without such indexes. They choose the key; the rows are still filtered by the conditions as they were given.
fn over_hidden_columns(t: &TableRef, conditions: &[Expr]) -> Option<Vec<Expr>> {
    let c = &t.computed;
    if c.columns.is_empty() && c.conditions.is_empty() {
        return None;
    }
    let mut all = conditions.to_vec();
    for e in &mut all {
        e.rewrite(&mut |part| {
            // A column by itself is found by the indexes over it.
            let plain = matches!(part, Expr::Slot(_) | Expr::Const(_));
            let found = c.columns.iter().find(|(_, x)| !plain && x.same(part));
            if let Some((at, _)) = found {
                *part = Expr::Slot(t.slot(*at));
            }
        });
    }
    for (at, wanted) in &c.conditions {
        if implied(conditions, wanted) {
            let truth = Expr::Const(base::Value::Bool(true));
            all.push(Expr::compare(CmpOp::Eq, Expr::Slot(t.slot(*at)), truth));
        }
    }
    Some(all)
}

fn path(
    t: &TableRef,
    place: Option<usize>,
    conditions: &[Expr],
    there: &dyn Fn(Slot) -> bool,
    want: &Want,
    table_rows: f64,
) -> Path {
    let known = |e: &Expr| {
        let mut all = true;
        e.slots(&mut |s| all &= there(s));
        all && e.volatility() < Volatility::Volatile
    };
    let mut fixed = Vec::new();
    let mut bounds = Vec::new();
    let mut used = Vec::new();
    let (mut joins, mut eq_columns) = (false, 0);
    let (mut columns, mut primary, mut unique_index, mut at_once) = (0, false, false, false);
    if let Some(i) = place {
        let index = &t.table.def.indexes[i];
        columns = index.columns.len();
        (primary, unique_index, at_once) = (index.primary, index.unique, index.is_immediate());
        for ic in &index.columns {
            let s = t.slot(ic.column as usize);
            let ty = t.table.def.columns[ic.column as usize].ty().ty;
            let mut part = None;
            for (at, c) in conditions.iter().enumerate() {
                if used.contains(&at) {
                    continue;
                }
                let found = match says(c, s, &known) {
                    Some(Says::Eq(e)) => KeyPart::Eq(e),
                    Some(Says::In(l)) => KeyPart::In(l),
                    Some(Says::Any(e)) => KeyPart::Any(e),
                    Some(Says::Null) => KeyPart::Null,
                    _ => continue,
                };
                let better = match (&part, &found) {
                    (None, _) => true,
                    (Some((_, KeyPart::Eq(_))), _) => false,
                    (Some(_), KeyPart::Eq(_)) => true,
                    _ => false,
                };
                if better {
                    part = Some((at, found));
                }
            }
            let Some((at, p)) = part else {
                // A range on this column, then no more.
                if ty != Type::Float4 {
                    for (at, c) in conditions.iter().enumerate() {
                        if let Some(Says::Bound(op, value)) = says(c, s, &known) {
                            joins |= !value.is_fixed();
                            bounds.push(KeyBound { op, value });
                            used.push(at);
                        }
                    }
                }
                break;
            };
            match &p {
                KeyPart::Eq(e) => {
                    eq_columns += 1;
                    joins |= !e.is_fixed();
                }
                KeyPart::In(_) => {}
                KeyPart::Any(e) => joins |= !e.is_fixed(),
                KeyPart::Null => eq_columns += 1,
            }
            used.push(at);
            fixed.push(p);
        }
    }
    let whole = place.is_some() && fixed.len() == columns;
    let no_null = !fixed.iter().any(|p| matches!(p, KeyPart::Null));
    let unique = whole && at_once && no_null && eq_columns == columns;
    let by_key = whole && primary;
    let rows = visited(&fixed, bounds.len(), columns, unique_index, table_rows);
    // One row is in any order of its own columns; other relations' columns make of it as many rows as they like.
    let own = want.order.iter().all(|k| reads_only(t, &k.expr));
    let ordered = if unique && own {
        Some(Direction::Forward)
    } else {
        order_of(t, place, &fixed, &bounds, conditions, &want.order)
    };
    let by_rows = place.is_none() || primary;
    let mut cost = rows * if by_rows { 1.0 } else { 1.5 };
    if fixed.is_empty() && bounds.is_empty() {
        // Reading everything: only the rows themselves, unless the order is worth it.
        cost += 10.0;
        if !by_rows && (want.order.is_empty() || ordered.is_none()) {
            cost += table_rows * 10.0;
        }
    }
    if !want.order.is_empty() {
        match ordered {
            Some(_) if want.some_limit => {
                let wanted = want.limit.map_or(rows * 0.1, |l| l as f64 + 1.0);
                // Conditions that the range does not express thin the rows out.
                let rest = conditions.len() - used.len();
                let passed = rows * 0.3f64.powi(rest as i32);
                cost *= (wanted / passed.max(1.0)).clamp(0.0, 1.0);
                cost += 1.0;
            }
            Some(_) => {}
            None => cost += rows * rows.max(2.0).log2() * 0.5 + 1.0,
        }
    }
    Path {
        access: match place {
            Some(i) if !primary => Access::Index(i),
            _ => Access::Primary,
        },
        index: place,
        fixed,
        bounds,
        tests: vec![],
        used,
        unique,
        by_key,
        ordered,
        rows,
        cost,
        joins,
    }
}

/// The conditions that a path does not express, and that say what a column of its index is: see [`Scan::tests`].
fn tests(
    t: &TableRef,
    path: &Path,
    conditions: &[Expr],
    there: &dyn Fn(Slot) -> bool,
) -> Vec<(usize, Expr)> {
    let known = |e: &Expr| {
        let mut all = e.volatility() < Volatility::Volatile && !e.has_subquery();
        e.slots(&mut |s| all &= there(s));
        all
    };
    let index = path.index.map(|i| &t.table.def.indexes[i]);
    let columns = index.map_or(&[][..], |i| &i.columns);
    let equal = |(at, ic): (usize, &IndexColumn)| {
        let s = t.slot(ic.column as usize);
        conditions.iter().find_map(|c| match says(c, s, &known) {
            Some(Says::Eq(e)) => Some((at, e)),
            _ => None,
        })
    };
    let behind = columns.iter().enumerate().skip(path.fixed.len());
    behind.filter_map(equal).collect()
}

/// Rows that a scan visits, of an index with this many columns (0: none) or the whole table.
pub(super) fn visited(
    fixed: &[KeyPart],
    bounds: usize,
    columns: usize,
    unique: bool,
    table_rows: f64,
) -> f64 {
    let times: f64 = fixed
        .iter()
        .map(|p| match p {
            KeyPart::In(l) => l.len() as f64,
            KeyPart::Any(_) => 8.0,
            KeyPart::Eq(_) | KeyPart::Null => 1.0,
        })
        .product();
    let whole = columns > 0 && fixed.len() == columns;
    if whole && unique && !fixed.iter().any(|p| matches!(p, KeyPart::Null)) {
        return times;
    }
    if fixed.is_empty() && bounds == 0 {
        return table_rows;
    }
    let (n, k) = (columns as f64, fixed.len() as f64);
    let left = match unique {
        true => table_rows.powf((n - k) / n),
        false => table_rows * 0.01f64.powf(k),
    };
    let range = match bounds {
        0 => 1.0,
        1 => 0.3,
        _ => 0.05,
    };
    (left * range * times).max(1.0)
}

/// Whether an expression reads no column but this table's, and gives the same for the same row.
fn reads_only(t: &TableRef, e: &Expr) -> bool {
    let mut own = e.volatility() < Volatility::Volatile;
    e.slots(&mut |s| own &= t.column_of(s).is_some());
    own
}

/// The direction in which a path gives the order, if it does.
fn order_of(
    t: &TableRef,
    place: Option<usize>,
    fixed: &[KeyPart],
    bounds: &[KeyBound],
    conditions: &[Expr],
    want: &[SortKey],
) -> Option<Direction> {
    let index = &t.table.def.indexes[place?];
    // Entries of a secondary index end with the primary key.
    let mut keys: Vec<IndexColumn> = index.columns.clone();
    if let Some(pk) = t.table.primary()
        && !index.primary
    {
        keys.extend(&t.table.def.indexes[pk].columns);
    }
    let single = |i: usize| matches!(fixed.get(i), Some(KeyPart::Eq(_) | KeyPart::Null));
    let mut direction = None;
    let mut at = 0;
    for k in want {
        if k.expr.is_fixed() && k.expr.volatility() < Volatility::Volatile {
            continue;
        }
        let Expr::Slot(s) = k.expr else { return None };
        let c = t.column_of(s)?;
        // A column that is fixed to one value orders nothing.
        let pinned = |i: usize| single(i) && keys[i].column as usize == c;
        if (0..fixed.len()).any(pinned) {
            continue;
        }
        while at < keys.len() && single(at) {
            at += 1;
        }
        let Some(ic) = keys.get(at) else {
            // The whole key is behind: rows are in order, because keys are unique; those of a table without a primary key
            // end with the row's number, which orders nothing that one could ask for.
            t.table.primary()?;
            return want
                .iter()
                .all(|k| reads_only(t, &k.expr))
                .then_some(direction.unwrap_or(Direction::Forward));
        };
        if ic.column as usize != c {
            return None;
        }
        // The bytes of jsonb keys are in another order than its values.
        if t.table.def.columns[c].ty().ty == Type::Jsonb {
            return None;
        }
        let d = if ic.desc == k.desc {
            Direction::Forward
        } else {
            Direction::Backward
        };
        if direction.is_some_and(|x| x != d) {
            return None;
        }
        let no_nulls = t.table.def.columns[c].not_null
            || at == fixed.len() && !bounds.is_empty()
            || conditions.iter().any(|e| {
                matches!(e, Expr::IsNull { arg, not: true } if matches!(**arg, Expr::Slot(x) if x == s))
            });
        let nulls_fit = match d {
            Direction::Forward => ic.nulls_first == k.nulls_first,
            Direction::Backward => ic.nulls_first != k.nulls_first,
        };
        if !no_nulls && !nulls_fit {
            return None;
        }
        direction = Some(d);
        at += 1;
    }
    Some(direction.unwrap_or(Direction::Forward))
}

/// Whether some index of the table could give this order.
pub(crate) fn has_order(t: &TableRef, key: &SortKey) -> bool {
    let Expr::Slot(s) = key.expr else {
        return false;
    };
    let Some(c) = t.column_of(s) else {
        return false;
    };
    t.table
        .def
        .indexes
        .iter()
        .any(|i| i.columns.iter().any(|ic| ic.column as usize == c))
}

/// The scan of a chosen path; the conditions that the path does not express become its filter.
pub(crate) fn scan(
    b: &mut Planner<'_>,
    t: TableRef,
    path: Path,
    conditions: Vec<Expr>,
    want: &Want,
) -> Scan {
    let mut filter = Vec::new();
    let mut key_cond = Vec::new();
    for (i, c) in conditions.into_iter().enumerate() {
        if path.used.contains(&i) {
            key_cond.push(c);
        } else {
            filter.push(c);
        }
    }
    filter.iter_mut().for_each(|c| b.hoist(c));
    let def = &t.table.def;
    let ctid = t.ctid();
    let columns = (0..def.columns.len())
        .filter(|&i| b.used[t.slot(i) as usize])
        .map(|i| (i as u16, t.slot(i)))
        .collect();
    let wanted = match (want.order.is_empty(), path.ordered, filter.is_empty()) {
        (true, _, true) | (false, Some(_), true) => want.limit,
        _ => None,
    };
    // One row ends a scan of a unique key, whether or not the filter takes it. Commit has the stack that it has.
    let ranges = !path.by_key && !path.unique && b.deepest <= DEEP;
    let asked = ranges.then(|| {
        let column = |s| t.column_of(s);
        Asked::of(&filter, &column, t.key_slot)
    });
    Scan {
        asked: asked.flatten(),
        table: t.table.clone(),
        handle: t.handle,
        alias: t.alias,
        access: path.access,
        key: path.index.map_or(vec![], |i| t.table.keys[i].clone()),
        index: path.index.map(|i| def.indexes[i].name.clone()),
        fixed: path.fixed,
        bounds: path.bounds,
        tests: path.tests,
        by_key: path.by_key,
        unique: path.unique,
        direction: path.ordered.unwrap_or(Direction::Forward),
        want: wanted,
        filter_inline: !filter.iter().any(Expr::has_subquery),
        filter,
        columns,
        key_slot: t.key_slot,
        ctid: Some(ctid).filter(|s| b.used[*s as usize]),
        adds: t.adds,
        skips: t.skips,
        key_cond,
    }
}
