//! Exact arithmetic with PostgreSQL's result scales: sums keep the greater scale, products add them, quotients have at
//! least 16 significant digits and no fewer than either operand shows.

use super::arith::division_by_zero;
use crate::functions::EvalContext;
use crate::types::numeric::{self as num, check, div_round, pow10, rescale};
use base::{Error, Numeric, Result, SqlState, Value};
use bigdecimal::BigDecimal;
use num_bigint::{BigInt, Sign};

/// Digits that a quotient or a function shows at least.
pub const MIN_SIG_DIGITS: i64 = 16;
/// Most digits that division and functions show.
pub const MAX_DISPLAY_SCALE: i64 = 1000;

/// The number in a value; the binder has cast it.
pub fn of(v: &Value) -> &Numeric {
    match v {
        Value::Numeric(n) => n,
        v => panic!("{v:?} is no numeric"),
    }
}

/// Sign as -1, 0, 1; NaN counts as 0.
pub fn signum(n: &Numeric) -> i32 {
    match n {
        Numeric::NaN => 0,
        Numeric::Infinity => 1,
        Numeric::NegInfinity => -1,
        Numeric::Finite(d) => match d.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        },
    }
}

/// The number with its sign turned.
pub fn negate(n: &Numeric) -> Numeric {
    match n {
        Numeric::NaN => Numeric::NaN,
        Numeric::Infinity => Numeric::NegInfinity,
        Numeric::NegInfinity => Numeric::Infinity,
        Numeric::Finite(d) => Numeric::Finite(-d),
    }
}

