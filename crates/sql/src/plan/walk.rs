//! The walk over a logical plan.
//!
//! What is wanted goes down, and an operator passes on what it does not change:
//!
//! | operator | order | limit |
//! |---|---|---|
//! | Project | with its columns put in | as it is |
//! | Sort | its own | as it is; a sort that remains keeps no more rows |
//! | Aggregate | if all of it are keys of the group | none; `min` and `max` want the first row by an index |
//! | Window | its partition and order | none |
//! | Filter, Unique | as it is | none |
//! | Limit | none | its own; none to count by WITH TIES |
//! | Lock | as it is | as it is, but a sort keeps all rows: locking may drop some |
//! | others | none | none |
//!
//! A sort whose input comes in its order is left out.

use super::node::{self, Agg, Node, SortKey};
use super::{Planned, Planner, Want, access, join};
use crate::expr::{Expr, Slot};
use crate::logical::window::{Window, WindowCall};
use crate::logical::{Cte, From, GroupingSets, Logical, SetKind};
use base::Result;
use std::sync::Arc;

/// With less stack than this left, planning goes on with a new piece of this size.
const RED_ZONE: usize = 128 << 10;
const STACK: usize = 4 << 20;

/// Rows of a recursive query, of which nothing is known.
const RECURSIVE: f64 = 100.0;

