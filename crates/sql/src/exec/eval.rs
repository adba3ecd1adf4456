//! Evaluation. Leaves (constants, parameters, slots) are read by reference; only calls and results make values.

use super::{Rt, State, subquery};
use crate::expr::{AnyAll, Call, Expr, Matcher};
use crate::types::{cast, ops};
use base::{Array, Error, Numeric, SqlState, Type, Value};
use std::cmp::Ordering;
use txn::Result;

/// Most arguments of a call that stand on the stack.
const INLINE_ARGS: usize = 3;

impl Expr {
    /// The value where it stands, when that needs no computation.
    #[inline]
    pub fn peek<'e>(&'e self, st: &'e State) -> Option<&'e Value> {
        match self {
            Expr::Slot(s) => Some(&st.env[*s as usize]),
            Expr::Const(v) => Some(v),
            Expr::Param(i) => Some(&st.params[*i as usize]),
            Expr::Once(s, _) if st.once[*s as usize] => Some(&st.env[*s as usize]),
            _ => None,
        }
    }

    /// Whether the condition is TRUE (not FALSE, not NULL).
    #[inline]
    pub fn holds(&self, rt: &mut Rt<'_>) -> Result<bool> {
        Ok(matches!(self.eval(rt)?, Value::Bool(true)))
    }

    /// Computes the value.
    pub fn eval(&self, rt: &mut Rt<'_>) -> Result<Value> {
        match self {
            Expr::Const(v) => Ok(v.clone()),
            Expr::Param(i) => Ok(rt.st.params[*i as usize].clone()),
            Expr::Slot(s) => Ok(rt.st.env[*s as usize].clone()),
            Expr::Once(s, e) => {
                let at = *s as usize;
                if !rt.st.once[at] {
                    let v = e.eval(rt)?;
                    rt.st.env[at] = v;
                    rt.st.once[at] = true;
                }
                Ok(rt.st.env[at].clone())
            }
            Expr::Compare(op, ab) => {
                let o = order(&ab.0, &ab.1, rt)?;
                Ok(o.map_or(Value::Null, |o| Value::Bool(op.holds(o))))
            }
            Expr::Call(c) => c.eval(rt),
            Expr::And(parts) => {
                let mut null = false;
                for p in parts {
                    match p.eval(rt)?.as_bool() {
                        Some(false) => return Ok(Value::Bool(false)),
                        Some(true) => {}
                        None => null = true,
                    }
                }
                Ok(if null { Value::Null } else { Value::Bool(true) })
            }
            Expr::Or(parts) => {
                let mut null = false;
                for p in parts {
                    match p.eval(rt)?.as_bool() {
                        Some(true) => return Ok(Value::Bool(true)),
                        Some(false) => {}
                        None => null = true,
                    }
                }
                Ok(if null {
                    Value::Null
                } else {
                    Value::Bool(false)
                })
            }
            Expr::Not(e) => Ok(e
                .eval(rt)?
                .as_bool()
                .map_or(Value::Null, |b| Value::Bool(!b))),
            Expr::IsNull { arg, not } => {
                let null = match arg.peek(rt.st) {
                    Some(v) => v.is_null(),
                    None => arg.eval(rt)?.is_null(),
                };
                Ok(Value::Bool(null != *not))
            }
            Expr::IsBool { arg, value, not } => {
                let same = arg.eval(rt)?.as_bool() == *value;
                Ok(Value::Bool(same != *not))
            }
            Expr::Distinct { not, args } => {
                let (a, b) = (args.0.eval(rt)?, args.1.eval(rt)?);
                let same = match (a.is_null(), b.is_null()) {
                    (false, false) => ops::eq(&a, &b),
                    (x, y) => x == y,
                };
                Ok(Value::Bool(same == *not))
            }
            Expr::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    if condition.holds(rt)? {
                        return result.eval(rt);
                    }
                }
                otherwise.eval(rt)
            }
            Expr::Let { slot, value, body } => {
                let v = value.eval(rt)?;
                rt.st.env[*slot as usize] = v;
                body.eval(rt)
            }
            Expr::Coalesce(items) => {
                for e in items {
                    let v = e.eval(rt)?;
                    if !v.is_null() {
                        return Ok(v);
                    }
                }
                Ok(Value::Null)
            }
            Expr::NullIf(ab) => {
                if ab.1.holds(rt)? {
                    Ok(Value::Null)
                } else {
                    ab.0.eval(rt)
                }
            }
            Expr::Extreme { least, items } => {
                let want = if *least {
                    Ordering::Less
                } else {
                    Ordering::Greater
                };
                let mut best = Value::Null;
                for e in items {
                    let v = e.eval(rt)?;
                    if !v.is_null() && (best.is_null() || ops::compare(&v, &best) == want) {
                        best = v;
                    }
                }
                Ok(best)
            }
            Expr::Cast(c) => {
                let v = c.arg.eval(rt)?;
                weigh(&v)?;
                Ok(cast::apply(v, c.from, c.to, c.explicit, rt.cx.settings)?)
            }
            Expr::InList(l) => {
                let v = l.arg.eval(rt)?;
                if v.is_null() {
                    return Ok(Value::Null);
                }
                let mut null = false;
                base::cancel::work(l.items.len())?;
                for e in &l.items {
                    let hit = match e.peek(rt.st) {
                        Some(x) => equal(&v, x),
                        None => equal(&v, &e.eval(rt)?),
                    };
                    match hit {
                        Some(true) => return Ok(Value::Bool(!l.negated)),
                        Some(false) => {}
                        None => null = true,
                    }
                }
                Ok(if null {
                    Value::Null
                } else {
                    Value::Bool(l.negated)
                })
            }
            Expr::AnyAll(a) => a.eval(rt),
            Expr::Array {
                element,
                items,
                nested,
            } => make_array(*element, items, *nested, rt),
            Expr::Subscript { array, indexes } => {
                let a = array.eval(rt)?;
                let mut at = Vec::with_capacity(indexes.len());
                for i in indexes {
                    match i.eval(rt)?.as_i64() {
                        Some(i) => at.push(i),
                        None => return Ok(Value::Null),
                    }
                }
                Ok(match &a {
                    Value::Array(a) => element(a, &at),
                    _ => Value::Null,
                })
            }
            Expr::Slice {
                array,
                lower,
                upper,
            } => {
                let a = array.eval(rt)?;
                let bound = |e: &Option<Box<Expr>>, rt: &mut Rt<'_>| match e {
                    Some(e) => e.eval(rt).map(Some),
                    None => Ok(None),
                };
                let (lo, hi) = (bound(lower, rt)?, bound(upper, rt)?);
                slice(&a, lo.as_ref(), hi.as_ref())
            }
            Expr::Subquery(s) => subquery::eval(s, rt),
            Expr::Record(items) => record(items, rt),
        }
    }
}

