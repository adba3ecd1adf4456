//! GROUP BY and aggregates: one hash table of groups, given out in the order in which they were first met, so that an
//! input in key order gives groups in key order.

use super::eval::weigh;
use super::keys::{hash_exprs, hash_value};
use super::simple::eval_all;
use super::sort::{compare_keys, sort_in_steps};
use super::state::RowStore;
use super::{Operator, Rt};
use crate::functions::Accumulator;
use crate::plan::node::{self, Agg};
use crate::types::value_bytes;
use base::Value;
use foldhash::{HashMap, HashSet};
use std::sync::Arc;
use txn::Result;

pub struct AggregateOp {
    pub node: Arc<node::Aggregate>,
    pub input: Box<dyn Operator>,
    pub keys: RowStore,
    pub states: std::vec::IntoIter<Vec<AggState>>,
    pub next: usize,
    pub loaded: bool,
    /// With grouping sets: the set of each group.
    pub set_of: Vec<usize>,
}

/// One aggregate over one group.
pub struct AggState {
    acc: Box<dyn Accumulator>,
    seen: HashSet<Box<[u8]>>,
    /// Sort keys and arguments of an ordered aggregate, until the end.
    rows: Vec<(Vec<Value>, Vec<Value>)>,
}

impl AggState {
    fn new(a: &Agg, rt: &Rt<'_>) -> AggState {
        AggState {
            acc: a.id.accumulator(&a.types, rt.cx.settings),
            seen: HashSet::default(),
            rows: vec![],
        }
    }

    fn add(&mut self, a: &Agg, rt: &mut Rt<'_>) -> Result<()> {
        if let Some(f) = &a.filter
            && !f.holds(rt)?
        {
            return Ok(());
        }
        if a.args.is_empty() {
            return Ok(self.acc.add(&[])?);
        }
        if let [e] = &a.args[..]
            && !a.distinct
            && a.order.is_empty()
            && let Some(v) = e.peek(rt.st)
        {
            weigh(v)?;
            self.acc.add(std::slice::from_ref(v))?;
            return match self.acc.keeps() {
                true => {
                    let bytes = value_bytes(v);
                    rt.charge(bytes)
                }
                false => Ok(()),
            };
        }
        let args = eval_all(&a.args, rt)?;
        args.iter().try_for_each(weigh)?;
        if a.distinct {
            let mut key = Vec::new();
            args.iter().for_each(|v| hash_value(v, &mut key));
            if self.seen.contains(&key[..]) {
                return Ok(());
            }
            rt.charge(key.len() + 40)?;
            self.seen.insert(key.into());
        }
        if a.order.is_empty() {
            self.acc.add(&args)?;
            return match self.acc.keeps() {
                true => rt.charge(args.iter().map(value_bytes).sum()),
                false => Ok(base::memory::check()?),
            };
        }
        let keys = a
            .order
            .iter()
            .map(|k| k.expr.eval(rt))
            .collect::<Result<Vec<_>>>()?;
        let kept = keys.iter().chain(&args);
        rt.charge(48 + kept.map(value_bytes).sum::<usize>())?;
        self.rows.push((keys, args));
        Ok(())
    }

    fn finish(mut self, a: &Agg) -> Result<Value> {
        let mut order: Vec<u32> = (0..self.rows.len() as u32).collect();
        let key = |i: u32| &self.rows[i as usize].0;
        sort_in_steps(&mut order, |x, y| compare_keys(&a.order, key(x), key(y)))?;
        for i in order {
            base::cancel::work(64)?;
            self.acc.add(&self.rows[i as usize].1)?;
            base::memory::check()?;
        }
        Ok(self.acc.finish()?)
    }
}

/// Groups of several sets of keys.
#[derive(Default)]
struct Groups {
    by_key: HashMap<Box<[u8]>, usize>,
    states: Vec<Vec<AggState>>,
    key: Vec<u8>,
}

impl AggregateOp {
    pub fn new(node: Arc<node::Aggregate>, input: Box<dyn Operator>) -> AggregateOp {
        AggregateOp {
            node,
            input,
            keys: RowStore::default(),
            states: Vec::new().into_iter(),
            next: 0,
            loaded: false,
            set_of: vec![],
        }
    }

