//! Functions of arrays.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::ops::{array as ops, compare, eq};
use base::{Array, Error, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

fn dimension(a: &[Value]) -> Option<(i32, i32)> {
    let d = usize::try_from(int(&a[1]) - 1).ok()?;
    ops::of(&a[0]).dims.get(d).copied()
}

fn same(x: &Value, y: &Value) -> bool {
    match (x.is_null(), y.is_null()) {
        (false, false) => eq(x, y),
        (x, y) => x == y,
    }
}

fn value(a: Array) -> Value {
    Value::Array(Box::new(a))
}

fn one_dimensional(a: &Array, what: &str) -> Result<()> {
    if a.dims.len() > 1 {
        return Err(Error::unsupported("")
            .message(format!("{what} multidimensional arrays is not supported")));
    }
    Ok(())
}

/// The bucket of a value among lower bounds in order.
fn width_bucket(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let bounds = ops::of(&a[1]);
    if bounds.dims.len() > 1 {
        let what = "thresholds must be one-dimensional array";
        return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, what));
    }
    if bounds.items.iter().any(Value::is_null) {
        let what = "thresholds array must not contain NULLs";
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what));
    }
    let below = |bound: &Value| compare(bound, &a[0]).is_le();
    Ok(Value::Int4(bounds.items.partition_point(below) as i32))
}

fn position(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    if a[0].is_null() {
        return Ok(Value::Null);
    }
    let x = ops::of(&a[0]);
    one_dimensional(x, "searching for elements in")?;
    let lower = x.dims.first().map_or(1, |d| d.1);
    let from = match a.get(2) {
        Some(Value::Null) => {
            return Err(Error::new(
                SqlState::NULL_VALUE_NOT_ALLOWED,
                "initial position must not be null",
            ));
        }
        Some(v) => int(v),
        None => i64::from(lower),
    };
    let hit = x
        .items
        .iter()
        .enumerate()
        .find(|(i, v)| *i as i64 + i64::from(lower) >= from && same(v, &a[1]));
    Ok(hit.map(|(i, _)| i as i32 + lower).into())
}

fn positions(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    if a[0].is_null() {
        return Ok(Value::Null);
    }
    let x = ops::of(&a[0]);
    one_dimensional(x, "searching for elements in")?;
    let lower = x.dims.first().map_or(1, |d| d.1);
    let hits = x.items.iter().enumerate().filter(|(_, v)| same(v, &a[1]));
    Ok(value(Array::one_dim(
        Type::Int4,
        hits.map(|(i, _)| Value::Int4(i as i32 + lower)).collect(),
    )))
}

fn remove(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    if a[0].is_null() {
        return Ok(Value::Null);
    }
    let x = ops::of(&a[0]);
    one_dimensional(x, "removing elements from")?;
    let items: Vec<Value> = x
        .items
        .iter()
        .filter(|v| !same(v, &a[1]))
        .cloned()
        .collect();
    let lower = x.dims.first().map_or(1, |d| d.1);
    let mut r = Array::one_dim(x.element, items);
    if let Some(d) = r.dims.first_mut() {
        d.1 = lower;
    }
    Ok(value(r))
}

fn replace(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    if a[0].is_null() {
        return Ok(Value::Null);
    }
    let mut x = ops::of(&a[0]).clone();
    for v in &mut x.items {
        if same(v, &a[1]) {
            *v = a[2].clone();
        }
    }
    Ok(value(x))
}

fn fill(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let null = || {
        Error::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "dimension array or low bound array cannot be null",
        )
    };
    if a[1].is_null() || a.get(2).is_some_and(Value::is_null) {
        return Err(null());
    }
    let list = |v: &Value| -> Result<Vec<i64>> {
        ops::of(v)
            .items
            .iter()
            .map(|x| {
                x.as_i64().ok_or_else(|| {
                    Error::new(
                        SqlState::NULL_VALUE_NOT_ALLOWED,
                        "dimension values cannot be null",
                    )
                })
            })
            .collect()
    };
    let flat = |v: &Value, what: &str| match ops::of(v).dims.len() > 1 {
        true => Err(Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "wrong number of array subscripts",
        )
        .detail(format!("{what} must be one dimensional."))),
        false => Ok(()),
    };
    flat(&a[1], "Dimension array")?;
    if let Some(v) = a.get(2) {
        flat(v, "Low bound array")?;
    }
    let lens = list(&a[1])?;
    let lowers = match a.get(2) {
        Some(v) => list(v)?,
        None => vec![1; lens.len()],
    };
    if lens.len() != lowers.len() {
        return Err(Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "wrong number of array subscripts",
        ));
    }
    let total = lens
        .iter()
        .try_fold(1i64, |n, l| n.checked_mul(*l))
        .unwrap_or(i64::MAX);
    if total > 1 << 24 || lens.iter().any(|l| *l < 0) {
        return Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "array size exceeds the maximum allowed (16777216)",
        ));
    }
    base::memory::want(crate::types::value_bytes(&a[0]).saturating_mul(total as usize))?;
    let n = if lens.is_empty() { 0 } else { total as usize };
    Ok(value(Array {
        element: types[0],
        dims: if n == 0 {
            vec![]
        } else {
            lens.iter()
                .zip(&lowers)
                .map(|(l, b)| (*l as i32, *b as i32))
                .collect()
        },
        items: vec![a[0].clone(); n],
    }))
}

