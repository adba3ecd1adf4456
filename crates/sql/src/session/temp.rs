//! Temporary relations of a session: what `txn::temp` does not know of them.
//!
//! Their sequences are counted here: no other session draws from them, nothing of them is logged, and as with every sequence a rollback does
//! not take numbers back.
//!
//! A session that has such relations is at a primary: at a replica CREATE goes there, and the session stays tied to that connection
//! (`forward::adopt`).

use super::Session;
use super::block::Kind;
use crate::engine::Engine;
use base::schema::SequenceDef;
use base::{Error, Oid, Result, SqlState, Work};
use std::cell::RefCell;
use std::collections::HashMap;
use txn::Stop;

/// Where temporary sequences stand: (last value, is called), by number and generation.
#[derive(Default)]
pub(super) struct OwnSequences(RefCell<HashMap<(Oid, u64), (i64, bool)>>);

impl OwnSequences {
    /// (last value, is called).
    pub fn look(&self, def: &SequenceDef) -> (i64, bool) {
        let known = self.0.borrow().get(&(def.id, def.generation)).copied();
        known.unwrap_or((def.restart.unwrap_or(def.start), false))
    }

    /// The next value; 2200H at its limit.
    pub fn next(&self, def: &SequenceDef) -> Result<i64> {
        let v = match self.look(def) {
            (v, false) => v,
            (v, true) => after(def, v)?,
        };
        self.0
            .borrow_mut()
            .insert((def.id, def.generation), (v, true));
        Ok(v)
    }

    /// Sets it; 22003 for a value out of its bounds.
    pub fn set(&self, def: &SequenceDef, value: i64, is_called: bool) -> Result<()> {
        if value < def.min || value > def.max {
            let what = format!(
                "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                def.name, def.min, def.max
            );
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, what));
        }
        let mut all = self.0.borrow_mut();
        all.insert((def.id, def.generation), (value, is_called));
        Ok(())
    }
}

fn after(def: &SequenceDef, v: i64) -> Result<i64> {
    let next = v.checked_add(def.increment);
    if let Some(v) = next.filter(|v| (def.min..=def.max).contains(v)) {
        return Ok(v);
    }
    let (side, bound, around) = match def.increment > 0 {
        true => ("maximum", def.max, def.min),
        false => ("minimum", def.min, def.max),
    };
    if def.cycle {
        return Ok(around);
    }
    let what = format!(
        "nextval: reached {side} value of sequence \"{}\" ({bound})",
        def.name
    );
    Err(Error::new(SqlState::SEQUENCE_LIMIT, what))
}

impl<E: Engine> Session<E> {
    /// A transaction has ended and has given the tables back: what names mean may be something else.
    pub(super) fn temp_returned(&mut self) {
        self.stale |= self.temp.generation() != 0;
    }

    /// 57P01 where the session's temporary tables were made at a primary that this node is no more.
    pub(super) fn check_temp(&self) -> Result<()> {
        match !self.shared.engine.runs(Work::Write) && !self.temp.is_empty() {
            true => Err(super::advisory::lost_locks()),
            false => Ok(()),
        }
    }

    /// DISCARD TEMP.
    pub(super) fn discard_temp(&mut self) -> Result<()> {
        if self.block.kind != Kind::None && !self.temp.is_empty() {
            self.ensure_txn(false);
        }
        match &mut self.block.txn {
            Some(txn) => {
                txn.drop_temp().map_err(Stop::only_error)?;
                self.block.ddl = true;
            }
            None => self.temp.clear(),
        }
        self.stale = true;
        Ok(())
    }
}
