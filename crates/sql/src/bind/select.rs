//! SELECT: from clauses to a plan, in the order in which SQL gives them meaning.

use super::call::sort_key;
use super::expr::Env;
use super::from::From;
use super::query::{Rel, Tail, add_limit, ordinal};
use super::target::Target;
use super::{Binder, Bound, Scope};
use crate::expr::{Expr, Slot};
use crate::functions::Resolved;
use crate::plan::join::Want;
use crate::plan::node::{self, Node, SortKey};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{self, Distinct, GroupByExpr};
use std::collections::HashSet;
use std::sync::Arc;

/// A column of a planned query.
#[derive(Clone, Debug)]
pub(crate) struct QCol {
    pub name: String,
    pub slot: Slot,
    pub ty: ColumnType,
    pub origin: (Oid, i16),
}

/// A column of a query that may melt into another.
pub(crate) struct FlatCol {
    pub name: String,
    pub bound: Bound,
    pub origin: (Oid, i16),
}

/// A bound query.
pub(crate) enum Selected {
    Rel(Rel),
    /// Relations, conditions and columns of a plain SELECT.
    Flat {
        items: Vec<From>,
        filter: Vec<Expr>,
        cols: Vec<FlatCol>,
    },
}

enum DistinctBy {
    No,
    All,
    On(Vec<Expr>),
}

