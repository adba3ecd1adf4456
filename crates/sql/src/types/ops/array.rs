//! Operators of arrays.

use super::compare::{compare_nulls, eq};
use crate::functions::EvalContext;
use base::{Array, Error, Result, SqlState, Type, Value};
use std::cmp::Ordering;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// The array in a value; the binder has cast it.
pub fn of(v: &Value) -> &Array {
    match v {
        Value::Array(a) => a,
        v => panic!("{v:?} is no array"),
    }
}

fn holds(a: &Array, x: &Value) -> Result<bool> {
    for part in a.items.chunks(1024) {
        base::cancel::work(16 * part.len())?;
        if part.iter().any(|y| !y.is_null() && eq(x, y)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether every element of `b` is in `a`; NULL is in no array.
pub fn contains(a: &Array, b: &Array) -> Result<bool> {
    for x in &b.items {
        if x.is_null() || !holds(a, x)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn op_contains(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    contains(of(&a[0]), of(&a[1])).map(Value::Bool)
}

pub fn op_contained(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    contains(of(&a[1]), of(&a[0])).map(Value::Bool)
}

pub fn op_overlap(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (of(&a[0]), of(&a[1]));
    for v in &y.items {
        if !v.is_null() && holds(x, v)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// `array || array`: side by side, or one as a row of the other. NULL counts as empty.
pub fn concat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = match (&a[0], &a[1]) {
        (Value::Null, y) => return Ok(y.clone()),
        (x, Value::Null) => return Ok(x.clone()),
        (x, y) => (of(x), of(y)),
    };
    if y.dims.is_empty() {
        return Ok(a[0].clone());
    }
    if x.dims.is_empty() {
        return Ok(a[1].clone());
    }
    let mismatch = |detail: &str| {
        Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "cannot concatenate incompatible arrays",
        )
        .detail(detail)
    };
    let (xd, yd) = (&x.dims, &y.dims);
    let lens = |d: &[(i32, i32)]| d.iter().map(|p| p.0).collect::<Vec<_>>();
    let dims = if xd.len() == yd.len() {
        if lens(&xd[1..]) != lens(&yd[1..]) {
            return Err(mismatch(
                "Arrays with differing element dimensions are not compatible for concatenation.",
            ));
        }
        let mut d = xd.clone();
        d[0].0 += yd[0].0;
        d
    } else if xd.len() + 1 == yd.len() && lens(&yd[1..]) == lens(xd) {
        let mut d = yd.clone();
        d[0].0 += 1;
        d
    } else if yd.len() + 1 == xd.len() && lens(&xd[1..]) == lens(yd) {
        let mut d = xd.clone();
        d[0].0 += 1;
        d
    } else {
        return Err(mismatch(&format!(
            "Arrays of {} and {} dimensions are not compatible for concatenation.",
            xd.len(),
            yd.len()
        )));
    };
    let items = x.items.iter().chain(&y.items).cloned().collect();
    Ok(Value::Array(Box::new(Array {
        element: x.element,
        dims,
        items,
    })))
}

fn one_dimensional(a: &Array) -> Result<()> {
    if a.dims.len() > 1 {
        return Err(Error::new(
            SqlState(*b"22000"),
            "argument must be empty or one-dimensional array",
        ));
    }
    Ok(())
}

/// `array_append(array, element)`; the element type stands for a NULL array.
pub fn append(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let mut out = match &a[0] {
        Value::Null => Array::one_dim(types[1], vec![]),
        v => of(v).clone(),
    };
    one_dimensional(&out)?;
    out.items.push(a[1].clone());
    let lower = out.dims.first().map_or(1, |d| d.1);
    out.dims = vec![(out.items.len() as i32, lower)];
    Ok(Value::Array(Box::new(out)))
}

/// `array_prepend(element, array)`.
pub fn prepend(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let mut out = match &a[1] {
        Value::Null => Array::one_dim(types[0], vec![]),
        v => of(v).clone(),
    };
    one_dimensional(&out)?;
    out.items.insert(0, a[0].clone());
    let lower = out.dims.first().map_or(1, |d| d.1);
    out.dims = vec![(out.items.len() as i32, lower)];
    Ok(Value::Array(Box::new(out)))
}

/// `left op ANY (array)` for a comparison: true when one element compares so, NULL when none does but one is NULL.
/// With `all`, `left op ALL (array)`. `accepts` says which orders satisfy the operator.
pub fn any_all(
    left: &Value,
    array: &Value,
    all: bool,
    accepts: impl Fn(Ordering) -> bool,
) -> Value {
    if array.is_null() {
        return Value::Null;
    }
    let mut unknown = false;
    for x in &of(array).items {
        if x.is_null() || left.is_null() {
            unknown = true;
        } else if accepts(compare_nulls(left, x)) != all {
            return Value::Bool(!all);
        }
    }
    if unknown {
        Value::Null
    } else {
        Value::Bool(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(xs: &[i32]) -> Value {
        Value::Array(Box::new(Array::one_dim(
            Type::Int4,
            xs.iter().map(|x| Value::Int4(*x)).collect(),
        )))
    }

    #[test]
    fn any_and_all_have_three_values() {
        let eq = |o: Ordering| o.is_eq();
        assert_eq!(
            any_all(&Value::Int4(2), &ints(&[1, 2]), false, eq).as_bool(),
            Some(true)
        );
        assert_eq!(
            any_all(&Value::Int4(3), &ints(&[1, 2]), false, eq).as_bool(),
            Some(false)
        );
        assert_eq!(
            any_all(&Value::Int4(3), &ints(&[]), true, eq).as_bool(),
            Some(true)
        );
        assert!(any_all(&Value::Null, &ints(&[1]), false, eq).is_null());
        assert_eq!(
            any_all(&Value::Null, &ints(&[]), false, eq).as_bool(),
            Some(false)
        );
    }
}
