//! From a plan's node to its operator. Nodes are numbered in preorder, so that EXPLAIN ANALYZE finds each one's counters.

use super::agg::AggregateOp;
use super::cte::{CteScanOp, RecursiveOp, WithOp};
use super::dml::LockOp;
use super::join::{FullJoinOp, HashJoinOp, NestLoopOp};
use super::lookup::LookupOp;
use super::scan::{ScanOp, VirtualOp};
use super::set::{AppendOp, SetOpOp};
use super::simple::{FilterOp, FunctionOp, LimitOp, OnceOp, ProjectOp, ProjectSetOp, ValuesOp};
use super::sort::{MaterializeOp, SortOp, UniqueOp};
use super::state::RowStore;
use super::window::WindowOp;
use super::{Operator, Rt};
use crate::plan::node::Node;
use std::time::{Duration, Instant};
use txn::Result;

/// Builds the operators of a tree. `next`: the number of its first node; none: nothing is counted.
pub fn build(node: &Node, next: &mut Option<usize>) -> Box<dyn Operator> {
    let id = *next;
    if let Some(n) = next {
        *n += 1;
    }
    let op: Box<dyn Operator> = match node {
        Node::Once(c) => Box::new(OnceOp {
            conditions: c.clone(),
            done: false,
        }),
        Node::Values(n) => Box::new(ValuesOp {
            node: n.clone(),
            next: 0,
        }),
        Node::Scan(n) => Box::new(ScanOp::new(n.clone())),
        Node::Virtual(n) => Box::new(VirtualOp::new(n.clone())),
        Node::Function(n) => Box::new(FunctionOp {
            node: n.clone(),
            rows: None,
            row: vec![],
            count: 0,
        }),
        Node::Filter(n) => Box::new(FilterOp {
            input: build(&n.input, next),
            node: n.clone(),
        }),
        Node::Project(n) => Box::new(ProjectOp {
            input: build(&n.input, next),
            node: n.clone(),
        }),
        Node::ProjectSet(n) => Box::new(ProjectSetOp {
            input: build(&n.input, next),
            node: n.clone(),
            sources: vec![],
            row: vec![],
        }),
        Node::NestLoop(n) => Box::new(NestLoopOp {
            left: build(&n.left, next),
            right: build(&n.right, next),
            node: n.clone(),
            open: false,
            matched: false,
        }),
        Node::HashJoin(n) => {
            let (left, right) = (build(&n.left, next), build(&n.right, next));
            Box::new(HashJoinOp::new(n.clone(), left, right))
        }
        Node::FullJoin(n) => {
            let (left, right) = (build(&n.left, next), build(&n.right, next));
            Box::new(FullJoinOp::new(n.clone(), left, right))
        }
        Node::Materialize(n) => Box::new(MaterializeOp {
            input: build(&n.input, next),
            node: n.clone(),
            rows: None,
            next: 0,
        }),
        Node::Lookup(n) => Box::new(LookupOp {
            input: build(&n.input, next),
            node: n.clone(),
            starts: 0,
            table: None,
            given_up: false,
            at: None,
            key: vec![],
        }),
        Node::Sort(n) => Box::new(SortOp {
            input: build(&n.input, next),
            node: n.clone(),
            rows: RowStore::default(),
            order: vec![],
            next: 0,
            sorted: false,
        }),
        Node::Aggregate(n) => Box::new(AggregateOp::new(n.clone(), build(&n.input, next))),
        Node::Window(n) => Box::new(WindowOp::new(n.clone(), build(&n.input, next))),
        Node::Unique(n) => Box::new(UniqueOp::new(n.clone(), build(&n.input, next))),
        Node::Limit(n) => Box::new(LimitOp::new(n.clone(), build(&n.input, next))),
        Node::Append(n) => Box::new(AppendOp {
            inputs: n.inputs.iter().map(|i| build(i, next)).collect(),
            at: 0,
        }),
        Node::SetOp(n) => Box::new(SetOpOp {
            left: build(&n.left, next),
            right: build(&n.right, next),
            node: n.clone(),
            counts: None,
            given: Default::default(),
        }),
        Node::With(n) => Box::new(WithOp {
            ctes: n.ctes.iter().map(|c| build(&c.plan, next)).collect(),
            input: build(&n.input, next),
            node: n.clone(),
        }),
        Node::CteScan(n) | Node::WorkTable(n) => Box::new(CteScanOp {
            node: n.clone(),
            rows: None,
            next: 0,
        }),
        Node::Recursive(n) => Box::new(RecursiveOp {
            first: build(&n.first, next),
            step: build(&n.step, next),
            node: n.clone(),
            in_step: false,
            round: RowStore::default(),
            seen: Default::default(),
        }),
        Node::Lock(n) => Box::new(LockOp {
            input: build(&n.input, next),
            node: n.clone(),
        }),
    };
    match id {
        Some(id) => Counted::over(op, id),
        None => op,
    }
}

/// An operator whose rows and time are counted.
struct Counted {
    op: Box<dyn Operator>,
    id: usize,
    /// Time that this loop has taken before its first row.
    waited: Option<Duration>,
}

impl Counted {
    fn over(op: Box<dyn Operator>, id: usize) -> Box<dyn Operator> {
        let waited = None;
        Box::new(Counted { op, id, waited })
    }
}

impl Operator for Counted {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let from = Instant::now();
        let r = self.op.open(rt);
        let took = from.elapsed();
        self.waited = Some(took);
        if let Some(s) = &mut rt.st.stats {
            let s = &mut s.nodes[self.id];
            s.loops += 1;
            s.time += took;
        }
        r
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let from = Instant::now();
        let r = self.op.next(rt);
        if let Some(s) = &mut rt.st.stats {
            let s = &mut s.nodes[self.id];
            let took = from.elapsed();
            s.rows += u64::from(matches!(r, Ok(true)));
            s.time += took;
            if let Some(before) = self.waited.take() {
                s.startup += before + took;
            }
        }
        r
    }
}
