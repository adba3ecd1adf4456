//! Reading `numeric`, and its limits. Rounding, and `numeric(p,s)`, is the library's too: `base::modifier`.

use super::invalid_input;
use base::{Error, Numeric, Result, SqlState, Type};
use bigdecimal::BigDecimal;
use num_bigint::BigInt;

pub use base::modifier::{apply_typmod, div_round, pow10, rescale, round, whole_digits};

/// Most digits before the point.
pub const MAX_WHOLE_DIGITS: i64 = 131_072;
/// Most digits after it.
pub const MAX_SCALE: i64 = 16_383;

/// 22003 for a number with too many digits.
pub fn format_overflow() -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value overflows numeric format",
    )
}

/// Reads a number. The size is checked before any digit is made of an exponent.
pub fn parse(s: &str) -> Result<Numeric> {
    let bad = || invalid_input(Type::Numeric, s);
    let t = super::text::trim(s);
    let (negative, body) = match t.as_bytes().first() {
        Some(b'-') => (true, &t[1..]),
        Some(b'+') => (false, &t[1..]),
        _ => (false, t),
    };
    match body.to_ascii_lowercase().as_str() {
        "nan" if body.len() == t.len() => return Ok(Numeric::NaN),
        "inf" | "infinity" if negative => return Ok(Numeric::NegInfinity),
        "inf" | "infinity" => return Ok(Numeric::Infinity),
        _ => {}
    }
    let (mantissa, exp) = match body.find(['e', 'E']) {
        Some(k) => (&body[..k], Some(&body[k + 1..])),
        None => (body, None),
    };
    let (int, frac) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits_only = |d: &str| d.bytes().all(|b| b.is_ascii_digit());
    if (int.is_empty() && frac.is_empty()) || !digits_only(int) || !digits_only(frac) {
        return Err(bad());
    }
    let exp: i64 = match exp {
        None => 0,
        Some(e) => {
            let d = e.strip_prefix(['+', '-']).unwrap_or(e);
            if d.is_empty() || !digits_only(d) {
                return Err(bad());
            }
            e.parse().map_err(|_| format_overflow())?
        }
    };
    let significant = int.trim_start_matches('0');
    let scale = frac.len() as i64 - exp;
    if exp.abs() > 1_000_000
        || significant.len() as i64 + exp > MAX_WHOLE_DIGITS
        || scale > MAX_SCALE
    {
        return Err(format_overflow());
    }
    let mut digits = String::with_capacity(int.len() + frac.len());
    digits.push_str(int);
    digits.push_str(frac);
    let mut n = if digits.len() <= 18 {
        BigInt::from(digits.parse::<i64>().map_err(|_| bad())?)
    } else {
        BigInt::parse_bytes(digits.as_bytes(), 10).ok_or_else(bad)?
    };
    if negative {
        n = -n;
    }
    Ok(from_scaled(n, scale))
}

/// `n / 10^scale`; a negative scale is multiplied out.
pub fn from_scaled(n: BigInt, scale: i64) -> Numeric {
    if scale >= 0 {
        Numeric::Finite(BigDecimal::new(n, scale))
    } else {
        Numeric::Finite(BigDecimal::new(n * pow10(-scale), 0))
    }
}

/// Checks a result's size.
pub fn check(n: BigInt, scale: i64) -> Result<Numeric> {
    // 10^131072 has 435412 bits.
    if scale > MAX_SCALE || n.bits() as i64 > 435_412 + scale.max(0) * 10 / 3 + 4 {
        return Err(format_overflow());
    }
    Ok(from_scaled(n, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::typename;

    #[test]
    fn modifiers_round_and_limit() {
        let f = |s: &str, p: i32, sc: i32| {
            let t = typename::from_sql_name("numeric", &[p, sc], false).unwrap();
            apply_typmod(parse(s).unwrap(), t.typmod)
        };
        assert_eq!(f("1.235", 5, 2).unwrap().to_string(), "1.24");
        assert_eq!(f("-1.235", 5, 2).unwrap().to_string(), "-1.24");
        assert_eq!(f("1250", 3, -2).unwrap().to_string(), "1300");
        assert_eq!(f("7", 5, 2).unwrap().to_string(), "7.00");
        let e = f("999.999", 5, 2).unwrap_err();
        assert!(
            e.to_string().contains("absolute value less than 10^3."),
            "{e}"
        );
        assert!(parse("1e1000000").is_err());
        assert!(parse("1e-20000").is_err());
        assert!(parse("1e").is_err());
        assert!(parse(".").is_err());
        assert_eq!(parse(".5").unwrap().to_string(), "0.5");
    }
}
