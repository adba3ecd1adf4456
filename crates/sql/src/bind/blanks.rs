//! The blanks of `char(n)`.
//!
//! A value is kept without the blanks that fill it up, which is how it is compared, hashed and found in an index. PostgreSQL keeps them,
//! and drops them where the value becomes `text`. So what sees the blanks there gets them put back here: functions that take any type and
//! print it, operators that match patterns against `char(n)`, rows and JSON.
//!
//! Left out on purpose: expressions of `char` whose length is not known, such as branches of different lengths.

use super::{Binder, Bound};
use crate::expr::Expr;
use base::{ColumnType, Result, Type, Value};

/// Whether the function gets `char(n)` as it is, and not as `text`.
pub(super) fn sees_blanks(function: &str) -> bool {
    matches!(
        function,
        "concat"
            | "concat_ws"
            | "format"
            | "octet_length"
            | "to_json"
            | "to_jsonb"
            | "json_build_array"
            | "json_build_object"
            | "jsonb_build_array"
            | "jsonb_build_object"
            | "json_agg"
            | "jsonb_agg"
            | "json_object_agg"
            | "jsonb_object_agg"
    )
}

/// The type of an aggregate's result: `min` and `max` give one of their arguments.
pub(super) fn of_aggregate(name: &str, ret: Type, arg: Option<ColumnType>) -> ColumnType {
    match arg {
        Some(arg) if ret == Type::Bpchar && matches!(name, "min" | "max") => arg,
        _ => ret.into(),
    }
}

impl Binder<'_> {
    /// A `char(n)` as text with its blanks; others as they are.
    pub(super) fn with_blanks(&mut self, b: Bound) -> Result<Bound> {
        if b.ty.ty != Type::Bpchar || b.ty.typmod < 5 {
            return Ok(b);
        }
        let length = Expr::Const(Value::Int4(b.ty.typmod - 4));
        let text = Bound::new(b.expr, Type::Text);
        self.call("rpad", vec![text, Bound::new(length, Type::Int4)])
    }

    /// The left side of an operator.
    pub(super) fn subject(&mut self, op: &str, l: Bound, r: &Bound) -> Result<Bound> {
        match op {
            // Blanks at the end do not matter to it, and an index finds them only without.
            "~~" if is_prefix(&r.expr) => Ok(l),
            "~~" | "!~~" | "~~*" | "!~~*" | "~" | "!~" | "~*" | "!~*" => self.with_blanks(l),
            _ => Ok(l),
        }
    }
}

/// Whether it is a pattern `text%` that matches with and without blanks at the end.
fn is_prefix(pattern: &Expr) -> bool {
    match pattern {
        Expr::Const(Value::Text(p)) => {
            p.ends_with('%') && !p.contains([' ', '_', '\\']) && p.matches('%').count() == 1
        }
        _ => false,
    }
}
