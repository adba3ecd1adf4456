//! PostgreSQL's `numeric`: exact decimals with a display scale, plus NaN and the infinities.
//!
//! A finite value is an integer times a negative power of ten; the scale is kept (`1.10` prints as `1.10`) and does
//! not count in comparison. Arithmetic that needs PostgreSQL's rules for result scales lives with the SQL functions.

use bigdecimal::BigDecimal;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A value of type `numeric`. Total order as in PostgreSQL: -Infinity < finite < Infinity < NaN = NaN.
#[derive(Clone, Debug)]
pub enum Numeric {
    NegInfinity,
    Finite(BigDecimal),
    Infinity,
    NaN,
}

impl Numeric {
    fn rank(&self) -> u8 {
        match self {
            Numeric::NegInfinity => 0,
            Numeric::Finite(_) => 1,
            Numeric::Infinity => 2,
            Numeric::NaN => 3,
        }
    }

    /// Digits after the point that are shown.
    pub fn scale(&self) -> i64 {
        match self {
            Numeric::Finite(d) => d.fractional_digit_count().max(0),
            _ => 0,
        }
    }
}

impl From<i64> for Numeric {
    fn from(v: i64) -> Self {
        Numeric::Finite(BigDecimal::from(v))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Numeric::Finite(a), Numeric::Finite(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numeric::NegInfinity => f.write_str("-Infinity"),
            Numeric::Infinity => f.write_str("Infinity"),
            Numeric::NaN => f.write_str("NaN"),
            Numeric::Finite(d) if d.fractional_digit_count() < 0 => {
                f.write_str(&d.with_scale(0).to_plain_string())
            }
            Numeric::Finite(d) => f.write_str(&d.to_plain_string()),
        }
    }
}

impl FromStr for Numeric {
    type Err = ();

    /// Reads PostgreSQL's input syntax, blanks around it allowed.
    fn from_str(s: &str) -> Result<Self, ()> {
        let t = s.trim();
        match t.to_ascii_lowercase().as_str() {
            "nan" => return Ok(Numeric::NaN),
            "inf" | "infinity" | "+inf" | "+infinity" => return Ok(Numeric::Infinity),
            "-inf" | "-infinity" => return Ok(Numeric::NegInfinity),
            _ => {}
        }
        if !t.bytes().any(|b| b.is_ascii_digit()) || t.contains('_') {
            return Err(());
        }
        let d = BigDecimal::from_str(t).map_err(|_| ())?;
        let d = if d.fractional_digit_count() < 0 {
            d.with_scale(0)
        } else {
            d
        };
        Ok(Numeric::Finite(d))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_scale_and_compares_without_it() {
        let n = |s: &str| Numeric::from_str(s).unwrap();
        assert_eq!(n("1.10").to_string(), "1.10");
        assert_eq!(n("0.00000000001").to_string(), "0.00000000001");
        assert_eq!(n("1e3").to_string(), "1000");
        assert_eq!(n("1.10"), n("1.1"));
        assert!(n("NaN") > n("Infinity"));
        assert!(Numeric::from_str("1_0").is_err());
        assert!(Numeric::from_str("").is_err());
    }
}