impl Planner<'_> {
    /// Plans an operator and all below it.
    pub fn plan(&mut self, l: Logical, want: &Want) -> Result<Planned> {
        stacker::maybe_grow(RED_ZONE, STACK, || self.operator(l, want))
    }

    /// Plans without any wish.
    fn alone(&mut self, l: Logical) -> Result<Planned> {
        self.plan(l, &Want::default())
    }

    fn operator(&mut self, l: Logical, want: &Want) -> Result<Planned> {
        let ordered = want.order.is_empty();
        let (node, rows) = match l {
            Logical::Join { items, filter } => return join::plan_join(self, items, filter, want),
            Logical::Project { input, exprs } => return self.project(*input, exprs, want),
            Logical::Sort { input, keys, slots } => return self.sort(*input, keys, slots, want),
            Logical::Aggregate {
                input,
                keys,
                aggs,
                plain,
                sets,
            } => return self.aggregate(*input, (keys, aggs), (plain, sets), want),
            Logical::Window {
                input,
                window,
                calls,
                slots,
            } => return self.window(*input, window, calls, slots, want),
            Logical::Filter { input, conditions } => {
                let below = self.plan(*input, &want.without_limit())?;
                return Ok(
                    below.under(|input| Node::Filter(Arc::new(node::Filter { input, conditions })))
                );
            }
            Logical::Unique { input, keys } => {
                let below = self.plan(*input, &want.without_limit())?;
                return Ok(
                    below.under(|input| Node::Unique(Arc::new(node::Unique { input, keys })))
                );
            }
            Logical::Lock { input, tables } => {
                let want = Want {
                    top: None,
                    ..want.clone()
                };
                let below = self.plan(*input, &want)?;
                return Ok(below.under(|input| Node::Lock(Arc::new(node::Lock { input, tables }))));
            }
            Logical::With { ctes, input } => {
                let ctes = ctes
                    .into_iter()
                    .map(|c| self.cte(c))
                    .collect::<Result<_>>()?;
                let below = self.plan(*input, want)?;
                return Ok(below.under(|input| Node::With(Arc::new(node::With { ctes, input }))));
            }
            Logical::Limit {
                input,
                limit,
                offset,
                ties,
            } => self.limit(*input, limit, offset, ties)?,
            Logical::Values(v) => {
                let rows = v.rows.len() as f64;
                (Node::Values(Arc::new(v)), rows)
            }
            Logical::ProjectSet { input, functions } => {
                let below = self.alone(*input)?;
                let input = below.node;
                let node = node::ProjectSet { input, functions };
                (Node::ProjectSet(Arc::new(node)), below.rows)
            }
            Logical::Append(inputs) => self.append(inputs)?,
            Logical::SetOp {
                kind,
                all,
                left,
                right,
                slots,
            } => self.set_op(kind, all, (*left, *right), slots)?,
            Logical::Recursive {
                id,
                first,
                step,
                distinct,
                slots,
            } => {
                let node = node::Recursive {
                    id,
                    first: self.alone(*first)?.node,
                    step: self.alone(*step)?.node,
                    distinct,
                    slots,
                };
                (Node::Recursive(Arc::new(node)), RECURSIVE)
            }
        };
        Ok(Planned {
            node,
            ordered,
            rows,
        })
    }

    fn set_op(
        &mut self,
        kind: SetKind,
        all: bool,
        (left, right): (Logical, Logical),
        slots: Vec<Slot>,
    ) -> Result<(Node, f64)> {
        let (left, right) = (self.alone(left)?, self.alone(right)?);
        let rows = left.rows + right.rows;
        let node = node::SetOp {
            kind,
            all,
            left: left.node,
            right: right.node,
            slots,
        };
        Ok((Node::SetOp(Arc::new(node)), rows))
    }

    fn append(&mut self, inputs: Vec<Logical>) -> Result<(Node, f64)> {
        let mut rows = 0.0;
        let mut nodes = Vec::with_capacity(inputs.len());
        for i in inputs {
            let below = self.alone(i)?;
            rows += below.rows;
            nodes.push(below.node);
        }
        Ok((Node::Append(Arc::new(node::Append { inputs: nodes })), rows))
    }

    fn cte(&mut self, c: Cte) -> Result<node::Cte> {
        Ok(node::Cte {
            id: c.id,
            name: c.name,
            plan: self.alone(c.input)?.node,
            slots: c.slots,
        })
    }

    fn project(
        &mut self,
        input: Logical,
        mut exprs: Vec<(Slot, Expr)>,
        want: &Want,
    ) -> Result<Planned> {
        let below = match want.order.is_empty() {
            true => self.plan(input, want)?,
            false => {
                let mut want = want.clone();
                want.order
                    .iter_mut()
                    .for_each(|k| put_in(&mut k.expr, &exprs));
                self.plan(input, &want)?
            }
        };
        for (_, e) in &mut exprs {
            if !matches!(e, Expr::Const(_) | Expr::Param(_)) {
                self.hoist(e);
            }
        }
        Ok(below.under(|input| Node::Project(Arc::new(node::Project { input, exprs }))))
    }

    fn sort(
        &mut self,
        input: Logical,
        keys: Vec<SortKey>,
        slots: Vec<Slot>,
        want: &Want,
    ) -> Result<Planned> {
        let own = Want {
            order: keys,
            limit: want.limit,
            some_limit: want.some_limit,
            top: None,
        };
        let below = self.plan(input, &own)?;
        if below.ordered {
            return Ok(below);
        }
        let keys = own.order;
        let top = want.top.clone();
        Ok(Planned {
            node: Node::Sort(Arc::new(node::Sort {
                input: below.node,
                keys,
                slots,
                top,
            })),
            ordered: want.order.is_empty(),
            rows: below.rows,
        })
    }

    fn window(
        &mut self,
        input: Logical,
        window: Window,
        mut calls: Vec<WindowCall>,
        slots: Vec<Slot>,
        want: &Want,
    ) -> Result<Planned> {
        let partition = window.partition.iter().map(|e| SortKey {
            expr: e.clone(),
            desc: false,
            nulls_first: false,
        });
        let keys: Vec<SortKey> = partition.chain(window.order.iter().cloned()).collect();
        let own = Want {
            order: keys,
            ..Want::default()
        };
        let below = self.plan(input, &own)?;
        let keys = own.order;
        for c in &mut calls {
            c.exprs_mut(&mut |e| self.hoist(e));
        }
        let same = |(a, b): (&SortKey, &SortKey)| {
            a.expr.same(&b.expr) && a.desc == b.desc && a.nulls_first == b.nulls_first
        };
        let ordered = want.order.len() <= keys.len() && want.order.iter().zip(&keys).all(same);
        Ok(Planned {
            node: Node::Window(Arc::new(node::Window {
                input: below.node,
                window,
                keys,
                calls,
                slots,
                sorted: below.ordered,
            })),
            ordered,
            rows: below.rows,
        })
    }

    fn limit(
        &mut self,
        input: Logical,
        limit: Option<Expr>,
        offset: Option<Expr>,
        ties: Vec<SortKey>,
    ) -> Result<(Node, f64)> {
        let count = |e: &Option<Expr>| match e {
            Some(Expr::Const(v)) => v.as_i64(),
            _ => None,
        };
        let known = offset.as_ref().is_none_or(|o| matches!(o, Expr::Const(_)));
        let wanted = count(&limit)
            .filter(|_| known && ties.is_empty())
            .map(|n| n.saturating_add(count(&offset).unwrap_or(0)));
        let want = Want {
            order: vec![],
            limit: wanted.and_then(|n| usize::try_from(n).ok()),
            some_limit: limit.is_some(),
            // With ties a sort keeps all rows: how many there are shows only when they are sorted.
            top: (limit.is_some() && ties.is_empty()).then(|| (limit.clone(), offset.clone())),
        };
        let below = self.plan(input, &want)?;
        let rows = count(&limit).map_or(below.rows, |n| below.rows.min(n as f64));
        let node = node::Limit {
            input: below.node,
            limit,
            offset,
            ties,
        };
        Ok((Node::Limit(Arc::new(node)), rows))
    }

    fn aggregate(
        &mut self,
        mut input: Logical,
        (keys, mut aggs): (Vec<(Slot, Expr)>, Vec<Agg>),
        (plain, sets): (bool, Option<GroupingSets>),
        want: &Want,
    ) -> Result<Planned> {
        let first = match plain {
            true => extreme_by_index(&aggs, &mut input),
            false => None,
        };
        let mut below_want = Want::default();
        // Groups come in the order of their first rows.
        let key = |k: &SortKey| {
            let Expr::Slot(s) = k.expr else { return None };
            let (_, e) = keys.iter().find(|(slot, _)| *slot == s)?;
            Some(SortKey {
                expr: e.clone(),
                ..k.clone()
            })
        };
        let by_keys: Option<Vec<SortKey>> = match &sets {
            None => want.order.iter().map(key).collect(),
            Some(_) => None,
        };
        let passed = by_keys.is_some();
        if let Some(k) = &first {
            below_want = Want {
                order: vec![k.clone()],
                limit: Some(1),
                some_limit: true,
                top: None,
            };
        } else if let Some(order) = by_keys {
            below_want.order = order;
        }
        let below = self.plan(input, &below_want)?;
        for a in &mut aggs {
            a.args.iter_mut().for_each(|e| self.hoist(e));
        }
        let first_only = first.is_some() && below.ordered;
        Ok(Planned {
            node: Node::Aggregate(Arc::new(node::Aggregate {
                input: below.node,
                keys,
                aggs,
                plain,
                first_only,
                sets,
            })),
            ordered: want.order.is_empty() || passed && first.is_none() && below.ordered,
            rows: if plain {
                1.0
            } else {
                (below.rows / 10.0).max(1.0)
            },
        })
    }
}

