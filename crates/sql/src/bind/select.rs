//! SELECT: from clauses to a logical plan, in the order in which SQL gives them meaning.
//!
//! ```text
//! FROM, WHERE ─ GROUP BY, aggregates ─ HAVING ─ windows ─ sets ─ select list ─ DISTINCT ─ ORDER BY ─ row locks ─ LIMIT
//! ```
//! The clauses are bound first ([`Clauses`]), since a later one may add to an earlier one: ORDER BY adds entries to the select list, and any
//! of them an aggregate to the grouping. Then the operators are put on one another.

use super::call::sort_key;
use super::expr::Env;
use super::group::{Grouped, Keys, grouping_of};
use super::locking::Locking;
use super::query::{Rel, Tail, add_limit};
use super::target::Target;
use super::window::Windows;
use super::{Binder, Bound, Scope};
use crate::expr::{Expr, Slot};
use crate::logical::from::slots_of;
use crate::logical::window::{Window, WindowCall};
use crate::logical::{Agg, From, GroupingSets, LockTarget, Logical, SetCall, SortKey};
use base::{ColumnType, Error, Oid, Result, SqlState, Type};
use sqlparser::ast::{self, Distinct};

/// A column of a bound query.
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

/// A SELECT's clauses, bound.
struct Clauses {
    /// The select list; behind `visible`, what only ORDER BY and DISTINCT ON read.
    targets: Vec<Target>,
    visible: usize,
    /// GROUP BY.
    keys: Vec<Expr>,
    grouping: Option<GroupingSets>,
    having: Option<Expr>,
    order: Vec<SortKey>,
    /// Which targets the keys of `order` are.
    order_targets: Vec<usize>,
    distinct: DistinctBy,
    aggs: Vec<Agg>,
    windows: Vec<(Window, WindowCall)>,
    sets: Vec<SetCall>,
    limit: Option<Expr>,
    offset: Option<Expr>,
}

impl Clauses {
    fn grouped(&self) -> bool {
        let keys = !self.keys.is_empty() || self.grouping.is_some();
        keys || !self.aggs.is_empty() || self.having.is_some()
    }
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

    /// The relation of a query that did not melt.
    pub(crate) fn finish_selected(&mut self, s: Selected) -> Result<Rel> {
        Ok(match s {
            Selected::Rel(r) => r,
            Selected::Flat {
                mut items,
                filter,
                cols,
            } => {
                let locks = self.lock_targets(&mut items)?;
                let own = slots_of(&items);
                let targets = cols
                    .into_iter()
                    .map(|c| Target {
                        name: c.name,
                        bound: c.bound,
                        origin: c.origin,
                    })
                    .collect();
                let input = Logical::Join { items, filter };
                let own = |s| own.binary_search(&s).is_ok();
                let (node, cols) = self.project(input, targets, &own);
                let node = self.locked(node, locks);
                Rel { node, cols }
            }
        })
    }