/// The text of a row of these expressions. 53200 where it takes too much memory: the quotes of a row in a row double at each level.
fn record(items: &[(Expr, Type)], rt: &mut Rt<'_>) -> Result<Value> {
    let mut out = String::from("(");
    for (i, (e, ty)) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let v = e.eval(rt)?;
        if !v.is_null() {
            let mut s = String::new();
            crate::types::text::output(&v, *ty, rt.cx.settings, &mut s);
            base::memory::want(2 * s.len())?;
            crate::types::record::push_field(&mut out, &s);
        }
    }
    out.push(')');
    Ok(Value::from(out))
}

/// Equality of two values, NULL as unknown.
#[inline]
fn equal(a: &Value, b: &Value) -> Option<bool> {
    (!a.is_null() && !b.is_null()).then(|| ops::eq(a, b))
}

/// Orders two expressions' values; `None` when one is NULL.
#[inline]
fn order(a: &Expr, b: &Expr, rt: &mut Rt<'_>) -> Result<Option<Ordering>> {
    fn cmp(x: &Value, y: &Value) -> Option<Ordering> {
        (!x.is_null() && !y.is_null()).then(|| ops::compare(x, y))
    }
    if let (Some(x), Some(y)) = (a.peek(rt.st), b.peek(rt.st)) {
        return Ok(cmp(x, y));
    }
    let x = a.eval(rt)?;
    if x.is_null() {
        return Ok(None);
    }
    if let Some(y) = b.peek(rt.st) {
        return Ok(cmp(&x, y));
    }
    let y = b.eval(rt)?;
    Ok(cmp(&x, &y))
}

/// Bytes of a long text and the like: a function reads it whole at least once. Short ones are not worth counting.
#[inline]
fn length(v: &Value) -> usize {
    match v {
        // A product, a quotient and the digits of a long number take its length times itself, by words.
        Value::Numeric(n) => match &**n {
            Numeric::Finite(d) => {
                let bytes = d.as_bigint_and_scale().0.bits() as usize / 8;
                bytes.max(bytes * bytes / 64)
            }
            _ => 0,
        },
        Value::Text(s) => s.len(),
        Value::Json(s) => s.len(),
        Value::Bytea(b) => b.len(),
        Value::Array(a) => a.items.len(),
        _ => 0,
    }
}

/// Counts the work of a function of this value.
#[inline]
pub(crate) fn weigh(v: &Value) -> Result<()> {
    match length(v) {
        0..64 => Ok(()),
        n => {
            base::memory::check()?;
            Ok(base::cancel::work(n)?)
        }
    }
}

impl Call {
    fn eval(&self, rt: &mut Rt<'_>) -> Result<Value> {
        if self.args.len() <= INLINE_ARGS {
            let mut args: [Value; INLINE_ARGS] = Default::default();
            for (to, e) in args.iter_mut().zip(&self.args) {
                *to = e.eval(rt)?;
                if to.is_null() && self.f.strict {
                    return Ok(Value::Null);
                }
                weigh(to)?;
            }
            return Ok(self.f.call(&args[..self.args.len()], &mut rt.cx)?);
        }
        let mut args = Vec::with_capacity(self.args.len());
        for e in &self.args {
            let v = e.eval(rt)?;
            weigh(&v)?;
            args.push(v);
        }
        Ok(self.f.call(&args, &mut rt.cx)?)
    }
}

