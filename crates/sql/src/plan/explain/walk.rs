//! What each node of a plan is, in PostgreSQL's words.

use super::estimate::{Estimate, Estimator};
use super::shown::{Fact, Said, Shown};
use super::stats::NodeStats;
use crate::expr::Expr;
use crate::expr::show::show;
use crate::plan::node::{
    Aggregate, CatalogSource, ColumnSource, Insert, JoinKind, Merge, MergeAction, Node, Plan, Root,
    Scan, SetKind, SortKey, SplitDelta, Update,
};
use txn::{Access, Direction, TableHandle};

/// What a node is, before its figures are known.
struct Named {
    kind: &'static str,
    title: String,
    facts: Vec<Said>,
    details: Vec<Said>,
}

impl Named {
    /// A node whose title is its type.
    fn plain(kind: &'static str) -> Named {
        Named::titled(kind, kind.to_owned())
    }

    fn titled(kind: &'static str, title: String) -> Named {
        Named {
            kind,
            title,
            facts: vec![],
            details: vec![],
        }
    }

    fn fact(mut self, key: &'static str, v: impl Into<Fact>) -> Named {
        self.facts.push((key, v.into()));
        self
    }

    fn detail(mut self, key: &'static str, v: impl Into<Fact>) -> Named {
        self.details.push((key, v.into()));
        self
    }
}

/// Walks a plan in the order in which its operators are numbered.
struct Walk<'p> {
    plan: &'p Plan,
    stats: Option<&'p [NodeStats]>,
    next: usize,
    estimates: Estimator<'p>,
}

/// The whole plan, its subplans below its root.
pub(super) fn tree(
    plan: &Plan,
    stats: Option<&[NodeStats]>,
    rows: &dyn Fn(&TableHandle) -> u64,
) -> Shown {
    let mut w = Walk {
        plan,
        stats,
        next: 0,
        estimates: Estimator::new(rows),
    };
    let mut top = w.root(&plan.root);
    for (i, n) in plan.subplans.iter().enumerate() {
        let mut s = w.node(n);
        s.label = Some(format!("SubPlan {}", i + 1));
        top.children.push(s);
    }
    for (i, step) in plan.steps.iter().enumerate() {
        let mut s = w.root(&step.root);
        s.label = Some(format!("CTE {}", step.name));
        top.children.insert(i, s);
    }
    top
}

/// How many nodes a plan has, and the numbers of the first node of each subplan, then of each step.
pub(crate) fn count_nodes(plan: &Plan) -> (usize, Vec<usize>) {
    let mut next = count_root(&plan.root);
    let mut starts = Vec::with_capacity(plan.subplans.len() + plan.steps.len());
    let subplans = plan.subplans.iter().map(count);
    for n in subplans.chain(plan.steps.iter().map(|s| count_root(&s.root))) {
        starts.push(next);
        next += n;
    }
    (next, starts)
}

fn count_root(root: &Root) -> usize {
    match root {
        Root::Rows(n) => count(n),
        Root::Insert(i) => 1 + count(&i.input),
        Root::Update(u) => 1 + count(&u.input),
        Root::Delete(d) => 1 + count(&d.input),
        Root::Merge(m) => 1 + count(&m.input),
        Root::Explain { .. } => 0,
    }
}

fn count(n: &Node) -> usize {
    1 + inputs(n).into_iter().map(count).sum::<usize>()
}

/// The nodes below one, in the order of their numbers.
fn inputs(n: &Node) -> Vec<&Node> {
    match n {
        Node::Once(_)
        | Node::Values(_)
        | Node::Scan(_)
        | Node::Virtual(_)
        | Node::Function(_)
        | Node::CteScan(_)
        | Node::WorkTable(_) => vec![],
        Node::Filter(x) => vec![&x.input],
        Node::Project(x) => vec![&x.input],
        Node::ProjectSet(x) => vec![&x.input],
        Node::NestLoop(x) => vec![&x.left, &x.right],
        Node::HashJoin(x) => vec![&x.left, &x.right],
        Node::FullJoin(x) => vec![&x.left, &x.right],
        Node::Materialize(x) => vec![&x.input],
        Node::Lookup(x) => vec![&x.input],
        Node::Sort(x) => vec![&x.input],
        Node::Aggregate(x) => vec![&x.input],
        Node::Window(x) => vec![&x.input],
        Node::Unique(x) => vec![&x.input],
        Node::Limit(x) => vec![&x.input],
        Node::Append(x) => x.inputs.iter().collect(),
        Node::SetOp(x) => vec![&x.left, &x.right],
        Node::With(x) => {
            let ctes = x.ctes.iter().map(|c| &c.plan);
            ctes.chain([&x.input]).collect()
        }
        Node::Recursive(x) => vec![&x.first, &x.step],
        Node::Lock(x) => vec![&x.input],
    }
}

