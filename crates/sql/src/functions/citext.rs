//! Operators and functions of `citext`, a text that compares without regard to case. As a `text` it is compared with regard to it.
//!
//! Left out on purpose (0A000): functions of two or more texts that the extension has for `citext` (`replace`, `split_part`, `translate`, those of
//! regular expressions). With `x::text` they are the built-in ones.

use super::registry::{Registry, names::*};
use super::{EvalContext, ScalarFn};
use crate::types::ops::{like, regex};
use base::packed::citext::{lower, text};
use base::{Error, Packed, Result, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn of(v: &Value) -> &str {
    match v {
        Value::Packed(p) if p.kind() == Packed::Citext => text(p.form()),
        v => v.as_str().expect("a text"),
    }
}

macro_rules! patterns {
    ($($name:ident $op:path;)*) => { $(
        fn $name(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
            $op(&[Value::text(of(&a[0])), Value::text(of(&a[1]))], c)
        }
    )* };
}
patterns! {
    is_like like::op_ilike;
    is_not_like like::op_not_ilike;
    matches regex::op_imatch;
    does_not_match regex::op_not_imatch;
}

fn strpos(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let folded = |v: &Value| of(v).chars().map(lower).collect::<String>();
    let (text, part) = (folded(&a[0]), folded(&a[1]));
    let at = text
        .find(&part)
        .map_or(0, |i| text[..i].chars().count() + 1);
    Ok(Value::Int4(at as i32))
}

/// Adds the operators.
pub(super) fn register_operators(r: &mut Registry) {
    let all: [(&str, ScalarFn); 8] = [
        ("~~", is_like),
        ("~~*", is_like),
        ("!~~", is_not_like),
        ("!~~*", is_not_like),
        ("~", matches),
        ("~*", matches),
        ("!~", does_not_match),
        ("!~*", does_not_match),
    ];
    for (n, f) in all {
        for t in [CITEXT, TEXT] {
            r.f(n, &[CITEXT, t], BOOL, IMM, f);
        }
    }
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    r.f("strpos", &[CITEXT, CITEXT], INT4, IMM, strpos);
    let refused: ScalarFn = |_, _| Err(Error::unsupported("this function of citext"));
    for args in [&[CITEXT, CITEXT][..], &[CITEXT, CITEXT, TEXT][..]] {
        for n in ["regexp_match", "regexp_split_to_array"] {
            r.f(n, args, TEXTARRAY, IMM, refused);
        }
        for (n, ret) in [
            ("regexp_matches", TEXTARRAY),
            ("regexp_split_to_table", TEXT),
        ] {
            r.set(n, args, ret, IMM, |_, _, _| {
                Err(Error::unsupported("this function of citext"))
            });
        }
    }
    r.f("replace", &[CITEXT, CITEXT, CITEXT], TEXT, IMM, refused);
    for args in [
        &[CITEXT, CITEXT, TEXT][..],
        &[CITEXT, CITEXT, TEXT, TEXT][..],
    ] {
        r.f("regexp_replace", args, TEXT, IMM, refused);
    }
    r.f("split_part", &[CITEXT, CITEXT, INT4], TEXT, IMM, refused);
    r.f("translate", &[CITEXT, CITEXT, TEXT], TEXT, IMM, refused);
}
