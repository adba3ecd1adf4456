//! Functions that tell of the session, the server and types; sequences; settings.

use super::effect::{DRAWS, OF_THE_NODE, SETS_SEQUENCE, WRITES};
use super::registry::{Registry, names::*};
use super::{EvalContext, NEXT_IDENTITY, Volatility, catalog};
use crate::types::ops::{like, numeric};
use crate::types::text;
use base::{Array, ColumnType, Error, Numeric, Result, SqlState, Type, Value};
use std::time::Duration;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// What `version()` and `SHOW server_version` build on.
pub const SERVER_VERSION: &str = "15.0";

fn s(v: &Value) -> &str {
    v.as_str().expect("text")
}

fn oid(v: &Value) -> base::Oid {
    match v {
        Value::Oid(o) => *o,
        v => v.as_i64().expect("an oid") as u32,
    }
}

fn current_setting(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    match c.session.setting(s(&a[0])) {
        Some(v) => Ok(Value::from(v)),
        None if a.get(1).and_then(Value::as_bool) == Some(true) => Ok(Value::Null),
        None => Err(Error::new(
            SqlState::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{}\"", s(&a[0])),
        )),
    }
}

fn schemas(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let names = c.session.schemas(a[0].as_bool() == Some(true));
    let items = names.iter().map(|n| Value::text(n)).collect();
    Ok(Value::Array(Box::new(Array::one_dim(Type::Name, items))))
}

/// Sizes as people read them: `bytes`, `kB` from 10 kB on, and so up.
fn size_pretty(n: &Numeric) -> Result<String> {
    let Numeric::Finite(d) = n else {
        return Ok(n.to_string());
    };
    let mut size = d.clone();
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let limit = bigdecimal::BigDecimal::from(10 * 1024);
    if size.abs() < limit {
        return Ok(format!("{} bytes", Numeric::Finite(size)));
    }
    // Halved once more than shown, so that the last step rounds.
    size = floor_div(&size, 512);
    let top = bigdecimal::BigDecimal::from(20 * 1024 - 1);
    for (i, u) in units.iter().enumerate().skip(1) {
        if size.abs() < top || i + 1 == units.len() {
            let whole = half_rounded(&size);
            return Ok(format!("{whole} {u}"));
        }
        size = floor_div(&size, 1024);
    }
    unreachable!("the last unit takes all")
}

fn floor_div(d: &bigdecimal::BigDecimal, n: i64) -> bigdecimal::BigDecimal {
    let (int, _) = d.with_scale(0).into_bigint_and_exponent();
    bigdecimal::BigDecimal::new(int / n, 0)
}

fn half_rounded(d: &bigdecimal::BigDecimal) -> String {
    let (int, _) = d.as_bigint_and_exponent();
    let one = if int.sign() == num_bigint::Sign::Minus {
        -1
    } else {
        1
    };
    let half: num_bigint::BigInt = (int + one) / 2;
    half.to_string()
}

fn size_bytes(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let t = s(&a[0]).trim();
    let bad = || {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid size: \"{t}\""),
        )
    };
    // `1e3 kB`: what follows says whether a letter begins an exponent.
    let is_exponent = |at: usize| {
        let behind = t[at + 1..].trim_start_matches(['+', '-']);
        t[at..].starts_with(['e', 'E']) && behind.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut letters = t.char_indices().filter(|(_, c)| c.is_ascii_alphabetic());
    let cut = letters.find(|(at, _)| !is_exponent(*at));
    let cut = cut.map_or(t.len(), |(at, _)| at);
    let n = crate::types::numeric::parse(t[..cut].trim_end());
    let n = n.map_err(|e| match e.code() {
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE => e,
        _ => bad(),
    })?;
    let shift = match t[cut..].trim().to_ascii_lowercase().as_str() {
        "" | "bytes" | "b" => 0,
        "kb" => 10,
        "mb" => 20,
        "gb" => 30,
        "tb" => 40,
        "pb" => 50,
        _ => return Err(bad()),
    };
    let r = numeric::mul(&n, &Numeric::from(1i64 << shift))?;
    crate::types::cast::numeric_to_i64(&r, Type::Int8).map(Value::Int8)
}