fn trim(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let x = ops::of(&a[0]);
    let n = int(&a[1]);
    let len = x.dims.first().map_or(0, |d| d.0);
    if !(0..=i64::from(len)).contains(&n) {
        return Err(Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            format!("number of elements to trim must be between 0 and {len}"),
        ));
    }
    let mut r = x.clone();
    let keep = len - n as i32;
    let row = if len == 0 {
        0
    } else {
        x.items.len() / len as usize
    };
    r.items.truncate(keep as usize * row);
    if keep == 0 {
        r.dims.clear();
    } else {
        // As a slice, it counts from one again.
        r.dims[0].0 = keep;
        r.dims.iter_mut().for_each(|d| d.1 = 1);
    }
    Ok(value(r))
}

/// Most NULLs that an assignment behind the end of an array, or before its beginning, adds.
const MOST_NULLS: i64 = 1 << 20;

/// The array with another value at the subscripts; a NULL array is an empty one.
fn set_element(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Value> {
    let wrong = |what: &str| Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, what));
    let as_int = |v: &Value| v.as_i64().map(|n| n as i32);
    let subscripts: Option<Vec<i32>> = ops::of(&a[1]).items.iter().map(as_int).collect();
    let Some(subscripts) = subscripts else {
        let what = "array subscript in assignment must not be null";
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what));
    };
    let mut array = match &a[0] {
        Value::Array(x) => (**x).clone(),
        _ => Array {
            element: types[2],
            dims: vec![],
            items: vec![],
        },
    };
    if array.items.is_empty() {
        array.dims = subscripts.iter().map(|s| (1, *s)).collect();
        array.items = vec![a[2].clone()];
        return Ok(value(array));
    }
    if array.dims.len() != subscripts.len() {
        return wrong("wrong number of array subscripts");
    }
    if let ([(len, lower)], [at]) = (&mut array.dims[..], &subscripts[..]) {
        let place = i64::from(*at) - i64::from(*lower);
        let new = match place {
            ..0 => -place,
            _ => place + 1 - i64::from(*len),
        };
        if new > MOST_NULLS {
            let what = "an assignment to an element that is far outside of its array";
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
        }
        let nulls = std::iter::repeat_n(Value::Null, new.max(0) as usize);
        match place {
            ..0 => {
                array.items.splice(0..0, nulls);
                (*len, *lower) = (*len + new as i32, *at);
                array.items[0] = a[2].clone();
            }
            _ => {
                array.items.extend(nulls);
                *len += new.max(0) as i32;
                array.items[place as usize] = a[2].clone();
            }
        }
        return Ok(value(array));
    }
    let mut place = 0;
    for ((len, lower), at) in array.dims.iter().zip(&subscripts) {
        let here = i64::from(*at) - i64::from(*lower);
        if !(0..i64::from(*len)).contains(&here) {
            return wrong("array subscript out of range");
        }
        place = place * *len as usize + here as usize;
    }
    array.items[place] = a[2].clone();
    Ok(value(array))
}

/// Adds what stands behind `SET a[1] = 2`.
pub(super) fn register_assignment(r: &mut Registry) {
    let args = [ANYARRAY, INT4ARRAY, ANYELEMENT];
    r.t(super::SET_ELEMENT, &args, ANYARRAY, IMM_N, set_element);
}

