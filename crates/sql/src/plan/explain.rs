//! EXPLAIN: the plan as text, near to PostgreSQL's, or as JSON.

use super::node::{JoinKind, Node, Plan, Root, SetKind, SortKey};
use crate::expr::Expr;
use crate::expr::show::show;
use std::fmt::Write;
use std::time::Duration;
use txn::{Access, Direction};

/// How to explain.
#[derive(Clone, Copy)]
pub struct Options {
    pub analyze: bool,
    pub json: bool,
    pub costs: bool,
}

/// What EXPLAIN ANALYZE shows of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeStats {
    pub loops: u64,
    pub rows: u64,
    pub time: Duration,
}

/// The answer as lines of text.
pub(crate) fn text(
    plan: &Plan,
    actual: Option<&[NodeStats]>,
    took: Option<Duration>,
) -> Vec<String> {
    let mut lines = Vec::new();
    tree(plan, actual).lines(0, &mut lines);
    if let Some(t) = took {
        lines.push(format!("Execution Time: {:.3} ms", millis(t)));
    }
    lines
}

/// The answer as a JSON document.
pub(crate) fn json(plan: &Plan, actual: Option<&[NodeStats]>, took: Option<Duration>) -> String {
    let mut whole = vec![serde_json::json!({ "Plan": tree(plan, actual).json() })];
    if let (Some(t), Some(m)) = (took, whole[0].as_object_mut()) {
        m.insert("Execution Time".into(), millis(t).into());
    }
    serde_json::to_string_pretty(&whole).expect("plain data")
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 1e6).round() / 1e3
}

/// A node as EXPLAIN shows it.
struct Shown {
    title: String,
    details: Vec<(&'static str, String)>,
    actual: Option<NodeStats>,
    /// `SubPlan 1` and such, before the node.
    label: Option<String>,
    children: Vec<Shown>,
}

impl Shown {
    fn lines(&self, depth: usize, out: &mut Vec<String>) {
        let (mut indent, arrow) = match depth {
            0 => (0, ""),
            d => (d * 6 - 4, "->  "),
        };
        if let Some(l) = &self.label {
            out.push(format!("{:indent$}{l}", ""));
            indent += 2;
        }
        let mut line = format!("{:indent$}{arrow}{}", "", self.title);
        if let Some(a) = &self.actual {
            if a.loops == 0 {
                line.push_str(" (never executed)");
            } else {
                let per = |x: f64| x / a.loops as f64;
                write!(
                    line,
                    " (actual time={:.3} rows={:.0} loops={})",
                    per(millis(a.time)),
                    per(a.rows as f64),
                    a.loops
                )
                .expect("to a string");
            }
        }
        out.push(line);
        let inner = indent + if depth == 0 { 2 } else { 6 };
        for (k, v) in &self.details {
            out.push(format!("{:inner$}{k}: {v}", ""));
        }
        let next = if self.label.is_some() {
            depth + 1
        } else {
            depth
        };
        for c in &self.children {
            c.lines(next + 1, out);
        }
    }

    fn json(&self) -> serde_json::Value {
        let mut m = serde_json::Map::new();
        m.insert("Node Type".into(), self.title.clone().into());
        if let Some(l) = &self.label {
            m.insert("Subplan Name".into(), l.clone().into());
        }
        for (k, v) in &self.details {
            m.insert((*k).into(), v.clone().into());
        }
        if let Some(a) = &self.actual {
            m.insert("Actual Loops".into(), a.loops.into());
            m.insert("Actual Rows".into(), a.rows.into());
            m.insert("Actual Total Time".into(), millis(a.time).into());
        }
        if !self.children.is_empty() {
            let c: Vec<_> = self.children.iter().map(Shown::json).collect();
            m.insert("Plans".into(), c.into());
        }
        m.into()
    }
}

/// Walks a plan in the order in which its operators are numbered.
struct Walk<'p> {
    plan: &'p Plan,
    stats: Option<&'p [NodeStats]>,
    next: usize,
}

