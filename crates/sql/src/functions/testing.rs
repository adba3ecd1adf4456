//! Calls by name for unit tests.

use super::{EvalContext, NoSession, lookup_function};
use crate::types::{OutputSettings, cast, text};
use base::{ColumnType, Type, Value};

/// Calls a function with literals: `#1` an integer, `NULL`, `x::type` a typed literal, else an unknown string. The text of the result,
/// or of the error.
pub(crate) fn call(name: &str, args: &[&str]) -> String {
    call_in(name, args, &OutputSettings::default())
}

pub(crate) fn call_in(name: &str, args: &[&str], settings: &OutputSettings) -> String {
    match run(name, args, settings) {
        Ok(s) => s,
        Err(e) => e.to_string(),
    }
}

fn run(name: &str, args: &[&str], settings: &OutputSettings) -> base::Result<String> {
    let mut values = Vec::new();
    let mut types = Vec::new();
    for a in args {
        let (v, t) = if *a == "NULL" {
            (Value::Null, Type::Unknown)
        } else if let Some(n) = a.strip_prefix('#').and_then(|n| n.parse().ok()) {
            (Value::Int4(n), Type::Int4)
        } else if let Some((s, t)) = a.rsplit_once("::") {
            let t = crate::types::typename::parse(t)?;
            (text::input(s, t, settings)?, t.ty)
        } else {
            (Value::text(a), Type::Unknown)
        };
        values.push(v);
        types.push(t);
    }
    let r = lookup_function(name, &types)?;
    let values = values
        .into_iter()
        .zip(types.iter().zip(&r.args))
        .map(|(v, (from, to))| {
            cast::apply(
                v,
                ColumnType::plain(*from),
                ColumnType::plain(*to),
                false,
                settings,
            )
        })
        .collect::<base::Result<Vec<_>>>()?;
    let mut ctx = EvalContext {
        settings,
        session: &NoSession,
    };
    if let super::Kind::SetReturning(_) = r.kind {
        let mut rows = r.rows(&values, &mut ctx)?;
        let (mut out, mut row) = (String::new(), Vec::new());
        while rows.next(&mut row)? {
            for (i, v) in row.iter().enumerate() {
                out.push_str(if i > 0 {
                    "|"
                } else if out.is_empty() {
                    ""
                } else {
                    ";"
                });
                let ty = r.columns.get(i).map_or(r.ret, |c| c.1);
                text::output(v, ty, settings, &mut out);
            }
        }
        return Ok(out);
    }
    let v = r.call(&values, &mut ctx)?;
    Ok(if v.is_null() {
        "NULL".into()
    } else {
        text::to_string(&v, r.ret, settings)
    })
}

#[test]
fn sets_are_those_of_postgresql() {
    for (f, args, want) in [
        ("generate_series", &["#1", "#7", "#3"][..], "1;4;7"),
        ("generate_series", &["#3", "#1"], ""),
        (
            "generate_series",
            &["1::numeric", "2::numeric", "0.5::numeric"],
            "1;1.5;2.0",
        ),
        (
            "generate_series",
            &[
                "2020-01-31::timestamp",
                "2020-04-01::timestamp",
                "1 month::interval",
            ],
            "2020-01-31 00:00:00;2020-02-29 00:00:00;2020-03-29 00:00:00",
        ),
        ("unnest", &["{1,NULL,3}::int[]"], "1;;3"),
        ("generate_subscripts", &["{5,6}::int[]", "#1"], "1;2"),
        ("jsonb_each", &["{\"b\":1,\"a\":null}"], "a|null;b|1"),
        ("jsonb_array_elements_text", &["[1,\"x\"]"], "1;x"),
        (
            "regexp_matches",
            &["foobarbequebaz", "ba.", "g"],
            "{bar};{baz}",
        ),
    ] {
        assert_eq!(call(f, args), want, "{f}{args:?}");
    }
    assert!(call("generate_series", &["#1", "#2", "#0"]).contains("step size cannot equal zero"));
}

