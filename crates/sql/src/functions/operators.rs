//! The table of operators: PostgreSQL's `pg_operator` for the types we have.

use super::registry::{Registry, names::*};
use super::signature::Sig;
use super::{EvalContext, ScalarFn};
use crate::types::cast::date_to_timestamp;
use crate::types::datetime::is_infinite;
use crate::types::ops::{self, arith, array, datetime as dt, float, jsonb, like, numeric, regex};
use crate::types::{OutputSettings, text};
use base::{Result, Type, Value};
use std::cmp::Ordering;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

macro_rules! comparisons {
    ($($f:ident $mixed:ident $is:ident;)*) => { $(
        fn $f(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
            Ok(Value::Bool(ops::compare(&a[0], &a[1]).$is()))
        }

        fn $mixed(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
            Ok(Value::Bool(compare_moments(&a[0], &a[1], c.settings).$is()))
        }
    )* };
}
comparisons! { eq m_eq is_eq; ne m_ne is_ne; lt m_lt is_lt; le m_le is_le; ge m_ge is_ge; gt m_gt is_gt; }

pub(super) const SAME: [(&str, ScalarFn); 6] = [
    ("=", eq),
    ("<>", ne),
    ("<", lt),
    ("<=", le),
    (">", gt),
    (">=", ge),
];
const MIXED: [(&str, ScalarFn); 6] = [
    ("=", m_eq),
    ("<>", m_ne),
    ("<", m_lt),
    ("<=", m_le),
    (">", m_gt),
    (">=", m_ge),
];

/// Orders a date, a timestamp and a timestamp with time zone against each other.
fn compare_moments(a: &Value, b: &Value, settings: &OutputSettings) -> Ordering {
    let zoned = matches!(a, Value::TimestampTz(_)) || matches!(b, Value::TimestampTz(_));
    let moment = |v: &Value| -> i64 {
        let local = match v {
            Value::TimestampTz(t) => return *t,
            Value::Timestamp(t) => *t,
            // A date that timestamps do not reach is later than all of them.
            Value::Date(d) => date_to_timestamp(*d).unwrap_or(i64::MAX - 1),
            v => panic!("{v:?} is no moment"),
        };
        if zoned && !is_infinite(local) && local != i64::MAX - 1 {
            settings.timezone.instant(local)
        } else {
            local
        }
    };
    moment(a).cmp(&moment(b))
}

/// Adds every operator.
pub(super) fn register(r: &mut Registry) {
    compare(r);
    integers(r);
    numbers(r);
    moments(r);
    strings(r);
    arrays(r);
    json(r);
}

/// Whether a transaction's number is that of an integer, taken without its sign.
fn same_number(a: &[Value]) -> bool {
    matches!((&a[0], &a[1]), (Value::Oid(x), Value::Int4(n)) if *x == *n as u32)
}

fn comparison(r: &mut Registry, a: Sig, b: Sig) {
    for (n, f) in SAME {
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
        TID,
        UUID,
        TIMETZ,
        BIT,
        VARBIT,
        INET,
        MACADDR,
        MACADDR8,
        CITEXT,
        ANYARRAY,
        ANYENUM,
    ];
    for t in same {
        comparison(r, t, t);
    }
    for (n, f) in SAME.into_iter().take(2) {
        r.f(n, &[XID, XID], BOOL, IMM, f);
    }
    r.f("=", &[XID, INT4], BOOL, IMM, |a, _| {
        Ok(Value::Bool(same_number(a)))
    });
    r.f("<>", &[XID, INT4], BOOL, IMM, |a, _| {
        Ok(Value::Bool(!same_number(a)))
    });
    comparison(r, NAME, TEXT);
    comparison(r, TEXT, NAME);
    for family in [&[INT2, INT4, INT8][..], &[FLOAT4, FLOAT8][..]] {
        for &a in family {
            for &b in family {
                comparison(r, a, b);
            }
        }
    }
    let moments = [DATE, TIMESTAMP, TIMESTAMPTZ];
    for a in moments {
        for b in moments.into_iter().filter(|b| *b != a) {
            let fl = if a == TIMESTAMPTZ || b == TIMESTAMPTZ {
                STA
            } else {
                IMM
            };
            for (n, f) in MIXED {
                r.f(n, &[a, b], BOOL, fl, f);
            }
        }
    }
    for (n, f) in [
        ("~<~", lt as ScalarFn),
        ("~<=~", le),
        ("~>=~", ge),
        ("~>~", gt),
    ] {
        r.f(n, &[TEXT, TEXT], BOOL, IMM, f);
        r.f(n, &[BPCHAR, BPCHAR], BOOL, IMM, f);
    }
}

