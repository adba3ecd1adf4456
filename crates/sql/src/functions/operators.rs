//! The table of operators.

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::signature::Sig;
use crate::types::ops::{self, arith};
use base::{Result, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

macro_rules! comparisons {
    ($($f:ident $is:ident;)*) => { $(
        fn $f(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
            Ok(Value::Bool(ops::compare(&a[0], &a[1]).$is()))
        }
    )* };
}
comparisons! {
    lt is_lt;
    le is_le;
    ge is_ge;
    gt is_gt;
}

fn eq(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Bool(ops::eq(&a[0], &a[1])))
}

fn ne(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Bool(!ops::eq(&a[0], &a[1])))
}

/// Adds every operator.
pub(super) fn register(r: &mut Registry) {
    compare(r);
    integers(r);
    r.f("||", &[TEXT, TEXT], TEXT, IMM, |a, _| {
        ops::text::concat(&a[0], &a[1])
    });
}

fn comparison(r: &mut Registry, a: Sig, b: Sig) {
    for (n, f) in [
        ("=", eq as super::ScalarFn),
        ("<>", ne),
        ("<", lt),
        ("<=", le),
        (">", gt),
        (">=", ge),
    ] {
        r.f(n, &[a, b], BOOL, IMM, f);
    }
}

fn compare(r: &mut Registry) {
    let same = [
        BOOL,
        CHAR,
        BPCHAR,
        BYTEA,
        DATE,
        INTERVAL,
        JSONB,
        NAME,
        NUMERIC,
        OID,
        OIDVECTOR,
        TEXT,
        TIME,
        TIMESTAMP,
        TIMESTAMPTZ,
        UUID,
        ANYARRAY,
    ];
    for t in same {
        comparison(r, t, t);
    }
    comparison(r, NAME, TEXT);
    comparison(r, TEXT, NAME);
    for a in [INT2, INT4, INT8] {
        for b in [INT2, INT4, INT8] {
            comparison(r, a, b);
        }
    }
    for a in [FLOAT4, FLOAT8] {
        for b in [FLOAT4, FLOAT8] {
            comparison(r, a, b);
        }
    }
}

fn integers(r: &mut Registry) {
    let ints = [INT2, INT4, INT8];
    for (i, a) in ints.into_iter().enumerate() {
        for (j, b) in ints.into_iter().enumerate() {
            let k = i.max(j);
            let set = [
                (
                    "+",
                    [
                        arith::add_i2 as super::ScalarFn,
                        arith::add_i4,
                        arith::add_i8,
                    ],
                ),
                ("-", [arith::sub_i2, arith::sub_i4, arith::sub_i8]),
                ("*", [arith::mul_i2, arith::mul_i4, arith::mul_i8]),
                ("/", [arith::div_i2, arith::div_i4, arith::div_i8]),
            ];
            for (n, f) in set {
                r.f(n, &[a, b], ints[k], IMM, f[k]);
            }
        }
    }
}