#[test]
fn calls_resolve_as_in_postgresql() {
    use super::lookup_operator;
    use Type::*;
    let op = |o: &str, l: Type, r: Type| {
        lookup_operator(o, Some(l), r)
            .map(|r| (r.args, r.ret))
            .map_err(|e| e.fields().message.clone())
    };
    assert_eq!(op("+", Int4, Unknown), Ok((vec![Int4, Int4], Int4)));
    assert_eq!(op("+", Int4, Int8), Ok((vec![Int4, Int8], Int8)));
    assert_eq!(
        op("+", Int4, Numeric),
        Ok((vec![Numeric, Numeric], Numeric))
    );
    assert_eq!(op("+", Numeric, Float8), Ok((vec![Float8, Float8], Float8)));
    assert_eq!(op("=", Varchar, Unknown), Ok((vec![Text, Text], Bool)));
    assert_eq!(op("=", Bpchar, Unknown), Ok((vec![Bpchar, Bpchar], Bool)));
    assert_eq!(op("=", Varchar, Bpchar), Ok((vec![Bpchar, Bpchar], Bool)));
    assert_eq!(op("||", Unknown, Unknown), Ok((vec![Text, Text], Text)));
    assert_eq!(op("||", Text, Int4), Ok((vec![Text, Int4], Text)));
    assert_eq!(
        op("||", Int4Array, Int4),
        Ok((vec![Int4Array, Int4], Int4Array))
    );
    assert_eq!(
        op("||", Int4Array, Unknown),
        Ok((vec![Int4Array, Int4Array], Int4Array))
    );
    assert_eq!(op("->", Jsonb, Unknown), Ok((vec![Jsonb, Text], Jsonb)));
    assert_eq!(
        op("-", TimestampTz, Unknown),
        Ok((vec![TimestampTz, TimestampTz], Interval))
    );
    assert_eq!(
        op("+", Date, Unknown),
        Err("operator is not unique: date + unknown".into())
    );
    assert_eq!(op("=", RegClass, Unknown), Ok((vec![Oid, Oid], Bool)));
    assert_eq!(
        op("=", Int4Array, Unknown),
        Ok((vec![Int4Array, Int4Array], Bool))
    );
    assert_eq!(
        op("+", Int4, Text),
        Err("operator does not exist: integer + text".into())
    );
    assert_eq!(
        op("=", Int4, Text),
        Err("operator does not exist: integer = text".into())
    );
    assert_eq!(
        op("*", Interval, Int4),
        Ok((vec![Interval, Float8], Interval))
    );
    assert_eq!(op("~~", Varchar, Unknown), Ok((vec![Text, Text], Bool)));
    assert_eq!(op("=", Name, Unknown), Ok((vec![Name, Name], Bool)));
    assert_eq!(op("=", Name, Varchar), Ok((vec![Name, Text], Bool)));
    assert_eq!(op("=", Date, Timestamp), Ok((vec![Date, Timestamp], Bool)));
    let f = |n: &str, a: &[Type]| {
        lookup_function(n, a)
            .map(|r| (r.args, r.ret))
            .map_err(|e| e.fields().message.clone())
    };
    assert_eq!(
        f("round", &[Float8, Int4]),
        Err("function round(double precision, integer) does not exist".into())
    );
    assert_eq!(
        f("sum", &[Unknown]),
        Err("function sum(unknown) is not unique".into())
    );
    assert_eq!(f("abs", &[Unknown]), Ok((vec![Float8], Float8)));
    assert_eq!(f("max", &[Varchar]), Ok((vec![Text], Text)));
    assert_eq!(f("int4", &[Text]), Ok((vec![Text], Int4)));
    assert_eq!(f("unnest", &[TextArray]), Ok((vec![TextArray], Text)));
    assert_eq!(f("sqrt", &[Int4]), Ok((vec![Float8], Float8)));
    assert_eq!(
        f("nope", &[Int4]),
        Err("function nope(integer) does not exist".into())
    );
}

