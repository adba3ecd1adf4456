//! Running a prepared statement.
//!
//! An [`Execution`] owns the state of one run: parameters, slots, and a tree of pull operators over the plan. Each call
//! borrows the transaction for as long as it lasts, so a portal may be left open between calls. Statements that write or
//! lock rows run to their end in the first call and keep their rows, so that a run that ends with [`txn::Stop`] can
//! be started again: after an error an execution stands at its start.
//!
//! A statement never sees its own writes: targets and new values are collected first, then applied.
//!
//! Left out on purpose: parallel plans, spilling to disk (53200 instead).

mod agg;
mod batch;
mod build;
mod cte;
mod dml;
mod each;
mod eval;
mod explain;
mod filter;
mod insert;
mod join;
pub(crate) mod keys;
mod lookup;
mod merge;
mod point;
mod reads;
mod scan;
mod set;
mod short;
mod simple;
mod sort;
mod split;
#[cfg(test)]
mod split_tests;
mod state;
pub(crate) mod subquery;
mod window;
mod write;

pub use batch::{RowBatch, RowView};
pub(crate) use each::Each;
pub(crate) use state::{RowStore, Rt, State, Stats};

use crate::catalog::SessionFacts;
use crate::functions::SessionContext;
use crate::plan::Prepared;
use crate::plan::explain::NodeStats;
use crate::plan::node::Root;
use crate::types::OutputSettings;
use base::Value;
use std::sync::Arc;
use txn::{Result, Txn};

/// What a running statement sees of its session.
#[derive(Clone, Copy)]
pub struct ExecContext<'a> {
    pub settings: &'a OutputSettings,
    pub session: &'a dyn SessionContext,
    pub facts: &'a dyn SessionFacts,
}

/// A pull operator. `next` writes the slots of one row.
pub(crate) trait Operator: Send {
    /// Starts, or starts again.
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()>;
    /// The next row; false at the end.
    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool>;
}

/// Stack for statements with deeply nested expressions: bytes.
const DEEP_STACK: usize = 32 << 20;

/// What is done after a row was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    On,
    /// No further row now, where that can be: the client has enough to read.
    Pause,
}

/// Takes rows.
type Give<'a> = dyn FnMut(RowView<'_>) -> Result<Go> + 'a;

/// One run of a statement.
pub struct Execution {
    prepared: Arc<Prepared>,
    state: State,
    run: Run,
    affected: u64,
    /// Runs operators even for a short range: how the tests compare the two.
    pub(crate) no_shortcut: bool,
}

enum Run {
    Fresh,
    Rows(Box<dyn Operator>),
    /// Rows of a statement that ran to its end, and the next one to give.
    Buffered(state::RowStore, usize),
    Done,
}

impl Prepared {
    /// Starts a run with these parameters, of the types in `params`.
    pub fn start(self: &Arc<Self>, params: Vec<Value>) -> Execution {
        debug_assert!(params.len() >= self.params.len(), "a value per parameter");
        Execution {
            prepared: self.clone(),
            state: State::unprepared(params),
            run: Run::Fresh,
            affected: 0,
            no_shortcut: false,
        }
    }
}

impl Execution {
    /// The statement that runs.
    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Rows inserted, updated or deleted; for a SELECT the rows given so far.
    pub fn rows_affected(&self) -> u64 {
        self.affected
    }

    /// Ends the run and gives the parameters' memory back.
    pub fn into_params(self) -> Vec<Value> {
        self.state.params
    }

    /// Counts rows and time per node from now on.
    pub(crate) fn count_nodes(&mut self, nodes: usize, starts: Vec<usize>) {
        self.state.stats = Some(Stats {
            nodes: vec![NodeStats::default(); nodes],
            starts,
        });
    }

    /// The counters.
    pub(crate) fn take_stats(&mut self) -> Option<Stats> {
        self.state.stats.take()
    }

    /// Back to the start, with the same parameters.
    pub fn reset(&mut self) {
        self.run = Run::Fresh;
        self.affected = 0;
    }

    /// Puts up to `max_rows` rows in `out` (0: all that are left). False when there are no more.
    pub fn next_batch(
        &mut self,
        txn: &mut Txn,
        cx: &ExecContext<'_>,
        max_rows: usize,
        out: &mut RowBatch,
    ) -> Result<bool> {
        out.clear(self.prepared.plan.outputs.len());
        self.for_each_row(txn, cx, max_rows, &mut |row| {
            out.push(&row);
            Ok(Go::On)
        })
    }

