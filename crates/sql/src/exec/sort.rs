//! Sorting, DISTINCT, and keeping rows.

use super::keys::hash_exprs;
use super::simple::limit_value;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::plan::node::{self, SortKey};
use crate::types::ops;
use base::{Result, Value};
use foldhash::HashSet;
use std::cmp::Ordering;
use std::sync::Arc;

/// Orders two rows of key values.
pub fn compare_keys(keys: &[SortKey], a: &[Value], b: &[Value]) -> Ordering {
    for ((k, x), y) in keys.iter().zip(a).zip(b) {
        let o = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if k.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if k.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if k.desc => ops::compare(y, x),
            (false, false) => ops::compare(x, y),
        };
        if o.is_ne() {
            return o;
        }
    }
    Ordering::Equal
}

pub struct SortOp {
    pub node: Arc<node::Sort>,
    pub input: Box<dyn Operator>,
    /// Rows as the kept slots, then the keys.
    pub rows: RowStore,
    pub order: Vec<u32>,
    pub next: usize,
    pub sorted: bool,
}

impl SortOp {
    fn sort(&mut self) {
        let (rows, keys, at) = (&self.rows, &self.node.keys, self.node.slots.len());
        // Stable: rows with equal keys keep the input's order.
        self.order.sort_by(|&a, &b| {
            compare_keys(
                keys,
                &rows.row(a as usize)[at..],
                &rows.row(b as usize)[at..],
            )
        });
    }

    /// Keeps the first `n` rows.
    fn cut(&mut self, n: usize, rt: &mut Rt<'_>) -> Result<()> {
        self.sort();
        let mut kept = RowStore::new(self.rows.width);
        for &i in self.order.iter().take(n) {
            let row = self.rows.row(i as usize).to_vec();
            kept.push_values(rt, row.into_iter())?;
        }
        self.rows.clear(rt);
        self.rows = kept;
        self.order = (0..self.rows.len() as u32).collect();
        Ok(())
    }

    fn load(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let node = self.node.clone();
        let top = match &node.top {
            None => None,
            Some((limit, offset)) => {
                let l = match limit {
                    Some(e) => limit_value(e, false, rt)?,
                    None => None,
                };
                let o = match offset {
                    Some(e) => limit_value(e, true, rt)?.unwrap_or(0),
                    None => 0,
                };
                l.and_then(|l| usize::try_from(l.saturating_add(o)).ok())
            }
        };
        self.rows = RowStore::new(node.slots.len() + node.keys.len());
        self.order.clear();
        let most = top.map(|n| n.saturating_mul(2).max(1024));
        while self.input.next(rt)? {
            let mut row = Vec::with_capacity(self.rows.width);
            row.extend(node.slots.iter().map(|&s| rt.st.env[s as usize].clone()));
            for k in &node.keys {
                row.push(k.expr.eval(rt)?);
            }
            self.order.push(self.rows.len() as u32);
            self.rows.push_values(rt, row.into_iter())?;
            if let (Some(n), Some(most)) = (top, most)
                && self.rows.len() > most
            {
                self.cut(n, rt)?;
            }
        }
        self.sort();
        Ok(())
    }
}

impl Operator for SortOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.rows.clear(rt);
        self.sorted = false;
        self.next = 0;
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if !self.sorted {
            self.load(rt)?;
            self.sorted = true;
        }
        let Some(&i) = self.order.get(self.next) else {
            return Ok(false);
        };
        self.next += 1;
        self.rows.load(i as usize, rt.st, &self.node.slots);
        Ok(true)
    }
}

pub struct UniqueOp {
    pub node: Arc<node::Unique>,
    pub input: Box<dyn Operator>,
    pub seen: HashSet<Box<[u8]>>,
    pub key: Vec<u8>,
}

impl Operator for UniqueOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.seen.clear();
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        while self.input.next(rt)? {
            self.key.clear();
            hash_exprs(&self.node.keys, rt, true, &mut self.key)?;
            if !self.seen.contains(&self.key[..]) {
                rt.charge(self.key.len() + 40)?;
                self.seen.insert(self.key[..].into());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub struct MaterializeOp {
    pub node: Arc<node::Materialize>,
    pub input: Box<dyn Operator>,
    pub rows: Option<RowStore>,
    pub next: usize,
}

impl Operator for MaterializeOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.next = 0;
        if self.rows.is_none() {
            let mut rows = RowStore::new(self.node.slots.len());
            self.input.open(rt)?;
            while self.input.next(rt)? {
                rows.push(rt, &self.node.slots)?;
            }
            self.rows = Some(rows);
        }
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let rows = self.rows.as_ref().expect("opened");
        if self.next == rows.len() {
            return Ok(false);
        }
        rows.load(self.next, rt.st, &self.node.slots);
        self.next += 1;
        Ok(true)
    }
}
