//! Trigonometry in degrees: `sind`, `cosd`, `tand`, `cotd`, `asind`, `acosd`, `atand`, `atan2d`.
//!
//! Results are exact where a table of angles has exact ones: `sind(30)` is 0.5, `tand(45)` is 1. For this each function is scaled by
//! its own value at such an angle, so that the error of the machine's function cancels there:
//!
//! ```text
//! sind(x) = sin(x) / sin(30°) / 2                      up to 30°
//! cosd(x) = 1 − (1 − cos(x)) / (1 − cos(60°)) / 2      up to 60°
//! ```
//! Other angles are brought there by symmetry.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::ops::float;
use base::{Error, Result, SqlState, Value};
use std::hint::black_box;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

const RADIANS: f64 = std::f64::consts::PI / 180.0;

fn range() -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "input is out of range",
    )
}

/// Up to 30°.
fn small_sine(x: f64) -> f64 {
    (x * RADIANS).sin() / black_box(30.0 * RADIANS).sin() / 2.0
}

/// Up to 60°.
fn small_cosine(x: f64) -> f64 {
    let part = (1.0 - (x * RADIANS).cos()) / (1.0 - black_box(60.0 * RADIANS).cos());
    1.0 - part / 2.0
}

/// Up to 90°.
fn quarter_sine(x: f64) -> f64 {
    match x <= 30.0 {
        true => small_sine(x),
        false => small_cosine(90.0 - x),
    }
}

/// Up to 90°.
fn quarter_cosine(x: f64) -> f64 {
    match x <= 60.0 {
        true => small_cosine(x),
        false => small_sine(90.0 - x),
    }
}

/// The angle from 0° to 90° that stands for `x`, and the signs of sine and cosine there.
fn quarter(x: f64) -> Result<(f64, f64, f64)> {
    if x.is_infinite() {
        return Err(range());
    }
    let (mut sine, mut cosine) = (1.0, 1.0);
    let mut x = x % 360.0;
    if x < 0.0 {
        (x, sine) = (-x, -sine);
    }
    if x > 180.0 {
        (x, sine) = (360.0 - x, -sine);
    }
    if x > 90.0 {
        (x, cosine) = (180.0 - x, -cosine);
    }
    Ok((x, sine, cosine))
}

fn sine(x: f64) -> Result<f64> {
    let (x, sign, _) = quarter(x)?;
    Ok(sign * quarter_sine(x))
}

fn cosine(x: f64) -> Result<f64> {
    let (x, _, sign) = quarter(x)?;
    Ok(sign * quarter_cosine(x))
}

/// Without the sign of a zero.
fn plain(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x }
}

fn tangent(x: f64) -> Result<f64> {
    let (x, sine, cosine) = quarter(x)?;
    let at_45 = quarter_sine(45.0) / quarter_cosine(45.0);
    Ok(plain(
        sine * cosine * (quarter_sine(x) / quarter_cosine(x) / at_45),
    ))
}

fn cotangent(x: f64) -> Result<f64> {
    let (x, sine, cosine) = quarter(x)?;
    let at_45 = quarter_cosine(45.0) / quarter_sine(45.0);
    Ok(plain(
        sine * cosine * (quarter_cosine(x) / quarter_sine(x) / at_45),
    ))
}

/// For 0 to 1.
fn arc_sine(x: f64) -> f64 {
    match x <= 0.5 {
        true => x.asin() / black_box(0.5f64).asin() * 30.0,
        false => 90.0 - x.acos() / black_box(0.5f64).acos() * 60.0,
    }
}

/// For 0 to 1.
fn arc_cosine(x: f64) -> f64 {
    match x <= 0.5 {
        true => 90.0 - x.asin() / black_box(0.5f64).asin() * 30.0,
        false => x.acos() / black_box(0.5f64).acos() * 60.0,
    }
}

fn within_one(x: f64) -> Result<f64> {
    match x.abs() > 1.0 {
        true => Err(range()),
        false => Ok(x),
    }
}

fn asind(x: f64) -> Result<f64> {
    let x = within_one(x)?;
    Ok(if x < 0.0 { -arc_sine(-x) } else { arc_sine(x) })
}

fn acosd(x: f64) -> Result<f64> {
    let x = within_one(x)?;
    Ok(match x < 0.0 {
        true => 90.0 + arc_sine(-x),
        false => arc_cosine(x),
    })
}

/// What `atan` gives in radians, in degrees.
fn from_radians(a: f64) -> f64 {
    a / black_box(1.0f64).atan() * 45.0
}

macro_rules! of_one {
    ($r:ident, $($name:literal $f:expr;)*) => {
        $($r.f($name, &[FLOAT8], FLOAT8, IMM, |a: &[Value], _: Ctx<'_, '_>| {
            let f: fn(f64) -> Result<f64> = $f;
            f(float::f64_of(&a[0])).map(Value::Float8)
        });)*
    };
}

/// Adds the functions of degrees.
pub(super) fn register(r: &mut Registry) {
    of_one! { r,
        "sind" sine; "cosd" cosine; "tand" tangent; "cotd" cotangent; "asind" asind; "acosd" acosd;
        "atand" |x| Ok(from_radians(x.atan()));
    }
    r.f("atan2d", &[FLOAT8, FLOAT8], FLOAT8, IMM, |a, _| {
        let (y, x) = (float::f64_of(&a[0]), float::f64_of(&a[1]));
        Ok(Value::Float8(from_radians(y.atan2(x))))
    });
}