fn integers(r: &mut Registry) {
    let ints = [INT2, INT4, INT8];
    let binary: [(&str, [ScalarFn; 3]); 4] = [
        ("+", [arith::add_i2, arith::add_i4, arith::add_i8]),
        ("-", [arith::sub_i2, arith::sub_i4, arith::sub_i8]),
        ("*", [arith::mul_i2, arith::mul_i4, arith::mul_i8]),
        ("/", [arith::div_i2, arith::div_i4, arith::div_i8]),
    ];
    for (i, a) in ints.into_iter().enumerate() {
        for (j, b) in ints.into_iter().enumerate() {
            let k = i.max(j);
            for (n, f) in binary {
                r.f(n, &[a, b], ints[k], IMM, f[k]);
            }
        }
    }
    let alike: [(&str, [ScalarFn; 3]); 4] = [
        ("%", [arith::rem_i2, arith::rem_i4, arith::rem_i8]),
        ("&", [arith::and_i2, arith::and_i4, arith::and_i8]),
        ("|", [arith::or_i2, arith::or_i4, arith::or_i8]),
        ("#", [arith::xor_i2, arith::xor_i4, arith::xor_i8]),
    ];
    let shifts: [(&str, [ScalarFn; 3]); 2] = [
        ("<<", [arith::shl_i2, arith::shl_i4, arith::shl_i8]),
        (">>", [arith::shr_i2, arith::shr_i4, arith::shr_i8]),
    ];
    let unary: [(&str, [ScalarFn; 3]); 4] = [
        ("-", [arith::neg_i2, arith::neg_i4, arith::neg_i8]),
        ("+", [arith::same; 3]),
        ("~", [arith::not_i2, arith::not_i4, arith::not_i8]),
        ("@", [arith::abs_i2, arith::abs_i4, arith::abs_i8]),
    ];
    for (i, t) in ints.into_iter().enumerate() {
        for (n, f) in alike {
            r.f(n, &[t, t], t, IMM, f[i]);
        }
        for (n, f) in shifts {
            r.f(n, &[t, INT4], t, IMM, f[i]);
        }
        for (n, f) in unary {
            r.f(n, &[t], t, IMM, f[i]);
        }
    }
}

fn power(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    super::math::float_power(float::f64_of(&a[0]), float::f64_of(&a[1])).map(Value::Float8)
}

fn numeric_power(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    ops::numeric_log::power(numeric::of(&a[0]), numeric::of(&a[1])).map(Value::from)
}

fn root(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    super::math::float_sqrt(float::f64_of(&a[0])).map(Value::Float8)
}

fn cube_root(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Float8(float::f64_of(&a[0]).cbrt()))
}

fn numbers(r: &mut Registry) {
    let floats: [(&str, ScalarFn, ScalarFn); 4] = [
        ("+", float::add4, float::add),
        ("-", float::sub4, float::sub),
        ("*", float::mul4, float::mul),
        ("/", float::div4, float::div),
    ];
    for (n, narrow, wide) in floats {
        r.f(n, &[FLOAT4, FLOAT4], FLOAT4, IMM, narrow);
        r.f(n, &[FLOAT4, FLOAT8], FLOAT8, IMM, wide);
        r.f(n, &[FLOAT8, FLOAT4], FLOAT8, IMM, wide);
        r.f(n, &[FLOAT8, FLOAT8], FLOAT8, IMM, wide);
    }
    let exact: [(&str, ScalarFn); 6] = [
        ("+", numeric::op_add),
        ("-", numeric::op_sub),
        ("*", numeric::op_mul),
        ("/", numeric::op_div),
        ("%", numeric::op_rem),
        ("^", numeric_power),
    ];
    for (n, f) in exact {
        r.f(n, &[NUMERIC, NUMERIC], NUMERIC, IMM, f);
    }
    r.f("^", &[FLOAT8, FLOAT8], FLOAT8, IMM, power);
    r.f("|/", &[FLOAT8], FLOAT8, IMM, root);
    r.f("||/", &[FLOAT8], FLOAT8, IMM, cube_root);
    let unary: [(&str, [ScalarFn; 3]); 3] = [
        ("-", [float::neg4, float::neg, numeric::op_neg]),
        ("+", [arith::same; 3]),
        ("@", [float::abs4, float::abs, numeric::op_abs]),
    ];
    for (n, f) in unary {
        for (k, t) in [FLOAT4, FLOAT8, NUMERIC].into_iter().enumerate() {
            r.f(n, &[t], t, IMM, f[k]);
        }
    }
}

