//! Exponential, logarithms and powers of `numeric`, to the digits that PostgreSQL shows.
//!
//! Computed in binary fixed point with guard bits: `ln` by halving the argument into [0.7, 1.42] and the series of
//! atanh, `exp` by taking out multiples of ln 2, the Taylor series of a small rest, and squaring.
//!
//! The longest numbers here have about 140,000 digits. One product or quotient of them is the most that is done between two checks for
//! a cancelled statement: each step of a series, of a root and of the squarings makes one.

use super::numeric::{MIN_SIG_DIGITS, clamp_scale, groups, signum, sqrt_floor};
use crate::types::numeric::{check, div_round, format_overflow, pow10};
use base::cancel::check_cancelled;
use base::{Error, Numeric, Result, SqlState};
use bigdecimal::{BigDecimal, ToPrimitive};
use num_bigint::{BigInt, BigUint, Sign};

/// Bits of a power that is kept with all its digits. What is shown has at most 440,000; to cut the rest off is a division.
const MOST_EXACT: u64 = 1_000_000;

const LN_10: f64 = std::f64::consts::LN_10;

/// `d` in fixed point with `bits` bits after the point.
fn to_fixed(d: &BigDecimal, bits: u64) -> BigInt {
    let (n, s) = d.as_bigint_and_scale();
    if s >= 0 {
        (n.as_ref() << bits) / pow10(s)
    } else {
        (n.as_ref() * pow10(-s)) << bits
    }
}

/// Rounds fixed point to `scale` decimal digits.
fn from_fixed(f: &BigInt, bits: u64, scale: i64) -> Result<Numeric> {
    check_cancelled()?;
    // Half away from zero; a shift rounds towards minus infinity, so it is made of the magnitude.
    let half = BigUint::from(1u32) << (bits - 1);
    let rounded = ((f * pow10(scale)).magnitude() + half) >> bits;
    check(BigInt::from_biguint(f.sign(), rounded), scale)
}

/// 2 * atanh(z).
fn two_atanh(z: &BigInt, bits: u64) -> Result<BigInt> {
    let z2 = (z * z) >> bits;
    let (mut power, mut sum, mut k) = (z.clone(), z.clone(), 1u32);
    loop {
        check_cancelled()?;
        power = (&power * &z2) >> bits;
        k += 2;
        let term: BigInt = &power / k;
        if term.sign() == Sign::NoSign {
            return Ok(sum << 1u32);
        }
        sum += term;
    }
}

/// ln of a fixed-point number in (0.5, 2]. Square roots first bring a long number so near to 1 that the series needs as
/// many terms as there were roots, not one for every few bits.
fn ln_near_one(m: &BigInt, bits: u64) -> Result<BigInt> {
    let roots = if bits < 1000 { 0 } else { bits.isqrt() / 4 };
    let wide = bits + 2 * roots;
    let one = BigInt::from(1) << wide;
    let mut m = m << (2 * roots);
    for _ in 0..roots {
        m = sqrt_floor(&(m << wide))?;
    }
    let z = ((&m - &one) << wide) / (&m + &one);
    Ok((two_atanh(&z, wide)? << roots) >> (2 * roots))
}

fn ln2(bits: u64) -> Result<BigInt> {
    ln_near_one(&(BigInt::from(2) << bits), bits)
}

/// ln of a positive fixed-point number.
fn ln_fixed(x: &BigInt, bits: u64) -> Result<BigInt> {
    let one = BigInt::from(1) << bits;
    let mut k = x.bits() as i64 - bits as i64;
    let mut m = if k >= 0 {
        x >> k as u64
    } else {
        x << (-k) as u64
    };
    // m is in [0.5, 1); bring it near 1.
    if &m * 10 < &one * 7 {
        m <<= 1u32;
        k -= 1;
    }
    Ok(ln_near_one(&m, bits)? + ln2(bits)? * k)
}

