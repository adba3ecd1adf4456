//! UNION ALL, INTERSECT and EXCEPT. All inputs write the same slots.

use super::keys::hash_value;
use super::{Operator, Rt};
use crate::plan::node::{self, SetKind};
use foldhash::HashMap;
use std::sync::Arc;
use txn::Result;

pub struct AppendOp {
    pub inputs: Vec<Box<dyn Operator>>,
    pub at: usize,
}

impl Operator for AppendOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.at = 0;
        match self.inputs.first_mut() {
            Some(i) => i.open(rt),
            None => Ok(()),
        }
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        while let Some(i) = self.inputs.get_mut(self.at) {
            if i.next(rt)? {
                return Ok(true);
            }
            self.at += 1;
            if let Some(i) = self.inputs.get_mut(self.at) {
                i.open(rt)?;
            }
        }
        Ok(false)
    }
}

pub struct SetOpOp {
    pub node: Arc<node::SetOp>,
    pub left: Box<dyn Operator>,
    pub right: Box<dyn Operator>,
    /// How often each row of the right side is still to be matched.
    pub counts: Option<HashMap<Box<[u8]>, u64>>,
    pub given: foldhash::HashSet<Box<[u8]>>,
}

impl SetOpOp {
    fn key(&self, rt: &Rt<'_>) -> Vec<u8> {
        let mut k = Vec::new();
        for &s in &self.node.slots {
            hash_value(&rt.st.env[s as usize], &mut k);
        }
        k
    }
}

impl Operator for SetOpOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.counts = None;
        self.given.clear();
        self.left.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if self.counts.is_none() {
            let mut counts: HashMap<Box<[u8]>, u64> = HashMap::default();
            // The left side is open but has written nothing that the right one could overwrite.
            self.right.open(rt)?;
            while self.right.next(rt)? {
                let k = self.key(rt);
                rt.charge(k.len() + 48)?;
                *counts.entry(k.into()).or_default() += 1;
            }
            self.counts = Some(counts);
        }
        while self.left.next(rt)? {
            let k = self.key(rt);
            let counts = self.counts.as_mut().expect("made");
            let there = counts.get_mut(&k[..]);
            let give = match (self.node.kind, self.node.all) {
                (SetKind::Intersect, true) => match there {
                    Some(n) if *n > 0 => {
                        *n -= 1;
                        true
                    }
                    _ => false,
                },
                (SetKind::Except, true) => match there {
                    Some(n) if *n > 0 => {
                        *n -= 1;
                        false
                    }
                    _ => true,
                },
                (kind, false) => {
                    there.is_some() == (kind == SetKind::Intersect) && {
                        rt.charge(k.len() + 40)?;
                        self.given.insert(k.into())
                    }
                }
            };
            if give {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