fn on(verb: &str, table: &str, alias: &str) -> String {
    match table == alias {
        true => format!("{verb} on {table}"),
        false => format!("{verb} on {table} {alias}"),
    }
}

impl Walk<'_> {
    fn finish(
        &self,
        n: Named,
        actual: Option<NodeStats>,
        estimate: Estimate,
        children: Vec<Shown>,
    ) -> Shown {
        Shown {
            kind: n.kind,
            title: n.title,
            facts: n.facts,
            details: n.details,
            estimate,
            actual,
            label: None,
            children,
        }
    }

    fn root(&mut self, root: &Root) -> Shown {
        match root {
            Root::Rows(n) => self.node(n),
            Root::Insert(i) => {
                let named = self.insert(i);
                self.write(named, &i.handle, &i.handle.table.def.name, &i.input)
            }
            Root::Update(u) => {
                let named = self.update(u);
                self.write(named, &u.handle, &u.alias, &u.input)
            }
            Root::Delete(d) => {
                let title = on("Delete", &d.handle.table.def.name, &d.alias);
                let named = Named::titled("ModifyTable", title).fact("Operation", "Delete");
                self.write(named, &d.handle, &d.alias, &d.input)
            }
            Root::Merge(m) => {
                let named = self.merge(m);
                self.write(named, &m.handle, &m.alias, &m.input)
            }
            Root::Explain { .. } => {
                self.finish(Named::plain("Result"), None, Estimate::default(), vec![])
            }
        }
    }

    /// The root of a statement that writes.
    fn write(&mut self, named: Named, table: &TableHandle, alias: &str, input: &Node) -> Shown {
        self.next += 1;
        let below = self.node(input);
        let estimate = Estimate {
            rows: 0.0,
            width: 0,
            ..below.estimate
        };
        let named = named
            .fact("Relation Name", &*table.table.def.name)
            .fact("Alias", alias);
        self.finish(named, None, estimate, vec![below])
    }

    fn insert(&self, i: &Insert) -> Named {
        let def = &i.handle.table.def;
        let named = Named::titled("ModifyTable", format!("Insert on {}", def.name))
            .fact("Operation", "Insert");
        let Some(c) = &i.conflict else { return named };
        let what = match c.update.is_some() {
            true => "UPDATE",
            false => "NOTHING",
        };
        let mut named = named.detail("Conflict Resolution", what);
        let arbiters: Vec<String> = c
            .arbiters
            .iter()
            .map(|&a| def.indexes[a].name.clone())
            .collect();
        if !arbiters.is_empty() {
            named = named.detail("Conflict Arbiter Indexes", Fact::List(arbiters));
        }
        let Some(u) = &c.update else { return named };
        if u.deltas.is_empty() {
            return exactly(named, &i.handle, &[&u.columns]);
        }
        let mut names = self.plan.names.clone();
        for (slot, c) in u.excluded.iter().zip(&def.columns) {
            names[*slot as usize] = format!("excluded.{}", c.name);
        }
        named.detail("Delta", deltas(&i.handle, &u.deltas, &names))
    }

    fn update(&self, u: &Update) -> Named {
        let title = on("Update", &u.handle.table.def.name, &u.alias);
        let mut named = Named::titled("ModifyTable", title).fact("Operation", "Update");
        if let Some(split) = &u.split {
            named = named.detail("Delta", deltas(&u.handle, &split.deltas, &self.plan.names));
            let guards = split.deltas.iter().flat_map(|d| &d.guards);
            let guards: Vec<String> = guards.map(|g| self.show(&g.whole)).collect();
            if !guards.is_empty() {
                named = named.detail("Guard", Fact::List(guards));
            }
            return named;
        }
        exactly(named, &u.handle, &[&u.columns])
    }

    fn merge(&self, m: &Merge) -> Named {
        let title = on("Merge", &m.handle.table.def.name, &m.alias);
        let named = Named::titled("ModifyTable", title).fact("Operation", "Merge");
        let updates = m.clauses.iter().filter_map(|c| match &c.action {
            MergeAction::Update(columns) => Some(&columns[..]),
            _ => None,
        });
        exactly(named, &m.handle, &updates.collect::<Vec<_>>())
    }

    fn show(&self, e: &Expr) -> String {
        show(e, &self.plan.names)
    }

    fn all(&self, conditions: &[Expr]) -> String {
        match conditions {
            [one] => self.show(one),
            many => {
                let shown: Vec<String> = many.iter().map(|c| self.show(c)).collect();
                format!("({})", shown.join(" AND "))
            }
        }
    }

    fn list<'e>(&self, exprs: impl Iterator<Item = &'e Expr>) -> Fact {
        Fact::List(exprs.map(|e| self.show(e)).collect())
    }

    fn keys(&self, keys: &[SortKey]) -> Fact {
        let one = |k: &SortKey| {
            let mut s = self.show(&k.expr);
            if k.desc {
                s.push_str(" DESC");
            }
            if k.nulls_first != k.desc {
                s.push_str(match k.nulls_first {
                    true => " NULLS FIRST",
                    false => " NULLS LAST",
                });
            }
            s
        };
        Fact::List(keys.iter().map(one).collect())
    }

    /// Says the conditions under this key, if there are any.
    fn given(&self, named: Named, key: &'static str, conditions: &[Expr]) -> Named {
        match conditions {
            [] => named,
            some => named.detail(key, self.all(some)),
        }
    }

    fn scan(&self, s: &Scan) -> Named {
        let table = &s.table.def.name;
        let named = on("", table, &s.alias);
        let named = named.trim_start();
        let whole = s.fixed.is_empty() && s.bounds.is_empty();
        let back = s.direction == Direction::Backward;
        let word = if back { " Backward" } else { "" };
        let n = match &s.index {
            Some(i) if !(whole && s.access == Access::Primary && !back) => {
                Named::titled("Index Scan", format!("Index Scan{word} using {i} {named}"))
                    .fact("Scan Direction", if back { "Backward" } else { "Forward" })
                    .fact("Index Name", &**i)
            }
            _ => Named::titled("Seq Scan", format!("Seq Scan{word} {named}")),
        };
        let n = n.fact("Relation Name", &**table).fact("Alias", &*s.alias);
        let n = self.given(n, "Index Cond", &s.key_cond);
        self.given(n, "Filter", &s.filter)
    }

    /// A node without inputs.
    fn leaf(&self, n: &Node) -> Named {
        match n {
            Node::Scan(s) => self.scan(s),
            Node::Virtual(v) => {
                let name = match v.source {
                    CatalogSource::Fixed(t) => t.name(),
                    CatalogSource::Sequence(_) => &v.alias,
                };
                let title = format!("Catalog Scan on {}", v.alias);
                let n = Named::titled("Catalog Scan", title)
                    .fact("Relation Name", name)
                    .fact("Alias", &*v.alias);
                self.given(n, "Filter", &v.filter)
            }
            Node::Function(f) => {
                let title = on("Function Scan", f.f.name, &f.alias);
                let n = Named::titled("Function Scan", title)
                    .fact("Function Name", f.f.name)
                    .fact("Alias", &*f.alias);
                self.given(n, "Filter", &f.filter)
            }
            Node::CteScan(c) => {
                let n = Named::titled("CTE Scan", format!("CTE Scan on {}", c.name))
                    .fact("CTE Name", &*c.name)
                    .fact("Alias", &*c.name);
                self.given(n, "Filter", &c.filter)
            }
            Node::WorkTable(c) => {
                let n = Named::titled("WorkTable Scan", format!("WorkTable Scan on {}", c.name))
                    .fact("CTE Name", &*c.name)
                    .fact("Alias", &*c.name);
                self.given(n, "Filter", &c.filter)
            }
            Node::Values(_) => Named::plain("Values Scan"),
            Node::Once(c) => self.given(Named::plain("Result"), "One-Time Filter", c),
            _ => Named::plain("Result"),
        }
    }

    fn hashed(&self, named: Named, left: &[Expr], right: &[Expr]) -> Named {
        let pairs = left.iter().zip(right);
        let conds: Vec<String> = pairs
            .map(|(a, b)| format!("({} = {})", self.show(a), self.show(b)))
            .collect();
        match conds.is_empty() {
            true => named,
            false => named.detail("Hash Cond", conds.join(" AND ")),
        }
    }

    fn aggregate(&self, a: &Aggregate) -> Named {
        let named = |title: &str, strategy: &str| {
            Named::titled("Aggregate", title.to_owned())
                .fact("Strategy", strategy)
                .fact("Partial Mode", "Simple")
        };
        if let Some(sets) = &a.sets {
            let mut n = named("MixedAggregate", "Mixed");
            for set in &sets.sets {
                n = match set.is_empty() {
                    true => n.detail("Group Key", "()"),
                    false => {
                        let keys = set.iter().map(|&k| &a.keys[k].1);
                        n.detail("Hash Key", self.list(keys))
                    }
                };
            }
            return n;
        }
        match (a.plain, a.first_only) {
            (true, true) => named("Aggregate (first row of index)", "Plain"),
            (true, false) => named("Aggregate", "Plain"),
            (false, _) => named("HashAggregate", "Hashed")
                .detail("Group Key", self.list(a.keys.iter().map(|(_, e)| e))),
        }
    }

    /// A node over inputs.
    fn inner(&self, n: &Node) -> Named {
        let join = |name: &'static str, kind: JoinKind| {
            let (title, kind) = match (name, kind) {
                (_, JoinKind::Inner) => (name.to_owned(), "Inner"),
                ("Hash Join", JoinKind::Left) => ("Hash Left Join".into(), "Left"),
                (_, JoinKind::Left) => (format!("{name} Left Join"), "Left"),
            };
            Named::titled(name, title)
                .fact("Join Type", kind)
                .fact("Inner Unique", Fact::Flag(false))
        };
        match n {
            Node::Filter(f) => self.given(Named::plain("Filter"), "Filter", &f.conditions),
            Node::ProjectSet(_) => Named::plain("ProjectSet"),
            Node::NestLoop(j) => self.given(join("Nested Loop", j.kind), "Join Filter", &j.on),
            Node::HashJoin(j) => {
                let n = join("Hash Join", j.kind);
                let n = self.hashed(n, &j.left_keys, &j.right_keys);
                self.given(n, "Join Filter", &j.on)
            }
            Node::FullJoin(j) => {
                let n = Named::titled("Hash Join", "Hash Full Join".into())
                    .fact("Join Type", "Full")
                    .fact("Inner Unique", Fact::Flag(false));
                let n = self.hashed(n, &j.left_keys, &j.right_keys);
                self.given(n, "Join Filter", &j.on)
            }
            Node::Materialize(_) => Named::plain("Materialize"),
            Node::Lookup(l) => self.given(Named::plain("Hash Lookup"), "Hash Cond", &l.conditions),
            Node::Sort(s) => Named::plain("Sort").detail("Sort Key", self.keys(&s.keys)),
            Node::Aggregate(a) => self.aggregate(a),
            Node::Unique(u) => Named::plain("Unique").detail("Group Key", self.list(u.keys.iter())),
            Node::Window(_) => Named::plain("WindowAgg"),
            Node::Limit(_) => Named::plain("Limit"),
            Node::Append(_) => Named::plain("Append"),
            Node::SetOp(s) => {
                let kind = match s.kind {
                    SetKind::Intersect => "Intersect",
                    SetKind::Except => "Except",
                };
                let all = if s.all { " All" } else { "" };
                Named::titled("SetOp", format!("HashSetOp {kind}{all}"))
                    .fact("Strategy", "Hashed")
                    .fact("Command", format!("{kind}{all}"))
            }
            Node::With(w) => {
                let names = w.ctes.iter().map(|c| c.name.clone()).collect();
                Named::plain("With").detail("CTE", Fact::List(names))
            }
            Node::Recursive(_) => Named::plain("Recursive Union"),
            Node::Lock(_) => Named::plain("LockRows"),
            other => self.leaf(other),
        }
    }

    fn node(&mut self, n: &Node) -> Shown {
        let at = self.next;
        self.next += 1;
        let children: Vec<Shown> = inputs(n).into_iter().map(|c| self.node(c)).collect();
        let below: Vec<Estimate> = children.iter().map(|c| c.estimate).collect();
        let estimate = self.estimates.node(n, &below);
        // The input of a projection stands for it: PostgreSQL shows none either.
        if let Node::Project(_) = n {
            let mut only = children.into_iter().next().expect("a projection's input");
            only.estimate = estimate;
            return only;
        }
        let actual = self.stats.map(|s| s[at]);
        self.finish(self.inner(n), actual, estimate, children)
    }
}

/// Names the split columns that a statement writes by their values.
fn exactly(named: Named, table: &TableHandle, updates: &[&[ColumnSource]]) -> Named {
    let written = |at: usize| {
        let set = |u: &&[ColumnSource]| matches!(u[at], ColumnSource::Expr(_));
        table.split(at).is_some() && updates.iter().any(set)
    };
    let columns = table.table.def.columns.iter().enumerate();
    let exact = columns.filter(|(at, _)| written(*at));
    let exact: Vec<String> = exact.map(|(_, c)| c.name.clone()).collect();
    match exact.is_empty() {
        true => named,
        false => named.detail("Exact Write", Fact::List(exact)),
    }
}

/// What a statement adds to split columns.
fn deltas(table: &TableHandle, deltas: &[SplitDelta], names: &[String]) -> Fact {
    let one = |d: &SplitDelta| {
        let name = &table.table.def.columns[d.column].name;
        let sign = if d.negative { "-" } else { "+" };
        format!("{name} {sign} {}", show(&d.amount, names))
    };
    Fact::List(deltas.iter().map(one).collect())
}