    /// Puts row locks over a query.
    fn locked(&mut self, input: Logical, tables: Vec<LockTarget>) -> Logical {
        if tables.is_empty() {
            return input;
        }
        self.locks_rows = true;
        Logical::Lock {
            input: Box::new(input),
            tables,
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
        let around = std::mem::replace(&mut self.locking, Locking::of(tail.above, tail.locks));
        let from = self.bind_from(&s.from, outer);
        let locking = std::mem::replace(&mut self.locking, around);
        let (mut items, scope) = from?;
        let filter = self.where_clause(s.selection.as_ref(), &scope)?;
        let mut c = self.clauses(s, tail, &items, (&scope, outer), settle)?;
        let plain = !c.grouped()
            && c.sets.is_empty()
            && c.windows.is_empty()
            && matches!(c.distinct, DistinctBy::No)
            && tail.is_empty();
        if flat && plain && !s.from.is_empty() && c.targets.iter().all(|t| can_melt(&t.bound.expr))
        {
            let cols = c.targets.into_iter().map(|t| FlatCol {
                name: t.name,
                bound: t.bound,
                origin: t.origin,
            });
            return Ok(Selected::Flat {
                items,
                filter,
                cols: cols.collect(),
            });
        }
        let locks = match locking.is_empty() {
            true => vec![],
            false => {
                may_lock(&c)?;
                locking.all_found()?;
                self.lock_targets(&mut items)?
            }
        };
        super::locking::narrow(&mut items, &filter);
        let early = slots_of(&items);
        let own = |s: Slot| s >= first || early.binary_search(&s).is_ok();
        let mut node = Logical::Join { items, filter };
        if c.grouped() {
            node = self.grouping(node, &mut c, &scope)?;
        }
        node = over_windows(node, &mut c, &own);
        // DISTINCT ON picks rows before sets are expanded, if an ORDER BY without them says which.
        let (late, late_sets) = late_sets(&mut c);
        node = expand(node, std::mem::take(&mut c.sets));
        let mut late_targets = vec![];
        for (t, late) in c.targets.iter_mut().zip(&late) {
            if *late {
                late_targets.push(t.clone());
                t.bound.expr = Expr::NULL;
            }
        }
        let targets = std::mem::take(&mut c.targets);
        let (projected, mut cols) = self.project(node, targets, &own);
        node = projected;
        for (k, &t) in c.order.iter_mut().zip(&c.order_targets) {
            k.expr = Expr::Slot(cols[t].slot);
        }
        if let DistinctBy::All = c.distinct {
            node = node.unique(cols.iter().map(|c| Expr::Slot(c.slot)).collect());
        }
        let ties = tail.ties_of(&c.order);
        if !c.order.is_empty() {
            let mut slots: Vec<Slot> = cols.iter().map(|c| c.slot).collect();
            slots.extend(locks.iter().map(|l| l.key_slot));
            read_above(&c.distinct, &late_sets, &late_targets, &mut slots);
            slots.retain(|&s| own(s));
            slots.sort_unstable();
            slots.dedup();
            node = Logical::Sort {
                input: Box::new(node),
                keys: c.order,
                slots,
            };
        }
        if let DistinctBy::On(on) = c.distinct {
            node = node.unique(on);
        }
        if !late_sets.is_empty() {
            let (projected, late_cols) = self.project(expand(node, late_sets), late_targets, &own);
            node = projected;
            let places = (0..late.len()).filter(|&i| late[i]);
            for (i, c) in places.zip(late_cols) {
                cols[i] = c;
            }
        }
        node = self.locked(node, locks);
        cols.truncate(c.visible);
        let rel = Rel { node, cols };
        Ok(Selected::Rel(add_limit(rel, c.limit, c.offset, ties)))
    }

    /// Binds everything behind WHERE.
    fn clauses(
        &mut self,
        s: &ast::Select,
        tail: Tail<'_>,
        items: &[From],
        (scope, outer): (&Scope<'_>, &Scope<'_>),
        settle: Settle<'_>,
    ) -> Result<Clauses> {
        let mut env = Env {
            scope,
            clause: "SELECT",
            aggs: Some(vec![]),
            groupings: vec![],
            sets: Some(vec![]),
            in_aggregate: false,
            windows: Some(Windows {
                named: &s.named_window,
                calls: vec![],
            }),
            in_window: false,
            in_branch: None,
        };
        let mut targets = self.targets(&s.projection, &mut env)?;
        // What stands above the list reads it as it is.
        let plain = s.distinct.is_none() && env.sets.as_ref().is_some_and(Vec::is_empty);
        self.settle_targets(&mut targets, settle, plain)?;
        let written = written_again(&s.projection);
        let by = Grouped {
            targets: &targets,
            written: &written,
            scope,
        };
        let Keys { exprs: keys, sets } = self.group_keys(&s.group_by, &by, &mut env.sets)?;
        let grouping_sets = sets;
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
        let windows = env.windows.take();
        let having = match &s.having {
            Some(h) => {
                env.clause = "HAVING";
                let b = self.expr(h, &mut env)?;
                Some(self.condition(b, "HAVING")?)
            }
            None => None,
        };
        if env.aggs.as_ref().is_some_and(|a| !a.is_empty()) {
            self.no_aggregates_over(items)?;
        }
        env.clause = "ORDER BY";
        env.windows = windows;
        self.check_windows(&mut env)?;
        env.sets = sets;
        let visible = targets.len();
        let mut order = Vec::new();
        let mut order_targets = Vec::new();
        for o in tail.order {
            let at = self.order_target(&o.expr, &mut targets, visible, &mut env)?;
            order_targets.push(at);
            order.push(sort_key(targets[at].bound.expr.clone(), &o.options)?);
        }
        let distinct =
            self.distinct_by(s.distinct.as_ref(), &order, visible, &mut targets, &mut env)?;
        let aggs = env.aggs.take().unwrap_or_default();
        let groupings = std::mem::take(&mut env.groupings);
        let grouping = grouping_of(&keys, grouping_sets, groupings)?;
        let windows = env.windows.take().map_or(vec![], |w| w.calls);
        let sets = env.sets.take().unwrap_or_default();
        let (limit, offset) = self.limits(tail, outer)?;
        Ok(Clauses {
            targets,
            visible,
            keys,
            grouping,
            having,
            order,
            order_targets,
            distinct,
            aggs,
            windows,
            sets,
            limit,
            offset,
        })
    }

    fn distinct_by(
        &mut self,
        distinct: Option<&Distinct>,
        order: &[SortKey],
        visible: usize,
        targets: &mut Vec<Target>,
        env: &mut Env<'_, '_>,
    ) -> Result<DistinctBy> {
        match distinct {
            None | Some(Distinct::All) => Ok(DistinctBy::No),
            Some(_) if visible == 0 => {
                let what = "SELECT DISTINCT must have at least one column";
                Err(Error::new(SqlState::SYNTAX_ERROR, what))
            }
            Some(Distinct::Distinct) => {
                if targets.len() > visible {
                    return Err(Error::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    ));
                }
                Ok(DistinctBy::All)
            }
            Some(Distinct::On(exprs)) => {
                env.clause = "DISTINCT ON";
                let mut on = Vec::new();
                for e in exprs {
                    let at = self.order_target(e, targets, visible, env)?;
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
                Ok(DistinctBy::On(on))
            }
        }
    }

    /// Puts the grouping over its input, HAVING over that, and makes what stands above read the keys.
    fn grouping(&mut self, input: Logical, c: &mut Clauses, scope: &Scope<'_>) -> Result<Logical> {
        let keyed_sets = sets_of(&c.keys, &mut c.sets);
        no_sets_beside_keys(&c.keys, &keyed_sets, &c.targets, &c.order)?;
        let input = expand(input, keyed_sets);
        let mut having = c.having.take();
        let mut exprs: Vec<&mut Expr> = c.targets.iter_mut().map(|t| &mut t.bound.expr).collect();
        exprs.extend(c.order.iter_mut().map(|k| &mut k.expr));
        exprs.extend(having.iter_mut());
        exprs.extend(c.sets.iter_mut().flat_map(|(_, _, args)| args));
        for (w, call) in &mut c.windows {
            exprs.extend(w.partition.iter_mut());
            exprs.extend(w.order.iter_mut().map(|k| &mut k.expr));
            exprs.extend(call.args.iter_mut());
            exprs.extend(call.filter.iter_mut());
            exprs.extend(call.frame.range.iter_mut().map(|r| &mut r.value));
        }
        let plain = c.keys.is_empty() && c.grouping.is_none();
        let keys = self.group(&mut c.keys, &mut c.grouping, exprs, scope)?;
        let node = Logical::Aggregate {
            input: Box::new(input),
            keys,
            aggs: std::mem::take(&mut c.aggs),
            plain,
            sets: c.grouping.take(),
        };
        let Some(h) = having else { return Ok(node) };
        let mut conditions = vec![];
        h.conjuncts(&mut conditions);
        Ok(Logical::Filter {
            input: Box::new(node),
            conditions,
        })
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
}

/// Refuses row locks where a row of the result is not a row of each table.
fn may_lock(c: &Clauses) -> Result<()> {
    let refused = [
        (
            !c.keys.is_empty() || c.grouping.is_some(),
            "GROUP BY clause",
        ),
        (c.having.is_some(), "HAVING clause"),
        (!matches!(c.distinct, DistinctBy::No), "DISTINCT clause"),
        (c.grouped(), "aggregate functions"),
        (!c.windows.is_empty(), "window functions"),
        (
            !c.sets.is_empty(),
            "set-returning functions in the target list",
        ),
    ];
    match refused.iter().find(|(r, _)| *r) {
        Some((_, what)) => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("FOR UPDATE is not allowed with {what}"),
        )),
        None => Ok(()),
    }
}