fn uuid(_: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let mut b = [0u8; 16];
    c.session.random_bytes(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    Ok(Value::Uuid(Box::new(b)))
}

fn set_config(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let name = a[0].as_str().ok_or_else(|| {
        Error::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            "SET requires parameter name",
        )
    })?;
    let v = a[1].as_str().unwrap_or("");
    c.session
        .set_setting(name, v, a[2].as_bool() == Some(true))
        .map(Value::from)
}

fn setval(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let called = a.get(2).and_then(Value::as_bool).unwrap_or(true);
    let v = a[1].as_i64().expect("an integer");
    c.session.setval(oid(&a[0]), v, called).map(Value::Int8)
}

fn format_type(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let id = a[0].as_i64().unwrap_or(0) as base::Oid;
    let of_extension = Type::from_oid(id).is_some_and(|t| t.extension().is_some());
    if id >= base::id::FIRST_USER_OID || of_extension {
        let types = [Type::Oid, Type::Int4];
        return c.session.catalog_function("format_type", &types, a);
    }
    Ok(crate::catalog::functions::format_type(&a[0], &a[1]))
}

/// NULL instead of an error for a name that is not there.
fn lookup(a: &[Value], ty: Type, c: Ctx<'_, '_>) -> Result<Value> {
    let t = s(&a[0]);
    // A number is no name.
    if t.trim().bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Value::Null);
    }
    match text::input(t, ColumnType::plain(ty), c.settings) {
        Ok(v) => Ok(v),
        Err(e)
            if [
                SqlState::UNDEFINED_TABLE,
                SqlState::UNDEFINED_OBJECT,
                SqlState::UNDEFINED_FUNCTION,
                SqlState::INVALID_SCHEMA_NAME,
            ]
            .contains(&e.code()) =>
        {
            Ok(Value::Null)
        }
        Err(e) => Err(e),
    }
}

fn sleep_for(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let i = crate::types::ops::datetime::iv(&a[0]);
    c.session.sleep(i.span() as f64 / 1e6)?;
    Ok(Value::text(""))
}

/// `pg_cancel_backend(pid)`.
fn cancel(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    c.session
        .signal(pid(&a[0]), false, Duration::ZERO)
        .map(Value::Bool)
}

/// `pg_terminate_backend(pid [, milliseconds])`.
fn terminate(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let wait = a.get(1).and_then(Value::as_i64).unwrap_or(0);
    let wait = u64::try_from(wait).map_err(|_| {
        Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "\"timeout\" must not be negative",
        )
    })?;
    c.session
        .signal(pid(&a[0]), true, Duration::from_millis(wait))
        .map(Value::Bool)
}

fn pid(v: &Value) -> i32 {
    match v {
        Value::Int4(n) => *n,
        _ => unreachable!("an int4"),
    }
}

fn null(_: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    Ok(Value::Null)
}

fn names_of_the_session(r: &mut Registry) {
    r.f("version", &[], TEXT, STA, |_, _| {
        Ok(Value::from(format!(
            "PostgreSQL {SERVER_VERSION} (Canon {}) on {}-{}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH,
            std::env::consts::OS
        )))
    });
    for n in ["current_database", "current_catalog"] {
        r.f(n, &[], NAME, STA, |_, c| {
            Ok(Value::from(c.session.database()))
        });
    }
    for n in ["current_user", "user", "current_role"] {
        r.f(n, &[], NAME, STA, |_, c| {
            Ok(Value::from(c.session.current_user()))
        });
    }
    r.f("session_user", &[], NAME, STA, |_, c| {
        Ok(Value::from(c.session.session_user()))
    });
    // Which of the search path there are.
    r.lookup("current_schema", &[], NAME, |_, _, c| {
        Ok(c.session.schemas(false).into_iter().next().into())
    });
    r.lookup("current_schemas", &[BOOL], NAMEARRAY, |a, _, c| {
        schemas(a, c)
    });
}

fn signals(r: &mut Registry) {
    r.f("pg_cancel_backend", &[INT4], BOOL, VOL, cancel);
    r.f("pg_terminate_backend", &[INT4], BOOL, VOL, terminate);
    r.f("pg_terminate_backend", &[INT4, INT8], BOOL, VOL, terminate);
    r.does(OF_THE_NODE, &["pg_cancel_backend", "pg_terminate_backend"]);
}