impl Binder<'_> {
    pub(super) fn select(
        &mut self,
        s: &ast::Select,
        tail: Tail<'_>,
        outer: &Scope<'_>,
        expected: Option<&[ColumnType]>,
        flat: bool,
    ) -> Result<Selected> {
        self.select_with(s, tail, outer, Settle::To(expected), flat)
    }

    /// A SELECT whose literal outputs keep their unknown type.
    pub(super) fn select_unsettled(
        &mut self,
        s: &ast::Select,
        tail: Tail<'_>,
        outer: &Scope<'_>,
    ) -> Result<Selected> {
        self.select_with(s, tail, outer, Settle::Later, false)
    }

    /// Plans a query that did not melt.
    pub(crate) fn finish_selected(&mut self, s: Selected) -> Result<Rel> {
        match s {
            Selected::Rel(r) => Ok(r),
            Selected::Flat {
                items,
                filter,
                cols,
            } => {
                let own = own_of(&items);
                let planned = crate::plan::join::plan_from(self, items, filter, &Want::default())?;
                let targets = cols
                    .into_iter()
                    .map(|c| Target {
                        name: c.name,
                        bound: c.bound,
                        origin: c.origin,
                    })
                    .collect();
                let (node, cols) = self.project(planned.node, targets, &|s| own.contains(&s));
                Ok(Rel {
                    node,
                    cols,
                    rows: planned.rows,
                })
            }
        }
    }

    fn select_with(
        &mut self,
        s: &ast::Select,
        tail: Tail<'_>,
        outer: &Scope<'_>,
        settle: Settle<'_>,
        flat: bool,
    ) -> Result<Selected> {
        refuse(s)?;
        let first = self.names.len() as Slot;
        let (mut items, scope) = self.bind_from(&s.from, outer)?;
        let mut filter = Vec::new();
        if let Some(w) = &s.selection {
            let mut env = Env::plain(&scope, "WHERE");
            let b = self.expr(w, &mut env)?;
            self.condition(b, "WHERE")?.conjuncts(&mut filter);
        }
        let mut env = Env {
            scope: &scope,
            clause: "SELECT",
            aggs: Some(vec![]),
            sets: Some(vec![]),
            in_aggregate: false,
            in_branch: None,
        };
        let mut targets = self.targets(&s.projection, &mut env)?;
        // What stands above the list reads it as it is.
        let plain = s.distinct.is_none() && env.sets.as_ref().is_some_and(Vec::is_empty);
        self.settle_targets(&mut targets, settle, plain)?;
        let written = written_again(&s.projection);
        let mut keys = self.group_keys(&s.group_by, &targets, &written, &scope, &mut env.sets)?;
        let aggregated = |e: &Expr| {
            let mut hit = false;
            e.slots(&mut |s| hit |= env.aggs.iter().flatten().any(|a| a.slot == s));
            hit
        };
        if keys.iter().any(aggregated) {
            return Err(Error::new(
                SqlState::GROUPING_ERROR,
                "aggregate functions are not allowed in GROUP BY",
            ));
        }
        let sets = env.sets.take();
        let having = match &s.having {
            Some(h) => {
                env.clause = "HAVING";
                let b = self.expr(h, &mut env)?;
                Some(self.condition(b, "HAVING")?)
            }
            None => None,
        };
        if env.aggs.as_ref().is_some_and(|a| !a.is_empty()) {
            self.no_aggregates_over(&items)?;
        }
        env.clause = "ORDER BY";
        env.sets = sets;
        let visible = targets.len();
        let mut order = Vec::new();
        let mut order_targets = Vec::new();
        for o in tail.order {
            let at = self.order_target(&o.expr, &mut targets, visible, &mut env)?;
            order_targets.push(at);
            order.push(sort_key(targets[at].bound.expr.clone(), &o.options)?);
        }
        let distinct = match &s.distinct {
            None | Some(Distinct::All) => DistinctBy::No,
            Some(Distinct::Distinct) => {
                if targets.len() > visible {
                    return Err(Error::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    ));
                }
                DistinctBy::All
            }
            Some(Distinct::On(exprs)) => {
                env.clause = "DISTINCT ON";
                let mut on = Vec::new();
                for e in exprs {
                    let at = self.order_target(e, &mut targets, visible, &mut env)?;
                    on.push(targets[at].bound.expr.clone());
                }
                let mut first = order.iter().take(on.len());
                let fits = first.all(|k| on.iter().any(|e| e.same(&k.expr)));
                if !fits {
                    return Err(Error::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    ));
                }
                DistinctBy::On(on)
            }
        };
        let mut aggs = env.aggs.take().unwrap_or_default();
        let grouped = !aggs.is_empty() || !keys.is_empty() || having.is_some();
        let mut sets = env.sets.take().unwrap_or_default();
        let (limit, offset) = self.limits(tail, outer)?;
        let plain =
            !grouped && sets.is_empty() && matches!(distinct, DistinctBy::No) && tail.is_empty();
        if flat && plain && !s.from.is_empty() && targets.iter().all(|t| can_melt(&t.bound.expr)) {
            return Ok(Selected::Flat {
                items,
                filter,
                cols: targets
                    .into_iter()
                    .map(|t| FlatCol {
                        name: t.name,
                        bound: t.bound,
                        origin: t.origin,
                    })
                    .collect(),
            });
        }
        let locks = if tail.locks.is_empty() {
            vec![]
        } else {
            let refused = [
                (grouped && !keys.is_empty(), "GROUP BY clause"),
                (having.is_some(), "HAVING clause"),
                (!matches!(distinct, DistinctBy::No), "DISTINCT clause"),
                (grouped, "aggregate functions"),
                (
                    !sets.is_empty(),
                    "set-returning functions in the target list",
                ),
            ];
            if let Some((_, what)) = refused.iter().find(|(r, _)| *r) {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("FOR UPDATE is not allowed with {what}"),
                ));
            }
            self.lock_targets(tail.locks, &mut items)?
        };
        // What the input should come ordered by, and how much of it is wanted.
        let direct = !grouped && sets.is_empty();
        let mut want = Want::default();
        if direct {
            want.order = order.clone();
            if matches!(distinct, DistinctBy::No)
                && let Some(Expr::Const(n)) = &limit
                && let Some(n) = n.as_i64()
                && offset.as_ref().is_none_or(|o| matches!(o, Expr::Const(_)))
            {
                let skip = match &offset {
                    Some(Expr::Const(v)) => v.as_i64().unwrap_or(0),
                    _ => 0,
                };
                want.limit = usize::try_from(n.saturating_add(skip)).ok();
            }
            want.some_limit = limit.is_some() && matches!(distinct, DistinctBy::No);
        }
        let mut first_only = false;
        if grouped && keys.is_empty() && having.is_none() {
            first_only = self.extreme_by_index(&aggs, &items, &mut filter, &mut want);
        }
        if grouped && order.is_empty() {
            // Groups come in the order of their rows: nothing to ask for.
        } else if grouped && order.iter().all(|k| keys.iter().any(|e| e.same(&k.expr))) {
            want.order = order.clone();
        }
        let early = own_of(&items);
        let own = |s: Slot| s >= first || early.contains(&s);
        let planned = crate::plan::join::plan_from(self, items, filter, &want)?;
        let mut node = planned.node;
        let mut ordered = planned.ordered && !want.order.is_empty();
        let mut rows = planned.rows;
        first_only &= ordered;
        // The order that was asked for may be another than the statement's own.
        ordered &= want.order.len() == order.len() && !first_only;
        if grouped {
            let keyed_sets = sets_of(&keys, &mut sets);
            no_sets_beside_keys(&keys, &keyed_sets, &targets, &order)?;
            node = expand(node, keyed_sets);
            let mut having = having;
            let mut exprs: Vec<&mut Expr> = targets.iter_mut().map(|t| &mut t.bound.expr).collect();
            exprs.extend(order.iter_mut().map(|k| &mut k.expr));
            exprs.extend(having.iter_mut());
            exprs.extend(sets.iter_mut().flat_map(|(_, _, args)| args));
            let plain_group = keys.is_empty();
            let keyed = self.group(&mut keys, exprs, &scope)?;
            rows = if plain_group {
                1.0
            } else {
                (rows / 10.0).max(1.0)
            };
            for a in &mut aggs {
                a.args.iter_mut().for_each(|e| self.hoist(e));
            }
            node = Node::Aggregate(Arc::new(node::Aggregate {
                input: node,
                keys: keyed,
                aggs,
                plain: plain_group,
                first_only,
            }));
            if let Some(h) = having {
                let mut conditions = vec![];
                h.conjuncts(&mut conditions);
                node = Node::Filter(Arc::new(node::Filter {
                    input: node,
                    conditions,
                }));
            }
        }
        // DISTINCT ON picks rows before sets are expanded, if an ORDER BY without them says which.
        let mut late_sets = vec![];
        let mut late = vec![];
        if let DistinctBy::On(on) = &distinct
            && !order.is_empty()
        {
            let reads = |e: &Expr| reads_sets(e, &sets);
            if !order.iter().any(|k| reads(&k.expr)) && !on.iter().any(reads) {
                late = targets.iter().map(|t| reads(&t.bound.expr)).collect();
                late_sets = std::mem::take(&mut sets);
            }
        }
        if !sets.is_empty() {
            node = expand(node, sets);
            ordered = false;
        }
        let mut late_targets = vec![];
        for (t, late) in targets.iter_mut().zip(&late) {
            if *late {
                late_targets.push(t.clone());
                t.bound.expr = Expr::NULL;
            }
        }
        let (projected, mut all_cols) = self.project(node, targets, &own);
        node = projected;
        for (k, &t) in order.iter_mut().zip(&order_targets) {
            k.expr = Expr::Slot(all_cols[t].slot);
        }
        if let DistinctBy::All = distinct {
            node = unique(node, all_cols.iter().map(|c| Expr::Slot(c.slot)).collect());
        }
        if !order.is_empty() && !ordered {
            let mut slots: Vec<Slot> = all_cols.iter().map(|c| c.slot).collect();
            slots.extend(locks.iter().map(|l| l.key_slot));
            if let DistinctBy::On(on) = &distinct {
                on.iter().for_each(|e| e.slots(&mut |s| slots.push(s)));
            }
            let args = late_sets.iter().flat_map(|(_, _, args)| args);
            let kept = args.chain(late_targets.iter().map(|t| &t.bound.expr));
            kept.for_each(|e| e.slots(&mut |s| slots.push(s)));
            slots.retain(|&s| own(s));
            slots.sort_unstable();
            slots.dedup();
            let top = matches!(distinct, DistinctBy::No | DistinctBy::All)
                && locks.is_empty()
                && limit.is_some();
            node = Node::Sort(Arc::new(node::Sort {
                input: node,
                keys: order,
                slots,
                top: top.then(|| (limit.clone(), offset.clone())),
            }));
        }
        if let DistinctBy::On(on) = distinct {
            node = unique(node, on);
        }
        if !late_sets.is_empty() {
            let (projected, late_cols) = self.project(expand(node, late_sets), late_targets, &own);
            node = projected;
            let places = (0..late.len()).filter(|&i| late[i]);
            for (i, c) in places.zip(late_cols) {
                all_cols[i] = c;
            }
        }
        if !locks.is_empty() {
            self.locks_rows = true;
            node = Node::Lock(Arc::new(node::Lock {
                input: node,
                tables: locks,
            }));
        }
        let mut cols = all_cols;
        cols.truncate(visible);
        let rel = Rel { node, cols, rows };
        Ok(Selected::Rel(add_limit(rel, limit, offset)))
    }

    fn settle_targets(
        &mut self,
        targets: &mut [Target],
        settle: Settle<'_>,
        plain: bool,
    ) -> Result<()> {
        for (i, t) in targets.iter_mut().enumerate() {
            if t.bound.ty.ty != Type::Unknown {
                continue;
            }
            let b = t.bound.clone();
            t.bound = match settle {
                Settle::Later if matches!(b.expr, Expr::Const(_)) => continue,
                Settle::Later if plain && matches!(b.expr, Expr::Param(_)) => continue,
                Settle::To(Some(types)) if i < types.len() => {
                    let expr = self.assign(b, &t.name, types[i])?;
                    Bound { expr, ty: types[i] }
                }
                _ => self.settle(b)?,
            };
        }
        Ok(())
    }

    /// GROUP BY's expressions: input columns first, then output names and positions.
    fn group_keys(
        &mut self,
        g: &GroupByExpr,
        targets: &[Target],
        written: &[&ast::Expr],
        scope: &Scope<'_>,
        sets: &mut Option<Vec<SetCall>>,
    ) -> Result<Vec<Expr>> {
        let GroupByExpr::Expressions(exprs, modifiers) = g else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Error::unsupported("GROUPING SETS"));
        }
        let mut keys: Vec<Expr> = Vec::new();
        let mut put = |e: Expr| {
            if !keys.iter().any(|k| k.same(&e)) {
                keys.push(e);
            }
        };
        for e in exprs {
            if let Some(i) = ordinal(e, targets.len(), "GROUP BY")? {
                put(targets[i].bound.expr.clone());
                continue;
            }
            if let ast::Expr::Identifier(i) = e {
                let name = crate::catalog::fold(i);
                if !scope.star.iter().any(|c| c.name == name) {
                    let mut hits = targets.iter().filter(|t| t.name == name);
                    if let Some(t) = hits.next() {
                        if hits.any(|o| !o.bound.expr.same(&t.bound.expr)) {
                            return Err(Error::new(
                                SqlState::AMBIGUOUS_COLUMN,
                                format!("GROUP BY \"{name}\" is ambiguous"),
                            ));
                        }
                        put(t.bound.expr.clone());
                        continue;
                    }
                }
            }
            // An entry that is written again is the entry, though each subquery has a plan of its own.
            if !matches!(e, ast::Expr::Identifier(_) | ast::Expr::Tuple(_))
                && let Some(at) = written.iter().position(|w| *w == e)
            {
                put(targets[at].bound.expr.clone());
                continue;
            }
            let mut env = Env::plain(scope, "GROUP BY");
            env.sets = sets.take();
            let items = match e {
                ast::Expr::Tuple(items) => items,
                e => std::slice::from_ref(e),
            };
            for i in items {
                let b = self.expr(i, &mut env)?;
                put(self.settle(b)?.expr);
            }
            *sets = env.sets;
        }
        Ok(keys)
    }
}

