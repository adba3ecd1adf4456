//! Joins: the order of relations, and how each is joined to those before it.
//!
//! Inner joins are one list of relations and one list of conditions. The planner starts with the relation that its own
//! conditions fix best, then takes the one that grows the result least, again and again. A condition is tested as soon as
//! its columns are there. A relation is joined by index when a condition with the relations before it fixes a prefix of
//! one, else by hashing when there is an equality, else by trying all pairs. Outer joins keep their written order; one
//! whose NULL-filled rows a condition above refuses is an inner join.
//!
//! Left out on purpose: bushy plans, merge joins, a search over all orders.

use super::access::{self, Path};
use super::node::{self, JoinKind, Node};
use super::{Planned, Planner, Want, constants};
use crate::expr::{CmpOp, Expr, Slot};
use crate::functions::Volatility;
use crate::logical::{self, TableRef};
use base::Result;
use std::collections::HashSet;
use std::sync::Arc;

/// A FROM item whose derived tables are planned.
type From = logical::From<Planned>;

/// Whether the rows of a relation may differ from one start to the next.
fn changes(f: &From, filter: &[Expr]) -> bool {
    let mut own = vec![];
    f.own_slots(&mut own);
    let mut read = vec![];
    f.needs(&mut read);
    filter.iter().for_each(|e| e.slots(&mut |s| read.push(s)));
    fn has_cte(f: &From) -> bool {
        match f {
            From::Cte { .. } => true,
            From::Inner { items, .. } => items.iter().any(has_cte),
            From::Left { left, right, .. } | From::Full { left, right, .. } => {
                has_cte(left) || has_cte(right)
            }
            _ => false,
        }
    }
    // A planned query may hold a CTE of a recursive query around it: only its columns are known here.
    has_cte(f) || read.iter().any(|s| !own.contains(s))
}

struct Leaf {
    from: From,
    own: HashSet<Slot>,
    needs: HashSet<Slot>,
}

impl Leaf {
    fn new(from: From) -> Leaf {
        let (mut own, mut read) = (vec![], vec![]);
        from.own_slots(&mut own);
        from.needs(&mut read);
        let own: HashSet<Slot> = own.into_iter().collect();
        Leaf {
            needs: read.into_iter().filter(|s| !own.contains(s)).collect(),
            own,
            from,
        }
    }
}

/// Plans relations joined inwardly under these conditions, the derived tables among them first.
pub(super) fn plan_join(
    b: &mut Planner<'_>,
    items: Vec<logical::From>,
    filter: Vec<Expr>,
    want: &Want,
) -> Result<Planned> {
    let mut derived = |r: Box<logical::Logical>| b.plan(*r, &Want::default());
    let items = items
        .into_iter()
        .map(|i| i.map(&mut derived))
        .collect::<Result<_>>()?;
    plan_from(b, items, filter, want)
}

/// An outer join whose NULLs a condition refuses is an inner one, or one that keeps the rows of one side; that may free more.
fn without_refused(mut leaves: Vec<From>, conditions: &mut Vec<Expr>) -> Result<Vec<From>> {
    let refused = |side: &From, conditions: &[Expr]| {
        let mut slots = vec![];
        side.own_slots(&mut slots);
        conditions.iter().any(|c| refuses_nulls(c, &slots))
    };
    loop {
        base::cancel::work(64 * leaves.len() * (1 + conditions.len()))?;
        let found = leaves.iter().enumerate().find_map(|(at, l)| match l {
            From::Left { right, .. } => refused(right, conditions).then_some((at, true, false)),
            From::Full { left, right, .. } => {
                let (l, r) = (refused(left, conditions), refused(right, conditions));
                (l || r).then_some((at, r, l))
            }
            _ => None,
        });
        let Some((at, no_right, no_left)) = found else {
            return Ok(leaves);
        };
        let simpler = match leaves.remove(at) {
            From::Left { left, right, on } => From::Inner {
                items: vec![*left, *right],
                filter: on,
            },
            From::Full { left, right, on } => match (no_left, no_right) {
                (true, true) => From::Inner {
                    items: vec![*left, *right],
                    filter: on,
                },
                (true, false) => From::Left { left, right, on },
                (false, _) => From::Left {
                    left: right,
                    right: left,
                    on,
                },
            },
            other => other,
        };
        let mut opened = Vec::new();
        flatten(simpler, &mut opened, conditions);
        leaves.splice(at..at, opened);
    }
}