/// Adds the functions of an array's dimensions.
fn register_dimensions(r: &mut Registry) {
    r.f("array_length", &[ANYARRAY, INT4], INT4, IMM, |a, _| {
        Ok(dimension(a).map(|d| d.0).into())
    });
    r.f("array_lower", &[ANYARRAY, INT4], INT4, IMM, |a, _| {
        Ok(dimension(a).map(|d| d.1).into())
    });
    r.f("array_upper", &[ANYARRAY, INT4], INT4, IMM, |a, _| {
        Ok(dimension(a).map(|d| d.0 + d.1 - 1).into())
    });
}

/// Adds the array functions.
pub(super) fn register(r: &mut Registry) {
    register_dimensions(r);
    let args = [ANYCOMPATIBLE, ANYCOMPATIBLEARRAY];
    r.f("width_bucket", &args, INT4, IMM, width_bucket);
    r.f("cardinality", &[ANYARRAY], INT4, IMM, |a, _| {
        Ok(Value::Int4(ops::of(&a[0]).items.len() as i32))
    });
    r.f("array_ndims", &[ANYARRAY], INT4, IMM, |a, _| {
        let n = ops::of(&a[0]).dims.len() as i32;
        Ok(if n == 0 { Value::Null } else { Value::Int4(n) })
    });
    r.f("array_dims", &[ANYARRAY], TEXT, IMM, |a, _| {
        let d = &ops::of(&a[0]).dims;
        if d.is_empty() {
            return Ok(Value::Null);
        }
        Ok(Value::from(
            d.iter()
                .map(|(n, l)| format!("[{l}:{}]", l + n - 1))
                .collect::<String>(),
        ))
    });
    r.t(
        "array_append",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        ops::append,
    );
    r.t(
        "array_prepend",
        &[ANYCOMPATIBLE, ANYCOMPATIBLEARRAY],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        ops::prepend,
    );
    r.f(
        "array_cat",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLEARRAY],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        ops::concat,
    );
    r.f(
        "array_position",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE],
        INT4,
        IMM_N,
        position,
    );
    r.f(
        "array_position",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE, INT4],
        INT4,
        IMM_N,
        position,
    );
    r.f(
        "array_positions",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE],
        INT4ARRAY,
        IMM_N,
        positions,
    );
    r.f(
        "array_remove",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        remove,
    );
    r.f(
        "array_replace",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE, ANYCOMPATIBLE],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        replace,
    );
    r.t(
        "array_fill",
        &[ANYELEMENT, INT4ARRAY],
        ANYARRAY,
        IMM_N,
        fill,
    );
    r.t(
        "array_fill",
        &[ANYELEMENT, INT4ARRAY, INT4ARRAY],
        ANYARRAY,
        IMM_N,
        fill,
    );
    r.f("trim_array", &[ANYARRAY, INT4], ANYARRAY, IMM, trim);
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn results_are_those_of_postgresql() {
        let a = "{1,2,3}::int[]";
        for (f, args, want) in [
            ("array_length", &[a, "#1"][..], "3"),
            ("array_length", &["{}::int[]", "#1"], "NULL"),
            ("array_upper", &["[0:1]={5,6}::int[]", "#1"], "1"),
            ("array_append", &[a, "#4"], "{1,2,3,4}"),
            ("array_append", &["NULL", "#4"], "{4}"),
            ("array_prepend", &["#0", a], "{0,1,2,3}"),
            ("array_cat", &[a, "{4}::int[]"], "{1,2,3,4}"),
            (
                "array_cat",
                &["{{1,2}}::int[]", "{3,4}::int[]"],
                "{{1,2},{3,4}}",
            ),
            ("array_position", &["{a,b,NULL}::text[]", "b"], "2"),
            ("array_position", &["{a,b,NULL}::text[]", "NULL"], "3"),
            ("array_remove", &["{1,2,3,2}::int[]", "#2"], "{1,3}"),
            (
                "array_replace",
                &["{1,2,3,2}::int[]", "#2", "#9"],
                "{1,9,3,9}",
            ),
            ("array_positions", &["{1,2,3,2}::int[]", "#2"], "{2,4}"),
            ("cardinality", &["{{1,2},{3,4}}::int[]"], "4"),
            ("array_dims", &["{{1,2},{3,4}}::int[]"], "[1:2][1:2]"),
            ("array_fill", &["#7", "{2,2}::int[]"], "{{7,7},{7,7}}"),
            ("trim_array", &[a, "#2"], "{1}"),
            ("array_to_string", &["{1,NULL,3}::int[]", ",", "*"], "1,*,3"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
    }
}
