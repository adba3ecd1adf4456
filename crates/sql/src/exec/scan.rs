//! Reading tables and catalog relations.
//!
//! A scan takes rows from the transaction a batch at a time, first few, then more, decodes the columns that the statement
//! uses into their slots, and runs its filter there, so that rows that fail are never copied.

use super::keys::{is_empty, prefixes, ranges, test};
use super::{Operator, Rt};
use crate::catalog::CatalogScan;
use crate::expr::Expr;
use crate::expr::Slot;
use crate::plan::node::{CatalogSource, Scan, Virtual};
use base::key::KeyTest;
use base::{ColumnIdx, KeyRange, RowRef, Value};
use std::sync::Arc;
use txn::{Direction, Result, RowFilter};

const FIRST_BATCH: usize = 16;
const MOST_BATCH: usize = 256;

pub struct ScanOp {
    node: Arc<Scan>,
    /// The node's columns, those of the filter first.
    columns: Vec<(ColumnIdx, Slot)>,
    filter_columns: usize,
    /// The columns that the statement looks at.
    reads: Vec<ColumnIdx>,
    keys: Vec<Vec<u8>>,
    ranges: Vec<KeyRange>,
    test: Option<Arc<KeyTest>>,
    /// Key or range to take next.
    next: usize,
    scan: Option<txn::Scan>,
    /// What commit may ask of the rows again; made once where it is the same for each scan.
    asks: Option<Option<Arc<dyn RowFilter>>>,
    rows: Vec<Value>,
    row: usize,
    row_count: usize,
    batch: usize,
}

impl ScanOp {
    pub fn new(node: Arc<Scan>) -> ScanOp {
        let mut used = Vec::new();
        if node.filter_inline {
            node.filter
                .iter()
                .for_each(|e| e.slots(&mut |s| used.push(s)));
        }
        let (first, rest): (Vec<_>, Vec<_>) =
            node.columns.iter().partition(|(_, s)| used.contains(s));
        let filter_columns = first.len();
        ScanOp {
            columns: first.into_iter().chain(rest).collect(),
            filter_columns,
            reads: node.columns.iter().map(|(c, _)| *c).collect(),
            node,
            keys: vec![],
            ranges: vec![],
            test: None,
            next: 0,
            scan: None,
            asks: None,
            rows: vec![],
            row: 0,
            row_count: 0,
            batch: FIRST_BATCH,
        }
    }

    fn width(&self) -> usize {
        self.columns.len() + self.key_slots().count()
    }