    /// Groups each row once for each set of keys.
    fn load_sets(&mut self, sets: &[Vec<usize>], rt: &mut Rt<'_>) -> Result<()> {
        let node = self.node.clone();
        let mut all = Groups::default();
        self.keys = RowStore::new(node.keys.len());
        self.set_of.clear();
        let exprs: Vec<_> = node.keys.iter().map(|(_, e)| e.clone()).collect();
        let none = vec![Value::Null; exprs.len()];
        for (at, set) in sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
            self.group_in(&mut all, (at, set), &none, rt)?;
        }
        while self.input.next(rt)? {
            let values = eval_all(&exprs, rt)?;
            for (at, set) in sets.iter().enumerate() {
                rt.tick()?;
                let g = self.group_in(&mut all, (at, set), &values, rt)?;
                for (s, a) in all.states[g].iter_mut().zip(&node.aggs) {
                    s.add(a, rt)?;
                }
            }
        }
        self.states = all.states.into_iter();
        Ok(())
    }

    /// The group of a row in one set of keys, made if it is not there.
    fn group_in(
        &mut self,
        all: &mut Groups,
        (at, set): (usize, &[usize]),
        values: &[Value],
        rt: &mut Rt<'_>,
    ) -> Result<usize> {
        all.key.clear();
        all.key.extend((at as u32).to_be_bytes());
        set.iter()
            .for_each(|&k| hash_value(&values[k], &mut all.key));
        if let Some(&g) = all.by_key.get(&all.key[..]) {
            return Ok(g);
        }
        let kept = |k: usize| match set.contains(&k) {
            true => values[k].clone(),
            false => Value::Null,
        };
        self.keys.push_values(rt, (0..values.len()).map(kept))?;
        rt.charge(all.key.len() + 72 + self.node.aggs.len() * 96)?;
        self.set_of.push(at);
        let aggs = self.node.aggs.iter();
        all.states
            .push(aggs.map(|a| AggState::new(a, rt)).collect());
        all.by_key.insert(all.key[..].into(), all.states.len() - 1);
        Ok(all.states.len() - 1)
    }

    fn load(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let node = self.node.clone();
        if let Some(sets) = &node.sets {
            return self.load_sets(&sets.sets, rt);
        }
        let mut groups: HashMap<Box<[u8]>, usize> = HashMap::default();
        let mut states: Vec<Vec<AggState>> = Vec::new();
        let fresh = |rt: &Rt<'_>| node.aggs.iter().map(|a| AggState::new(a, rt)).collect();
        self.keys = RowStore::new(node.keys.len());
        if node.plain {
            states.push(fresh(rt));
        }
        let mut key = Vec::new();
        let exprs: Vec<_> = node.keys.iter().map(|(_, e)| e.clone()).collect();
        while self.input.next(rt)? {
            let g = if node.plain {
                0
            } else {
                key.clear();
                hash_exprs(&exprs, rt, true, &mut key)?;
                match groups.get(&key[..]) {
                    Some(&g) => g,
                    None => {
                        let values = eval_all(&exprs, rt)?;
                        self.keys.push_values(rt, values.into_iter())?;
                        rt.charge(key.len() + 64 + node.aggs.len() * 96)?;
                        states.push(fresh(rt));
                        groups.insert(key[..].into(), states.len() - 1);
                        states.len() - 1
                    }
                }
            };
            for (s, a) in states[g].iter_mut().zip(&node.aggs) {
                s.add(a, rt)?;
            }
            if node.first_only {
                break;
            }
        }
        self.states = states.into_iter();
        Ok(())
    }
}

impl Operator for AggregateOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.keys.clear(rt);
        self.next = 0;
        self.loaded = false;
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if !self.loaded {
            self.load(rt)?;
            self.loaded = true;
        }
        let Some(states) = self.states.next() else {
            return Ok(false);
        };
        for (s, a) in states.into_iter().zip(&self.node.aggs) {
            rt.st.env[a.slot as usize] = s.finish(a)?;
        }
        for (i, (slot, _)) in self.node.keys.iter().enumerate() {
            rt.st.env[*slot as usize].clone_from(&self.keys.row(self.next)[i]);
        }
        if let Some(sets) = &self.node.sets {
            let here = &sets.sets[self.set_of[self.next]];
            for (slot, keys) in &sets.calls {
                let bits = keys
                    .iter()
                    .fold(0, |bits, k| bits << 1 | i32::from(!here.contains(k)));
                rt.st.env[*slot as usize] = Value::Int4(bits);
            }
        }
        self.next += 1;
        Ok(true)
    }
}
