//! The state of a run and what operators see of it.

use super::{ExecContext, Operator};
use crate::catalog::SessionFacts;
use crate::expr::Slot;
use crate::functions::EvalContext;
use crate::plan::explain::NodeStats;
use crate::plan::node::Plan;
use crate::types::value_bytes;
use base::{Error, Value};
use foldhash::HashSet;
use std::sync::Arc;
use txn::{Result, Txn};

/// What outlives a call.
pub(crate) struct State {
    pub params: Vec<Value>,
    /// The slots.
    pub env: Vec<Value>,
    /// Which [`crate::expr::Expr::Once`] slots are computed.
    pub once: Vec<bool>,
    pub subs: Vec<SubState>,
    pub ctes: Vec<CteState>,
    pub memory: Memory,
    /// Counters per node, when EXPLAIN ANALYZE asks.
    pub stats: Option<Stats>,
    pub key: Vec<u8>,
    /// Counts rows of loops that read nothing, which must be interruptible too.
    pub ticks: u32,
}

/// A subplan's operators and, for one that is run once, its answer.
#[derive(Default)]
pub(crate) struct SubState {
    pub op: Option<Box<dyn Operator>>,
    pub answer: Option<Answer>,
}

/// What an uncorrelated subquery gave.
pub enum Answer {
    Value(Value),
    Set {
        rows: HashSet<Box<[u8]>>,
        null: bool,
        empty: bool,
        /// The same rows as values, for several columns: a NULL says nothing about the columns beside it.
        values: RowStore,
    },
    /// The rows of one whose comparison is no equality.
    Rows(Arc<RowStore>),
}

#[derive(Default, Clone)]
pub struct CteState {
    pub rows: Option<Arc<RowStore>>,
}

/// Counters of all nodes: the main tree's first, then each subplan's from `starts`.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub nodes: Vec<NodeStats>,
    pub starts: Vec<usize>,
}

/// A budget of bytes.
pub struct Memory {
    used: usize,
    limit: Option<usize>,
}

impl State {
    /// The state of a run that has not begun; slots are made by [`State::prepare`].
    pub fn new(params: Vec<Value>, plan: &Plan) -> State {
        let mut s = State::unprepared(params);
        s.prepare(plan);
        s
    }

    pub fn unprepared(params: Vec<Value>) -> State {
        State {
            params,
            env: vec![],
            once: vec![],
            subs: vec![],
            ctes: vec![],
            memory: Memory {
                used: 0,
                limit: None,
            },
            stats: None,
            key: Vec::new(),
            ticks: 0,
        }
    }

    /// Makes the slots. A point read never needs them.
    pub fn prepare(&mut self, plan: &Plan) {
        self.env.clear();
        self.env.resize(plan.slots, Value::Null);
        self.once.clear();
        self.once.resize(plan.slots, false);
        self.subs.clear();
        self.subs
            .resize_with(plan.subplans.len(), SubState::default);
        self.ctes.clear();
        self.ctes.resize(plan.ctes, CteState::default());
        self.memory.used = 0;
    }
}

/// A running statement, as operators and expressions see it.
pub(crate) struct Rt<'a> {
    /// Away while a scan's callback runs.
    pub txn: Option<&'a mut Txn>,
    pub cx: EvalContext<'a>,
    pub facts: &'a dyn SessionFacts,
    pub st: &'a mut State,
    pub plan: &'a Plan,
}

impl<'a> Rt<'a> {
    pub fn new(
        txn: &'a mut Txn,
        cx: &ExecContext<'a>,
        st: &'a mut State,
        plan: &'a Plan,
    ) -> Rt<'a> {
        Rt {
            txn: Some(txn),
            cx: EvalContext {
                settings: cx.settings,
                session: cx.session,
            },
            facts: cx.facts,
            st,
            plan,
        }
    }

    /// The transaction.
    pub fn txn(&mut self) -> Result<&mut Txn> {
        Ok(self
            .txn
            .as_deref_mut()
            .ok_or_else(|| Error::internal("a subquery ran inside a scan"))?)
    }

    /// To be called once per row by loops that may run long without reading a table.
    pub fn tick(&mut self) -> Result<()> {
        self.st.ticks = self.st.ticks.wrapping_add(1);
        base::memory::check()?;
        if self.st.ticks.is_multiple_of(1024)
            && let Some(t) = self.txn.as_deref()
        {
            t.check_interrupt()?;
        }
        Ok(())
    }

    /// Takes `bytes` from the statement's budget; 53200 when it is spent.
    pub fn charge(&mut self, bytes: usize) -> Result<()> {
        let m = &mut self.st.memory;
        let limit = *m
            .limit
            .get_or_insert_with(|| self.cx.session.statement_memory());
        m.used = m.used.saturating_add(bytes);
        match m.used > limit {
            true => Err(base::memory::statement_error(limit as u64).into()),
            false => Ok(base::memory::check()?),
        }
    }

    /// Gives bytes back.
    pub fn refund(&mut self, bytes: usize) {
        self.st.memory.used = self.st.memory.used.saturating_sub(bytes);
    }
}

/// Rows of one width, kept.
#[derive(Default)]
pub struct RowStore {
    pub width: usize,
    rows: usize,
    pub values: Vec<Value>,
    pub bytes: usize,
}

impl RowStore {
    pub fn new(width: usize) -> RowStore {
        RowStore {
            width,
            ..RowStore::default()
        }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    pub fn row(&self, i: usize) -> &[Value] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// Keeps the values of these slots.
    pub fn push(&mut self, rt: &mut Rt<'_>, slots: &[Slot]) -> Result<()> {
        let mut bytes = 0;
        for &s in slots {
            let v = &rt.st.env[s as usize];
            bytes += value_bytes(v);
            self.values.push(v.clone());
        }
        self.rows += 1;
        self.bytes += bytes;
        rt.charge(bytes)
    }

    /// Keeps these values.
    pub fn push_values(&mut self, rt: &mut Rt<'_>, row: impl Iterator<Item = Value>) -> Result<()> {
        let before = self.values.len();
        self.values.extend(row);
        let bytes: usize = self.values[before..].iter().map(value_bytes).sum();
        self.rows += 1;
        self.bytes += bytes;
        rt.charge(bytes)
    }

    /// Puts row `i` back in the slots.
    pub fn load(&self, i: usize, st: &mut State, slots: &[Slot]) {
        for (&s, v) in slots.iter().zip(self.row(i)) {
            st.env[s as usize].clone_from(v);
        }
    }

    /// Keeps a row that nobody accounts for.
    pub fn add(&mut self, row: Vec<Value>) {
        self.values.extend(row);
        self.rows += 1;
    }

    pub fn clear(&mut self, rt: &mut Rt<'_>) {
        self.rows = 0;
        self.values.clear();
        rt.refund(std::mem::take(&mut self.bytes));
    }
}