fn plan_from(
    b: &mut Planner<'_>,
    items: Vec<From>,
    filter: Vec<Expr>,
    want: &Want,
) -> Result<Planned> {
    let mut conditions = Vec::new();
    filter
        .into_iter()
        .for_each(|c| c.conjuncts(&mut conditions));
    let mut leaves = Vec::new();
    for i in items {
        flatten(i, &mut leaves, &mut conditions);
    }
    leaves = without_refused(leaves, &mut conditions)?;
    if leaves.len() > 2 {
        constants::spread(&mut conditions);
    }
    if leaves.is_empty() {
        return Ok(Planned {
            node: Node::Once(Arc::new(conditions)),
            ordered: want.order.is_empty(),
            rows: 1.0,
        });
    }
    let mut leaves: Vec<Leaf> = leaves.into_iter().map(Leaf::new).collect();
    if let Some(split) = by_lookup(b, &leaves, &conditions, want) {
        return lookup(b, leaves, split, want);
    }
    // Conditions without columns of these relations decide once whether anything is read at all.
    let local: HashSet<Slot> = leaves.iter().flat_map(|l| l.own.iter().copied()).collect();
    let first = pick_first(b, &leaves, &conditions, &local, want);
    let leaf = leaves.remove(first);
    let mut pending: HashSet<Slot> = leaves.iter().flat_map(|l| l.own.iter().copied()).collect();
    let mine = take_ready(&mut conditions, &pending);
    let alone = leaves.is_empty();
    let want_here = Want {
        limit: if alone { want.limit } else { None },
        ..want.clone()
    };
    let mut done = plan_leaf(b, leaf.from, mine, &pending, &want_here)?;
    let mut left_slots: HashSet<Slot> = leaf.own;
    while !leaves.is_empty() {
        base::cancel::work(64 * leaves.len() * (1 + conditions.len()))?;
        let next = pick_next(b, &leaves, &conditions, &pending, &left_slots);
        let leaf = leaves.remove(next);
        let still: HashSet<Slot> = leaves.iter().flat_map(|l| l.own.iter().copied()).collect();
        pending = still;
        let ready = take_ready(&mut conditions, &pending);
        let own = leaf.own.clone();
        done = join(b, done, leaf, ready, &left_slots, JoinKind::Inner, &pending)?;
        left_slots.extend(own);
    }
    if !conditions.is_empty() {
        done.node = Node::Filter(Arc::new(node::Filter {
            input: done.node,
            conditions,
        }));
    }
    Ok(done)
}

/// Conditions of a subquery, by what they read.
struct Split {
    /// Only its own relations.
    inside: Vec<Expr>,
    /// Equalities of an own expression and an outer one.
    ties: Vec<Expr>,
    keys: Vec<Expr>,
    probes: Vec<Expr>,
    /// Anything else.
    rest: Vec<Expr>,
}

/// How to look the rows of these relations up, should that be better than to read them anew for each outer row: their
/// conditions tie them to outer columns by equality, and no index serves.
fn by_lookup(b: &Planner<'_>, leaves: &[Leaf], conditions: &[Expr], want: &Want) -> Option<Split> {
    let own: HashSet<Slot> = leaves.iter().flat_map(|l| l.own.iter().copied()).collect();
    let mut split = Split {
        inside: vec![],
        ties: vec![],
        keys: vec![],
        probes: vec![],
        rest: vec![],
    };
    for c in conditions {
        let (mut near, mut far) = (false, false);
        c.slots(&mut |s| {
            near |= own.contains(&s);
            far |= !own.contains(&s);
        });
        if !far {
            split.inside.push(c.clone());
        } else if let Some((key, probe)) = tie(c, &own) {
            split.keys.push(key);
            split.probes.push(probe);
            split.ties.push(c.clone());
        } else {
            split.rest.push(c.clone());
        }
    }
    let volatile = |e: &Expr| e.volatility() == Volatility::Volatile;
    let mut whole = split.inside.iter().chain(&split.keys);
    if split.ties.is_empty() || whole.any(volatile) {
        return None;
    }
    let fit = |l: &Leaf| {
        let known = |s: Slot| !own.contains(&s);
        let alone = l.needs.iter().all(|s| own.contains(s));
        alone && may_be_kept(&l.from) && !serves(b, &l.from, conditions, &known, want)
    };
    leaves.iter().all(fit).then_some(split)
}