fn tree(plan: &Plan, stats: Option<&[NodeStats]>) -> Shown {
    let mut w = Walk {
        plan,
        stats,
        next: 0,
    };
    let mut top = match &plan.root {
        Root::Rows(n) => w.node(n),
        Root::Insert(i) => {
            let mut details = vec![];
            if let Some(c) = &i.conflict {
                let what = if c.update.is_some() {
                    "UPDATE"
                } else {
                    "NOTHING"
                };
                details.push(("Conflict Resolution", what.to_owned()));
                let names: Vec<String> = c
                    .arbiters
                    .iter()
                    .map(|&a| i.handle.table.def.indexes[a].name.clone())
                    .collect();
                if !names.is_empty() {
                    details.push(("Conflict Arbiter Indexes", names.join(", ")));
                }
                if let Some(u) = c.update.as_ref().filter(|u| !u.deltas.is_empty()) {
                    let mut names = plan.names.clone();
                    for (slot, c) in u.excluded.iter().zip(&i.handle.table.def.columns) {
                        names[*slot as usize] = format!("excluded.{}", c.name);
                    }
                    details.push(("Delta", w.deltas(&i.handle, &u.deltas, &names)));
                }
            }
            let table = &i.handle.table.def.name;
            w.write(format!("Insert on {table}"), details, &i.input)
        }
        Root::Update(u) => {
            let title = on("Update", &u.handle.table.def.name, &u.alias);
            let mut details = vec![];
            if let Some(split) = &u.split {
                details.push(("Delta", w.deltas(&u.handle, &split.deltas, &plan.names)));
                let guards = split.deltas.iter().flat_map(|d| &d.guards);
                let guards = w.list(guards.map(|g| w.show(&g.whole)));
                if !guards.is_empty() {
                    details.push(("Guard", guards));
                }
            } else {
                let set = u.columns.iter().enumerate();
                let exact = set.filter(|(at, c)| {
                    matches!(c, super::node::ColumnSource::Expr(_)) && u.handle.split(*at).is_some()
                });
                let exact = exact.map(|(at, _)| u.handle.table.def.columns[at].name.clone());
                let exact = w.list(exact);
                if !exact.is_empty() {
                    details.push(("Exact Write", exact));
                }
            }
            w.write(title, details, &u.input)
        }
        Root::Delete(d) => {
            let title = on("Delete", &d.handle.table.def.name, &d.alias);
            w.write(title, vec![], &d.input)
        }
        Root::Explain { .. } => Shown {
            title: "Explain".into(),
            details: vec![],
            actual: None,
            label: None,
            children: vec![],
        },
    };
    for (i, n) in plan.subplans.iter().enumerate() {
        let mut s = w.node(n);
        s.label = Some(format!("SubPlan {}", i + 1));
        top.children.push(s);
    }
    top
}

/// How many nodes a plan has, and the number of each subplan's first.
pub(crate) fn count_nodes(plan: &Plan) -> (usize, Vec<usize>) {
    let mut w = Walk {
        plan,
        stats: None,
        next: 0,
    };
    match &plan.root {
        Root::Rows(n) => drop(w.node(n)),
        Root::Insert(i) => {
            w.next += 1;
            w.node(&i.input);
        }
        Root::Update(u) => {
            w.next += 1;
            w.node(&u.input);
        }
        Root::Delete(d) => {
            w.next += 1;
            w.node(&d.input);
        }
        Root::Explain { .. } => {}
    }
    let mut starts = Vec::new();
    for n in &plan.subplans {
        starts.push(w.next);
        w.node(n);
    }
    (w.next, starts)
}

fn on(verb: &str, table: &str, alias: &str) -> String {
    if table == alias {
        format!("{verb} on {table}")
    } else {
        format!("{verb} on {table} {alias}")
    }
}