/// e^x in fixed point; the result has `bits` bits after the point.
fn exp_fixed(x: &BigInt, bits: u64) -> Result<BigInt> {
    // As many squarings as terms of the series; each may lose a bit.
    let squarings = 8 + bits.isqrt() / 2;
    let wide = bits + 2 * squarings;
    let x = x << (2 * squarings);
    let l = ln2(wide)?;
    let k = i64::try_from(&x / &l).unwrap_or(0);
    let r = (x - &l * k) >> squarings;
    let one = BigInt::from(1) << wide;
    let (mut term, mut sum, mut i) = (one.clone(), one, 1u32);
    loop {
        check_cancelled()?;
        term = ((&term * &r) >> wide) / i;
        if term.sign() == Sign::NoSign || term == BigInt::from(-1) {
            break;
        }
        sum += &term;
        i += 1;
    }
    for _ in 0..squarings {
        check_cancelled()?;
        sum = (&sum * &sum) >> wide;
    }
    let sum = if k >= 0 {
        sum << k as u64
    } else {
        sum >> (-k) as u64
    };
    Ok(sum >> (2 * squarings))
}

fn bits_for(digits: i64) -> u64 {
    (digits.max(0) as u64 * 10).div_ceil(3) + 64
}

/// PostgreSQL's estimate of the decimal weight of ln(d).
fn ln_weight(d: &BigDecimal) -> i64 {
    if d.sign() != Sign::Plus {
        return 0;
    }
    let one = BigDecimal::from(1);
    let near = |s: &str| s.parse::<BigDecimal>().expect("a constant");
    if *d >= near("0.9") && *d <= near("1.1") {
        let x = d - &one;
        if x.sign() == Sign::NoSign {
            return 0;
        }
        let (w, g) = groups(&x, 1);
        return w * 4 + (g[0] as f64).log10() as i64;
    }
    let ln = approximate_ln(d);
    ln.abs().log10() as i64
}

fn approximate_ln(d: &BigDecimal) -> f64 {
    let (w, g) = groups(d, 2);
    ((g[0] * 10_000 + g[1]) as f64).ln() + ((w - 1) * 4) as f64 * LN_10
}

/// 2201E.
pub fn log_error(sign: i32) -> Error {
    let what = if sign == 0 {
        "zero"
    } else {
        "a negative number"
    };
    Error::new(
        SqlState::INVALID_ARGUMENT_FOR_LOG,
        format!("cannot take logarithm of {what}"),
    )
}

/// 2201F.
pub fn power_error(message: &str) -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message)
}

/// The natural logarithm.
pub fn ln(n: &Numeric) -> Result<Numeric> {
    match n {
        Numeric::NaN => Ok(Numeric::NaN),
        _ if signum(n) <= 0 => Err(log_error(signum(n))),
        Numeric::Finite(d) => {
            let scale = clamp_scale(MIN_SIG_DIGITS - ln_weight(d), &[d]);
            ln_scaled(d, scale)
        }
        n => Ok(n.clone()),
    }
}

fn ln_scaled(d: &BigDecimal, scale: i64) -> Result<Numeric> {
    let (w, _) = groups(d, 1);
    let bits = bits_for(scale + 10 + (w.abs() + 1) * 4);
    from_fixed(&ln_fixed(&to_fixed(d, bits), bits)?, bits, scale)
}

/// The logarithm of `x` to base `b`.
pub fn log(b: &Numeric, x: &Numeric) -> Result<Numeric> {
    if matches!(b, Numeric::NaN) || matches!(x, Numeric::NaN) {
        return Ok(Numeric::NaN);
    }
    for n in [b, x] {
        if signum(n) <= 0 {
            return Err(log_error(signum(n)));
        }
    }
    let (Numeric::Finite(b), Numeric::Finite(x)) = (b, x) else {
        return Ok(match (b, x) {
            (Numeric::Infinity, Numeric::Infinity) => Numeric::NaN,
            (Numeric::Infinity, _) => Numeric::from(0),
            _ => Numeric::Infinity,
        });
    };
    let scale = clamp_scale(MIN_SIG_DIGITS - (ln_weight(x) - ln_weight(b)), &[b, x]);
    let size = groups(b, 1).0.abs().max(groups(x, 1).0.abs()) + 1;
    let bits = bits_for(2 * scale + 20 + size * 4);
    let (lb, lx) = (
        ln_fixed(&to_fixed(b, bits), bits)?,
        ln_fixed(&to_fixed(x, bits), bits)?,
    );
    if lb.sign() == Sign::NoSign {
        return Err(super::arith::division_by_zero());
    }
    check(div_round(&(lx * pow10(scale)), &lb), scale)
}