/// `own = outer`, as (own, outer).
fn tie(c: &Expr, own: &HashSet<Slot>) -> Option<(Expr, Expr)> {
    let Expr::Compare(CmpOp::Eq, ab) = c else {
        return None;
    };
    if c.has_subquery() {
        return None;
    }
    let side = |e: &Expr| {
        let (mut near, mut far) = (false, false);
        e.slots(&mut |s| {
            near |= own.contains(&s);
            far |= !own.contains(&s);
        });
        (near, far)
    };
    match (side(&ab.0), side(&ab.1)) {
        ((true, false), (false, true)) => Some((ab.0.clone(), ab.1.clone())),
        ((false, true), (true, false)) => Some((ab.1.clone(), ab.0.clone())),
        _ => None,
    }
}

/// Whether a relation gives the same rows at each start, and none of them is to be locked.
fn may_be_kept(f: &From) -> bool {
    match f {
        From::Table(t) => t.key_slot.is_none() && !t.skips,
        From::Virtual { .. } | From::Rel { .. } => true,
        From::Function(f) => f.f.volatility < Volatility::Volatile,
        From::Cte { work, .. } => !work,
        From::Inner { items, .. } => items.iter().all(may_be_kept),
        From::Left { left, right, .. } | From::Full { left, right, .. } => {
            may_be_kept(left) && may_be_kept(right)
        }
    }
}

/// Whether an index finds rows of a relation by outer columns.
fn serves(
    b: &Planner<'_>,
    f: &From,
    conditions: &[Expr],
    known: &dyn Fn(Slot) -> bool,
    want: &Want,
) -> bool {
    match f {
        From::Table(t) => {
            let path = access::choose(b, t, conditions, known, want);
            path.joins || path.unique
        }
        From::Inner { items, .. } => items.iter().any(|i| serves(b, i, conditions, known, want)),
        From::Left { left, .. } => serves(b, left, conditions, known, want),
        _ => false,
    }
}

fn lookup(b: &mut Planner<'_>, leaves: Vec<Leaf>, split: Split, want: &Want) -> Result<Planned> {
    let kept = |l: &Leaf, b: &Planner<'_>| -> Vec<Slot> {
        let used = |s: &Slot| b.used[*s as usize] || is_key_slot(&l.from, *s);
        l.own.iter().copied().filter(used).collect()
    };
    let mut slots: Vec<Slot> = leaves.iter().flat_map(|l| kept(l, b)).collect();
    slots.sort_unstable();
    let items = leaves.into_iter().map(|l| l.from).collect();
    let input = plan_from(b, items, split.inside, &Want::default())?;
    let rows = (input.rows * 0.1f64.powi(split.ties.len() as i32)).max(1.0);
    let node = Node::Lookup(Arc::new(node::Lookup {
        input: input.node,
        keys: split.keys,
        probes: split.probes,
        conditions: split.ties,
        slots,
    }));
    Ok(Planned {
        node: filtered(b, node, split.rest),
        ordered: want.order.is_empty(),
        rows,
    })
}

fn flatten(f: From, leaves: &mut Vec<From>, conditions: &mut Vec<Expr>) {
    match f {
        From::Inner { items, filter } => {
            filter.into_iter().for_each(|c| c.conjuncts(conditions));
            items
                .into_iter()
                .for_each(|i| flatten(i, leaves, conditions));
        }
        f => leaves.push(f),
    }
}