/// Puts the windows over the rows, one operator for all calls over the same one.
fn over_windows(mut node: Logical, c: &mut Clauses, own: &dyn Fn(Slot) -> bool) -> Logical {
    let mut windows: Vec<(Window, Vec<WindowCall>)> = vec![];
    for (w, call) in std::mem::take(&mut c.windows) {
        match windows.iter_mut().find(|(o, _)| o.same(&w)) {
            Some((_, calls)) => calls.push(call),
            None => windows.push((w, vec![call])),
        }
    }
    let mut read = vec![];
    let mut note = |e: &Expr| e.slots(&mut |s| read.push(s));
    if !windows.is_empty() {
        c.targets.iter().for_each(|t| note(&t.bound.expr));
        c.order.iter().for_each(|k| note(&k.expr));
        c.sets.iter().flat_map(|s| &s.2).for_each(&mut note);
        if let DistinctBy::On(on) = &c.distinct {
            on.iter().for_each(&mut note);
        }
        for (w, calls) in &windows {
            w.partition.iter().for_each(&mut note);
            w.order.iter().for_each(|k| note(&k.expr));
            calls.iter().flat_map(WindowCall::exprs).for_each(&mut note);
        }
    }
    read.retain(|&s| own(s));
    read.sort_unstable();
    read.dedup();
    let mut later: Vec<Slot> = windows
        .iter()
        .flat_map(|(_, calls)| calls.iter().map(|c| c.slot))
        .chain(c.sets.iter().map(|s| s.0))
        .collect();
    for (window, calls) in windows {
        let slots = read.iter().copied().filter(|s| !later.contains(s));
        let slots = slots.collect();
        later.retain(|s| !calls.iter().any(|c| c.slot == *s));
        node = Logical::Window {
            input: Box::new(node),
            window,
            calls,
            slots,
        };
    }
    node
}