    /// The slots that the row's key is for.
    fn key_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        self.node.key_slot.into_iter().chain(self.node.ctid)
    }

    fn next_by_key(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        // Who locks or changes a row has all of it read.
        let reads = match self.node.key_slot {
            Some(_) if !self.node.adds => txn::ALL_COLUMNS,
            _ => txn::column_set(&self.reads),
        };
        while self.next < self.keys.len() {
            let key = std::mem::take(&mut self.keys[self.next]);
            self.next += 1;
            if let Some(s) = self.node.ctid {
                rt.st.env[s as usize] = Value::Bytea(key.as_slice().into());
            }
            let columns = &self.columns;
            let st = &mut *rt.st;
            let txn = rt.txn.as_deref_mut().expect("a scan has the transaction");
            let hit = txn.get_columns(self.node.handle(), &key, reads, |row| {
                decode(&row, columns, &mut st.env);
            })?;
            if hit.is_none() {
                continue;
            }
            if let Some(s) = self.node.key_slot {
                rt.st.env[s as usize] = Value::Bytea(key.into());
            }
            if holds(&self.node.filter, rt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What commit may ask of the rows again.
    fn filter(&mut self, rt: &mut Rt<'_>) -> Option<Arc<dyn RowFilter>> {
        let asked = self.node.asked.as_ref()?;
        let txn = rt.txn.as_deref().expect("a scan has the transaction");
        if !txn.tracks_reads() {
            return None;
        }
        if asked.varies() {
            return super::filter::filter(&self.node, rt);
        }
        let node = &self.node;
        let asks = self
            .asks
            .get_or_insert_with(|| super::filter::filter(node, rt));
        asks.clone()
    }

    /// Reads the next batch; false when nothing is left.
    fn fill(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            if self.scan.is_none() {
                let Some(r) = self.ranges.get(self.next) else {
                    return Ok(false);
                };
                self.next += 1;
                if is_empty(r) {
                    continue;
                }
                let reader = self.node.key_slot.map_or(0, super::dml::reader);
                let scan = txn::Scan::new(self.node.access, r.clone(), self.node.direction);
                let scan = scan.read_by(reader);
                // Who locks or changes a row has all of it read.
                let scan = match self.node.key_slot {
                    Some(_) if !self.node.adds => scan,
                    _ => scan.of_columns(&self.reads),
                };
                let scan = match self.test.clone() {
                    Some(t) => scan.tested_by(t),
                    None => scan,
                };
                self.scan = Some(match self.filter(rt) {
                    Some(f) => scan.filtered_by(f),
                    None => scan,
                });
            }
            let txn = rt.txn.take().expect("a scan has the transaction");
            let (columns, split) = (&self.columns, self.filter_columns);
            let (node, rows) = (&self.node, &mut self.rows);
            let (mut seen, mut count) = (0, 0);
            rows.clear();
            let scan = self.scan.as_mut().expect("just made");
            let more = txn.scan(node.handle(), scan, self.batch, &mut |key, row| {
                seen += 1;
                decode(&row, &columns[..split], &mut rt.st.env);
                if let Some(s) = node.ctid {
                    rt.st.env[s as usize] = Value::Bytea(key.into());
                }
                if node.filter_inline && !holds(&node.filter, rt)? {
                    return Ok(());
                }
                decode(&row, &columns[split..], &mut rt.st.env);
                for (_, s) in columns {
                    rows.push(std::mem::take(&mut rt.st.env[*s as usize]));
                }
                for _ in node.key_slot.iter().chain(&node.ctid) {
                    rows.push(Value::Bytea(key.into()));
                }
                count += 1;
                Ok(())
            });
            rt.txn = Some(txn);
            let more = more?;
            if !self.node.skips {
                self.batch = (self.batch * 2).min(MOST_BATCH);
            }
            // A unique key has one row: what follows in the index was not asked for.
            if !more || self.node.unique && seen > 0 {
                self.scan = None;
            }
            (self.row, self.row_count) = (0, count);
            if count > 0 {
                return Ok(true);
            }
        }
    }
}

pub(super) fn decode(row: &RowRef<'_>, columns: &[(ColumnIdx, Slot)], env: &mut [Value]) {
    for &(c, s) in columns {
        env[s as usize] = row.get(c as usize);
    }
}

/// Whether all conditions hold.
pub fn holds(conditions: &[Expr], rt: &mut Rt<'_>) -> Result<bool> {
    for c in conditions {
        if !c.holds(rt)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Operator for ScanOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.next = 0;
        self.scan = None;
        (self.row, self.row_count) = (0, 0);
        self.batch = self
            .node
            .want
            .map_or(FIRST_BATCH, |w| w.clamp(1, MOST_BATCH));
        // What is read ahead of SKIP LOCKED and then not asked for would count as read.
        if self.node.unique || self.node.skips {
            self.batch = 1;
        }
        if self.node.by_key {
            self.keys = prefixes(&self.node, rt)?;
            if self.node.direction == Direction::Backward {
                self.keys.reverse();
            }
        } else {
            self.ranges = ranges(&self.node, rt)?;
            self.test = test(&self.node, rt);
            if self.node.direction == Direction::Backward {
                self.ranges.reverse();
            }
        }
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if self.node.by_key {
            return self.next_by_key(rt);
        }
        loop {
            if self.row == self.row_count && !self.fill(rt)? {
                return Ok(false);
            }
            let at = self.row * self.width();
            self.row += 1;
            for (i, (_, s)) in self.columns.iter().enumerate() {
                rt.st.env[*s as usize] = std::mem::take(&mut self.rows[at + i]);
            }
            for (i, s) in self.key_slots().enumerate() {
                let k = &mut self.rows[at + self.columns.len() + i];
                rt.st.env[s as usize] = std::mem::take(k);
            }
            if self.node.filter_inline || holds(&self.node.filter, rt)? {
                return Ok(true);
            }
        }
    }
}

pub struct VirtualOp {
    node: Arc<Virtual>,
    rows: std::vec::IntoIter<Vec<Value>>,
}

impl VirtualOp {
    pub fn new(node: Arc<Virtual>) -> VirtualOp {
        VirtualOp {
            node,
            rows: Vec::new().into_iter(),
        }
    }
}

impl Operator for VirtualOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let catalog = rt.txn()?.catalog();
        let scan = CatalogScan {
            catalog: &catalog,
            facts: rt.facts,
        };
        let rows = match self.node.source {
            CatalogSource::Fixed(t) => t.scan(&scan)?,
            CatalogSource::Sequence(id) => {
                let (last, called) = rt.facts.sequence_state(id).unwrap_or((1, false));
                vec![vec![Value::Int8(last), Value::Int8(0), Value::Bool(called)]]
            }
        };
        self.rows = rows.into_iter();
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        for mut row in self.rows.by_ref() {
            for &(c, s) in &self.node.columns {
                rt.st.env[s as usize] = std::mem::take(&mut row[c]);
            }
            if holds(&self.node.filter, rt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
