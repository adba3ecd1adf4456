//! Sorting, DISTINCT, and keeping rows.

use super::keys::hash_exprs;
use super::simple::limit_value;
use super::state::RowStore;
use super::{Operator, Rt};
use crate::plan::node::{self, SortKey};
use crate::types::ops;
use base::Value;
use base::cancel::work;
use foldhash::HashSet;
use std::cmp::Ordering;
use std::sync::Arc;
use txn::Result;

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

/// Numbers that are sorted at once.
const RUN: usize = 1024;

/// Sorts, stably: rows with equal keys keep the input's order. Runs are sorted and then merged two by two, with looks for a cancel: the
/// library's sort cannot be left in the middle.
pub fn sort_in_steps(
    order: &mut Vec<u32>,
    mut compare: impl FnMut(u32, u32) -> Ordering,
) -> Result<()> {
    for run in order.chunks_mut(RUN) {
        work(64 * run.len())?;
        run.sort_by(|&a, &b| compare(a, b));
    }
    let mut merged = Vec::new();
    let mut len = RUN;
    while len < order.len() {
        merged.clear();
        merged.reserve_exact(order.len());
        for pair in order.chunks(2 * len) {
            let (mut a, mut b) = pair.split_at(len.min(pair.len()));
            while let (Some(&x), Some(&y)) = (a.first(), b.first()) {
                work(64)?;
                if compare(x, y).is_le() {
                    merged.push(x);
                    a = &a[1..];
                } else {
                    merged.push(y);
                    b = &b[1..];
                }
            }
            merged.extend_from_slice(a);
            merged.extend_from_slice(b);
        }
        std::mem::swap(order, &mut merged);
        len *= 2;
    }
    Ok(())
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
    fn sort(&mut self) -> Result<()> {
        let (rows, keys, at) = (&self.rows, &self.node.keys, self.node.slots.len());
        sort_in_steps(&mut self.order, |a, b| {
            compare_keys(
                keys,
                &rows.row(a as usize)[at..],
                &rows.row(b as usize)[at..],
            )
        })
    }

    /// Keeps the first `n` rows.
    fn cut(&mut self, n: usize, rt: &mut Rt<'_>) -> Result<()> {
        self.sort()?;
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
        self.sort()
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

impl UniqueOp {
    pub fn new(node: Arc<node::Unique>, input: Box<dyn Operator>) -> UniqueOp {
        UniqueOp {
            node,
            input,
            seen: HashSet::default(),
            key: vec![],
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::SqlState;
    use base::cancel::{Interrupt, STEP, enter, looks};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn sorts_as_the_library_does_and_can_be_left() {
        for n in [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN, 5 * RUN + 7] {
            let key = |i: u32| i.wrapping_mul(2_654_435_761) >> 24;
            let mut ours: Vec<u32> = (0..n as u32).collect();
            let mut theirs = ours.clone();
            let before = looks();
            sort_in_steps(&mut ours, |a, b| key(a).cmp(&key(b))).unwrap();
            theirs.sort_by_key(|&i| key(i));
            assert_eq!(ours, theirs, "{n}");
            let looked = (looks() - before) as usize;
            assert!(looked >= 64 * n / STEP, "{looked} looks at {n} rows");
        }
        let flag = Arc::new(Interrupt::default());
        flag.0.store(Interrupt::CANCEL, Relaxed);
        let _now = enter(flag);
        let mut order: Vec<u32> = (0..4 * RUN as u32).collect();
        let e = sort_in_steps(&mut order, |a, b| b.cmp(&a)).unwrap_err();
        assert_eq!(
            e.error().expect("an error").code(),
            SqlState::QUERY_CANCELED
        );
    }
}
