//! What a type's modifier does to a value: `numeric(p, s)` rounds and has a limit, `timestamp(n)` and its kin keep n digits of seconds,
//! and bit strings have a length.
//!
//! Lengths of strings are not here: what is cut and what is refused differs between a cast and a column.

use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::value::Value;
use bigdecimal::BigDecimal;
use num_bigint::{BigInt, Sign};

pub use crate::rounding::round_to;

/// A number or a time as a column with this modifier holds it (-1: none); other values as they are.
pub fn fit(v: Value, typmod: i32) -> Result<Value> {
    Ok(match v {
        Value::Numeric(n) => Value::from(apply_typmod(*n, typmod)?),
        Value::Time(t) => Value::Time(round_to(t, typmod)),
        Value::Timestamp(t) => Value::Timestamp(round_to(t, typmod)),
        Value::TimestampTz(t) => Value::TimestampTz(round_to(t, typmod)),
        Value::Interval(mut i) => {
            i.micros = round_to(i.micros, typmod);
            Value::Interval(i)
        }
        Value::Packed(p) if typmod >= 0 => {
            let kind = p.kind();
            Value::packed(kind, kind.fit(p.form().into(), typmod)?)
        }
        v => v,
    })
}

/// Precision and scale of a `numeric(p,s)` modifier; `None` for plain numeric. The scale may be negative.
pub fn numeric_modifier(typmod: i32) -> Option<(i32, i32)> {
    (typmod >= 4).then(|| {
        let t = typmod - 4;
        let scale = t & 0x7ff;
        (t >> 16 & 0xffff, (scale ^ 1024) - 1024)
    })
}

/// 10^n.
pub fn pow10(n: i64) -> BigInt {
    match n {
        0..=18 => BigInt::from(10i64.pow(n as u32)),
        _ => BigInt::from(10).pow(n as u32),
    }
}

/// `n / d`, rounded half away from zero.
pub fn div_round(n: &BigInt, d: &BigInt) -> BigInt {
    let (q, r) = (n / d, n % d);
    if r.sign() == Sign::NoSign {
        return q;
    }
    let twice = r.magnitude() << 1u32;
    if &twice >= d.magnitude() {
        let up = (n.sign() == Sign::Minus) == (d.sign() == Sign::Minus);
        if up { q + 1 } else { q - 1 }
    } else {
        q
    }
}

/// The integer of `d` at another scale, rounded half away from zero.
pub fn rescale(n: &BigInt, from: i64, to: i64) -> BigInt {
    if to >= from {
        n * pow10(to - from)
    } else if from - to > 8 && 3 * (from - to) > n.bits() as i64 {
        // Less than half of the last digit kept.
        BigInt::from(0)
    } else {
        div_round(n, &pow10(from - to))
    }
}

/// Rounds to `scale` digits after the point (before it when negative); shown with at least none.
pub fn round(d: &BigDecimal, scale: i64) -> BigDecimal {
    let (n, s) = d.as_bigint_and_exponent();
    if scale >= 0 {
        BigDecimal::new(rescale(&n, s, scale), scale)
    } else {
        let whole = rescale(&n, s, scale);
        BigDecimal::new(whole * pow10(-scale), 0)
    }
}

/// Applies `numeric(p,s)`: rounds, then 22003 when digits before the point are too many.
pub fn apply_typmod(n: Numeric, typmod: i32) -> Result<Numeric> {
    let Some((p, s)) = numeric_modifier(typmod) else {
        return Ok(n);
    };
    let overflow = |detail: String| {
        Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "numeric field overflow",
        )
        .detail(detail))
    };
    let d = match n {
        Numeric::NaN => return Ok(n),
        Numeric::Finite(d) => d,
        _ => {
            return overflow(format!(
                "A field with precision {p}, scale {s} cannot hold an infinite value."
            ));
        }
    };
    let d = if d.fractional_digit_count() == i64::from(s) {
        d
    } else {
        round(&d, i64::from(s))
    };
    if whole_digits(&d) > i64::from(p - s) {
        let limit = match p - s {
            0 => "1".to_string(),
            k => format!("10^{k}"),
        };
        return overflow(format!(
            "A field with precision {p}, scale {s} must round to an absolute value less than {limit}."
        ));
    }
    Ok(Numeric::Finite(d))
}

/// Digits before the point of a number that is not zero, negative when zeros follow the point; `i64::MIN` for zero.
pub fn whole_digits(d: &BigDecimal) -> i64 {
    let (n, s) = d.as_bigint_and_exponent();
    if n.sign() == Sign::NoSign {
        return i64::MIN;
    }
    n.magnitude().to_str_radix(10).len() as i64 - s
}
