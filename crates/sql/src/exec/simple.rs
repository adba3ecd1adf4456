//! Operators that keep next to nothing: constants, VALUES, functions in FROM, filters, projections, LIMIT.

use super::scan::holds;
use super::sort::compare_keys;
use super::{Operator, Rt};
use crate::expr::Expr;
use crate::functions::{Kind, RowSource};
use crate::plan::node;
use base::{Error, SqlState, Value};
use std::sync::Arc;
use txn::Result;

pub struct OnceOp {
    pub conditions: Arc<Vec<Expr>>,
    pub done: bool,
}

impl Operator for OnceOp {
    fn open(&mut self, _: &mut Rt<'_>) -> Result<()> {
        self.done = false;
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        Ok(!std::mem::replace(&mut self.done, true) && holds(&self.conditions, rt)?)
    }
}

pub struct ValuesOp {
    pub node: Arc<node::Values>,
    pub next: usize,
}

impl Operator for ValuesOp {
    fn open(&mut self, _: &mut Rt<'_>) -> Result<()> {
        self.next = 0;
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let Some(row) = self.node.rows.get(self.next) else {
            return Ok(false);
        };
        self.next += 1;
        rt.tick()?;
        for (e, &s) in row.iter().zip(&self.node.out) {
            let v = e.eval(rt)?;
            rt.st.env[s as usize] = v;
        }
        Ok(true)
    }
}

pub struct FunctionOp {
    pub node: Arc<node::Function>,
    pub rows: Option<Box<dyn RowSource>>,
    pub row: Vec<Value>,
    pub count: i64,
}

impl Operator for FunctionOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let args = eval_all(&self.node.args, rt)?;
        self.count = 0;
        self.rows = None;
        if matches!(
            self.node.f.kind,
            Kind::Scalar(_) | Kind::Typed(_) | Kind::Spread(_) | Kind::Cast
        ) {
            self.row = vec![self.node.f.call(&args, &mut rt.cx)?];
        } else {
            self.rows = Some(self.node.f.rows(&args, &mut rt.cx)?);
        }
        Ok(())
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            let more = match &mut self.rows {
                Some(rows) => rows.next(&mut self.row)?,
                None => self.count == 0,
            };
            if !more {
                return Ok(false);
            }
            self.count += 1;
            rt.tick()?;
            for (v, &s) in self.row.iter_mut().zip(&self.node.out) {
                rt.st.env[s as usize] = std::mem::take(v);
            }
            if let Some(s) = self.node.ordinality {
                rt.st.env[s as usize] = Value::Int8(self.count);
            }
            if holds(&self.node.filter, rt)? {
                return Ok(true);
            }
        }
    }
}

pub fn eval_all(exprs: &[Expr], rt: &mut Rt<'_>) -> Result<Vec<Value>> {
    exprs.iter().map(|e| e.eval(rt)).collect()
}

pub struct FilterOp {
    pub node: Arc<node::Filter>,
    pub input: Box<dyn Operator>,
}

impl Operator for FilterOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        while self.input.next(rt)? {
            if holds(&self.node.conditions, rt)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub struct ProjectOp {
    pub node: Arc<node::Project>,
    pub input: Box<dyn Operator>,
}

impl Operator for ProjectOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if !self.input.next(rt)? {
            return Ok(false);
        }
        for (s, e) in &self.node.exprs {
            let v = e.eval(rt)?;
            rt.st.env[*s as usize] = v;
        }
        Ok(true)
    }
}

pub struct ProjectSetOp {
    pub node: Arc<node::ProjectSet>,
    pub input: Box<dyn Operator>,
    pub sources: Vec<Option<Box<dyn RowSource>>>,
    pub row: Vec<Value>,
}