fn moments(r: &mut Registry) {
    r.f("+", &[DATE, INT4], DATE, IMM, dt::date_plus_int);
    r.f("+", &[INT4, DATE], DATE, IMM, dt::int_plus_date);
    r.f("-", &[DATE, INT4], DATE, IMM, dt::date_minus_int);
    r.f("-", &[DATE, DATE], INT4, IMM, dt::date_difference);
    r.f(
        "+",
        &[DATE, INTERVAL],
        TIMESTAMP,
        IMM,
        dt::date_plus_interval,
    );
    r.f(
        "+",
        &[INTERVAL, DATE],
        TIMESTAMP,
        IMM,
        dt::interval_plus_date,
    );
    r.f(
        "-",
        &[DATE, INTERVAL],
        TIMESTAMP,
        IMM,
        dt::date_minus_interval,
    );
    r.f("+", &[DATE, TIME], TIMESTAMP, IMM, dt::date_plus_time);
    r.f("+", &[TIME, DATE], TIMESTAMP, IMM, dt::date_plus_time);
    r.f(
        "+",
        &[TIMESTAMP, INTERVAL],
        TIMESTAMP,
        IMM,
        dt::timestamp_plus_interval,
    );
    r.f(
        "+",
        &[INTERVAL, TIMESTAMP],
        TIMESTAMP,
        IMM,
        dt::interval_plus_timestamp,
    );
    r.f(
        "-",
        &[TIMESTAMP, INTERVAL],
        TIMESTAMP,
        IMM,
        dt::timestamp_minus_interval,
    );
    r.f(
        "-",
        &[TIMESTAMP, TIMESTAMP],
        INTERVAL,
        IMM,
        dt::timestamp_difference,
    );
    r.f(
        "+",
        &[TIMESTAMPTZ, INTERVAL],
        TIMESTAMPTZ,
        STA,
        dt::timestamptz_plus_interval,
    );
    r.f(
        "+",
        &[INTERVAL, TIMESTAMPTZ],
        TIMESTAMPTZ,
        STA,
        dt::interval_plus_timestamptz,
    );
    r.f(
        "-",
        &[TIMESTAMPTZ, INTERVAL],
        TIMESTAMPTZ,
        STA,
        dt::timestamptz_minus_interval,
    );
    r.f(
        "-",
        &[TIMESTAMPTZ, TIMESTAMPTZ],
        INTERVAL,
        IMM,
        dt::timestamp_difference,
    );
    r.f("+", &[TIME, INTERVAL], TIME, IMM, dt::time_plus_interval);
    r.f("+", &[INTERVAL, TIME], TIME, IMM, dt::interval_plus_time);
    r.f("-", &[TIME, INTERVAL], TIME, IMM, dt::time_minus_interval);
    r.f("-", &[TIME, TIME], INTERVAL, IMM, dt::time_difference);
    r.f("+", &[INTERVAL, INTERVAL], INTERVAL, IMM, dt::interval_add);
    r.f("-", &[INTERVAL, INTERVAL], INTERVAL, IMM, dt::interval_sub);
    r.f("-", &[INTERVAL], INTERVAL, IMM, dt::interval_neg);
    r.f("*", &[INTERVAL, FLOAT8], INTERVAL, IMM, dt::interval_times);
    r.f("*", &[FLOAT8, INTERVAL], INTERVAL, IMM, dt::interval_times);
    r.f("/", &[INTERVAL, FLOAT8], INTERVAL, IMM, dt::interval_over);
}

fn text_concat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (a[0].as_str().expect("text"), a[1].as_str().expect("text"));
    base::memory::want(x.len() + y.len())?;
    let mut s = compact_str::CompactString::with_capacity(x.len() + y.len());
    s.push_str(x);
    s.push_str(y);
    Ok(Value::Text(s))
}

fn any_concat(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let mut s = String::new();
    for (v, t) in a.iter().zip(types) {
        match v {
            // As the cast to text says it, not as it is shown.
            Value::Bool(b) => s.push_str(if *b { "true" } else { "false" }),
            Value::Packed(p) => crate::types::packed::write_as_text(p, &mut s),
            v => text::output(v, *t, c.settings, &mut s),
        }
    }
    Ok(Value::from(s))
}

fn bytea_concat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (Value::Bytea(x), Value::Bytea(y)) = (&a[0], &a[1]) else {
        panic!("bytea");
    };
    Ok(Value::Bytea([&x[..], &y[..]].concat().into()))
}