impl AnyAll {
    fn eval(&self, rt: &mut Rt<'_>) -> Result<Value> {
        let left = self.left.eval(rt)?;
        let array = match self.array.peek(rt.st) {
            Some(Value::Array(a)) if matches!(self.matcher, Matcher::Compare(_)) => {
                // The common `= ANY($1)`: no copy of the array.
                base::cancel::work(a.items.len())?;
                let Matcher::Compare(op) = self.matcher else {
                    unreachable!("just matched")
                };
                let hits = a.items.iter().map(|x| {
                    (!left.is_null() && !x.is_null()).then(|| op.holds(ops::compare(&left, x)))
                });
                return Ok(quantify(self.all, hits.map(Ok))?.into());
            }
            Some(v) => v.clone(),
            None => self.array.eval(rt)?,
        };
        let Value::Array(array) = array else {
            return Ok(Value::Null);
        };
        let mut args = [left, Value::Null];
        let hits = array.items.into_iter().map(|x| -> Result<Option<bool>> {
            if args[0].is_null() || x.is_null() {
                return Ok(None);
            }
            match &self.matcher {
                Matcher::Compare(op) => Ok(Some(op.holds(ops::compare(&args[0], &x)))),
                Matcher::Call(f, _) => {
                    args[1] = x;
                    base::cancel::work(64)?;
                    Ok(f.call(&args, &mut rt.cx)?.as_bool())
                }
            }
        });
        Ok(quantify(self.all, hits)?.into())
    }
}

/// ANY or ALL over three-valued answers.
pub fn quantify(
    all: bool,
    hits: impl Iterator<Item = Result<Option<bool>>>,
) -> Result<Option<bool>> {
    let mut null = false;
    for h in hits {
        match h? {
            Some(h) if h != all => return Ok(Some(h)),
            Some(_) => {}
            None => null = true,
        }
    }
    Ok(if null { None } else { Some(all) })
}

fn make_array(ty: Type, items: &[Expr], nested: bool, rt: &mut Rt<'_>) -> Result<Value> {
    let mut values = Vec::with_capacity(items.len());
    for e in items {
        values.push(e.eval(rt)?);
    }
    if !nested {
        return Ok(Value::Array(Box::new(Array::one_dim(ty, values))));
    }
    let mut dims: Option<Vec<(i32, i32)>> = None;
    let mut flat = Vec::new();
    let n = values.len() as i32;
    for v in values {
        let inner = match v {
            Value::Array(a) => *a,
            _ => Array::one_dim(ty, vec![]),
        };
        if dims.as_ref().is_some_and(|d| *d != inner.dims) {
            return Err(Error::new(
                SqlState::ARRAY_SUBSCRIPT_ERROR,
                "multidimensional arrays must have array expressions with matching dimensions",
            )
            .into());
        }
        dims = Some(inner.dims);
        flat.extend(inner.items);
    }
    let mut all = vec![(n, 1)];
    all.extend(dims.unwrap_or_default());
    if flat.is_empty() {
        all.clear();
    }
    Ok(Value::Array(Box::new(Array {
        element: ty,
        dims: all,
        items: flat,
    })))
}

fn element(a: &Array, at: &[i64]) -> Value {
    if a.dims.len() != at.len() {
        return Value::Null;
    }
    let mut offset = 0usize;
    for (&(len, lower), &i) in a.dims.iter().zip(at) {
        let k = i - i64::from(lower);
        if k < 0 || k >= i64::from(len) {
            return Value::Null;
        }
        offset = offset * len as usize + k as usize;
    }
    a.items.get(offset).cloned().unwrap_or_default()
}

fn slice(a: &Value, lo: Option<&Value>, hi: Option<&Value>) -> Result<Value> {
    let Value::Array(a) = a else {
        return Ok(Value::Null);
    };
    if lo.is_some_and(Value::is_null) || hi.is_some_and(Value::is_null) {
        return Ok(Value::Null);
    }
    let empty = || Value::Array(Box::new(Array::one_dim(a.element, vec![])));
    let &[(len, lower)] = &a.dims[..] else {
        if a.dims.is_empty() {
            return Ok(empty());
        }
        return Err(Error::unsupported("a slice of an array of several dimensions").into());
    };
    let first = i64::from(lower);
    let from = lo.and_then(Value::as_i64).unwrap_or(first).max(first);
    let last = first + i64::from(len) - 1;
    let to = hi.and_then(Value::as_i64).unwrap_or(last).min(last);
    if from > to {
        return Ok(empty());
    }
    let items = a.items[(from - first) as usize..=(to - first) as usize].to_vec();
    Ok(Value::Array(Box::new(Array::one_dim(a.element, items))))
}
