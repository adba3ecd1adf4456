//! Floating-point arithmetic with PostgreSQL's checks: a finite computation that overflows or vanishes is 22003.

use super::arith::division_by_zero;
use crate::functions::EvalContext;
use crate::types::cast::float_range;
use base::{Result, Value};

/// Either width as `f64`.
pub fn f64_of(v: &Value) -> f64 {
    match v {
        Value::Float4(x) => f64::from(*x),
        Value::Float8(x) => *x,
        v => panic!("{v:?} is no float"),
    }
}

fn f32_of(v: &Value) -> f32 {
    match v {
        Value::Float4(x) => *x,
        v => panic!("{v:?} is no float4"),
    }
}

/// Checks a result: infinite only from infinite operands, zero only where `zero_ok`.
pub fn checked(r: f64, infinite_ok: bool, zero_ok: bool) -> Result<f64> {
    if r.is_infinite() && !infinite_ok {
        return Err(float_range("overflow"));
    }
    if r == 0.0 && !zero_ok {
        return Err(float_range("underflow"));
    }
    Ok(r)
}

macro_rules! binary {
    ($($f8:ident $f4:ident $op:tt $zero_ok:expr;)*) => { $(
        pub fn $f8(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let (x, y) = (f64_of(&a[0]), f64_of(&a[1]));
            let zero_ok: fn(f64, f64) -> bool = $zero_ok;
            let inf = x.is_infinite() || y.is_infinite();
            checked(x $op y, inf, zero_ok(x, y)).map(Value::Float8)
        }

        pub fn $f4(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let (x, y) = (f32_of(&a[0]), f32_of(&a[1]));
            let zero_ok: fn(f64, f64) -> bool = $zero_ok;
            let inf = x.is_infinite() || y.is_infinite();
            let r = x $op y;
            checked(f64::from(r), inf, zero_ok(x.into(), y.into()))?;
            Ok(Value::Float4(r))
        }
    )* };
}
binary! {
    add add4 + |_, _| true;
    sub sub4 - |_, _| true;
    mul mul4 * |x, y| x == 0.0 || y == 0.0;
}

pub fn div(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    let (x, y) = (f64_of(&a[0]), f64_of(&a[1]));
    divide(x, y).map(Value::Float8)
}

pub fn div4(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    let (x, y) = (f32_of(&a[0]), f32_of(&a[1]));
    if y == 0.0 && !x.is_nan() {
        return Err(division_by_zero());
    }
    let r = x / y;
    checked(f64::from(r), x.is_infinite(), x == 0.0 || y.is_infinite())?;
    Ok(Value::Float4(r))
}

/// Division of `float8`.
pub fn divide(x: f64, y: f64) -> Result<f64> {
    if y == 0.0 && !x.is_nan() {
        return Err(division_by_zero());
    }
    checked(x / y, x.is_infinite(), x == 0.0 || y.is_infinite())
}

pub fn neg(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(Value::Float8(-f64_of(&a[0])))
}

pub fn neg4(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(Value::Float4(-f32_of(&a[0])))
}

pub fn abs(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(Value::Float8(f64_of(&a[0]).abs()))
}

pub fn abs4(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(Value::Float4(f32_of(&a[0]).abs()))
}