fn starts_with(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (a[0].as_str().expect("text"), a[1].as_str().expect("text"));
    Ok(Value::Bool(x.starts_with(y)))
}

fn strings(r: &mut Registry) {
    r.f("||", &[TEXT, TEXT], TEXT, IMM, text_concat);
    r.t("||", &[TEXT, ANYNONARRAY], TEXT, STA, any_concat);
    r.t("||", &[ANYNONARRAY, TEXT], TEXT, STA, any_concat);
    r.f("||", &[BYTEA, BYTEA], BYTEA, IMM, bytea_concat);
    r.f("^@", &[TEXT, TEXT], BOOL, IMM, starts_with);
    let patterns: [(&str, ScalarFn); 8] = [
        ("~~", like::op_like),
        ("!~~", like::op_not_like),
        ("~~*", like::op_ilike),
        ("!~~*", like::op_not_ilike),
        ("~", regex::op_match),
        ("!~", regex::op_not_match),
        ("~*", regex::op_imatch),
        ("!~*", regex::op_not_imatch),
    ];
    for (n, f) in patterns {
        for t in [TEXT, BPCHAR, NAME] {
            r.f(n, &[t, TEXT], BOOL, IMM, f);
        }
    }
    r.f("~~", &[BYTEA, BYTEA], BOOL, IMM, like::op_bytea_like);
}

fn arrays(r: &mut Registry) {
    r.f("@>", &[ANYARRAY, ANYARRAY], BOOL, IMM, array::op_contains);
    r.f("<@", &[ANYARRAY, ANYARRAY], BOOL, IMM, array::op_contained);
    r.f("&&", &[ANYARRAY, ANYARRAY], BOOL, IMM, array::op_overlap);
    r.f(
        "||",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLEARRAY],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        array::concat,
    );
    r.t(
        "||",
        &[ANYCOMPATIBLEARRAY, ANYCOMPATIBLE],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        array::append,
    );
    r.t(
        "||",
        &[ANYCOMPATIBLE, ANYCOMPATIBLEARRAY],
        ANYCOMPATIBLEARRAY,
        IMM_N,
        array::prepend,
    );
}

fn json(r: &mut Registry) {
    r.f("->", &[JSONB, TEXT], JSONB, IMM, jsonb::get_key);
    r.f("->>", &[JSONB, TEXT], TEXT, IMM, jsonb::get_key_text);
    r.f("#>", &[JSONB, TEXTARRAY], JSONB, IMM, jsonb::get_path);
    r.f("#>>", &[JSONB, TEXTARRAY], TEXT, IMM, jsonb::get_path_text);
    r.f("->", &[JSON, TEXT], JSON, IMM, jsonb::raw_key);
    r.f("->>", &[JSON, TEXT], TEXT, IMM, jsonb::raw_key_text);
    r.f("->", &[JSON, INT4], JSON, IMM, jsonb::raw_index);
    r.f("->>", &[JSON, INT4], TEXT, IMM, jsonb::raw_index_text);
    r.f("#>", &[JSON, TEXTARRAY], JSON, IMM, jsonb::raw_path);
    r.f("#>>", &[JSON, TEXTARRAY], TEXT, IMM, jsonb::raw_path_text);
    r.f("->", &[JSONB, INT4], JSONB, IMM, jsonb::get_element);
    r.f("->>", &[JSONB, INT4], TEXT, IMM, jsonb::get_element_text);
    r.f("@>", &[JSONB, JSONB], BOOL, IMM, jsonb::op_contains);
    r.f("<@", &[JSONB, JSONB], BOOL, IMM, jsonb::op_contained);
    r.f("?", &[JSONB, TEXT], BOOL, IMM, jsonb::exists);
    r.f("?|", &[JSONB, TEXTARRAY], BOOL, IMM, jsonb::exists_any);
    r.f("?&", &[JSONB, TEXTARRAY], BOOL, IMM, jsonb::exists_all);
    r.f("||", &[JSONB, JSONB], JSONB, IMM, jsonb::concat);
    r.f("-", &[JSONB, TEXT], JSONB, IMM, jsonb::delete_key);
    r.f("-", &[JSONB, INT4], JSONB, IMM, jsonb::delete_index);
    r.f("-", &[JSONB, TEXTARRAY], JSONB, IMM, jsonb::delete_many);
    r.f("#-", &[JSONB, TEXTARRAY], JSONB, IMM, jsonb::delete_path);
}
