//! Subqueries used as values. One that reads nothing of the outer query runs once per execution and its answer is kept;
//! `x IN (SELECT …)` over such a one becomes a hash table.

use super::keys::hash_value;
use super::state::{Answer, RowStore};
use super::{Operator, Rt, build};
use crate::expr::{Expr, Subquery, SubqueryKind};
use base::{Array, Error, SqlState, Value};
use foldhash::HashSet;
use std::sync::Arc;
use txn::Result;

/// The value of a subquery expression.
pub fn eval(q: &Subquery, rt: &mut Rt<'_>) -> Result<Value> {
    let once = q.outer.is_empty();
    if once && let Some(v) = kept(q, rt)? {
        return Ok(v);
    }
    let mut op = match rt.st.subs[q.plan].op.take() {
        Some(op) => op,
        None => {
            let plan = rt.plan;
            let mut first = rt.st.stats.as_ref().map(|s| s.starts[q.plan]);
            build::build(&plan.subplans[q.plan], &mut first)
        }
    };
    let v = run(q, &mut *op, once, rt);
    rt.st.subs[q.plan].op = Some(op);
    v
}

/// The answer of an earlier run.
fn kept(q: &Subquery, rt: &mut Rt<'_>) -> Result<Option<Value>> {
    match &rt.st.subs[q.plan].answer {
        None => Ok(None),
        Some(Answer::Value(v)) => Ok(Some(v.clone())),
        Some(Answer::Set { .. }) => {
            let SubqueryKind::AnyAll { left, .. } = &q.kind else {
                return Err(Error::internal("only IN keeps a set").into());
            };
            probe(left, q.plan, rt).map(Some)
        }
        Some(Answer::Rows(rows)) => {
            let mut rows = Kept(rows.clone(), 0);
            any_all(q, &mut rows, rt).map(Some)
        }
    }
}

fn run(q: &Subquery, op: &mut dyn Operator, once: bool, rt: &mut Rt<'_>) -> Result<Value> {
    let v = match &q.kind {
        SubqueryKind::Exists { negated } => {
            op.open(rt)?;
            Value::Bool(op.next(rt)? != *negated)
        }
        SubqueryKind::Scalar => {
            op.open(rt)?;
            if op.next(rt)? {
                let v = rt.st.env[q.outputs[0] as usize].clone();
                if op.next(rt)? {
                    return Err(too_many().into());
                }
                v
            } else {
                Value::Null
            }
        }
        SubqueryKind::Array(element) => {
            op.open(rt)?;
            let mut items = Vec::new();
            while op.next(rt)? {
                items.push(rt.st.env[q.outputs[0] as usize].clone());
            }
            Value::Array(Box::new(Array::one_dim(*element, items)))
        }
        SubqueryKind::AnyAll {
            left,
            hashable: true,
            all: false,
            ..
        } if once => {
            load_set(q, op, rt)?;
            return probe(left, q.plan, rt);
        }
        // The left side differs from row to row, so no answer is kept.
        SubqueryKind::AnyAll { .. } => {
            if !once {
                op.open(rt)?;
                return any_all(q, &mut Running(op), rt);
            }
            let mut rows = RowStore::new(q.outputs.len());
            op.open(rt)?;
            while op.next(rt)? {
                rows.push(rt, &q.outputs)?;
            }
            let rows = Arc::new(rows);
            rt.st.subs[q.plan].answer = Some(Answer::Rows(rows.clone()));
            return any_all(q, &mut Kept(rows, 0), rt);
        }
    };
    if once {
        rt.st.subs[q.plan].answer = Some(Answer::Value(v.clone()));
    }
    Ok(v)
}

/// The rows that ANY and ALL compare with.
trait Rows {
    /// Writes the outputs of the next row.
    fn next(&mut self, q: &Subquery, rt: &mut Rt<'_>) -> Result<bool>;
}

/// Those of an operator that was opened.
struct Running<'o>(&'o mut dyn Operator);

/// Kept ones, and the next of them.
struct Kept(Arc<RowStore>, usize);

impl Rows for Running<'_> {
    fn next(&mut self, _: &Subquery, rt: &mut Rt<'_>) -> Result<bool> {
        self.0.next(rt)
    }
}