fn sequences(r: &mut Registry) {
    r.f("nextval", &[REGCLASS], INT8, VOL, |a, c| {
        c.session.nextval(oid(&a[0])).map(Value::Int8)
    });
    r.f(NEXT_IDENTITY, &[REGCLASS], INT8, VOL, |a, c| {
        c.session.next_identity(oid(&a[0])).map(Value::Int8)
    });
    r.f("currval", &[REGCLASS], INT8, VOL, |a, c| {
        c.session.currval(oid(&a[0])).map(Value::Int8)
    });
    r.f("lastval", &[], INT8, VOL, |_, c| {
        c.session.lastval().map(Value::Int8)
    });
    r.f("setval", &[REGCLASS, INT8], INT8, VOL, setval);
    r.f("setval", &[REGCLASS, INT8, BOOL], INT8, VOL, setval);
    r.does(DRAWS, &["nextval", NEXT_IDENTITY]);
    r.does(SETS_SEQUENCE, &["setval"]);
}

fn lookups_by_name(r: &mut Registry) {
    r.f("format_type", &[OID, INT4], TEXT, STA_N, format_type);
    r.f("to_regclass", &[TEXT], REGCLASS, STA, |a, c| {
        lookup(a, Type::RegClass, c)
    });
    r.f("to_regtype", &[TEXT], REGTYPE, STA, |a, c| {
        lookup(a, Type::RegType, c)
    });
    r.f("to_regproc", &[TEXT], REGPROC, STA, |a, c| {
        lookup(a, Type::RegProc, c)
    });
    r.f("to_regnamespace", &[TEXT], REGNAMESPACE, STA, |a, c| {
        lookup(a, Type::RegNamespace, c)
    });
}

fn encodings(r: &mut Registry) {
    r.f("pg_encoding_to_char", &[INT4], NAME, STA, |a, _| {
        Ok(Value::text(match a[0].as_i64() {
            Some(0) => "SQL_ASCII",
            Some(6) => "UTF8",
            _ => "",
        }))
    });
    r.f("pg_char_to_encoding", &[NAME], INT4, STA, |a, _| {
        let plain = s(&a[0]).chars().map(like::lower);
        let plain = plain.filter(char::is_ascii_alphanumeric);
        Ok(Value::Int4(match &*plain.collect::<String>() {
            "utf8" => 6,
            "sqlascii" => 0,
            _ => -1,
        }))
    });
    r.f("getdatabaseencoding", &[], NAME, STA, |_, _| {
        Ok(Value::text("UTF8"))
    });
    r.f("pg_client_encoding", &[], NAME, STA, |_, c| {
        let name = c.session.setting("client_encoding");
        Ok(Value::from(name.unwrap_or_else(|| "UTF8".into())))
    });
}

fn notifications(r: &mut Registry) {
    r.f("pg_notification_queue_usage", &[], FLOAT8, VOL, |_, c| {
        Ok(Value::Float8(c.session.notification_usage()))
    });
    r.f("pg_notify", &[TEXT, TEXT], VOID, VOL_N, |a, c| {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        c.session.notify(&text(&a[0]), &text(&a[1]))?;
        Ok(Value::text(""))
    });
    r.does(WRITES, &["pg_notify"]);
    r.set("pg_listening_channels", &[], TEXT, STA, |_, _, c| {
        let all = c.session.listening_channels().into_iter();
        let rows: Vec<Vec<Value>> = all.map(|n| vec![Value::from(n)]).collect();
        Ok(Box::new(super::jsonb::Made(rows.into_iter())))
    });
}