/// Whether a condition cannot be TRUE when these slots are NULL.
fn refuses_nulls(c: &Expr, slots: &[Slot]) -> bool {
    fn reads(e: &Expr, slots: &[Slot]) -> bool {
        match e {
            Expr::Slot(s) => slots.contains(s),
            Expr::Cast(c) => reads(&c.arg, slots),
            Expr::Call(c) => c.f.strict && c.args.iter().any(|a| reads(a, slots)),
            _ => false,
        }
    }
    match c {
        Expr::Compare(_, ab) => reads(&ab.0, slots) || reads(&ab.1, slots),
        Expr::InList(l) => reads(&l.arg, slots),
        Expr::IsNull { arg, not: true } => reads(arg, slots),
        Expr::Call(_) | Expr::Slot(_) => reads(c, slots),
        Expr::Or(parts) => parts.iter().all(|p| refuses_nulls(p, slots)),
        Expr::And(parts) => parts.iter().any(|p| refuses_nulls(p, slots)),
        _ => false,
    }
}

/// Takes the conditions that read nothing of what is still to come.
fn take_ready(conditions: &mut Vec<Expr>, pending: &HashSet<Slot>) -> Vec<Expr> {
    let mut ready = Vec::new();
    let mut rest = Vec::new();
    for c in conditions.drain(..) {
        let mut waits = false;
        c.slots(&mut |s| waits |= pending.contains(&s));
        if waits {
            rest.push(c);
        } else {
            ready.push(c);
        }
    }
    *conditions = rest;
    ready
}

fn leaf_rows(b: &Planner<'_>, f: &From) -> f64 {
    match f {
        From::Table(t) => access::table_rows(b, t),
        From::Virtual { .. } => 300.0,
        From::Function(_) => 50.0,
        From::Rel { rel, .. } => rel.rows,
        From::Cte { .. } => 100.0,
        From::Inner { items, .. } => items.iter().map(|i| leaf_rows(b, i)).product(),
        From::Left { left, .. } => leaf_rows(b, left),
        From::Full { left, right, .. } => leaf_rows(b, left) + leaf_rows(b, right),
    }
}

fn pick_first(
    b: &Planner<'_>,
    leaves: &[Leaf],
    conditions: &[Expr],
    local: &HashSet<Slot>,
    want: &Want,
) -> usize {
    if leaves.len() == 1 {
        return 0;
    }
    let cost = |l: &Leaf| {
        if l.needs.iter().any(|s| local.contains(s)) {
            return f64::INFINITY;
        }
        let only: Vec<Expr> = conditions
            .iter()
            .filter(|c| {
                let mut own = true;
                c.slots(&mut |s| own &= l.own.contains(&s) || !local.contains(&s));
                own
            })
            .cloned()
            .collect();
        let thin = 0.33f64.powi(only.len() as i32);
        match &l.from {
            From::Table(t) => {
                let p = access::choose(b, t, &only, &|s| !local.contains(&s), &Want::default());
                let rest = only.len() - p.used.len();
                let mut rows = p.rows * 0.33f64.powi(rest as i32);
                // Starting where the order is given saves the sort.
                if !want.order.is_empty() && want.some_limit {
                    let o = access::choose(b, t, &only, &|s| !local.contains(&s), want);
                    if o.ordered.is_some() {
                        rows *= 0.9;
                    }
                }
                rows
            }
            f => (leaf_rows(b, f) * thin).max(1.0),
        }
    };
    best(leaves.iter().map(cost))
}

fn best(costs: impl Iterator<Item = f64>) -> usize {
    let mut at = (0, f64::INFINITY);
    for (i, c) in costs.enumerate() {
        if c < at.1 {
            at = (i, c);
        }
    }
    at.0
}

fn pick_next(
    b: &Planner<'_>,
    leaves: &[Leaf],
    conditions: &[Expr],
    pending: &HashSet<Slot>,
    left: &HashSet<Slot>,
) -> usize {
    let cost = |l: &Leaf| {
        let waits = |s: &Slot| pending.contains(s) && !l.own.contains(s);
        if l.needs.iter().any(waits) {
            return f64::INFINITY;
        }
        let ready: Vec<Expr> = conditions
            .iter()
            .filter(|c| {
                let mut ok = true;
                c.slots(&mut |s| ok &= !waits(&s));
                ok
            })
            .cloned()
            .collect();
        let linked = ready.iter().any(|c| {
            let mut hit = false;
            c.slots(&mut |s| hit |= left.contains(&s));
            hit
        });
        let rows = match &l.from {
            From::Table(t) => {
                let p = access::choose(b, t, &ready, &|s| !pending.contains(&s), &Want::default());
                let rest = ready.len() - p.used.len();
                p.rows * 0.33f64.powi(rest as i32)
            }
            f => leaf_rows(b, f) * 0.33f64.powi(ready.len() as i32),
        };
        // A relation that nothing links to the rest multiplies: last.
        if linked { rows } else { rows * 1e6 + 1e6 }
    };
    best(leaves.iter().map(cost))
}