/// A call of a set-returning function in a select list, and the slot for its values.
type SetCall = (Slot, Resolved, Vec<Expr>);

/// The entries of a select list as they are written, if all have an expression.
fn written_again(list: &[ast::SelectItem]) -> Vec<&ast::Expr> {
    let mut all = Vec::with_capacity(list.len());
    for item in list {
        match item {
            ast::SelectItem::UnnamedExpr(e) => all.push(e),
            ast::SelectItem::ExprWithAlias { expr, .. } => all.push(expr),
            _ => return vec![],
        }
    }
    all
}

/// The slots that these relations write.
fn own_of(items: &[From]) -> HashSet<Slot> {
    let mut own = vec![];
    items
        .iter()
        .for_each(|i| crate::plan::join::own_slots(i, &mut own));
    own.into_iter().collect()
}

fn reads_sets(e: &Expr, sets: &[SetCall]) -> bool {
    let mut hit = false;
    e.slots(&mut |s| hit |= sets.iter().any(|(set, ..)| *set == s));
    hit
}

/// Takes the calls that these expressions read, and what the calls' arguments read.
fn sets_of(exprs: &[Expr], sets: &mut Vec<SetCall>) -> Vec<SetCall> {
    let mut taken: Vec<SetCall> = vec![];
    loop {
        let reads = |set: Slot, e: &Expr| {
            let mut hit = false;
            e.slots(&mut |s| hit |= s == set);
            hit
        };
        let wanted = |set: Slot| {
            exprs.iter().any(|e| reads(set, e))
                || taken
                    .iter()
                    .any(|(_, _, args)| args.iter().any(|e| reads(set, e)))
        };
        let Some(at) = sets.iter().position(|(set, ..)| wanted(*set)) else {
            return taken;
        };
        let set = sets.remove(at);
        taken.insert(0, set);
    }
}