    /// Gives up to `max_rows` rows (0: all that are left) to `f`, or fewer if that wants a pause, without a copy where the row is a stored
    /// one. False when there are no more. An error of `f` ends the run.
    pub fn for_each_row(
        &mut self,
        txn: &mut Txn,
        cx: &ExecContext<'_>,
        max_rows: usize,
        f: &mut Give<'_>,
    ) -> Result<bool> {
        let more = if self.prepared.plan.deep {
            stacker::grow(DEEP_STACK, || self.advance(txn, cx, max_rows, f))
        } else {
            self.advance(txn, cx, max_rows, f)
        };
        if more.is_err() {
            self.reset();
        }
        more
    }

    fn advance(
        &mut self,
        txn: &mut Txn,
        cx: &ExecContext<'_>,
        max_rows: usize,
        give: &mut Give<'_>,
    ) -> Result<bool> {
        let prepared = self.prepared.clone();
        let plan = &prepared.plan;
        if matches!(self.run, Run::Fresh) {
            if let Some(p) = &plan.point
                && self.state.stats.is_none()
            {
                self.run = Run::Done;
                // The one row there is: nothing is to be paused.
                let f = &mut |row: RowView<'_>| give(row).map(|_| ());
                self.affected = point::run(p, &mut self.state, txn, cx, f)?;
                return Ok(false);
            }
            if let Some(s) = &plan.short
                && self.state.stats.is_none()
                && (max_rows == 0 || max_rows >= short::MOST)
                && !self.no_shortcut
                && let Some(n) = short::run(s, plan, &mut self.state, txn, cx, &mut |row| {
                    give(row).map(|_| ())
                })?
            {
                self.run = Run::Done;
                self.affected = n;
                return Ok(false);
            }
            self.state.prepare(plan);
            let mut rt = Rt::new(txn, cx, &mut self.state, plan);
            self.run = match &plan.root {
                Root::Rows(node) if plan.steps.is_empty() => {
                    let mut first = rt.st.stats.is_some().then_some(0);
                    let mut op = build::build(node, &mut first);
                    op.open(&mut rt)?;
                    if prepared.locks_rows {
                        let mut rows = state::RowStore::new(plan.outputs.len());
                        while op.next(&mut rt)? {
                            rows.push(&mut rt, &plan.outputs)?;
                        }
                        Run::Buffered(rows, 0)
                    } else {
                        Run::Rows(op)
                    }
                }
                Root::Explain {
                    options,
                    planning,
                    inner,
                } => {
                    let params = rt.st.params.clone();
                    let rows = explain::run(inner, *options, *planning, &params, txn, cx)?;
                    Run::Buffered(rows, 0)
                }
                _ => {
                    let (rows, n) = write::run(plan, &mut rt)?;
                    self.affected = n;
                    Run::Buffered(rows, 0)
                }
            };
        }
        let limit = if max_rows == 0 { usize::MAX } else { max_rows };
        let mut pause = false;
        let writes = plan.root.target().is_some();
        let mut given = 0;
        match &mut self.run {
            Run::Fresh | Run::Done => return Ok(false),
            Run::Buffered(rows, next) => {
                while given < limit && *next < rows.len() && !pause {
                    pause = give(RowView::Values(rows.row(*next)))? == Go::Pause;
                    *next += 1;
                    given += 1;
                }
                if !writes {
                    self.affected += given as u64;
                }
                if *next < rows.len() {
                    return Ok(true);
                }
            }
            Run::Rows(op) => {
                let mut rt = Rt::new(txn, cx, &mut self.state, plan);
                while given < limit && !pause {
                    if !op.next(&mut rt)? {
                        self.affected += given as u64;
                        self.run = Run::Done;
                        return Ok(false);
                    }
                    pause = give(RowView::Slots {
                        values: &rt.st.env,
                        slots: &plan.outputs,
                    })? == Go::Pause;
                    given += 1;
                }
                self.affected += given as u64;
                return Ok(true);
            }
        }
        self.run = Run::Done;
        Ok(false)
    }
}
