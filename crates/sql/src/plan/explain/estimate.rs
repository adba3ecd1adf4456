//! What a node is estimated to cost, and the rows that it is estimated to give, in PostgreSQL's units: 0.01 for a row that is handed on, 0.0025
//! for an operator that looks at a row.
//!
//! These figures are made only when a plan is shown. They come from the tables' sizes and from how much of a key a scan fixes. The planner
//! compares paths by the same estimate of visited rows ([`access::visited`]).
//!
//! Left out on purpose: pages. All rows are in memory.

use crate::expr::{Expr, Slot};
use crate::plan::access;
use crate::plan::node::{Aggregate, JoinKind, Limit, Node, Scan, Window};
use base::Type;
use std::collections::HashMap;
use txn::TableHandle;

const ROW: f64 = 0.01;
const OPERATOR: f64 = 0.0025;
/// The way down an index.
const DESCENT: f64 = 0.15;
/// Bytes of a value of no fixed width.
const WIDTH: i32 = 32;
/// The share of rows that a condition lets pass.
const PASSES: f64 = 0.33;

/// The estimate of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Before the first row.
    pub startup: f64,
    pub total: f64,
    pub rows: f64,
    /// Bytes of a row.
    pub width: i32,
}

/// Estimates the nodes of one plan, the deeper ones first.
pub(super) struct Estimator<'a> {
    rows: &'a dyn Fn(&TableHandle) -> u64,
    widths: HashMap<Slot, i32>,
}

fn width_of(ty: Type) -> i32 {
    match ty.typlen() {
        n if n > 0 => n.into(),
        _ => WIDTH,
    }
}