/// Plans one relation on its own.
fn plan_leaf(
    b: &mut Planner<'_>,
    f: From,
    mut conditions: Vec<Expr>,
    pending: &HashSet<Slot>,
    want: &Want,
) -> Result<Planned> {
    match f {
        From::Table(t) => {
            let own: HashSet<Slot> = (0..t.table.def.columns.len()).map(|i| t.slot(i)).collect();
            let there = |s: Slot| !own.contains(&s) && !pending.contains(&s);
            let path = access::choose(b, &t, &conditions, &there, want);
            Ok(table(b, t, path, conditions, want))
        }
        From::Virtual {
            source,
            alias,
            base,
            width,
        } => {
            let columns = (0..width)
                .filter(|&i| b.used[base as usize + i])
                .map(|i| (i, base + i as Slot))
                .collect();
            conditions.iter_mut().for_each(|c| b.hoist(c));
            let rows = 300.0 * 0.33f64.powi(conditions.len() as i32);
            Ok(Planned {
                node: Node::Virtual(Arc::new(node::Virtual {
                    source,
                    alias,
                    filter: conditions,
                    columns,
                })),
                ordered: want.order.is_empty(),
                rows: rows.max(1.0),
            })
        }
        From::Function(mut f) => {
            conditions.iter_mut().for_each(|c| b.hoist(c));
            f.filter = conditions;
            Ok(Planned {
                node: Node::Function(Arc::new(f)),
                ordered: want.order.is_empty(),
                rows: 50.0,
            })
        }
        From::Rel { rel, .. } => {
            let thin = 0.33f64.powi(conditions.len() as i32);
            Ok(Planned {
                node: filtered(b, rel.node, conditions),
                ordered: want.order.is_empty(),
                rows: (rel.rows * thin).max(1.0),
            })
        }
        From::Cte {
            id,
            name,
            out,
            work,
            ..
        } => {
            conditions.iter_mut().for_each(|c| b.hoist(c));
            let scan = Arc::new(node::CteScan {
                id,
                name,
                out,
                filter: conditions,
            });
            Ok(Planned {
                node: if work {
                    Node::WorkTable(scan)
                } else {
                    Node::CteScan(scan)
                },
                ordered: want.order.is_empty(),
                rows: 100.0,
            })
        }
        From::Inner { items, filter } => {
            conditions.extend(filter);
            plan_from(b, items, conditions, want)
        }
        From::Full { left, right, on } => full_join(b, (*left, *right), on, conditions, want),
        From::Left { left, right, on } => {
            left_join(b, (*left, *right), on, conditions, (pending, want))
        }
    }
}

/// LEFT JOIN. Conditions that read only the left side are asked there.
fn left_join(
    b: &mut Planner<'_>,
    (left, right): (From, From),
    on: Vec<Expr>,
    conditions: Vec<Expr>,
    (pending, want): (&HashSet<Slot>, &Want),
) -> Result<Planned> {
    let mut right_slots = vec![];
    right.own_slots(&mut right_slots);
    let right_slots: HashSet<Slot> = right_slots.into_iter().collect();
    let mut above = conditions;
    let below = take_ready(&mut above, &right_slots);
    let want = Want {
        limit: None,
        ..want.clone()
    };
    let mut left_slots = vec![];
    left.own_slots(&mut left_slots);
    let done = plan_from(b, vec![left], below, &want)?;
    let left_slots: HashSet<Slot> = left_slots.into_iter().collect();
    let leaf = Leaf::new(right);
    let mut conditions = vec![];
    on.into_iter().for_each(|c| c.conjuncts(&mut conditions));
    let mut done = join(
        b,
        done,
        leaf,
        conditions,
        &left_slots,
        JoinKind::Left,
        pending,
    )?;
    done.node = filtered(b, done.node, above);
    Ok(done)
}

