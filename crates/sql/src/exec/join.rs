//! Joins. Both sides write their own slots; a join only decides which pairs of rows stand there together.

use super::keys::hash_exprs;
use super::scan::holds;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::expr::Slot;
use crate::plan::node::{self, JoinKind};
use base::{Result, Value};
use foldhash::HashMap;
use std::sync::Arc;

fn set_null(slots: &[Slot], rt: &mut Rt<'_>) {
    for &s in slots {
        rt.st.env[s as usize] = Value::Null;
    }
}

pub struct NestLoopOp {
    pub node: Arc<node::NestLoop>,
    pub left: Box<dyn Operator>,
    pub right: Box<dyn Operator>,
    /// A left row stands in its slots and the right side is open.
    pub open: bool,
    pub matched: bool,
}

impl Operator for NestLoopOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.open = false;
        self.left.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            if !self.open {
                if !self.left.next(rt)? {
                    return Ok(false);
                }
                self.right.open(rt)?;
                (self.open, self.matched) = (true, false);
            }
            while self.right.next(rt)? {
                rt.tick()?;
                if holds(&self.node.on, rt)? {
                    self.matched = true;
                    return Ok(true);
                }
            }
            self.open = false;
            if self.node.kind == JoinKind::Left && !self.matched {
                set_null(&self.node.right_slots, rt);
                return Ok(true);
            }
        }
    }
}

pub struct HashJoinOp {
    pub node: Arc<node::HashJoin>,
    pub left: Box<dyn Operator>,
    pub right: Box<dyn Operator>,
    pub table: Option<Table>,
    /// The row of the table to look at next, for the left row that stands in its slots.
    pub at: Option<u32>,
    pub matched: bool,
    pub open: bool,
    pub key: Vec<u8>,
}

const END: u32 = u32::MAX;

/// Rows of the right side, chained per key.
#[derive(Default)]
pub struct Table {
    rows: RowStore,
    first: HashMap<Box<[u8]>, (u32, u32)>,
    next: Vec<u32>,
}

impl HashJoinOp {
    fn build(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let n = &self.node;
        let mut t = Table {
            rows: RowStore::new(n.right_slots.len()),
            ..Table::default()
        };
        self.right.open(rt)?;
        while self.right.next(rt)? {
            self.key.clear();
            if hash_exprs(&n.right_keys, rt, false, &mut self.key)?.is_none() {
                continue;
            }
            let i = t.rows.len() as u32;
            t.rows.push(rt, &n.right_slots)?;
            t.next.push(END);
            match t.first.get_mut(&self.key[..]) {
                Some((_, last)) => {
                    t.next[*last as usize] = i;
                    *last = i;
                }
                None => {
                    rt.charge(self.key.len() + 48)?;
                    t.first.insert(self.key[..].into(), (i, i));
                }
            }
        }
        self.table = Some(t);
        Ok(())
    }
}

impl Operator for HashJoinOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        if let Some(mut t) = self.table.take() {
            t.rows.clear(rt);
        }
        self.open = false;
        self.left.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            if !self.open {
                if !self.left.next(rt)? {
                    return Ok(false);
                }
                if self.table.is_none() {
                    self.build(rt)?;
                }
                self.key.clear();
                let some = hash_exprs(&self.node.left_keys, rt, false, &mut self.key)?;
                let table = self.table.as_ref().expect("just built");
                self.at = some
                    .and_then(|()| table.first.get(&self.key[..]))
                    .map(|(first, _)| *first);
                (self.open, self.matched) = (true, false);
            }
            while let Some(i) = self.at {
                rt.tick()?;
                let table = self.table.as_ref().expect("built");
                let next = table.next[i as usize];
                self.at = (next != END).then_some(next);
                table.rows.load(i as usize, rt.st, &self.node.right_slots);
                if holds(&self.node.on, rt)? {
                    self.matched = true;
                    return Ok(true);
                }
            }
            self.open = false;
            if self.node.kind == JoinKind::Left && !self.matched {
                set_null(&self.node.right_slots, rt);
                return Ok(true);
            }
        }
    }
}