/// Functions whose work is not in proportion to their input look for a cancel while they work: so often that between two looks there is
/// no more than [`base::cancel::STEP`] units, or one product of long numbers.
#[test]
fn what_may_take_long_looks_for_a_cancel() {
    use base::SqlState;
    use base::cancel::{Interrupt, STEP, enter, looks};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    let xs = "x".repeat(1 << 20);
    let ab = "ab".repeat(4000);
    let half = format!("%{}b%", "a".repeat(2000));
    let a = "a".repeat(4000);
    let many: String = (0..0x3000u32).filter_map(char::from_u32).collect();
    let array = |x: u32| format!("{{{}}}::int[]", vec![x.to_string(); 2000].join(","));
    let list = |x: u32| format!("[{}]::jsonb", vec![x.to_string(); 1000].join(","));
    let whole = format!(
        "[{}]::jsonb",
        (0..1000)
            .map(|i| i.to_string())
            .collect::<Vec<_>>()
            .join(",")
    );
    let long = format!("{}::numeric", "7".repeat(3000));
    // The function, its arguments, and the units of work that it has at least: a comparison each, or a product. (A piece of work may
    // begin just below a step and end above it, so that there are half as many looks at least.)
    let products = |n: usize| n * STEP;
    let cases: Vec<(&str, Vec<&str>, usize)> = vec![
        ("translate", vec![&xs, &many, "y"], 1 << 20),
        ("replace", vec![&xs, "x", "yy"], 1 << 20),
        ("exp", vec!["5000::numeric"], products(100)),
        ("ln", vec![&long], products(100)),
        ("log", vec!["3::numeric", &long], products(200)),
        (
            "power",
            vec!["1.5::numeric", "20000.5::numeric"],
            products(200),
        ),
        ("sqrt", vec![&long], products(3)),
        ("factorial", vec!["#5000"], 5000 * 5000 / 2),
        ("regexp_like", vec![&xs, "(x+x+)+y(a?){60}"], 1 << 20),
        ("regexp_count", vec![&ab, "a"], products(4000)),
        ("regexp_replace", vec![&ab, "a", "c", "g"], products(4000)),
        ("regexp_split_to_array", vec![&ab, "a"], products(4000)),
        ("regexp_matches", vec![&ab, "a", "g"], products(4000)),
    ];
    let flag = Arc::new(Interrupt::default());
    for (f, args, units) in &cases {
        let _now = enter(flag.clone());
        flag.0.store(Interrupt::NONE, Relaxed);
        let before = looks();
        run(f, args, &OutputSettings::default()).unwrap_or_else(|e| panic!("{f}: {e}"));
        let looked = (looks() - before) as usize;
        assert!(2 * looked >= units / STEP, "{f} looked {looked} times");
        flag.0.store(Interrupt::CANCEL, Relaxed);
        let e = run(f, args, &OutputSettings::default()).expect_err(f);
        assert_eq!(e.code(), SqlState::QUERY_CANCELED, "{f}");
    }
    // Operators.
    let value = |s: &str| {
        let (s, t) = s.rsplit_once("::").unwrap_or((s, "text"));
        let t = crate::types::typename::parse(t).unwrap();
        (text::input(s, t, &OutputSettings::default()).unwrap(), t.ty)
    };
    let (ones, twos) = (array(1), array(2));
    let lasts = list(999);
    let cases = [
        ("~~", &*a, &*half, 2000 * 1900),
        ("~~*", &a, &half, 2000 * 1900),
        ("&&", &ones, &twos, 16 * 2000 * 2000),
        ("@>", &whole, &lasts, 64 * 1000 * 1000),
    ];
    for (op, x, y, units) in cases {
        let ((x, s), (y, t)) = (value(x), value(y));
        let r = super::lookup_operator(op, Some(s), t).unwrap();
        let settings = OutputSettings::default();
        let call = || {
            let mut ctx = EvalContext {
                settings: &settings,
                session: &NoSession,
            };
            r.call(&[x.clone(), y.clone()], &mut ctx)
        };
        let _now = enter(flag.clone());
        flag.0.store(Interrupt::NONE, Relaxed);
        let before = looks();
        call().unwrap();
        let looked = (looks() - before) as usize;
        assert!(2 * looked >= units / STEP, "{op} looked {looked} times");
        flag.0.store(Interrupt::CANCEL, Relaxed);
        assert_eq!(call().unwrap_err().code(), SqlState::QUERY_CANCELED, "{op}");
    }
}