/// FULL JOIN. No condition above it can be asked before both sides are there.
fn full_join(
    b: &mut Planner<'_>,
    (left, right): (From, From),
    on: Vec<Expr>,
    above: Vec<Expr>,
    want: &Want,
) -> Result<Planned> {
    let kept = |f: &From, b: &Planner<'_>| -> Vec<Slot> {
        let mut own = vec![];
        f.own_slots(&mut own);
        own.retain(|&s| b.used[s as usize] || is_key_slot(f, s));
        own.sort_unstable();
        own
    };
    let set = |f: &From| -> HashSet<Slot> {
        let mut own = vec![];
        f.own_slots(&mut own);
        own.into_iter().collect()
    };
    let (left_slots, right_slots) = (kept(&left, b), kept(&right, b));
    let (left_set, right_set) = (set(&left), set(&right));
    let mut conditions = vec![];
    on.into_iter().for_each(|c| c.conjuncts(&mut conditions));
    let (mut left_keys, mut right_keys, mut on) = (vec![], vec![], vec![]);
    for c in conditions {
        match equality(&c, &left_set, &right_set) {
            Some((l, r)) => {
                left_keys.push(l);
                right_keys.push(r);
            }
            None => on.push(c),
        }
    }
    on.iter_mut().for_each(|c| b.hoist(c));
    let left = plan_from(b, vec![left], vec![], &Want::default())?;
    let right = plan_from(b, vec![right], vec![], &Want::default())?;
    let rows = left.rows + right.rows;
    let node = Node::FullJoin(Arc::new(node::FullJoin {
        left: left.node,
        right: right.node,
        left_keys,
        right_keys,
        on,
        left_slots,
        right_slots,
    }));
    let thin = 0.33f64.powi(above.len() as i32);
    Ok(Planned {
        node: filtered(b, node, above),
        ordered: want.order.is_empty(),
        rows: (rows * thin).max(1.0),
    })
}

fn filtered(b: &mut Planner<'_>, input: Node, mut conditions: Vec<Expr>) -> Node {
    if conditions.is_empty() {
        return input;
    }
    conditions.iter_mut().for_each(|c| b.hoist(c));
    Node::Filter(Arc::new(node::Filter { input, conditions }))
}

fn table(
    b: &mut Planner<'_>,
    t: TableRef,
    path: Path,
    conditions: Vec<Expr>,
    want: &Want,
) -> Planned {
    let ordered = want.order.is_empty() || path.ordered.is_some();
    let rest = conditions.len() - path.used.len();
    let rows = (path.rows * 0.33f64.powi(rest as i32)).max(1.0);
    let scan = access::scan(b, t, path, conditions, want);
    Planned {
        node: Node::Scan(Arc::new(scan)),
        ordered,
        rows,
    }
}

