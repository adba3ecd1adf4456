//! Integer arithmetic: overflow is 22003, division by zero 22012. Arguments may be narrower than the result.

use crate::functions::EvalContext;
use crate::types::out_of_range;
use base::{Error, Result, SqlState, Type, Value};

/// 22012.
pub fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

#[inline]
fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

macro_rules! checked {
    ($($f:ident $prim:ident $variant:ident $op:ident;)*) => { $(
        pub fn $f(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let (x, y) = (int(&a[0]) as $prim, int(&a[1]) as $prim);
            match x.$op(y) {
                Some(z) => Ok(Value::$variant(z)),
                None => Err(out_of_range(Type::$variant)),
            }
        }
    )* };
}
checked! {
    add_i2 i16 Int2 checked_add; add_i4 i32 Int4 checked_add; add_i8 i64 Int8 checked_add;
    sub_i2 i16 Int2 checked_sub; sub_i4 i32 Int4 checked_sub; sub_i8 i64 Int8 checked_sub;
    mul_i2 i16 Int2 checked_mul; mul_i4 i32 Int4 checked_mul; mul_i8 i64 Int8 checked_mul;
}

macro_rules! divisions {
    ($($f:ident $g:ident $prim:ident $variant:ident;)*) => { $(
        pub fn $f(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let (x, y) = (int(&a[0]) as $prim, int(&a[1]) as $prim);
            if y == 0 {
                return Err(division_by_zero());
            }
            x.checked_div(y).map(Value::$variant).ok_or_else(|| out_of_range(Type::$variant))
        }

        pub fn $g(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let (x, y) = (int(&a[0]) as $prim, int(&a[1]) as $prim);
            if y == 0 {
                return Err(division_by_zero());
            }
            Ok(Value::$variant(x.wrapping_rem(y)))
        }
    )* };
}
divisions! { div_i2 rem_i2 i16 Int2; div_i4 rem_i4 i32 Int4; div_i8 rem_i8 i64 Int8; }

macro_rules! bits {
    ($($and:ident $or:ident $xor:ident $not:ident $shl:ident $shr:ident $neg:ident $abs:ident $prim:ident $wide:ident $variant:ident;)*) => { $(
        pub fn $and(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant(int(&a[0]) as $prim & int(&a[1]) as $prim))
        }

        pub fn $or(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant(int(&a[0]) as $prim | int(&a[1]) as $prim))
        }

        pub fn $xor(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant(int(&a[0]) as $prim ^ int(&a[1]) as $prim))
        }

        pub fn $not(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant(!(int(&a[0]) as $prim)))
        }

        pub fn $shl(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant((int(&a[0]) as $wide).wrapping_shl(int(&a[1]) as u32) as $prim))
        }

        pub fn $shr(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            Ok(Value::$variant((int(&a[0]) as $wide).wrapping_shr(int(&a[1]) as u32) as $prim))
        }

        pub fn $neg(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let x = int(&a[0]) as $prim;
            x.checked_neg().map(Value::$variant).ok_or_else(|| out_of_range(Type::$variant))
        }

        pub fn $abs(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
            let x = int(&a[0]) as $prim;
            x.checked_abs().map(Value::$variant).ok_or_else(|| out_of_range(Type::$variant))
        }
    )* };
}
bits! {
    and_i2 or_i2 xor_i2 not_i2 shl_i2 shr_i2 neg_i2 abs_i2 i16 i32 Int2;
    and_i4 or_i4 xor_i4 not_i4 shl_i4 shr_i4 neg_i4 abs_i4 i32 i32 Int4;
    and_i8 or_i8 xor_i8 not_i8 shl_i8 shr_i8 neg_i8 abs_i8 i64 i64 Int8;
}

/// Unary plus.
pub fn same(a: &[Value], _: &mut EvalContext<'_>) -> Result<Value> {
    Ok(a[0].clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::NoSession;
    use crate::types::OutputSettings;

    #[test]
    fn overflow_and_division() {
        let settings = OutputSettings::default();
        let mut c = EvalContext {
            settings: &settings,
            session: &NoSession,
        };
        let e = add_i4(&[Value::Int4(i32::MAX), Value::Int4(1)], &mut c).unwrap_err();
        assert_eq!(e.to_string(), "22003: integer out of range");
        let e = div_i8(&[Value::Int8(1), Value::Int8(0)], &mut c).unwrap_err();
        assert_eq!(e.to_string(), "22012: division by zero");
        assert!(div_i4(&[Value::Int4(i32::MIN), Value::Int4(-1)], &mut c).is_err());
        assert!(matches!(
            rem_i4(&[Value::Int4(i32::MIN), Value::Int4(-1)], &mut c),
            Ok(Value::Int4(0))
        ));
        assert!(matches!(
            div_i4(&[Value::Int4(-7), Value::Int4(2)], &mut c),
            Ok(Value::Int4(-3))
        ));
        assert!(matches!(
            shl_i2(&[Value::Int2(1), Value::Int4(15)], &mut c),
            Ok(Value::Int2(i16::MIN))
        ));
    }
}