/// A set that is expanded for a key has no value beside that key: above the grouping there is one row per group.
fn no_sets_beside_keys(
    keys: &[Expr],
    sets: &[SetCall],
    targets: &[Target],
    order: &[SortKey],
) -> Result<()> {
    fn beside(e: &Expr, keys: &[Expr], sets: &[SetCall]) -> bool {
        if keys.iter().any(|k| k.same(e)) {
            return false;
        }
        let mut hit = matches!(e, Expr::Slot(s) if sets.iter().any(|(set, ..)| set == s));
        e.children(&mut |c| hit |= beside(c, keys, sets));
        hit
    }
    let exprs = targets.iter().map(|t| &t.bound.expr);
    let mut exprs = exprs.chain(order.iter().map(|k| &k.expr));
    if exprs.any(|e| beside(e, keys, sets)) {
        return Err(Error::unsupported(
            "a set-returning function inside of a GROUP BY expression and beside it",
        ));
    }
    Ok(())
}

/// Expands sets row by row: those whose arguments read no other first, each level in lock step.
fn expand(mut node: Node, mut sets: Vec<SetCall>) -> Node {
    while !sets.is_empty() {
        let waits: Vec<bool> = sets
            .iter()
            .map(|(_, _, args)| args.iter().any(|e| reads_sets(e, &sets)))
            .collect();
        let mut waits = waits.into_iter();
        let (later, functions) = sets
            .into_iter()
            .partition(|_| waits.next().expect("one each"));
        node = Node::ProjectSet(Arc::new(node::ProjectSet {
            input: node,
            functions,
        }));
        sets = later;
    }
    node
}

