//! Keys: encoded index keys and ranges from a plan's key parts, and hash keys of rows.

use super::Rt;
use crate::expr::{CmpOp, Expr};
use crate::plan::node::{KeyPart, Scan};
use base::key::{KeyColumn, KeyTest, encode_value, prefix_end};
use base::{KeyRange, Type, Value};
use std::ops::Bound;
use std::sync::Arc;
use txn::Result;

/// Appends a value as part of a hash key: equal values, integers and floats of any width, give equal bytes.
pub fn hash_value(v: &Value, out: &mut Vec<u8>) {
    match v {
        Value::Null => out.push(0),
        Value::Float4(x) => {
            out.push(1);
            encode_value(&Value::Float8(f64::from(*x)), out);
        }
        v => {
            out.push(1);
            match v.as_i64() {
                Some(x) => encode_value(&Value::Int8(x), out),
                None => encode_value(v, out),
            }
        }
    }
}

/// What a value is for a key column: itself in the column's type, or outside what the type holds.
enum Fit {
    Exact(Value),
    Below,
    Above,
    Null,
}

fn fit(v: &Value, ty: Type) -> Fit {
    let range = |lo: i64, hi: i64, x: i64, make: &dyn Fn(i64) -> Value| {
        if x < lo {
            Fit::Below
        } else if x > hi {
            Fit::Above
        } else {
            Fit::Exact(make(x))
        }
    };
    match (ty, v) {
        (_, Value::Null) => Fit::Null,
        (Type::Int4, Value::Int4(_)) | (Type::Int8, Value::Int8(_)) => Fit::Exact(v.clone()),
        (Type::Int2, _) if v.as_i64().is_some() => {
            let x = v.as_i64().expect("an integer");
            range(i16::MIN.into(), i16::MAX.into(), x, &|x| {
                Value::Int2(x as i16)
            })
        }
        (Type::Int4, _) if v.as_i64().is_some() => {
            let x = v.as_i64().expect("an integer");
            range(i32::MIN.into(), i32::MAX.into(), x, &|x| {
                Value::Int4(x as i32)
            })
        }
        (Type::Int8, _) if v.as_i64().is_some() => {
            Fit::Exact(Value::Int8(v.as_i64().expect("an integer")))
        }
        (Type::Oid | Type::RegClass | Type::RegType | Type::RegProc | Type::RegNamespace, _)
            if v.as_i64().is_some() =>
        {
            let x = v.as_i64().expect("an integer");
            range(0, u32::MAX.into(), x, &|x| Value::Oid(x as u32))
        }
        (Type::Float8, Value::Float4(x)) => Fit::Exact(Value::Float8(f64::from(*x))),
        // Only equalities come here: a value between two floats equals none.
        (Type::Float4, Value::Float8(x)) => {
            let narrow = *x as f32;
            if f64::from(narrow) == *x || x.is_nan() {
                Fit::Exact(Value::Float4(narrow))
            } else {
                Fit::Null
            }
        }
        _ => Fit::Exact(v.clone()),
    }
}

/// Encodes one value for an equality; false when no row can have it.
pub fn encode_eq(v: &Value, col: &KeyColumn, out: &mut Vec<u8>) -> bool {
    match fit(v, col.ty) {
        Fit::Exact(v) => {
            col.encode(&v, out);
            true
        }
        _ => false,
    }
}

/// Evaluates the fixed parts: every key prefix to look at, in key order, without repetition.
pub fn prefixes(scan: &Scan, rt: &mut Rt<'_>) -> Result<Vec<Vec<u8>>> {
    if scan.fixed.iter().all(|p| matches!(p, KeyPart::Eq(_))) {
        // The usual case: one key.
        let mut key = Vec::with_capacity(16);
        for (part, col) in scan.fixed.iter().zip(&scan.key) {
            let KeyPart::Eq(e) = part else {
                unreachable!("just seen")
            };
            let fits = match e.peek(rt.st) {
                Some(v) => encode_eq(v, col, &mut key),
                None => encode_eq(&e.eval(rt)?, col, &mut key),
            };
            if !fits {
                return Ok(vec![]);
            }
        }
        return Ok(vec![key]);
    }
    let mut all: Vec<Vec<u8>> = vec![Vec::new()];
    for (part, col) in scan.fixed.iter().zip(&scan.key) {
        let mut choices: Vec<Vec<u8>> = Vec::new();
        let add = |v: &Value, choices: &mut Vec<Vec<u8>>| {
            let mut b = Vec::new();
            if encode_eq(v, col, &mut b) {
                choices.push(b);
            }
        };
        match part {
            KeyPart::Eq(e) => match e.peek(rt.st) {
                Some(v) => add(v, &mut choices),
                None => add(&e.eval(rt)?, &mut choices),
            },
            KeyPart::In(items) => {
                for e in items {
                    let v = e.eval(rt)?;
                    add(&v, &mut choices);
                }
            }
            KeyPart::Any(e) => {
                if let Value::Array(a) = e.eval(rt)? {
                    a.items.iter().for_each(|v| add(v, &mut choices));
                }
            }
            KeyPart::Null => {
                if !col.nullable {
                    return Ok(vec![]);
                }
                let mut b = Vec::new();
                col.encode(&Value::Null, &mut b);
                choices.push(b);
            }
        }
        choices.sort_unstable();
        choices.dedup();
        all = match &choices[..] {
            [one] => {
                all.iter_mut().for_each(|p| p.extend_from_slice(one));
                all
            }
            _ => {
                let pairs = all.iter().flat_map(|p| choices.iter().map(move |c| (p, c)));
                pairs.map(|(p, c)| [&p[..], &c[..]].concat()).collect()
            }
        };
    }
    Ok(all)
}

