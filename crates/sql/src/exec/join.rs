//! Joins. Both sides write their own slots; a join only decides which pairs of rows stand there together.

use super::keys::hash_exprs;
use super::scan::holds;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::expr::{Expr, Slot};
use crate::plan::node::{self, JoinKind};
use base::Value;
use foldhash::HashMap;
use std::sync::Arc;
use txn::Result;

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

/// Rows, chained per key.
pub struct Table {
    pub rows: RowStore,
    first: HashMap<Box<[u8]>, (u32, u32)>,
    next: Vec<u32>,
    /// Bytes of the keys.
    keys: usize,
}

impl Table {
    pub fn new(width: usize) -> Table {
        Table {
            rows: RowStore::new(width),
            first: HashMap::default(),
            next: vec![],
            keys: 0,
        }
    }

    /// Keeps these slots of every row of `input` whose keys are not NULL; with `all` also of the others, which no key finds.
    pub fn load(
        &mut self,
        input: &mut dyn Operator,
        keys: &[Expr],
        slots: &[Slot],
        all: bool,
        rt: &mut Rt<'_>,
    ) -> Result<()> {
        let mut key = Vec::new();
        input.open(rt)?;
        while input.next(rt)? {
            key.clear();
            let found = hash_exprs(keys, rt, false, &mut key)?.is_some();
            if !found && !all {
                continue;
            }
            let i = self.rows.len() as u32;
            self.rows.push(rt, slots)?;
            self.next.push(END);
            if !found {
                continue;
            }
            match self.first.get_mut(&key[..]) {
                Some((_, last)) => {
                    self.next[*last as usize] = i;
                    *last = i;
                }
                None => {
                    self.keys += key.len() + 48;
                    rt.charge(key.len() + 48)?;
                    self.first.insert(key[..].into(), (i, i));
                }
            }
        }
        Ok(())
    }

    /// The first row of a key.
    pub fn first(&self, key: &[u8]) -> Option<u32> {
        self.first.get(key).map(|(first, _)| *first)
    }

    /// The row after this one with the same key.
    pub fn next(&self, i: u32) -> Option<u32> {
        let next = self.next[i as usize];
        (next != END).then_some(next)
    }

    /// Gives the memory back.
    pub fn give_back(mut self, rt: &mut Rt<'_>) {
        self.rows.clear(rt);
        rt.refund(self.keys);
    }
}

impl HashJoinOp {
    pub fn new(
        node: Arc<node::HashJoin>,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
    ) -> HashJoinOp {
        HashJoinOp {
            node,
            left,
            right,
            table: None,
            at: None,
            matched: false,
            open: false,
            key: vec![],
        }
    }
}

impl Operator for HashJoinOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        if !self.node.right_kept
            && let Some(t) = self.table.take()
        {
            t.give_back(rt);
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
                    let n = self.node.clone();
                    let mut table = Table::new(n.right_slots.len());
                    table.load(&mut *self.right, &n.right_keys, &n.right_slots, false, rt)?;
                    self.table = Some(table);
                }
                self.key.clear();
                let some = hash_exprs(&self.node.left_keys, rt, false, &mut self.key)?;
                let table = self.table.as_ref().expect("just built");
                self.at = some.and_then(|()| table.first(&self.key));
                (self.open, self.matched) = (true, false);
            }
            while let Some(i) = self.at {
                rt.tick()?;
                let table = self.table.as_ref().expect("built");
                self.at = table.next(i);
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

/// FULL JOIN: left rows with their matches, then the right rows that had none.
pub struct FullJoinOp {
    node: Arc<node::FullJoin>,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    table: Option<Table>,
    /// Which rows of the table had a match.
    matched: Vec<bool>,
    /// The row of the table to look at next, and whether the left row that stands in its slots had a match.
    at: Option<u32>,
    open: bool,
    found: bool,
    /// Set when the left side has ended: the row of the table to look at next.
    rest: Option<usize>,
    key: Vec<u8>,
}

impl FullJoinOp {
    pub fn new(
        node: Arc<node::FullJoin>,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
    ) -> FullJoinOp {
        FullJoinOp {
            node,
            left,
            right,
            table: None,
            matched: vec![],
            at: None,
            open: false,
            found: false,
            rest: None,
            key: vec![],
        }
    }

    fn build(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let n = &self.node;
        let mut table = Table::new(n.right_slots.len());
        table.load(&mut *self.right, &n.right_keys, &n.right_slots, true, rt)?;
        rt.charge(table.rows.len())?;
        self.matched = vec![false; table.rows.len()];
        self.table = Some(table);
        Ok(())
    }

    /// The next right row that had no match.
    fn unmatched(&mut self, from: usize, rt: &mut Rt<'_>) -> Result<bool> {
        let Some(table) = &self.table else {
            return Ok(false);
        };
        let next = (from..self.matched.len()).find(|&i| !self.matched[i]);
        self.rest = Some(next.map_or(self.matched.len(), |i| i + 1));
        let Some(i) = next else { return Ok(false) };
        rt.tick()?;
        set_null(&self.node.left_slots, rt);
        table.rows.load(i, rt.st, &self.node.right_slots);
        Ok(true)
    }
}

impl Operator for FullJoinOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        if let Some(t) = self.table.take() {
            rt.refund(self.matched.len());
            t.give_back(rt);
        }
        self.open = false;
        self.rest = None;
        self.left.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if self.table.is_none() {
            self.build(rt)?;
        }
        loop {
            if let Some(from) = self.rest {
                return self.unmatched(from, rt);
            }
            if !self.open {
                if !self.left.next(rt)? {
                    self.rest = Some(0);
                    continue;
                }
                self.key.clear();
                let some = hash_exprs(&self.node.left_keys, rt, false, &mut self.key)?;
                let table = self.table.as_ref().expect("just built");
                self.at = some.and_then(|()| table.first(&self.key));
                (self.open, self.found) = (true, false);
            }
            while let Some(i) = self.at {
                rt.tick()?;
                let table = self.table.as_ref().expect("built");
                self.at = table.next(i);
                table.rows.load(i as usize, rt.st, &self.node.right_slots);
                if holds(&self.node.on, rt)? {
                    self.found = true;
                    self.matched[i as usize] = true;
                    return Ok(true);
                }
            }
            self.open = false;
            if !self.found {
                set_null(&self.node.right_slots, rt);
                return Ok(true);
            }
        }
    }
}