/// Slots that DISTINCT ON reads, and what is expanded above it.
fn read_above(distinct: &DistinctBy, sets: &[SetCall], targets: &[Target], out: &mut Vec<Slot>) {
    let mut read = |e: &Expr| e.slots(&mut |s| out.push(s));
    if let DistinctBy::On(on) = distinct {
        on.iter().for_each(&mut read);
    }
    sets.iter()
        .flat_map(|(_, _, args)| args)
        .for_each(&mut read);
    targets.iter().for_each(|t| read(&t.bound.expr));
}

/// Takes the sets that are expanded above DISTINCT ON: which targets read them, and their calls.
fn late_sets(c: &mut Clauses) -> (Vec<bool>, Vec<SetCall>) {
    let none = (vec![], vec![]);
    let DistinctBy::On(on) = &c.distinct else {
        return none;
    };
    let reads = |e: &Expr| reads_sets(e, &c.sets);
    if c.order.is_empty() || c.order.iter().any(|k| reads(&k.expr)) || on.iter().any(reads) {
        return none;
    }
    let late = c.targets.iter().map(|t| reads(&t.bound.expr)).collect();
    (late, std::mem::take(&mut c.sets))
}

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
fn expand(mut node: Logical, mut sets: Vec<SetCall>) -> Logical {
    while !sets.is_empty() {
        let waits: Vec<bool> = sets
            .iter()
            .map(|(_, _, args)| args.iter().any(|e| reads_sets(e, &sets)))
            .collect();
        let mut waits = waits.into_iter();
        let (later, functions) = sets
            .into_iter()
            .partition(|_| waits.next().expect("one each"));
        node = Logical::ProjectSet {
            input: Box::new(node),
            functions,
        };
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
        (s.qualify.is_some(), "QUALIFY"),
        (s.value_table_mode.is_some(), "SELECT AS VALUE"),
        (s.exclude.is_some(), "EXCLUDE"),
    ];
    match refused.iter().find(|(r, _)| *r) {
        Some((_, what)) => Err(Error::unsupported(what)),
        None => Ok(()),
    }
}