/// Joins `leaf` to what is there, under conditions whose columns are then all there.
fn join(
    b: &mut Planner<'_>,
    left: Planned,
    leaf: Leaf,
    conditions: Vec<Expr>,
    left_slots: &HashSet<Slot>,
    kind: JoinKind,
    pending: &HashSet<Slot>,
) -> Result<Planned> {
    let mut right_slots: Vec<Slot> = leaf
        .own
        .iter()
        .copied()
        .filter(|&s| b.used[s as usize] || is_key_slot(&leaf.from, s))
        .collect();
    right_slots.sort_unstable();
    let rows = |right: f64| match kind {
        JoinKind::Inner => (left.rows * right).max(1.0),
        JoinKind::Left => (left.rows * right).max(left.rows),
    };
    // By index: the right side reads the left row's slots.
    if let From::Table(t) = &leaf.from {
        let there = |s: Slot| !leaf.own.contains(&s) && !pending.contains(&s);
        let path = access::choose(b, t, &conditions, &there, &Want::default());
        if path.joins || path.unique {
            let From::Table(t) = leaf.from else {
                unreachable!("just seen")
            };
            let right = table(b, t, path, conditions, &Want::default());
            return Ok(Planned {
                rows: rows(right.rows),
                node: Node::NestLoop(Arc::new(node::NestLoop {
                    left: left.node,
                    right: right.node,
                    kind,
                    on: vec![],
                    right_slots,
                })),
                ordered: left.ordered,
            });
        }
    }
    let dependent = leaf.needs.iter().any(|s| left_slots.contains(s));
    let mut only_right = Vec::new();
    let (mut left_keys, mut right_keys) = (Vec::new(), Vec::new());
    let mut on = Vec::new();
    for c in conditions {
        let (mut l, mut r) = (false, false);
        c.slots(&mut |s| {
            l |= left_slots.contains(&s);
            r |= leaf.own.contains(&s);
        });
        if !l && (r || kind == JoinKind::Inner) {
            only_right.push(c);
            continue;
        }
        match equality(&c, left_slots, &leaf.own) {
            Some((a, z)) if !dependent => {
                left_keys.push(a);
                right_keys.push(z);
            }
            _ => on.push(c),
        }
    }
    if dependent {
        // LATERAL: the right side starts anew for each left row, and may use the conditions itself.
        only_right.append(&mut on);
        let right = plan_leaf(b, leaf.from, only_right, pending, &Want::default())?;
        return Ok(Planned {
            rows: rows(right.rows),
            node: Node::NestLoop(Arc::new(node::NestLoop {
                left: left.node,
                right: right.node,
                kind,
                on,
                right_slots,
            })),
            ordered: left.ordered,
        });
    }
    let again = changes(&leaf.from, &only_right);
    let right = plan_leaf(b, leaf.from, only_right, pending, &Want::default())?;
    on.iter_mut().for_each(|c| b.hoist(c));
    if !left_keys.is_empty() {
        return Ok(Planned {
            rows: rows(right.rows * 0.1),
            node: Node::HashJoin(Arc::new(node::HashJoin {
                right_kept: begins_the_same(&right.node),
                left: left.node,
                right: right.node,
                kind,
                left_keys,
                right_keys,
                on,
                right_slots,
            })),
            ordered: left.ordered,
        });
    }
    let inner = match again {
        true => right.node,
        false => materialized(right.node, &right_slots),
    };
    Ok(Planned {
        rows: rows(right.rows),
        node: Node::NestLoop(Arc::new(node::NestLoop {
            left: left.node,
            right: inner,
            kind,
            on,
            right_slots,
        })),
        ordered: left.ordered,
    })
}

fn is_key_slot(f: &From, s: Slot) -> bool {
    match f {
        From::Table(t) => t.key_slot == Some(s),
        From::Inner { items, .. } => items.iter().any(|i| is_key_slot(i, s)),
        From::Left { left, right, .. } | From::Full { left, right, .. } => {
            is_key_slot(left, s) || is_key_slot(right, s)
        }
        From::Rel { slots, .. } => slots.contains(&s),
        _ => false,
    }
}

/// `l = r` with one side from each relation, as (left, right).
fn equality(c: &Expr, left: &HashSet<Slot>, right: &HashSet<Slot>) -> Option<(Expr, Expr)> {
    let Expr::Compare(CmpOp::Eq, ab) = c else {
        return None;
    };
    if c.has_subquery() {
        return None;
    }
    let side = |e: &Expr| {
        let (mut l, mut r) = (false, false);
        e.slots(&mut |s| {
            l |= left.contains(&s);
            r |= right.contains(&s);
        });
        (l, r)
    };
    match (side(&ab.0), side(&ab.1)) {
        ((true, false), (false, true)) => Some((ab.0.clone(), ab.1.clone())),
        ((false, true), (true, false)) => Some((ab.1.clone(), ab.0.clone())),
        _ => None,
    }
}

fn materialized(input: Node, slots: &[Slot]) -> Node {
    Node::Materialize(Arc::new(node::Materialize {
        input,
        slots: slots.to_vec(),
    }))
}

/// Whether a side of a join is a scan of a whole table that reads nothing of the rows around it: then it gives the same rows each time it begins in one
/// execution.
fn begins_the_same(node: &Node) -> bool {
    let Node::Scan(scan) = node else {
        return false;
    };
    let mut same = scan.fixed.is_empty() && scan.bounds.is_empty() && !scan.skips;
    for c in &scan.filter {
        c.slots(&mut |s| same &= scan.columns.iter().any(|c| c.1 == s));
    }
    same && scan.filter_inline
}
