//! Subqueries used as values. One that reads nothing of the outer query runs once per execution and its answer is kept;
//! `x IN (SELECT …)` over such a one becomes a hash table.

use super::keys::hash_value;
use super::state::Answer;
use super::{Operator, Rt, build};
use crate::expr::{Expr, Subquery, SubqueryKind};
use base::{Array, Error, Result, SqlState, Value};
use foldhash::HashSet;

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
                return Err(Error::internal("only IN keeps a set"));
            };
            probe(left, q.plan, rt).map(Some)
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
                    return Err(Error::new(
                        SqlState::CARDINALITY_VIOLATION,
                        "more than one row returned by a subquery used as an expression",
                    ));
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
        SubqueryKind::AnyAll {
            left,
            lhs,
            condition,
            all,
            ..
        } => {
            let values = super::simple::eval_all(left, rt)?;
            op.open(rt)?;
            for (&s, v) in lhs.iter().zip(values) {
                rt.st.env[s as usize] = v;
            }
            let mut null = false;
            let mut answer = None;
            while op.next(rt)? {
                match condition.eval(rt)?.as_bool() {
                    Some(b) if b != *all => {
                        answer = Some(b);
                        break;
                    }
                    Some(_) => {}
                    None => null = true,
                }
            }
            // The left side differs from row to row, so the answer is not kept.
            return Ok(match answer {
                Some(b) => Value::Bool(b),
                None if null => Value::Null,
                None => Value::Bool(*all),
            });
        }
    };
    if once {
        rt.st.subs[q.plan].answer = Some(Answer::Value(v.clone()));
    }
    Ok(v)
}

fn load_set(q: &Subquery, op: &mut dyn Operator, rt: &mut Rt<'_>) -> Result<()> {
    let mut rows = HashSet::default();
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
        }
    }
    rt.st.subs[q.plan].answer = Some(Answer::Set { rows, null, empty });
    Ok(())
}

fn probe(left: &[Expr], plan: usize, rt: &mut Rt<'_>) -> Result<Value> {
    let values = super::simple::eval_all(left, rt)?;
    let Some(Answer::Set { rows, null, empty }) = &rt.st.subs[plan].answer else {
        return Err(Error::internal("IN has no set"));
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
            return Ok(partial(&values, rows));
        }
        Value::Null
    } else {
        Value::Bool(false)
    })
}

/// Row-wise `IN` with NULLs: unknown when some row differs in no known column.
fn partial(values: &[Value], rows: &HashSet<Box<[u8]>>) -> Value {
    let parts: Vec<Vec<u8>> = values
        .iter()
        .map(|v| {
            let mut k = Vec::new();
            hash_value(v, &mut k);
            k
        })
        .collect();
    let maybe = rows.iter().any(|row| matches_known(&parts, row));
    if maybe {
        Value::Null
    } else {
        Value::Bool(false)
    }
}

/// Whether a set row may equal the left side: walks both; a NULL on either side fits anything. A column's bytes after a
/// NULL on the left cannot be skipped without its type, so such a row counts as a possible match.
fn matches_known(parts: &[Vec<u8>], row: &[u8]) -> bool {
    let mut at = 0;
    for p in parts {
        match (p[0], row.get(at)) {
            (_, Some(0)) => at += 1,
            (0, _) => return true,
            (_, Some(_)) => {
                if !row[at..].starts_with(p) {
                    return false;
                }
                at += p.len();
            }
            (_, None) => return false,
        }
    }
    true
}
