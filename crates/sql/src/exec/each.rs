//! One INSERT of one row for many rows of parameters (COPY): slots are made once, and values go from the parameters to the row and
//! back without a copy. RETURNING, if there is one, is a condition over the new row: where it is not true the row is left out.

use super::dml::set_row;
use super::{DEEP_STACK, ExecContext, Rt, State};
use crate::expr::Expr;
use crate::plan::Prepared;
use crate::plan::node::{Insert, Node, Root};
use base::{ColumnType, Error, Value};
use std::sync::Arc;
use txn::{Result, Stop, Txn};

/// An INSERT that is run for one row after another.
pub struct Each {
    prepared: Arc<Prepared>,
    state: State,
    /// For each column of the table the parameter that it takes as it is.
    taken: Vec<Option<usize>>,
    /// The row that is being put together.
    row: Vec<Value>,
}

/// Where an insert failed, and why.
pub type Failed = (usize, Stop);

impl Each {
    /// XX000 unless it is an INSERT of one row of values without ON CONFLICT.
    pub fn new(prepared: Arc<Prepared>) -> base::Result<Each> {
        let taken = match &prepared.plan.root {
            Root::Insert(i) if is_plain(i) => i.columns.iter().map(parameter).collect(),
            _ => return Err(Error::internal("a statement that is not run row by row")),
        };
        let state = State::new(Vec::new(), &prepared.plan);
        Ok(Each {
            prepared,
            state,
            taken,
            row: Vec::new(),
        })
    }

    /// The types that parameters must have, length and scale included: those of the columns that take them.
    pub fn types(&self) -> Vec<ColumnType> {
        let mut types = self.prepared.params.clone();
        if let Root::Insert(i) = &self.prepared.plan.root {
            let columns = i.handle.table.def.columns.iter();
            for (c, p) in columns.zip(&self.taken) {
                if let Some(p) = p {
                    types[*p] = c.ty();
                }
            }
        }
        types
    }

    /// Runs it for each of these rows of parameters, which stay as they are; how many rows were inserted.
    pub fn insert(
        &mut self,
        rows: &mut [Vec<Value>],
        txn: &mut Txn,
        cx: &ExecContext<'_>,
    ) -> Result<u64, Failed> {
        if self.prepared.plan.deep {
            return stacker::grow(DEEP_STACK, || self.run(rows, txn, cx));
        }
        self.run(rows, txn, cx)
    }

    fn run(
        &mut self,
        rows: &mut [Vec<Value>],
        txn: &mut Txn,
        cx: &ExecContext<'_>,
    ) -> Result<u64, Failed> {
        let prepared = self.prepared.clone();
        let Root::Insert(node) = &prepared.plan.root else {
            unreachable!("looked at when it was made")
        };
        let mut inserted = 0;
        for (i, params) in rows.iter_mut().enumerate() {
            let st = &mut self.state;
            std::mem::swap(&mut st.params, params);
            // What is computed once per execution is computed once per row.
            st.once.fill(false);
            let mut rt = Rt::new(txn, cx, st, &prepared.plan);
            let done = one(node, &self.taken, &mut self.row, &mut rt);
            // Parameters that were taken for the row go back to their places.
            for (p, v) in self.taken.iter().zip(&mut self.row) {
                if let Some(p) = p {
                    self.state.params[*p] = std::mem::take(v);
                }
            }
            std::mem::swap(&mut self.state.params, params);
            inserted += u64::from(done.map_err(|e| (i, e))?);
        }
        Ok(inserted)
    }
}

fn is_plain(i: &Insert) -> bool {
    let values = matches!(&i.input, Node::Once(c) if c.is_empty()) && !i.buffer;
    values && i.conflict.is_none() && i.checks.is_none()
}

/// The parameter that an expression is, when it only gives it the column's type.
fn parameter(e: &Expr) -> Option<usize> {
    match e {
        Expr::Param(i) => Some(*i as usize),
        Expr::Cast(c) => match c.arg {
            Expr::Param(i) => Some(i as usize),
            _ => None,
        },
        _ => None,
    }
}

/// Inserts one row; false: it is to be left out.
fn one(
    node: &Insert,
    taken: &[Option<usize>],
    row: &mut Vec<Value>,
    rt: &mut Rt<'_>,
) -> Result<bool> {
    rt.tick()?;
    row.clear();
    for (e, p) in node.columns.iter().zip(taken) {
        row.push(match p {
            Some(p) => std::mem::take(&mut rt.st.params[*p]),
            None => e.eval(rt)?,
        });
    }
    if let Some(r) = &node.returning {
        set_row(row, &r.row, rt);
        for (s, e) in &r.exprs {
            let v = e.eval(rt)?;
            rt.st.env[*s as usize] = v;
        }
        let holds = |s: &u32| rt.st.env[*s as usize].as_bool() == Some(true);
        if !r.outputs.iter().all(holds) {
            return Ok(false);
        }
    }
    rt.txn()?.insert(&node.handle, row)?;
    Ok(true)
}