/// e^n.
pub fn exp(n: &Numeric) -> Result<Numeric> {
    match n {
        Numeric::NaN | Numeric::Infinity => Ok(n.clone()),
        Numeric::NegInfinity => Ok(Numeric::from(0)),
        Numeric::Finite(d) => {
            let val = d.to_f64().unwrap_or(0.0) / LN_10;
            let scale = clamp_scale(MIN_SIG_DIGITS - val.clamp(-1000.0, 1000.0) as i64, &[d]);
            exp_scaled(d, val, scale)
        }
    }
}

/// e^d with `scale` digits; `weight` estimates the decimal exponent of the result.
fn exp_scaled(d: &BigDecimal, weight: f64, scale: i64) -> Result<Numeric> {
    if weight > 131_072.0 {
        return Err(format_overflow());
    }
    if weight < -(scale as f64) - 2.0 {
        return check(BigInt::from(0), scale);
    }
    // The digits before the point are as many as `weight`; an error of the argument is multiplied by the result.
    let bits = bits_for(scale + weight.max(0.0) as i64 + 20);
    from_fixed(&exp_fixed(&to_fixed(d, bits), bits)?, bits, scale)
}

/// b^e.
pub fn power(b: &Numeric, e: &Numeric) -> Result<Numeric> {
    let one = |n: &Numeric| *n == Numeric::from(1);
    let (base, exponent) = match (b, e) {
        (Numeric::Finite(x), Numeric::Finite(y)) => (x, y),
        (Numeric::NaN, e) => {
            return Ok(if signum(e) == 0 && !matches!(e, Numeric::NaN) {
                Numeric::from(1)
            } else {
                Numeric::NaN
            });
        }
        (b, Numeric::NaN) => {
            return Ok(if one(b) {
                Numeric::from(1)
            } else {
                Numeric::NaN
            });
        }
        _ => return infinite_power(b, e),
    };
    let zero = base.sign() == Sign::NoSign;
    if zero && exponent.sign() == Sign::Minus {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    let whole = exponent.is_integer();
    if base.sign() == Sign::Minus && !whole {
        return Err(power_error(
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    if whole && let Some(k) = exponent.to_i32() {
        return integer_power(base, k);
    }
    if zero {
        return check(BigInt::from(0), MIN_SIG_DIGITS);
    }
    let magnitude = base.abs();
    let odd = whole && (exponent.to_bigint_odd());
    let mut ln = approximate_ln(&magnitude);
    let mut times = exponent.to_f64().unwrap_or(f64::INFINITY).abs();
    if times.is_infinite() {
        // No power of another base than one is a number then.
        if magnitude == 1 {
            let one = check(BigInt::from(10).pow(MIN_SIG_DIGITS as u32), MIN_SIG_DIGITS)?;
            return Ok(match base.sign() == Sign::Minus && odd {
                true => super::numeric::negate(&one),
                false => one,
            });
        }
        (ln, times) = (if magnitude > 1 { 1.0 } else { -1.0 }, 1e300);
    }
    if exponent.sign() == Sign::Minus {
        times = -times;
    }
    let weight = ln * times / LN_10;
    if weight > 131_072.0 {
        return Err(format_overflow());
    }
    let scale = clamp_scale(
        MIN_SIG_DIGITS - weight.max(-2000.0) as i64,
        &[base, exponent],
    );
    if weight < -(scale as f64) - 2.0 {
        return check(BigInt::from(0), scale);
    }
    let digits = scale + weight.abs() as i64 + 20 + times.abs().log10().max(0.0) as i64;
    let bits = bits_for(digits + (groups(base, 1).0.abs() + 1) * 4);
    let l = (ln_fixed(&to_fixed(&magnitude, bits), bits)? * to_fixed(exponent, bits)) >> bits;
    let r = from_fixed(&exp_fixed(&l, bits)?, bits, scale)?;
    Ok(if base.sign() == Sign::Minus && odd {
        super::numeric::negate(&r)
    } else {
        r
    })
}

/// Whether an integral number is odd.
trait Odd {
    fn to_bigint_odd(&self) -> bool;
}

impl Odd for BigDecimal {
    fn to_bigint_odd(&self) -> bool {
        let (n, _) = self.with_scale(0).into_bigint_and_scale();
        n.bit(0)
    }
}

fn integer_power(base: &BigDecimal, k: i32) -> Result<Numeric> {
    let weight = if base.sign() == Sign::NoSign {
        0.0
    } else {
        f64::from(k) * approximate_ln(&base.abs()) / LN_10
    };
    if weight > 131_072.0 {
        return Err(format_overflow());
    }
    let scale = MIN_SIG_DIGITS
        .max(base.fractional_digit_count())
        .clamp(0, 1000);
    if weight + 1.0 < -(scale as f64) {
        return check(BigInt::from(0), scale);
    }
    let (n, s) = base.as_bigint_and_scale();
    let exact = u64::from(k.unsigned_abs()) * n.bits().max(1) < MOST_EXACT;
    let (top, at) = if exact {
        check_cancelled()?;
        (n.pow(k.unsigned_abs()), s * i64::from(k.unsigned_abs()))
    } else {
        // Too many digits to keep them all: by logarithm.
        let bits = bits_for(scale + weight.abs() as i64 + 30 + (groups(base, 1).0.abs() + 1) * 4);
        let l = ln_fixed(&to_fixed(&base.abs(), bits), bits)? * k;
        let r = from_fixed(&exp_fixed(&l, bits)?, bits, scale)?;
        let negative = base.sign() == Sign::Minus && k % 2 != 0;
        return Ok(if negative {
            super::numeric::negate(&r)
        } else {
            r
        });
    };
    check_cancelled()?;
    if k >= 0 {
        check(crate::types::numeric::rescale(&top, at, scale), scale)
    } else {
        check(div_round(&pow10(scale + at), &top), scale)
    }
}

fn infinite_power(b: &Numeric, e: &Numeric) -> Result<Numeric> {
    let one = Numeric::from(1);
    if *b == one || signum(e) == 0 {
        return Ok(one);
    }
    let zero = Numeric::from(0);
    match (b, e) {
        (_, Numeric::Infinity | Numeric::NegInfinity) => {
            if signum(b) == 0 && signum(e) < 0 {
                return Err(power_error("zero raised to a negative power is undefined"));
            }
            let size = if signum(b) < 0 {
                super::numeric::negate(b)
            } else {
                b.clone()
            };
            Ok(match (size.cmp(&one), signum(e) > 0) {
                (std::cmp::Ordering::Equal, _) => one,
                (std::cmp::Ordering::Greater, true) | (std::cmp::Ordering::Less, false) => {
                    Numeric::Infinity
                }
                _ => zero,
            })
        }
        (Numeric::Infinity, _) => Ok(if signum(e) > 0 {
            Numeric::Infinity
        } else {
            zero
        }),
        (_, Numeric::Finite(y)) => {
            if !y.is_integer() {
                return Err(power_error(
                    "a negative number raised to a non-integer power yields a complex result",
                ));
            }
            Ok(match (signum(e) > 0, y.to_bigint_odd()) {
                (false, _) => zero,
                (true, true) => Numeric::NegInfinity,
                (true, false) => Numeric::Infinity,
            })
        }
        _ => Ok(Numeric::NaN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::numeric::parse;

    fn n(s: &str) -> Numeric {
        parse(s).unwrap()
    }

    #[test]
    fn digits_are_those_of_postgresql() {
        let show = |r: Result<Numeric>| r.unwrap().to_string();
        assert_eq!(show(ln(&n("2"))), "0.6931471805599453");
        assert_eq!(show(ln(&n("1"))), "0.0000000000000000");
        assert_eq!(show(ln(&n("0.001"))), "-6.9077552789821371");
        assert_eq!(show(log(&n("10"), &n("1000"))), "3.0000000000000000");
        assert_eq!(show(log(&n("2"), &n("64"))), "6.0000000000000000");
        assert_eq!(show(exp(&n("1"))), "2.7182818284590452");
        assert_eq!(show(exp(&n("-5.5"))), "0.004086771438464067");
        assert_eq!(
            show(exp(&n("100"))),
            "26881171418161354484126255515800135873611119"
        );
        assert_eq!(show(power(&n("2"), &n("10"))), "1024.0000000000000000");
        assert_eq!(show(power(&n("2"), &n("0.5"))), "1.4142135623730950");
        assert_eq!(show(power(&n("2"), &n("-3"))), "0.1250000000000000");
        assert_eq!(show(power(&n("-3"), &n("3"))), "-27.0000000000000000");
        assert_eq!(
            show(power(&n("1.0001"), &n("100000"))),
            "22015.4560485521986457"
        );
        assert!(show(exp(&n("5000"))).starts_with("29676283840236"));
        assert!(show(power(&n("10"), &n("20000"))).starts_with("1000000"));
        assert!(power(&n("-1"), &n("0.5")).is_err());
        assert!(ln(&n("0")).is_err());
    }
}
