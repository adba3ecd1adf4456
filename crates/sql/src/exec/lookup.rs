//! A subquery's rows by the values that tie it to the query around it.
//!
//! `EXISTS (SELECT … FROM i WHERE i.k = o.k AND i.x > 3)` starts anew for every row of `o`. What does not read `o` is the same each
//! time: its rows are kept in a hash table by `i.k`, and each start is a look-up. The first starts read the input as it is, because
//! many subqueries are started once or twice and end at their first row. A table that does not fit into the statement's memory is
//! given up, and the input is read anew each time from then on.
//!
//! Left out on purpose: keeping the answers of earlier starts, and parts of a table that does not fit.

use super::join::Table;
use super::keys::hash_exprs;
use super::scan::holds;
use super::{Operator, Rt};
use crate::plan::node;
use base::SqlState;
use std::sync::Arc;
use txn::{Result, Stop};

/// Starts that read the input before it is worth a table.
const PATIENCE: u32 = 2;

pub struct LookupOp {
    pub node: Arc<node::Lookup>,
    pub input: Box<dyn Operator>,
    pub starts: u32,
    pub table: Option<Table>,
    /// The table did not fit.
    pub given_up: bool,
    /// The row of the table to look at next.
    pub at: Option<u32>,
    pub key: Vec<u8>,
}

impl LookupOp {
    /// Loads the table; false when it does not fit.
    fn load(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let mut table = Table::new(self.node.slots.len());
        let n = self.node.clone();
        match table.load(&mut *self.input, &n.keys, &n.slots, false, rt) {
            Ok(()) => {
                self.table = Some(table);
                Ok(true)
            }
            Err(Stop::Error(e)) if e.code() == SqlState::OUT_OF_MEMORY => {
                table.give_back(rt);
                self.given_up = true;
                Ok(false)
            }
            Err(e) => {
                table.give_back(rt);
                Err(e)
            }
        }
    }
}

impl Operator for LookupOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.at = None;
        let wait = self.given_up || self.starts < PATIENCE;
        self.starts = self.starts.saturating_add(1);
        if self.table.is_none() && (wait || !self.load(rt)?) {
            return self.input.open(rt);
        }
        self.key.clear();
        let some = hash_exprs(&self.node.probes, rt, false, &mut self.key)?;
        let table = self.table.as_ref().expect("just loaded");
        self.at = some.and_then(|()| table.first(&self.key));
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if let Some(table) = &self.table {
            let Some(i) = self.at else { return Ok(false) };
            rt.tick()?;
            self.at = table.next(i);
            table.rows.load(i as usize, rt.st, &self.node.slots);
            return Ok(true);
        }
        while self.input.next(rt)? {
            rt.tick()?;
            if holds(&self.node.conditions, rt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
