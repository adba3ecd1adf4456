//! Split columns: numbers that many transactions change at once by deltas.
//!
//! A delta is an amount in the column's *units*: whole numbers for integers, 10^-scale for `numeric(p, scale)`. Units are what is added,
//! compared with bounds and reserved; they are exact, and 36 digits fit.
//!
//! Left out on purpose: `numeric` without a precision, or with more than 36 digits, which cannot be split.

use crate::id::{ColumnIdx, Oid};
use crate::modifier::{numeric_modifier, pow10};
use crate::numeric::Numeric;
use crate::types::{ColumnType, Type};
use crate::value::Value;
use bigdecimal::{BigDecimal, ToPrimitive};
use serde::{Deserialize, Serialize};

/// Most digits of a split `numeric`.
pub const MAX_DIGITS: i32 = 36;

/// Most units, either way, that a delta, a guard or a bound may name. Values stay below, and sums of a few of them fit.
const MOST_UNITS: i128 = 10i128.pow(37);

fn within_reach(units: i128) -> Option<i128> {
    (-MOST_UNITS..=MOST_UNITS).contains(&units).then_some(units)
}

/// How the deltas of a split column go together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Deltas never conflict: they are merged at the commit, and reservations keep the bounds of the sum.
    #[default]
    Escrow,
    /// The way of the thesis: each record is an ordinary row, which a delta locks and rewrites; the first committer wins.
    Rows,
}

impl Mode {
    /// As options and views spell it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Escrow => "escrow",
            Mode::Rows => "rows",
        }
    }

    /// The mode of this name.
    pub fn of(name: &str) -> Option<Mode> {
        [Mode::Escrow, Mode::Rows]
            .into_iter()
            .find(|m| m.name() == name)
    }

    fn is_escrow(&self) -> bool {
        *self == Mode::Escrow
    }
}

/// How a column is split, as the schema holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Most further records of one value.
    pub max: u16,
    /// How many further records a value gets at once when it has deltas.
    #[serde(default)]
    pub min: u16,
    #[serde(default, skip_serializing_if = "Mode::is_escrow")]
    pub mode: Mode,
    /// No value may lie below, in units: what the CHECK constraints of the column demand. None: the least value of its type.
    pub lower: Option<i64>,
    /// No value may lie above, in units, likewise.
    pub upper: Option<i64>,
    /// Where the further records of its values are; none: a value has one record, the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Records>,
}

impl Default for Split {
    /// As a column is split that says nothing but that it is.
    fn default() -> Split {
        Split {
            max: 64,
            min: 0,
            mode: Mode::Escrow,
            lower: None,
            upper: None,
            records: None,
        }
    }
}

/// Where the further records of a split column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The column of the row that says how many there are: int2, kept as a dropped one.
    pub count: ColumnIdx,
    /// The hidden table.
    pub table: Oid,
}

/// The units of a column and the values that it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    ty: Type,
    scale: i64,
    /// The least value allowed.
    pub lower: i128,
    /// The greatest value allowed.
    pub upper: i128,
}

impl Units {
    /// Units of a column of this type, between the limits of the type; `None` where the type cannot be split.
    pub fn of(ty: ColumnType) -> Option<Units> {
        let (lower, upper, scale) = match ty.ty {
            Type::Int2 => (i128::from(i16::MIN), i128::from(i16::MAX), 0),
            Type::Int4 => (i128::from(i32::MIN), i128::from(i32::MAX), 0),
            Type::Int8 => (i128::from(i64::MIN), i128::from(i64::MAX), 0),
            Type::Numeric => {
                let (digits, scale) = numeric_modifier(ty.typmod)?;
                if digits > MAX_DIGITS || !(0..=digits).contains(&scale) {
                    return None;
                }
                let most = 10i128.pow(digits as u32) - 1;
                (-most, most, i64::from(scale))
            }
            _ => return None,
        };
        Some(Units {
            ty: ty.ty,
            scale,
            lower,
            upper,
        })
    }

    /// The same between the bounds of a split column.
    pub fn within(mut self, split: &Split) -> Units {
        if let Some(l) = split.lower {
            self.lower = self.lower.max(l.into());
        }
        if let Some(u) = split.upper {
            self.upper = self.upper.min(u.into());
        }
        self
    }