impl Walk<'_> {
    fn write(&mut self, title: String, details: Vec<(&'static str, String)>, n: &Node) -> Shown {
        self.next += 1;
        Shown {
            title,
            details,
            actual: None,
            label: None,
            children: vec![self.node(n)],
        }
    }

    fn show(&self, e: &Expr) -> String {
        show(e, &self.plan.names)
    }

    fn all(&self, conditions: &[Expr]) -> String {
        match conditions {
            [one] => self.show(one),
            many => format!(
                "({})",
                many.iter()
                    .map(|c| self.show(c))
                    .collect::<Vec<_>>()
                    .join(" AND ")
            ),
        }
    }

    /// What a statement adds to split columns.
    fn deltas(
        &self,
        table: &txn::TableHandle,
        deltas: &[super::node::SplitDelta],
        names: &[String],
    ) -> String {
        self.list(deltas.iter().map(|d| {
            let name = &table.table.def.columns[d.column].name;
            let sign = if d.negative { "-" } else { "+" };
            format!("{name} {sign} {}", show(&d.amount, names))
        }))
    }

    fn list(&self, exprs: impl Iterator<Item = String>) -> String {
        exprs.collect::<Vec<_>>().join(", ")
    }

    fn keys(&self, keys: &[SortKey]) -> String {
        self.list(keys.iter().map(|k| {
            let mut s = self.show(&k.expr);
            if k.desc {
                s.push_str(" DESC");
            }
            if k.nulls_first != k.desc {
                s.push_str(if k.nulls_first {
                    " NULLS FIRST"
                } else {
                    " NULLS LAST"
                });
            }
            s
        }))
    }

    fn node(&mut self, n: &Node) -> Shown {
        let at = self.next;
        self.next += 1;
        let mut details: Vec<(&'static str, String)> = Vec::new();
        let mut children: Vec<&Node> = Vec::new();
        let title = match n {
            Node::Once(c) => {
                if !c.is_empty() {
                    details.push(("One-Time Filter", self.all(c)));
                }
                "Result".into()
            }
            Node::Values(_) => "Values Scan".into(),
            Node::Scan(s) => {
                let back = match s.direction {
                    Direction::Backward => " Backward",
                    Direction::Forward => "",
                };
                let named = on("", &s.table.def.name, &s.alias);
                let named = named.trim_start();
                let whole = s.fixed.is_empty() && s.bounds.is_empty();
                if !s.key_cond.is_empty() {
                    details.push(("Index Cond", self.all(&s.key_cond)));
                }
                if !s.filter.is_empty() {
                    details.push(("Filter", self.all(&s.filter)));
                }
                match &s.index {
                    Some(_) if whole && s.access == Access::Primary && back.is_empty() => {
                        format!("Seq Scan {named}")
                    }
                    Some(i) => format!("Index Scan{back} using {i} {named}"),
                    None => format!("Seq Scan{back} {named}"),
                }
            }
            Node::Virtual(v) => {
                if !v.filter.is_empty() {
                    details.push(("Filter", self.all(&v.filter)));
                }
                format!("Catalog Scan on {}", v.alias)
            }
            Node::Function(f) => {
                if !f.filter.is_empty() {
                    details.push(("Filter", self.all(&f.filter)));
                }
                on("Function Scan", f.f.name, &f.alias)
            }
            Node::Filter(f) => {
                details.push(("Filter", self.all(&f.conditions)));
                children.push(&f.input);
                "Filter".into()
            }
            Node::Project(p) => {
                children.push(&p.input);
                "Projection".into()
            }
            Node::ProjectSet(p) => {
                children.push(&p.input);
                "ProjectSet".into()
            }
            Node::NestLoop(j) => {
                if !j.on.is_empty() {
                    details.push(("Join Filter", self.all(&j.on)));
                }
                children.extend([&j.left, &j.right]);
                match j.kind {
                    JoinKind::Inner => "Nested Loop".into(),
                    JoinKind::Left => "Nested Loop Left Join".into(),
                }
            }
            Node::HashJoin(j) => {
                let pairs = j.left_keys.iter().zip(&j.right_keys);
                let conds: Vec<String> = pairs
                    .map(|(a, b)| format!("({} = {})", self.show(a), self.show(b)))
                    .collect();
                details.push(("Hash Cond", conds.join(" AND ")));
                if !j.on.is_empty() {
                    details.push(("Join Filter", self.all(&j.on)));
                }
                children.extend([&j.left, &j.right]);
                match j.kind {
                    JoinKind::Inner => "Hash Join".into(),
                    JoinKind::Left => "Hash Left Join".into(),
                }
            }
            Node::Materialize(m) => {
                children.push(&m.input);
                "Materialize".into()
            }
            Node::Lookup(l) => {
                details.push(("Hash Cond", self.all(&l.conditions)));
                children.push(&l.input);
                "Hash Lookup".into()
            }
            Node::Sort(s) => {
                details.push(("Sort Key", self.keys(&s.keys)));
                children.push(&s.input);
                "Sort".into()
            }
            Node::Aggregate(a) => {
                children.push(&a.input);
                if a.plain {
                    if a.first_only {
                        "Aggregate (first row of index)".into()
                    } else {
                        "Aggregate".into()
                    }
                } else {
                    let keys = self.list(a.keys.iter().map(|(_, e)| self.show(e)));
                    details.push(("Group Key", keys));
                    "HashAggregate".into()
                }
            }
            Node::Unique(u) => {
                let keys = self.list(u.keys.iter().map(|e| self.show(e)));
                details.push(("Group Key", keys));
                children.push(&u.input);
                "Unique".into()
            }
            Node::Limit(l) => {
                children.push(&l.input);
                "Limit".into()
            }
            Node::Append(a) => {
                children.extend(&a.inputs);
                "Append".into()
            }
            Node::SetOp(s) => {
                children.extend([&s.left, &s.right]);
                let kind = match s.kind {
                    SetKind::Intersect => "Intersect",
                    SetKind::Except => "Except",
                };
                format!("HashSetOp {kind}{}", if s.all { " All" } else { "" })
            }
            Node::With(w) => {
                let names = self.list(w.ctes.iter().map(|c| c.name.clone()));
                details.push(("CTE", names));
                children.extend(w.ctes.iter().map(|c| &c.plan));
                children.push(&w.input);
                "With".into()
            }
            Node::CteScan(c) => {
                if !c.filter.is_empty() {
                    details.push(("Filter", self.all(&c.filter)));
                }
                format!("CTE Scan on {}", c.name)
            }
            Node::WorkTable(c) => {
                if !c.filter.is_empty() {
                    details.push(("Filter", self.all(&c.filter)));
                }
                format!("WorkTable Scan on {}", c.name)
            }
            Node::Recursive(r) => {
                children.extend([&r.first, &r.step]);
                "Recursive Union".into()
            }
            Node::Lock(l) => {
                children.push(&l.input);
                "LockRows".into()
            }
        };
        // The input of a projection stands for it: PostgreSQL shows none either.
        let shown: Vec<Shown> = children.into_iter().map(|c| self.node(c)).collect();
        if let (Node::Project(_), [_]) = (n, &shown[..]) {
            return shown.into_iter().next().expect("one");
        }
        Shown {
            title,
            details,
            actual: self.stats.map(|s| s[at]),
            label: None,
            children: shown,
        }
    }
}