impl<'a> Estimator<'a> {
    pub fn new(rows: &'a dyn Fn(&TableHandle) -> u64) -> Estimator<'a> {
        Estimator {
            rows,
            widths: HashMap::new(),
        }
    }

    fn width(&self, slots: impl Iterator<Item = Slot>) -> i32 {
        slots
            .map(|s| self.widths.get(&s).copied().unwrap_or(8))
            .sum()
    }

    fn scan(&mut self, s: &Scan) -> Estimate {
        let table = s
            .handle
            .as_deref()
            .map_or(1000.0, |h| (self.rows)(h) as f64);
        for (c, slot) in &s.columns {
            let ty = s.table.def.columns[*c as usize].ty().ty;
            self.widths.insert(*slot, width_of(ty));
        }
        let index = s.index.as_deref();
        let unique = s
            .table
            .def
            .indexes
            .iter()
            .any(|i| Some(&*i.name) == index && i.unique);
        let visited = access::visited(&s.fixed, s.bounds.len(), s.key.len(), unique, table);
        let startup = match s.fixed.is_empty() && s.bounds.is_empty() {
            true => 0.0,
            false => DESCENT,
        };
        let looks = ROW + OPERATOR * (s.filter.len() + s.fixed.len()) as f64;
        Estimate {
            startup,
            total: startup + visited * looks,
            rows: visited * PASSES.powi(s.filter.len() as i32),
            width: self.width(s.columns.iter().map(|(_, slot)| *slot)),
        }
    }

    fn aggregate(&self, a: &Aggregate, input: Estimate) -> Estimate {
        let rows = if a.plain { 1.0 } else { input.rows / 10.0 };
        let startup = input.total + input.rows * OPERATOR * (a.aggs.len() + a.keys.len()) as f64;
        let slots = a.keys.iter().map(|(s, _)| *s);
        Estimate {
            startup,
            total: startup + rows * ROW,
            rows,
            width: self.width(slots.chain(a.aggs.iter().map(|a| a.slot))),
        }
    }

    /// One node over these inputs.
    pub fn node(&mut self, n: &Node, below: &[Estimate]) -> Estimate {
        let input = below.first().copied().unwrap_or_default();
        let second = below.get(1).copied().unwrap_or_default();
        let made = |rows: f64, width: i32| Estimate {
            startup: 0.0,
            total: rows * ROW,
            rows,
            width,
        };
        let over = |each: f64| Estimate {
            total: input.total + input.rows * each,
            ..input
        };
        let mut e = match n {
            Node::Once(_) => made(1.0, 0),
            Node::Values(v) => made(v.rows.len() as f64, 8 * v.out.len() as i32),
            Node::Scan(s) => self.scan(s),
            Node::Virtual(v) => made(
                300.0 * PASSES.powi(v.filter.len() as i32),
                WIDTH * v.columns.len() as i32,
            ),
            Node::Function(f) => made(50.0, 8 * f.out.len() as i32),
            Node::CteScan(c) | Node::WorkTable(c) => made(100.0, self.width(c.out.iter().copied())),
            Node::Filter(f) => Estimate {
                rows: input.rows * PASSES.powi(f.conditions.len() as i32),
                ..over(OPERATOR * f.conditions.len() as f64)
            },
            Node::Project(p) => Estimate {
                width: input.width.max(self.width(p.exprs.iter().map(|(s, _)| *s))),
                ..over(OPERATOR * p.exprs.len() as f64)
            },
            Node::ProjectSet(_) | Node::Materialize(_) | Node::Lock(_) => over(ROW),
            Node::Unique(u) => over(OPERATOR * u.keys.len() as f64),
            Node::Window(w) => window(w, input),
            Node::NestLoop(j) => {
                let again = match &j.right {
                    Node::Materialize(_) => second.rows * OPERATOR,
                    _ => second.total,
                };
                joined(input, second, j.kind, second.rows, again)
            }
            Node::HashJoin(j) => {
                let built = Estimate {
                    startup: input.startup + second.total,
                    ..input
                };
                joined(built, second, j.kind, second.rows * 0.1, OPERATOR)
            }
            Node::FullJoin(_) => Estimate {
                startup: second.total,
                total: input.total + second.total + (input.rows + second.rows) * ROW,
                rows: input.rows + second.rows,
                width: input.width + second.width,
            },
            Node::Lookup(l) => Estimate {
                startup: input.total,
                total: input.total + ROW,
                rows: input.rows * 0.1f64.powi(l.keys.len() as i32),
                width: input.width,
            },
            Node::Sort(s) => {
                let n = input.rows.max(2.0);
                let startup = input.total + n * n.log2() * OPERATOR;
                Estimate {
                    startup,
                    total: startup + input.rows * OPERATOR,
                    rows: input.rows,
                    width: self.width(s.slots.iter().copied()),
                }
            }
            Node::Aggregate(a) => self.aggregate(a, input),
            Node::Limit(l) => limited(l, input),
            Node::Append(_) | Node::SetOp(_) | Node::Recursive(_) => Estimate {
                startup: input.startup,
                total: below.iter().map(|b| b.total + b.rows * ROW).sum(),
                rows: below.iter().map(|b| b.rows).sum(),
                width: input.width,
            },
            Node::With(_) => {
                let last = below.last().copied().unwrap_or_default();
                let before: f64 = below.iter().rev().skip(1).map(|b| b.total).sum();
                Estimate {
                    startup: before + last.startup,
                    total: before + last.total,
                    ..last
                }
            }
        };
        e.rows = e.rows.max(1.0);
        e
    }
}

fn window(w: &Window, input: Estimate) -> Estimate {
    let n = input.rows.max(2.0);
    let sort = if w.sorted {
        0.0
    } else {
        n * n.log2() * OPERATOR
    };
    Estimate {
        startup: input.total + sort,
        total: input.total + sort + input.rows * (ROW + OPERATOR * w.calls.len() as f64),
        rows: input.rows,
        width: input.width + 8 * w.calls.len() as i32,
    }
}

fn limited(l: &Limit, input: Estimate) -> Estimate {
    let count = match &l.limit {
        Some(Expr::Const(v)) => v.as_i64().map_or(input.rows, |n| n as f64),
        _ => input.rows,
    };
    let rows = count.min(input.rows);
    let share = rows / input.rows.max(1.0);
    Estimate {
        total: input.startup + (input.total - input.startup) * share,
        rows,
        ..input
    }
}

/// A join whose right side gives `each` rows for a left row, at the price of `again`.
fn joined(l: Estimate, r: Estimate, kind: JoinKind, each: f64, again: f64) -> Estimate {
    let rows = match kind {
        JoinKind::Inner => l.rows * each,
        JoinKind::Left => l.rows * each.max(1.0),
    };
    Estimate {
        startup: l.startup + r.startup,
        total: l.total + r.total + l.rows * again + rows * ROW,
        rows,
        width: l.width + r.width,
    }
}