    /// A number in units; `None` where it is not a whole number of them, far outside of what a value can be, or no number.
    pub fn units(&self, v: &Value) -> Option<i128> {
        if let Some(i) = v.as_i64() {
            if self.scale == 0 {
                return within_reach(i.into());
            }
            let unit = 10i128.checked_pow(self.scale as u32)?;
            return i128::from(i).checked_mul(unit).and_then(within_reach);
        }
        let Value::Numeric(n) = v else { return None };
        let Numeric::Finite(d) = &**n else {
            return None;
        };
        let exact = d.with_scale(self.scale);
        if exact != *d {
            return None;
        }
        let (digits, _) = exact.into_bigint_and_exponent();
        digits.to_i128().and_then(within_reach)
    }

    /// The value of the column's type; the units lie between the limits of the type.
    pub fn value(&self, units: i128) -> Value {
        match self.ty {
            Type::Int2 => Value::Int2(units as i16),
            Type::Int4 => Value::Int4(units as i32),
            Type::Int8 => Value::Int8(units as i64),
            _ => {
                let d = BigDecimal::new(units.into(), self.scale);
                Value::from(Numeric::Finite(d))
            }
        }
    }

    /// Whether the column may have this value.
    pub fn allows(&self, units: i128) -> bool {
        (self.lower..=self.upper).contains(&units)
    }

    /// The least number of units at or above (`up`) or the greatest at or below a finite number, for guards and bounds.
    pub fn round(&self, v: &Value, up: bool) -> Option<i128> {
        if let Some(exact) = self.units(v) {
            return Some(exact);
        }
        let Value::Numeric(n) = v else { return None };
        let Numeric::Finite(d) = &**n else {
            return None;
        };
        let scaled = d * BigDecimal::from(pow10(self.scale));
        let mode = match up {
            true => bigdecimal::RoundingMode::Ceiling,
            false => bigdecimal::RoundingMode::Floor,
        };
        let (digits, _) = scaled.with_scale_round(0, mode).into_bigint_and_exponent();
        digits.to_i128().and_then(within_reach)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn numeric(text: &str) -> Value {
        Value::from(Numeric::from_str(text).unwrap())
    }

    fn money() -> Units {
        // numeric(12, 2)
        let typmod = (12 << 16 | 2) + 4;
        Units::of(ColumnType {
            ty: Type::Numeric,
            typmod,
        })
        .unwrap()
    }

    #[test]
    fn numbers_are_whole_units_or_none() {
        let m = money();
        assert_eq!(m.units(&numeric("12.5")), Some(1250));
        assert_eq!(m.units(&numeric("-0.01")), Some(-1));
        assert_eq!(m.units(&Value::Int4(7)), Some(700));
        assert_eq!(m.units(&numeric("0.005")), None);
        assert_eq!(m.units(&numeric("NaN")), None);
        let huge = numeric(&i128::MAX.to_string());
        assert_eq!((m.units(&huge), m.round(&huge, false)), (None, None));
        assert_eq!(m.round(&numeric("0.001"), true), Some(1));
        assert_eq!(m.round(&numeric("0.001"), false), Some(0));
        assert_eq!(m.round(&numeric("-0.001"), false), Some(-1));
        assert!(matches!(m.value(1250), Value::Numeric(n) if n.to_string() == "12.50"));
    }

    #[test]
    fn limits_are_those_of_the_type_and_of_the_bounds() {
        let int = |ty| Units::of(ColumnType { ty, typmod: -1 }).unwrap();
        assert!(int(Type::Int2).allows(32_767) && !int(Type::Int2).allows(32_768));
        assert!(!money().allows(1_000_000_000_000) && money().allows(999_999_999_999));
        let split = Split {
            lower: Some(0),
            ..Split::default()
        };
        assert!(!int(Type::Int4).within(&split).allows(-1));
        let plain = ColumnType {
            ty: Type::Numeric,
            typmod: -1,
        };
        assert_eq!(Units::of(plain), None);
    }
}