impl Want {
    /// The same without a limit.
    fn without_limit(&self) -> Want {
        Want {
            order: self.order.clone(),
            ..Want::default()
        }
    }
}

impl Planned {
    /// An operator over this one that leaves order and number of rows.
    fn under(self, f: impl FnOnce(Node) -> Node) -> Planned {
        Planned {
            node: f(self.node),
            ..self
        }
    }
}

/// Puts the expressions of a projection in the place of its slots.
fn put_in(e: &mut Expr, exprs: &[(Slot, Expr)]) {
    if let Expr::Slot(s) = e {
        if let Some((_, x)) = exprs.iter().find(|(slot, _)| slot == s) {
            *e = x.clone();
        }
        return;
    }
    e.children_mut(&mut |c| put_in(c, exprs));
}

/// `SELECT min(x)` over one table: the order along an index in which the first row has the answer. NULLs are left out by a condition.
fn extreme_by_index(aggs: &[Agg], input: &mut Logical) -> Option<SortKey> {
    let Logical::Join { items, filter } = input else {
        return None;
    };
    let ([a], [From::Table(t)]) = (aggs, &items[..]) else {
        return None;
    };
    let desc = match a.id.name {
        "min" => false,
        "max" => true,
        _ => return None,
    };
    let [Expr::Slot(s)] = a.args[..] else {
        return None;
    };
    let key = SortKey {
        expr: Expr::Slot(s),
        desc,
        nulls_first: desc,
    };
    if a.filter.is_some() || t.column_of(s).is_none() || !access::has_order(t, &key) {
        return None;
    }
    filter.push(Expr::IsNull {
        arg: Box::new(Expr::Slot(s)),
        not: true,
    });
    Some(key)
}