impl Operator for ProjectSetOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.sources.clear();
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        loop {
            rt.tick()?;
            let mut any = false;
            for (source, (slot, f, _)) in self.sources.iter_mut().zip(&self.node.functions) {
                let hit = match source {
                    Some(s) => s.next(&mut self.row)?,
                    None => false,
                };
                if !hit {
                    *source = None;
                }
                any |= hit;
                rt.st.env[*slot as usize] = match hit {
                    true if !f.columns.is_empty() => record(&self.row, f.columns, rt),
                    true => std::mem::take(&mut self.row[0]),
                    false => Value::Null,
                };
            }
            if any {
                return Ok(true);
            }
            if !self.input.next(rt)? {
                return Ok(false);
            }
            self.sources.clear();
            for (_, f, args) in &self.node.functions {
                let args = eval_all(args, rt)?;
                self.sources.push(Some(f.rows(&args, &mut rt.cx)?));
            }
        }
    }
}

/// A function's row as one value.
fn record(row: &[Value], columns: &[(&str, base::Type)], rt: &Rt<'_>) -> Value {
    let mut out = String::from("(");
    for (i, (v, (_, ty))) in row.iter().zip(columns).enumerate() {
        if i > 0 {
            out.push(',');
        }
        if !v.is_null() {
            let mut s = String::new();
            crate::types::text::output(v, *ty, rt.cx.settings, &mut s);
            crate::types::record::push_field(&mut out, &s);
        }
    }
    out.push(')');
    Value::from(out)
}

pub struct LimitOp {
    node: Arc<node::Limit>,
    input: Box<dyn Operator>,
    skip: u64,
    left: u64,
    /// WITH TIES, once nothing is left: the keys of the last row.
    last: Option<Vec<Value>>,
}

impl LimitOp {
    pub fn new(node: Arc<node::Limit>, input: Box<dyn Operator>) -> LimitOp {
        LimitOp {
            node,
            input,
            skip: 0,
            left: 0,
            last: None,
        }
    }

    fn keys(&self, rt: &mut Rt<'_>) -> Result<Vec<Value>> {
        let keys = self.node.ties.iter();
        keys.map(|k| k.expr.eval(rt)).collect()
    }

    /// A row behind the last one, if it has the same keys.
    fn tie(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        let Some(last) = self.last.take() else {
            return Ok(false);
        };
        if self.input.next(rt)? && compare_keys(&self.node.ties, &last, &self.keys(rt)?).is_eq() {
            self.last = Some(last);
            return Ok(true);
        }
        Ok(false)
    }
}

/// The number that a LIMIT or OFFSET means; `None` for NULL: none.
pub fn limit_value(e: &Expr, offset: bool, rt: &mut Rt<'_>) -> Result<Option<u64>> {
    let v = e.eval(rt)?;
    if v.is_null() {
        return Ok(None);
    }
    let n = v.as_i64().expect("LIMIT is bigint");
    Ok(u64::try_from(n).map(Some).map_err(|_| {
        if offset {
            Error::new(SqlState::INVALID_OFFSET, "OFFSET must not be negative")
        } else {
            Error::new(SqlState::INVALID_LIMIT, "LIMIT must not be negative")
        }
    })?)
}

impl Operator for LimitOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.skip = match &self.node.offset {
            Some(e) => limit_value(e, true, rt)?.unwrap_or(0),
            None => 0,
        };
        self.left = match &self.node.limit {
            Some(e) => limit_value(e, false, rt)?.unwrap_or(u64::MAX),
            None => u64::MAX,
        };
        self.last = None;
        if self.left == 0 {
            return Ok(());
        }
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if self.left == 0 {
            return self.tie(rt);
        }
        while self.skip > 0 {
            if !self.input.next(rt)? {
                self.left = 0;
                return Ok(false);
            }
            self.skip -= 1;
        }
        if !self.input.next(rt)? {
            self.left = 0;
            return Ok(false);
        }
        self.left -= 1;
        if self.left == 0 && !self.node.ties.is_empty() {
            self.last = Some(self.keys(rt)?);
        }
        Ok(true)
    }
}