/// Adds the functions of this file.
pub(super) fn register(r: &mut Registry) {
    catalog::register(r);
    super::replication::register(r);
    names_of_the_session(r);
    signals(r);
    sequences(r);
    lookups_by_name(r);
    encodings(r);
    notifications(r);
    r.t(
        "pg_typeof",
        &[ANY],
        REGTYPE,
        (Volatility::Stable, false),
        |_, t, _| Ok(Value::Oid(t[0].oid())),
    );
    r.f("current_setting", &[TEXT], TEXT, STA, current_setting);
    r.f("current_setting", &[TEXT, BOOL], TEXT, STA, current_setting);
    r.f("set_config", &[TEXT, TEXT, BOOL], TEXT, VOL_N, set_config);
    r.f("pg_backend_pid", &[], INT4, STA, |_, c| {
        Ok(Value::Int4(c.session.backend_pid()))
    });
    r.f("pg_sleep", &[FLOAT8], VOID, VOL, |a, c| {
        c.session.sleep(crate::types::ops::float::f64_of(&a[0]))?;
        Ok(Value::text(""))
    });
    r.f("pg_sleep_for", &[INTERVAL], VOID, VOL, sleep_for);
    r.f("gen_random_uuid", &[], UUID, VOL, uuid);
    for n in ["txid_current", "pg_current_xact_id"] {
        r.f(n, &[], INT8, STA, |_, c| {
            Ok(c.session.transaction_id(true).into())
        });
    }
    for n in ["txid_current_if_assigned", "pg_current_xact_id_if_assigned"] {
        r.f(n, &[], INT8, STA, |_, c| {
            Ok(c.session.transaction_id(false).into())
        });
    }
    r.f("pg_size_pretty", &[INT8], TEXT, IMM, |a, _| {
        size_pretty(&Numeric::from(a[0].as_i64().expect("an integer"))).map(Value::from)
    });
    r.f("pg_size_pretty", &[NUMERIC], TEXT, IMM, |a, _| {
        size_pretty(numeric::of(&a[0])).map(Value::from)
    });
    r.f("pg_size_bytes", &[TEXT], INT8, IMM, size_bytes);
    for n in ["inet_server_addr", "inet_client_addr"] {
        r.f(n, &[], TEXT, STA, null);
    }
    for n in ["inet_server_port", "inet_client_port"] {
        r.f(n, &[], INT4, STA, null);
    }
    r.f("pg_conf_load_time", &[], TIMESTAMPTZ, STA, |_, c| {
        Ok(Value::TimestampTz(c.session.server_start()))
    });
    r.f("pg_is_other_temp_schema", &[OID], BOOL, STA, |_, _| {
        Ok(Value::Bool(false))
    });
    r.f("pg_jit_available", &[], BOOL, STA, |_, _| {
        Ok(Value::Bool(false))
    });
    r.f("num_nulls", &[], INT4, IMM_N, |_, _| Ok(Value::Int4(0)));
    r.variadic("num_nulls", &[ANY], INT4, IMM_N, |a, _, _| {
        Ok(Value::Int4(a.iter().filter(|v| v.is_null()).count() as i32))
    });
    r.variadic("num_nonnulls", &[ANY], INT4, IMM_N, |a, _, _| {
        Ok(Value::Int4(a.iter().filter(|v| !v.is_null()).count() as i32))
    });
    r.f("hashtext", &[TEXT], INT4, IMM, |a, _| {
        Ok(Value::Int4(base::key::hash(0, s(&a[0]).as_bytes()) as i32))
    });
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn results_are_those_of_postgresql() {
        for (f, args, want) in [
            ("pg_typeof", &["#1"][..], "integer"),
            ("pg_typeof", &["{1}::int[]"], "integer[]"),
            ("pg_size_pretty", &["10239::int8"], "10239 bytes"),
            ("pg_size_pretty", &["10240::int8"], "10 kB"),
            ("pg_size_pretty", &["123456789::int8"], "118 MB"),
            ("pg_size_bytes", &["1.5 kB"], "1536"),
            ("pg_size_bytes", &["-10e-1 MB"], "-1048576"),
            (
                "format_type",
                &["1043::oid", "#24"],
                "character varying(20)",
            ),
            ("to_regtype", &["int"], "integer"),
            ("to_regtype", &["nope"], "NULL"),
            ("current_schemas", &["t::bool"], "{pg_catalog,public}"),
            ("current_setting", &["nope", "t::bool"], "NULL"),
            ("num_nulls", &["#1", "NULL"], "1"),
        ] {
            assert_eq!(call(f, args), want, "{f}{args:?}");
        }
        assert!(
            call("current_setting", &["nope"])
                .contains("42704: unrecognized configuration parameter")
        );
    }
}
