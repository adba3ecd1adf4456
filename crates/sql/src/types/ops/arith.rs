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