impl Rows for Kept {
    fn next(&mut self, q: &Subquery, rt: &mut Rt<'_>) -> Result<bool> {
        let more = self.1 < self.0.len();
        if more {
            rt.tick()?;
            self.0.load(self.1, rt.st, &q.outputs);
            self.1 += 1;
        }
        Ok(more)
    }
}

/// `left op ANY|ALL (rows)`.
fn any_all(q: &Subquery, rows: &mut dyn Rows, rt: &mut Rt<'_>) -> Result<Value> {
    let SubqueryKind::AnyAll {
        left,
        lhs,
        condition,
        all,
        one,
        ..
    } = &q.kind
    else {
        return Err(Error::internal("only ANY and ALL compare").into());
    };
    let values = super::simple::eval_all(left, rt)?;
    for (&s, v) in lhs.iter().zip(values) {
        rt.st.env[s as usize] = v;
    }
    if *one {
        if !rows.next(q, rt)? {
            return Ok(Value::Null);
        }
        let v = condition.eval(rt)?;
        return match rows.next(q, rt)? {
            true => Err(too_many().into()),
            false => Ok(v),
        };
    }
    let mut null = false;
    while rows.next(q, rt)? {
        match condition.eval(rt)?.as_bool() {
            Some(b) if b != *all => return Ok(Value::Bool(b)),
            Some(_) => {}
            None => null = true,
        }
    }
    Ok(match null {
        true => Value::Null,
        false => Value::Bool(*all),
    })
}

/// 21000.
fn too_many() -> Error {
    Error::new(
        SqlState::CARDINALITY_VIOLATION,
        "more than one row returned by a subquery used as an expression",
    )
}

fn load_set(q: &Subquery, op: &mut dyn Operator, rt: &mut Rt<'_>) -> Result<()> {
    let mut rows = HashSet::default();
    let mut values = RowStore::new(q.outputs.len());
    let (mut null, mut empty) = (false, true);
    op.open(rt)?;
    let mut key = Vec::new();
    while op.next(rt)? {
        empty = false;
        key.clear();
        for &s in &q.outputs {
            let v = &rt.st.env[s as usize];
            null |= v.is_null();
            hash_value(v, &mut key);
        }
        if !rows.contains(&key[..]) {
            rt.charge(key.len() + 40)?;
            rows.insert(key[..].into());
            if q.outputs.len() > 1 {
                values.push(rt, &q.outputs)?;
            }
        }
    }
    rt.st.subs[q.plan].answer = Some(Answer::Set {
        rows,
        null,
        empty,
        values,
    });
    Ok(())
}

fn probe(left: &[Expr], plan: usize, rt: &mut Rt<'_>) -> Result<Value> {
    let values = super::simple::eval_all(left, rt)?;
    let Some(Answer::Set {
        rows,
        null,
        empty,
        values: known,
    }) = &rt.st.subs[plan].answer
    else {
        return Err(Error::internal("IN has no set").into());
    };
    if *empty {
        return Ok(Value::Bool(false));
    }
    let unknown = values.iter().any(Value::is_null);
    let mut key = Vec::new();
    values.iter().for_each(|v| hash_value(v, &mut key));
    Ok(if !unknown && rows.contains(&key[..]) {
        Value::Bool(true)
    } else if unknown || *null {
        // Several columns: a NULL may hide a difference in another column, so look at every row.
        if values.len() > 1 {
            return Ok(partial(&values, known));
        }
        Value::Null
    } else {
        Value::Bool(false)
    })
}

/// Row-wise `IN` with NULLs: unknown when some row differs in no known column.
fn partial(values: &[Value], rows: &RowStore) -> Value {
    let hashed = |v: &Value| {
        let mut k = Vec::new();
        hash_value(v, &mut k);
        k
    };
    let parts: Vec<Vec<u8>> = values.iter().map(hashed).collect();
    let fits = |row: &[Value]| {
        let mut pairs = values.iter().zip(&parts).zip(row);
        pairs.all(|((v, part), r)| v.is_null() || r.is_null() || *part == hashed(r))
    };
    match (0..rows.len()).any(|i| fits(rows.row(i))) {
        true => Value::Null,
        false => Value::Bool(false),
    }
}