/// The ranges to scan, in key order.
pub fn ranges(scan: &Scan, rt: &mut Rt<'_>) -> Result<Vec<KeyRange>> {
    let prefixes = prefixes(scan, rt)?;
    if scan.bounds.is_empty() {
        return Ok(prefixes.iter().map(|p| prefix_range(p)).collect());
    }
    let col = &scan.key[scan.fixed.len()];
    let mut bounds = Vec::with_capacity(scan.bounds.len());
    for b in &scan.bounds {
        let v = b.value.eval(rt)?;
        match (fit(&v, col.ty), b.op) {
            (Fit::Null, _)
            | (Fit::Below, CmpOp::Lt | CmpOp::Le)
            | (Fit::Above, CmpOp::Gt | CmpOp::Ge) => return Ok(vec![]),
            (Fit::Below | Fit::Above, _) => {}
            (Fit::Exact(v), op) => bounds.push((op, v)),
        }
    }
    let mut out = Vec::with_capacity(prefixes.len());
    for p in prefixes {
        let mut whole = p.clone();
        if col.nullable {
            whole.push(1);
        }
        let mut r = prefix_range(&whole);
        for (op, v) in &bounds {
            let mut at = p.clone();
            col.encode(v, &mut at);
            let op = if col.desc { op.swap() } else { *op };
            let after = |mut k: Vec<u8>| prefix_end(&mut k).then_some(k);
            match op {
                CmpOp::Ge => raise(&mut r, at),
                CmpOp::Gt => match after(at) {
                    Some(k) => raise(&mut r, k),
                    None => r.hi = Bound::Excluded(Box::default()),
                },
                CmpOp::Lt => lower(&mut r, at),
                CmpOp::Le => {
                    if let Some(k) = after(at) {
                        lower(&mut r, k);
                    }
                }
                CmpOp::Eq | CmpOp::Ne => unreachable!("not a bound"),
            }
        }
        out.push(r);
    }
    Ok(out)
}

/// What is asked of each key of the ranges. Nothing where commit asks again what was read: a row that comes to hold the wanted columns has to count.
/// An error is the filter's to raise, when a row gets there.
pub fn test(scan: &Scan, rt: &mut Rt<'_>) -> Option<Arc<KeyTest>> {
    let tracks = rt.txn.as_deref().is_none_or(txn::Txn::tracks_reads);
    if scan.tests.is_empty() || tracks {
        return None;
    }
    let mut wanted: Vec<Option<Vec<u8>>> = vec![None; scan.key.len()];
    for (at, e) in &scan.tests {
        let mut bytes = vec![];
        if let Ok(v) = e.eval(rt)
            && encode_eq(&v, &scan.key[*at], &mut bytes)
        {
            wanted[*at] = Some(bytes);
        }
    }
    KeyTest::new(&scan.key, wanted).map(Arc::new)
}

fn prefix_range(p: &[u8]) -> KeyRange {
    if p.is_empty() {
        KeyRange::all()
    } else {
        KeyRange::prefix(p)
    }
}

fn raise(r: &mut KeyRange, to: Vec<u8>) {
    let higher = match &r.lo {
        Bound::Included(l) | Bound::Excluded(l) => to[..] > l[..],
        Bound::Unbounded => true,
    };
    if higher {
        r.lo = Bound::Included(to.into());
    }
}

fn lower(r: &mut KeyRange, to: Vec<u8>) {
    let less = match &r.hi {
        Bound::Included(h) | Bound::Excluded(h) => to[..] < h[..],
        Bound::Unbounded => true,
    };
    if less {
        r.hi = Bound::Excluded(to.into());
    }
}

/// Whether a range has nothing in it.
pub fn is_empty(r: &KeyRange) -> bool {
    match (&r.lo, &r.hi) {
        (Bound::Included(l), Bound::Excluded(h)) => l >= h,
        (_, Bound::Excluded(h)) => h.is_empty(),
        _ => false,
    }
}

/// Appends the hash key of these expressions; `None` when one is NULL and `nulls` are not wanted.
pub fn hash_exprs(
    exprs: &[Expr],
    rt: &mut Rt<'_>,
    nulls: bool,
    out: &mut Vec<u8>,
) -> Result<Option<()>> {
    for e in exprs {
        match e.peek(rt.st) {
            Some(v) => {
                if v.is_null() && !nulls {
                    return Ok(None);
                }
                hash_value(v, out);
            }
            None => {
                let v = e.eval(rt)?;
                if v.is_null() && !nulls {
                    return Ok(None);
                }
                hash_value(&v, out);
            }
        }
    }
    Ok(Some(()))
}
