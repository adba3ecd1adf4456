//! Mathematical functions.

use super::EvalContext;
use super::registry::{Registry, names::*};
use crate::types::cast::float_range;
use crate::types::ops::numeric_log::{self, log_error, power_error};
use crate::types::ops::{arith, float, numeric};
use crate::types::out_of_range;
use base::{Error, Numeric, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn f(v: &Value) -> f64 {
    float::f64_of(v)
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

/// x^y with PostgreSQL's errors: 2201F where it is undefined, 22003 where it overflows.
pub(super) fn float_power(x: f64, y: f64) -> Result<f64> {
    if x == 0.0 && y < 0.0 {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    if x < 0.0 && y.is_finite() && y.fract() != 0.0 {
        return Err(power_error(
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let r = x.powf(y);
    let finite = x.is_finite() && y.is_finite();
    float::checked(r, !finite, !finite || x == 0.0)
}

/// The square root; 2201F for negatives.
pub(super) fn float_sqrt(x: f64) -> Result<f64> {
    if x < 0.0 {
        return Err(power_error("cannot take square root of a negative number"));
    }
    Ok(x.sqrt())
}

fn float_log(x: f64, f: fn(f64) -> f64) -> Result<Value> {
    if x == 0.0 {
        return Err(log_error(0));
    }
    if x < 0.0 {
        return Err(log_error(-1));
    }
    Ok(Value::Float8(f(x)))
}

fn exp(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let x = f(&a[0]);
    float::checked(x.exp(), x.is_infinite(), x.is_infinite()).map(Value::Float8)
}

fn gcd(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (mut x, mut y) = (int(&a[0]).unsigned_abs(), int(&a[1]).unsigned_abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    fit(&a[0], x)
}

fn fit(like: &Value, x: u64) -> Result<Value> {
    match like {
        Value::Int4(_) => i32::try_from(x)
            .map(Value::Int4)
            .map_err(|_| out_of_range(Type::Int4)),
        _ => i64::try_from(x)
            .map(Value::Int8)
            .map_err(|_| out_of_range(Type::Int8)),
    }
}

fn lcm(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (int(&a[0]), int(&a[1]));
    if x == 0 || y == 0 {
        return fit(&a[0], 0);
    }
    let g = int(&gcd(a, c)?);
    let r = (i128::from(x) / i128::from(g) * i128::from(y)).unsigned_abs();
    fit(&a[0], u64::try_from(r).unwrap_or(u64::MAX))
}

/// The operands over one power of ten; none where one of them is no number.
fn over_one_scale(a: &[Value]) -> Option<(num_bigint::BigInt, num_bigint::BigInt, i64)> {
    let (Numeric::Finite(x), Numeric::Finite(y)) = (numeric::of(&a[0]), numeric::of(&a[1])) else {
        return None;
    };
    let ((m, s), (n, t)) = (x.as_bigint_and_exponent(), y.as_bigint_and_exponent());
    let scale = s.max(t);
    let rescale = crate::types::numeric::rescale;
    Some((rescale(&m, s, scale), rescale(&n, t, scale), scale))
}

fn greatest_divisor(
    mut x: num_bigint::BigInt,
    mut y: num_bigint::BigInt,
) -> Result<num_bigint::BigInt> {
    let zero = num_bigint::BigInt::ZERO;
    while y != zero {
        base::cancel::work(1 + x.bits() as usize / 8)?;
        (x, y) = (y.clone(), x % y);
    }
    Ok(if x < zero { -x } else { x })
}

fn numeric_gcd(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let Some((x, y, scale)) = over_one_scale(a) else {
        return Ok(Value::from(Numeric::NaN));
    };
    let g = greatest_divisor(x, y)?;
    Ok(Value::from(crate::types::numeric::from_scaled(g, scale)))
}

fn numeric_lcm(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let Some((x, y, scale)) = over_one_scale(a) else {
        return Ok(Value::from(Numeric::NaN));
    };
    let zero = num_bigint::BigInt::ZERO;
    let r = match x == zero || y == zero {
        true => zero.clone(),
        false => &x / greatest_divisor(x.clone(), y.clone())? * y,
    };
    let r = if r < zero { -r } else { r };
    crate::types::numeric::check(r, scale).map(Value::from)
}

fn width_bucket(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, low, high, n) = (f(&a[0]), f(&a[1]), f(&a[2]), int(&a[3]));
    let bad = |m: &str| Err(Error::new(SqlState(*b"2201G"), m));
    if n <= 0 {
        return bad("count must be greater than zero");
    }
    if x.is_nan() || low.is_nan() || high.is_nan() {
        return bad("operand, lower bound, and upper bound cannot be NaN");
    }
    if low.is_infinite() || high.is_infinite() {
        return bad("lower and upper bounds must be finite");
    }
    if low == high {
        return bad("lower bound cannot equal upper bound");
    }
    let (x, low, high) = if low < high {
        (x, low, high)
    } else {
        (-x, -low, -high)
    };
    let bucket = if x < low {
        0
    } else if x >= high {
        n + 1
    } else {
        // Halves where the whole width is no number.
        let part = match high - low {
            w if w.is_finite() => (x - low) / w,
            _ => (x / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
        };
        ((part * n as f64) as i64).min(n - 1) + 1
    };
    i32::try_from(bucket)
        .map(Value::Int4)
        .map_err(|_| out_of_range(Type::Int4))
}

fn factorial(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let n = int(&a[0]);
    if n < 0 {
        return Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "factorial of a negative number is undefined",
        ));
    }
    if n > 32_177 {
        return Err(crate::types::numeric::format_overflow());
    }
    let mut r = num_bigint::BigInt::from(1);
    for k in 2..=n {
        base::cancel::work(1 + r.bits() as usize / 8)?;
        r *= k;
    }
    Ok(Value::from(crate::types::numeric::from_scaled(r, 0)))
}

fn set_seed(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let s = f(&a[0]);
    if !(-1.0..=1.0).contains(&s) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("setseed parameter {s} is out of allowed range [-1,1]"),
        ));
    }
    c.session.set_seed(s);
    Ok(Value::text(""))
}

fn whole(n: &Numeric, cut: bool, a: &[Value]) -> Value {
    let scale = a.get(1).map_or(0, int);
    Value::from(if cut {
        numeric::trunc(n, scale)
    } else {
        numeric::round(n, scale)
    })
}

fn scale_of(a: &[Value], min: bool) -> Value {
    match numeric::of(&a[0]) {
        Numeric::Finite(d) if min => {
            Value::Int4(d.normalized().fractional_digit_count().max(0) as i32)
        }
        n @ Numeric::Finite(_) => Value::Int4(n.scale() as i32),
        _ => Value::Null,
    }
}

fn trim_scale(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(match numeric::of(&a[0]) {
        Numeric::Finite(d) => {
            let s = d.normalized().fractional_digit_count().max(0);
            Value::from(numeric::trunc(numeric::of(&a[0]), s))
        }
        n => Value::from(n.clone()),
    })
}

/// `ceil`, `floor`, `round`, `trunc`.
fn rounding(r: &mut Registry) {
    for n in ["ceil", "ceiling"] {
        r.f(n, &[FLOAT8], FLOAT8, IMM, |a, _| {
            Ok(Value::Float8(f(&a[0]).ceil()))
        });
        r.f(n, &[NUMERIC], NUMERIC, IMM, |a, _| {
            Ok(Value::from(numeric::floor(numeric::of(&a[0]), true)))
        });
    }
    r.f("floor", &[FLOAT8], FLOAT8, IMM, |a, _| {
        Ok(Value::Float8(f(&a[0]).floor()))
    });
    r.f("floor", &[NUMERIC], NUMERIC, IMM, |a, _| {
        Ok(Value::from(numeric::floor(numeric::of(&a[0]), false)))
    });
    r.f("round", &[FLOAT8], FLOAT8, IMM, |a, _| {
        Ok(Value::Float8(f(&a[0]).round_ties_even()))
    });
    r.f("round", &[NUMERIC], NUMERIC, IMM, |a, _| {
        Ok(whole(numeric::of(&a[0]), false, a))
    });
    r.f("round", &[NUMERIC, INT4], NUMERIC, IMM, |a, _| {
        Ok(whole(numeric::of(&a[0]), false, a))
    });
    r.f("trunc", &[FLOAT8], FLOAT8, IMM, |a, _| {
        Ok(Value::Float8(f(&a[0]).trunc()))
    });
    r.f("trunc", &[NUMERIC], NUMERIC, IMM, |a, _| {
        Ok(whole(numeric::of(&a[0]), true, a))
    });
    r.f("trunc", &[NUMERIC, INT4], NUMERIC, IMM, |a, _| {
        Ok(whole(numeric::of(&a[0]), true, a))
    });
}

/// Powers, roots and logarithms.
fn powers_and_logarithms(r: &mut Registry) {
    for n in ["power", "pow"] {
        r.f(n, &[FLOAT8, FLOAT8], FLOAT8, IMM, |a, _| {
            float_power(f(&a[0]), f(&a[1])).map(Value::Float8)
        });
        r.f(n, &[NUMERIC, NUMERIC], NUMERIC, IMM, |a, _| {
            numeric_log::power(numeric::of(&a[0]), numeric::of(&a[1])).map(Value::from)
        });
    }
    r.f("sqrt", &[FLOAT8], FLOAT8, IMM, |a, _| {
        float_sqrt(f(&a[0])).map(Value::Float8)
    });
    r.f("sqrt", &[NUMERIC], NUMERIC, IMM, |a, _| {
        numeric::sqrt(numeric::of(&a[0])).map(Value::from)
    });
    r.f("cbrt", &[FLOAT8], FLOAT8, IMM, |a, _| {
        Ok(Value::Float8(f(&a[0]).cbrt()))
    });
    r.f("exp", &[FLOAT8], FLOAT8, IMM, exp);
    r.f("exp", &[NUMERIC], NUMERIC, IMM, |a, _| {
        numeric_log::exp(numeric::of(&a[0])).map(Value::from)
    });
    r.f("ln", &[FLOAT8], FLOAT8, IMM, |a, _| {
        float_log(f(&a[0]), f64::ln)
    });
    r.f("ln", &[NUMERIC], NUMERIC, IMM, |a, _| {
        numeric_log::ln(numeric::of(&a[0])).map(Value::from)
    });
    for n in ["log", "log10"] {
        r.f(n, &[FLOAT8], FLOAT8, IMM, |a, _| {
            float_log(f(&a[0]), f64::log10)
        });
        r.f(n, &[NUMERIC], NUMERIC, IMM, |a, _| {
            numeric_log::log(&Numeric::from(10), numeric::of(&a[0])).map(Value::from)
        });
    }
    r.f("log", &[NUMERIC, NUMERIC], NUMERIC, IMM, |a, _| {
        numeric_log::log(numeric::of(&a[0]), numeric::of(&a[1])).map(Value::from)
    });
}

/// Adds the mathematical functions.
pub(super) fn register(r: &mut Registry) {
    let by_type = [
        (INT2, arith::abs_i2 as super::ScalarFn),
        (INT4, arith::abs_i4),
        (INT8, arith::abs_i8),
    ];
    for (t, abs) in by_type {
        r.f("abs", &[t], t, IMM, abs);
    }
    for (t, rem) in [
        (INT2, arith::rem_i2 as super::ScalarFn),
        (INT4, arith::rem_i4),
        (INT8, arith::rem_i8),
    ] {
        r.f("mod", &[t, t], t, IMM, rem);
    }
    r.f("mod", &[NUMERIC, NUMERIC], NUMERIC, IMM, numeric::op_rem);
    r.f("abs", &[FLOAT4], FLOAT4, IMM, float::abs4);
    r.f("abs", &[FLOAT8], FLOAT8, IMM, float::abs);
    r.f("abs", &[NUMERIC], NUMERIC, IMM, numeric::op_abs);
    rounding(r);
    r.f("sign", &[FLOAT8], FLOAT8, IMM, |a, _| {
        let x = f(&a[0]);
        Ok(Value::Float8(if x == 0.0 || x.is_nan() {
            x + 0.0
        } else {
            x.signum()
        }))
    });
    r.f("sign", &[NUMERIC], NUMERIC, IMM, |a, _| {
        Ok(Value::from(match numeric::of(&a[0]) {
            Numeric::NaN => Numeric::NaN,
            n => Numeric::from(i64::from(numeric::signum(n))),
        }))
    });
    powers_and_logarithms(r);
    r.f("div", &[NUMERIC, NUMERIC], NUMERIC, IMM, |a, _| {
        let (x, y) = (numeric::of(&a[0]), numeric::of(&a[1]));
        match (x, y) {
            (Numeric::Finite(p), Numeric::Finite(q)) if numeric::signum(y) != 0 => {
                let ((m, s), (n, t)) = (p.as_bigint_and_exponent(), q.as_bigint_and_exponent());
                let scale = s.max(t);
                let whole = crate::types::numeric::rescale(&m, s, scale)
                    / crate::types::numeric::rescale(&n, t, scale);
                Ok(Value::from(crate::types::numeric::from_scaled(whole, 0)))
            }
            _ => numeric::div(x, y).map(|q| Value::from(numeric::trunc(&q, 0))),
        }
    });
    trigonometry(r);
    r.f("pi", &[], FLOAT8, IMM, |_, _| {
        Ok(Value::Float8(std::f64::consts::PI))
    });
    r.f("random", &[], FLOAT8, VOL, |_, c| {
        Ok(Value::Float8(c.session.random()))
    });
    r.f("setseed", &[FLOAT8], VOID, VOL, set_seed);
    for t in [INT4, INT8] {
        r.f("gcd", &[t, t], t, IMM, gcd);
        r.f("lcm", &[t, t], t, IMM, lcm);
    }
    r.f("gcd", &[NUMERIC, NUMERIC], NUMERIC, IMM, numeric_gcd);
    r.f("lcm", &[NUMERIC, NUMERIC], NUMERIC, IMM, numeric_lcm);
    r.f("factorial", &[INT8], NUMERIC, IMM, factorial);
    r.f(
        "width_bucket",
        &[FLOAT8, FLOAT8, FLOAT8, INT4],
        INT4,
        IMM,
        width_bucket,
    );
    r.f("scale", &[NUMERIC], INT4, IMM, |a, _| {
        Ok(scale_of(a, false))
    });
    r.f("min_scale", &[NUMERIC], INT4, IMM, |a, _| {
        Ok(scale_of(a, true))
    });
    r.f("trim_scale", &[NUMERIC], NUMERIC, IMM, trim_scale);
}

fn trigonometry(r: &mut Registry) {
    macro_rules! plain {
        ($($n:literal $f:expr;)*) => { $(
            r.f($n, &[FLOAT8], FLOAT8, IMM, |a, _| {
                let (x, g): (f64, fn(f64) -> f64) = (f(&a[0]), $f);
                let y = g(x);
                if y.is_nan() && !x.is_nan() {
                    return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range"));
                }
                if y.is_infinite() && x.is_finite() && matches!($n, "sinh" | "cosh") {
                    return Err(float_range("overflow"));
                }
                Ok(Value::Float8(y))
            });
        )* };
    }
    plain! {
        "sin" f64::sin; "cos" f64::cos; "tan" f64::tan; "asin" f64::asin; "acos" f64::acos; "atan" f64::atan;
        "sinh" f64::sinh; "cosh" f64::cosh; "tanh" f64::tanh; "asinh" f64::asinh; "acosh" f64::acosh;
        "atanh" f64::atanh; "cot" |x| 1.0 / x.tan(); "degrees" f64::to_degrees; "radians" f64::to_radians;
    }
    r.f("atan2", &[FLOAT8, FLOAT8], FLOAT8, IMM, |a, _| {
        Ok(Value::Float8(f(&a[0]).atan2(f(&a[1]))))
    });
}