/// a + b.
pub fn add(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    match (a, b) {
        (Numeric::Finite(x), Numeric::Finite(y)) => {
            let ((m, s), (n, t)) = (x.as_bigint_and_scale(), y.as_bigint_and_scale());
            if s == t {
                return check(m.as_ref() + n.as_ref(), s);
            }
            let scale = s.max(t);
            check(rescale(&m, s, scale) + rescale(&n, t, scale), scale)
        }
        (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
        (Numeric::Infinity, Numeric::NegInfinity) | (Numeric::NegInfinity, Numeric::Infinity) => {
            Ok(Numeric::NaN)
        }
        (Numeric::Finite(_), x) | (x, _) => Ok(x.clone()),
    }
}

/// a - b.
pub fn sub(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    add(a, &negate(b))
}

/// An infinity with this sign, NaN for 0.
fn signed_infinity(sign: i32) -> Numeric {
    match sign {
        0 => Numeric::NaN,
        s if s > 0 => Numeric::Infinity,
        _ => Numeric::NegInfinity,
    }
}

/// a * b.
pub fn mul(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    match (a, b) {
        (Numeric::Finite(x), Numeric::Finite(y)) => {
            let ((m, s), (n, t)) = (x.as_bigint_and_scale(), y.as_bigint_and_scale());
            let product = m.as_ref() * n.as_ref();
            let scale = s + t;
            if scale > num::MAX_SCALE {
                return check(rescale(&product, scale, num::MAX_SCALE), num::MAX_SCALE);
            }
            check(product, scale)
        }
        (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
        _ => Ok(signed_infinity(signum(a) * signum(b))),
    }
}

/// a / b; 22012 for b = 0.
pub fn div(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    match (a, b) {
        (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
        (Numeric::Finite(x), Numeric::Finite(y)) => {
            if y.sign() == Sign::NoSign {
                return Err(division_by_zero());
            }
            div_scaled(x, y, div_scale(x, y))
        }
        (Numeric::Finite(_), _) => Ok(Numeric::from(0)),
        (_, Numeric::Finite(y)) if y.sign() == Sign::NoSign => Err(division_by_zero()),
        (_, Numeric::Finite(_)) => Ok(signed_infinity(signum(a) * signum(b))),
        _ => Ok(Numeric::NaN),
    }
}

/// a / b with `scale` digits, rounded; b is not zero.
pub fn div_scaled(x: &BigDecimal, y: &BigDecimal, scale: i64) -> Result<Numeric> {
    let ((m, s), (n, t)) = (x.as_bigint_and_scale(), y.as_bigint_and_scale());
    let shift = scale + t - s;
    let q = if shift >= 0 {
        div_round(&(m.as_ref() * pow10(shift)), &n)
    } else {
        div_round(&m, &(n.as_ref() * pow10(-shift)))
    };
    check(q, scale)
}

/// The remainder, with the sign of a.
pub fn rem(a: &Numeric, b: &Numeric) -> Result<Numeric> {
    match (a, b) {
        (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
        (_, Numeric::Finite(y)) if y.sign() == Sign::NoSign => Err(division_by_zero()),
        (Numeric::Finite(x), Numeric::Finite(y)) => {
            let ((m, s), (n, t)) = (x.as_bigint_and_scale(), y.as_bigint_and_scale());
            let scale = s.max(t);
            check(rescale(&m, s, scale) % rescale(&n, t, scale), scale)
        }
        (Numeric::Finite(_), _) => Ok(a.clone()),
        _ => Ok(Numeric::NaN),
    }
}

/// The first digit group (base 10,000) of a number and its weight, as PostgreSQL stores numbers; (0, 0) for zero.
pub fn leading_group(d: &BigDecimal) -> (i64, i64) {
    let (weight, groups) = groups(d, 1);
    (weight, groups[0])
}

/// The first `count` digit groups (base 10,000) and the weight of the first.
pub fn groups(d: &BigDecimal, count: usize) -> (i64, Vec<i64>) {
    let (n, scale) = d.as_bigint_and_scale();
    if n.sign() == Sign::NoSign {
        return (0, vec![0; count]);
    }
    let digits = n.magnitude().to_str_radix(10);
    let exponent = digits.len() as i64 - scale - 1;
    let weight = exponent.div_euclid(4);
    let mut taken = 0;
    let mut out = Vec::with_capacity(count);
    for g in 0..count {
        let len = if g == 0 {
            (exponent - 4 * weight + 1) as usize
        } else {
            4
        };
        let value = (taken..taken + len).fold(0, |v, i| {
            v * 10 + digits.as_bytes().get(i).map_or(0, |b| i64::from(b - b'0'))
        });
        taken += len;
        out.push(value);
    }
    (weight, out)
}

/// PostgreSQL's scale of a quotient.
pub fn div_scale(a: &BigDecimal, b: &BigDecimal) -> i64 {
    let ((w1, f1), (w2, f2)) = (leading_group(a), leading_group(b));
    let weight = w1 - w2 - i64::from(f1 <= f2);
    clamp_scale(MIN_SIG_DIGITS - weight * 4, &[a, b])
}

/// At least the operands' scales, at most 1000.
pub fn clamp_scale(scale: i64, operands: &[&BigDecimal]) -> i64 {
    let shown = operands
        .iter()
        .map(|d| d.fractional_digit_count().max(0))
        .max()
        .unwrap_or(0);
    scale.max(shown).clamp(0, MAX_DISPLAY_SCALE)
}

/// The square root; 2201F for negatives.
pub fn sqrt(n: &Numeric) -> Result<Numeric> {
    match n {
        Numeric::NaN | Numeric::Infinity => Ok(n.clone()),
        _ if signum(n) < 0 => Err(Error::new(
            SqlState::INVALID_ARGUMENT_FOR_POWER,
            "cannot take square root of a negative number",
        )),
        Numeric::Finite(d) => {
            let (weight, _) = leading_group(d);
            sqrt_scaled(d, clamp_scale(MIN_SIG_DIGITS - (2 * weight + 1), &[d]))
        }
        Numeric::NegInfinity => unreachable!("negative"),
    }
}

/// The square root of a number that is not negative with `scale` digits, rounded.
pub fn sqrt_scaled(d: &BigDecimal, scale: i64) -> Result<Numeric> {
    let (n, s) = d.as_bigint_and_scale();
    // floor(2 * sqrt(x * 100^scale)), then round.
    let four = n.as_ref() * BigInt::from(4);
    let shift = 2 * scale - s;
    let scaled = if shift >= 0 {
        four * pow10(shift)
    } else {
        four / pow10(-shift)
    };
    let root = sqrt_floor(&scaled)?;
    check((root + 1) >> 1u32, scale)
}

/// The greatest integer whose square is not above `n`, which is not negative. Newton's method from the root of the first half of the
/// digits: each step doubles the digits that are right, so that all steps together cost about two quotients of the last one's length.
pub fn sqrt_floor(n: &BigInt) -> Result<BigInt> {
    let bits = n.bits();
    if bits <= 1024 {
        return Ok(n.sqrt());
    }
    // An even number of bits goes, and the rest is still the longer half.
    let cut = (bits / 4) & !1;
    let rest = n >> (2 * cut);
    let mut root = (sqrt_floor(&rest)? + 1u32) << cut;
    loop {
        base::cancel::check_cancelled()?;
        // From above, a step never goes below the root.
        let next = (&root + n / &root) >> 1u32;
        if next >= root {
            return Ok(root);
        }
        root = next;
    }
}

/// Rounds half away from zero at `scale` digits; NaN and infinities stay.
pub fn round(n: &Numeric, scale: i64) -> Numeric {
    match n {
        Numeric::Finite(d) => Numeric::Finite(num::round(d, scale.clamp(-200_000, num::MAX_SCALE))),
        n => n.clone(),
    }
}

/// Cuts at `scale` digits.
pub fn trunc(n: &Numeric, scale: i64) -> Numeric {
    let Numeric::Finite(d) = n else {
        return n.clone();
    };
    let (m, s) = d.as_bigint_and_scale();
    let scale = scale.clamp(-200_000, num::MAX_SCALE);
    if scale >= s {
        return Numeric::Finite(BigDecimal::new(rescale(&m, s, scale), scale));
    }
    let cut = m.as_ref() / pow10(s - scale);
    if scale >= 0 {
        Numeric::Finite(BigDecimal::new(cut, scale))
    } else {
        Numeric::Finite(BigDecimal::new(cut * pow10(-scale), 0))
    }
}

/// The greatest integer not above, or the least not below when `up`.
pub fn floor(n: &Numeric, up: bool) -> Numeric {
    let t = trunc(n, 0);
    let Numeric::Finite(d) = &t else { return t };
    match (t.cmp(n), up) {
        (std::cmp::Ordering::Less, true) => Numeric::Finite(d + BigDecimal::from(1)),
        (std::cmp::Ordering::Greater, false) => Numeric::Finite(d - BigDecimal::from(1)),
        _ => t,
    }
}

macro_rules! operators {
    ($($name:ident $f:ident;)*) => { $(
        pub fn $name(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            $f(of(&a[0]), of(&a[1])).map(Value::from)
        }
    )* };
}
operators! { op_add add; op_sub sub; op_mul mul; op_div div; op_rem rem; }

pub fn op_neg(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(Value::from(negate(of(&a[0]))))
}

pub fn op_abs(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    let n = of(&a[0]);
    Ok(Value::from(if signum(n) < 0 {
        negate(n)
    } else {
        n.clone()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(s: &str) -> Numeric {
        num::parse(s).unwrap()
    }

    #[test]
    fn roots_of_long_numbers() {
        let long = |d: char, n: usize| BigInt::parse_bytes(d.to_string().repeat(n).as_bytes(), 10);
        for n in [1, 100, 309, 1000, 5001] {
            for d in ['1', '4', '9'] {
                let x = long(d, n).unwrap();
                assert_eq!(sqrt_floor(&x).unwrap(), x.sqrt(), "{n} times {d}");
                let square = &x * &x;
                assert_eq!(sqrt_floor(&square).unwrap(), x);
                assert_eq!(sqrt_floor(&(square - 1)).unwrap(), &x - 1);
            }
        }
    }

    #[test]
    fn scales_are_those_of_postgresql() {
        let show = |r: Result<Numeric>| r.unwrap().to_string();
        assert_eq!(show(add(&n("1.10"), &n("2.005"))), "3.105");
        assert_eq!(show(mul(&n("1.10"), &n("2.00"))), "2.2000");
        assert_eq!(show(div(&n("1"), &n("3"))), "0.33333333333333333333");
        assert_eq!(show(div(&n("10"), &n("3"))), "3.3333333333333333");
        assert_eq!(show(div(&n("1"), &n("7.000"))), "0.14285714285714285714");
        assert_eq!(show(div(&n("100000"), &n("3"))), "33333.333333333333");
        assert_eq!(show(div(&n("6"), &n("2"))), "3.0000000000000000");
        assert_eq!(show(div(&n("0"), &n("5"))), "0.00000000000000000000");
        assert_eq!(show(rem(&n("-7.5"), &n("2"))), "-1.5");
        assert_eq!(show(sqrt(&n("2"))), "1.414213562373095");
        assert_eq!(show(sqrt(&n("0.0001"))), "0.01000000000000000");
        assert_eq!(show(sqrt(&n("1000000"))), "1000.0000000000000");
        assert_eq!(show(Ok(floor(&n("-1.5"), false))), "-2");
        assert_eq!(show(Ok(floor(&n("1.5"), true))), "2");
        assert_eq!(show(Ok(trunc(&n("-1.567"), 1))), "-1.5");
        assert_eq!(show(Ok(round(&n("1550"), -2))), "1600");
        assert_eq!(show(mul(&n("Infinity"), &n("0"))), "NaN");
        assert!(div(&n("1"), &n("0")).is_err());
    }
}
