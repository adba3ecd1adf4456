//! Common table expressions: rows computed once per start of the WITH and shared by all who read them; recursion.

use super::keys::hash_value;
use super::scan::holds;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::plan::node;
use base::Error;
use foldhash::HashSet;
use std::sync::Arc;
use txn::Result;

pub struct WithOp {
    pub node: Arc<node::With>,
    pub ctes: Vec<Box<dyn Operator>>,
    pub input: Box<dyn Operator>,
}

impl Operator for WithOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        for (c, op) in self.node.ctes.iter().zip(&mut self.ctes) {
            let mut rows = RowStore::new(c.slots.len());
            op.open(rt)?;
            while op.next(rt)? {
                rows.push(rt, &c.slots)?;
            }
            rt.st.ctes[c.id].rows = Some(Arc::new(rows));
        }
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        self.input.next(rt)
    }
}

pub struct CteScanOp {
    pub node: Arc<node::CteScan>,
    pub rows: Option<Arc<RowStore>>,
    pub next: usize,
}

impl Operator for CteScanOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let rows = rt.st.ctes[self.node.id].rows.clone();
        self.rows = Some(rows.ok_or_else(|| Error::internal("a CTE was read before it was made"))?);
        self.next = 0;
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let rows = self.rows.as_ref().expect("opened");
        while self.next < rows.len() {
            rows.load(self.next, rt.st, &self.node.out);
            self.next += 1;
            if holds(&self.node.filter, rt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub struct RecursiveOp {
    pub node: Arc<node::Recursive>,
    pub first: Box<dyn Operator>,
    pub step: Box<dyn Operator>,
    pub in_step: bool,
    /// Rows of the round that runs: what the next one starts from.
    pub round: RowStore,
    pub seen: HashSet<Box<[u8]>>,
}

impl Operator for RecursiveOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.in_step = false;
        self.round = RowStore::new(self.node.slots.len());
        self.seen.clear();
        self.first.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            let more = if self.in_step {
                self.step.next(rt)?
            } else {
                self.first.next(rt)?
            };
            if more {
                if self.node.distinct {
                    let mut k = Vec::new();
                    for &s in &self.node.slots {
                        hash_value(&rt.st.env[s as usize], &mut k);
                    }
                    rt.charge(k.len() + 40)?;
                    if !self.seen.insert(k.into()) {
                        continue;
                    }
                }
                self.round.push(rt, &self.node.slots)?;
                return Ok(true);
            }
            if self.round.len() == 0 {
                return Ok(false);
            }
            rt.txn()?.check_interrupt()?;
            let fresh = RowStore::new(self.node.slots.len());
            let done = std::mem::replace(&mut self.round, fresh);
            rt.refund(done.bytes);
            rt.st.ctes[self.node.id].rows = Some(Arc::new(done));
            self.in_step = true;
            self.step.open(rt)?;
        }
    }
}