/// What becomes of outputs of unknown type.
#[derive(Clone, Copy)]
enum Settle<'t> {
    /// They take these types, or text.
    To(Option<&'t [ColumnType]>),
    /// Literals keep it: the set operation around decides.
    Later,
}

/// Whether an output may be computed anywhere and any number of times.
fn can_melt(e: &Expr) -> bool {
    !e.has_subquery()
        && e.volatility() < crate::functions::Volatility::Volatile
        && !e.any(&mut |e| matches!(e, Expr::Let { .. } | Expr::Record(_)))
}

fn unique(input: Node, keys: Vec<Expr>) -> Node {
    Node::Unique(Arc::new(node::Unique { input, keys }))
}

/// What we have not, by name.
fn refuse(s: &ast::Select) -> Result<()> {
    let refused = [
        (s.into.is_some(), "SELECT INTO"),
        (s.top.is_some(), "TOP"),
        (!s.lateral_views.is_empty(), "LATERAL VIEW"),
        (s.prewhere.is_some(), "PREWHERE"),
        (!s.connect_by.is_empty(), "CONNECT BY"),
        (!s.cluster_by.is_empty(), "CLUSTER BY"),
        (!s.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!s.sort_by.is_empty(), "SORT BY"),
        (!s.named_window.is_empty(), "WINDOW"),
        (s.qualify.is_some(), "QUALIFY"),
        (s.value_table_mode.is_some(), "SELECT AS VALUE"),
        (s.exclude.is_some(), "EXCLUDE"),
    ];
    match refused.iter().find(|(r, _)| *r) {
        Some((_, what)) => Err(Error::unsupported(what)),
        None => Ok(()),
    }
}
