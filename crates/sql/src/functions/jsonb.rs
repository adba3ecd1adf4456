//! Functions of `jsonb`, and of `json` where they are the same.

use super::registry::{Registry, names::*};
use super::{EvalContext, RowSource};
use crate::types::json::{self, Json};
use crate::types::json_raw::{self, Raw};
use crate::types::ops::jsonb::{self as ops, Change, change, path, walk};
use crate::types::{DateStyle, OutputSettings, text};
use base::{Array, Error, Numeric, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// Any value as JSON: numbers and booleans as such, arrays as arrays, everything else as a string; times in ISO 8601.
pub(crate) fn to_json(v: &Value, ty: Type, settings: &OutputSettings) -> Result<Json> {
    Ok(match v {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => {
            Json::Number(Numeric::from(v.as_i64().expect("an integer")))
        }
        Value::Numeric(n) => match **n {
            Numeric::Finite(_) => Json::Number((**n).clone()),
            _ => Json::String(n.to_string()),
        },
        Value::Float4(_) | Value::Float8(_) => {
            let s = text::to_string(v, ty, settings);
            match crate::types::numeric::parse(&s) {
                Ok(n @ Numeric::Finite(_)) => Json::Number(n),
                _ => Json::String(s),
            }
        }
        Value::Json(_) => json::of(v)?,
        Value::Array(a) => nested(a, 0, &mut 0, settings)?,
        Value::Row(r) => {
            let field = |(a, v): (&base::user_type::Attribute, &Value)| {
                Ok((a.name.clone(), to_json(v, a.ty.ty, settings)?))
            };
            Json::object(r.live().map(field).collect::<Result<_>>()?)
        }
        Value::Date(_) | Value::Timestamp(_) | Value::TimestampTz(_) => {
            let iso = OutputSettings {
                datestyle: DateStyle::Iso,
                ..settings.clone()
            };
            let mut s = text::to_string(v, ty, &iso).replacen(' ', "T", 1);
            if matches!(v, Value::TimestampTz(_)) {
                // Offsets always show their minutes here.
                let zone = s.rfind(['+', '-']).unwrap_or(0);
                if s.len() - zone == 3 {
                    s.push_str(":00");
                }
            }
            Json::String(s)
        }
        v => Json::String(text::to_string(v, ty, settings)),
    })
}

fn nested(a: &Array, dim: usize, at: &mut usize, settings: &OutputSettings) -> Result<Json> {
    if a.dims.is_empty() {
        return Ok(Json::Array(vec![]));
    }
    let mut out = Vec::with_capacity(a.dims[dim].0 as usize);
    for _ in 0..a.dims[dim].0 {
        if dim + 1 < a.dims.len() {
            out.push(nested(a, dim + 1, at, settings)?);
        } else {
            out.push(to_json(&a.items[*at], a.element, settings)?);
            *at += 1;
        }
    }
    Ok(Json::Array(out))
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// 22023 for types whose values are no keys.
pub(super) fn may_be_key(ty: Type) -> Result<()> {
    match ty.element().is_some() || matches!(ty, Type::Json | Type::Jsonb | Type::Record) {
        true => Err(bad(
            "key value must be scalar, not array, composite, or json",
        )),
        false => Ok(()),
    }
}

fn build_array(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let items = a.iter().zip(types).map(|(v, t)| to_json(v, *t, c.settings));
    Ok(Json::Array(items.collect::<Result<_>>()?).into_value())
}

fn build_object(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    if !a.len().is_multiple_of(2) {
        return Err(bad("argument list must have even number of elements").hint(
            "The arguments of jsonb_build_object() must consist of alternating keys and values.",
        ));
    }
    let mut pairs = Vec::with_capacity(a.len() / 2);
    for i in (0..a.len()).step_by(2) {
        if a[i].is_null() {
            return Err(bad(format!("argument {}: key must not be null", i + 1)));
        }
        may_be_key(types[i])?;
        let k = text::to_string(&a[i], types[i], c.settings);
        pairs.push((k, to_json(&a[i + 1], types[i + 1], c.settings)?));
    }
    Ok(Json::object(pairs).into_value())
}

fn set(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut j = json::of(&a[0])?;
    if !matches!(j, Json::Object(_) | Json::Array(_)) {
        return Err(bad("cannot set path in scalar"));
    }
    let p = path(&a[1]);
    let create = a.get(3).and_then(Value::as_bool).unwrap_or(true);
    if !p.is_empty() {
        change(
            &mut j,
            &p,
            0,
            &Change::Set {
                new: json::of(&a[2])?,
                create,
            },
        )?;
    }
    Ok(j.into_value())
}

fn insert(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut j = json::of(&a[0])?;
    if !matches!(j, Json::Object(_) | Json::Array(_)) {
        return Err(bad("cannot set path in scalar"));
    }
    let p = path(&a[1]);
    let after = a.get(3).and_then(Value::as_bool).unwrap_or(false);
    if !p.is_empty() {
        change(
            &mut j,
            &p,
            0,
            &Change::Insert {
                new: json::of(&a[2])?,
                after,
            },
        )?;
    }
    Ok(j.into_value())
}

fn strip_nulls(j: Json) -> Json {
    match j {
        Json::Object(m) => Json::Object(
            m.into_iter()
                .filter(|(_, v)| *v != Json::Null)
                .map(|(k, v)| (k, strip_nulls(v)))
                .collect(),
        ),
        Json::Array(a) => Json::Array(a.into_iter().map(strip_nulls).collect()),
        j => j,
    }
}

fn extract<'a>(j: &'a Json, args: &[Value]) -> Option<&'a Json> {
    let p: Vec<Option<&str>> = args.iter().map(Value::as_str).collect();
    walk(j, &p)
}

fn array_length(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    match json_raw::open_pieces(ops::raw(&a[0])?)? {
        Raw::Array(v) => Ok(Value::Int4(v.len() as i32)),
        Raw::Object(_) => Err(bad("cannot get array length of a non-array")),
        _ => Err(bad("cannot get array length of a scalar")),
    }
}

fn object_from_arrays(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let pairs = pairs_of_arrays(a)?;
    let json = |s: &str| Json::String(s.into());
    let value = |v: Option<&str>| v.map_or(Json::Null, json);
    let pairs = pairs.into_iter().map(|(k, v)| (k.to_owned(), value(v)));
    Ok(Json::object(pairs.collect()).into_value())
}

/// As `json`, whose members stay as they come.
fn raw_object_from_arrays(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let quoted = |s: &str| Json::String(s.into()).to_text();
    let member = |(k, v): (&str, Option<&str>)| {
        let value = v.map_or("null".to_owned(), quoted);
        format!("{} : {value}", quoted(k))
    };
    let members: Vec<String> = pairs_of_arrays(a)?.into_iter().map(member).collect();
    Ok(Value::Json(format!("{{{}}}", members.join(", ")).into()))
}

/// 2202E for what is neither a list nor a list of pairs (or, of two arrays, no list).
fn may_be_pairs(v: &Value, alone: bool) -> Result<()> {
    let wrong = |m: &str| Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, m));
    let dims = match v {
        Value::Array(a) => &a.dims[..],
        _ => return Ok(()),
    };
    match dims {
        [] | [_] => Ok(()),
        [_, (2, _)] if alone => Ok(()),
        [_, _] if alone => wrong("array must have two columns"),
        _ => wrong("wrong number of array subscripts"),
    }
}

fn pairs_of_arrays(a: &[Value]) -> Result<Vec<(&str, Option<&str>)>> {
    for v in a {
        may_be_pairs(v, a.len() == 1)?;
    }
    let (k, v) = match a {
        [one] => {
            let items = path(one);
            if !items.len().is_multiple_of(2) {
                return Err(Error::new(
                    SqlState::ARRAY_SUBSCRIPT_ERROR,
                    "array must have even number of elements",
                ));
            }
            (
                items.iter().step_by(2).copied().collect::<Vec<_>>(),
                items.iter().skip(1).step_by(2).copied().collect::<Vec<_>>(),
            )
        }
        [k, v] => (path(k), path(v)),
        _ => unreachable!("one or two arguments"),
    };
    if k.len() != v.len() {
        return Err(Error::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "mismatched array dimensions",
        ));
    }
    let mut pairs = Vec::new();
    for (k, v) in k.into_iter().zip(v) {
        let k = k.ok_or_else(|| {
            Error::new(
                SqlState::NULL_VALUE_NOT_ALLOWED,
                "null value not allowed for object key",
            )
        })?;
        pairs.push((k, v));
    }
    Ok(pairs)
}

/// Rows made ahead of time.
pub(super) struct Made(pub std::vec::IntoIter<Vec<Value>>);

impl RowSource for Made {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        match self.0.next() {
            Some(row) => {
                *out = row;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

fn rows(rows: Vec<Vec<Value>>) -> Result<Box<dyn RowSource>> {
    Ok(Box::new(Made(rows.into_iter())))
}

fn elements(a: &[Value], make: fn(Json) -> Value) -> Result<Box<dyn RowSource>> {
    match json::of(&a[0])? {
        Json::Array(v) => rows(v.into_iter().map(|j| vec![make(j)]).collect()),
        Json::Object(_) => Err(bad("cannot extract elements from an object")),
        _ => Err(bad("cannot extract elements from a scalar")),
    }
}

fn each(a: &[Value], name: &str, make: fn(Json) -> Value) -> Result<Box<dyn RowSource>> {
    match json::of(&a[0])? {
        Json::Object(m) => rows(
            m.into_iter()
                .map(|(k, v)| vec![Value::from(k), make(v)])
                .collect(),
        ),
        _ => Err(bad(format!("cannot call {name} on a non-object"))),
    }
}

fn keys(a: &[Value]) -> Result<Box<dyn RowSource>> {
    match json::of(&a[0])? {
        Json::Object(m) => rows(m.into_iter().map(|(k, _)| vec![Value::from(k)]).collect()),
        Json::Array(_) => Err(bad("cannot call jsonb_object_keys on an array")),
        _ => Err(bad("cannot call jsonb_object_keys on a scalar")),
    }
}

type Piece = fn(&str) -> Result<Value>;

fn raw_elements(a: &[Value], make: Piece) -> Result<Box<dyn RowSource>> {
    match json_raw::open_pieces(ops::raw(&a[0])?)? {
        Raw::Array(v) => rows(
            v.into_iter()
                .map(|s| Ok(vec![make(s)?]))
                .collect::<Result<_>>()?,
        ),
        Raw::Object(_) => Err(bad("cannot call json_array_elements on a non-array")),
        Raw::Scalar(_) => Err(bad("cannot call json_array_elements on a scalar")),
    }
}

fn raw_each(a: &[Value], name: &str, make: Piece) -> Result<Box<dyn RowSource>> {
    let Raw::Object(m) = json_raw::open(ops::raw(&a[0])?)? else {
        return Err(bad(format!("cannot call {name} on a non-object")));
    };
    let row = |(k, s): (String, &str)| Ok(vec![Value::from(k), make(s)?]);
    rows(m.into_iter().map(row).collect::<Result<_>>()?)
}

const EACH: &[(&str, Type)] = &[("key", Type::Text), ("value", Type::Jsonb)];
const EACH_JSON: &[(&str, Type)] = &[("key", Type::Text), ("value", Type::Json)];
const EACH_TEXT: &[(&str, Type)] = &[("key", Type::Text), ("value", Type::Text)];

/// What stands at a path.
fn extractions(r: &mut Registry) {
    r.variadic(
        "jsonb_extract_path",
        &[JSONB, TEXT],
        JSONB,
        IMM,
        |a, _, _| {
            let j = json::of(&a[0])?;
            let found = extract(&j, &a[1..]).cloned();
            Ok(found.map_or(Value::Null, Json::into_value))
        },
    );
    let name = "jsonb_extract_path_text";
    r.variadic(name, &[JSONB, TEXT], TEXT, IMM, |a, _, _| {
        let j = json::of(&a[0])?;
        let found = extract(&j, &a[1..]).cloned();
        Ok(found.map_or(Value::Null, Json::into_text_value))
    });
    r.variadic("json_extract_path", &[JSON, TEXT], JSON, IMM, |a, _, _| {
        let path: Vec<Option<&str>> = a[1..].iter().map(Value::as_str).collect();
        Ok(json_raw::value(json_raw::walk(ops::raw(&a[0])?, &path)?))
    });
    let name = "json_extract_path_text";
    r.variadic(name, &[JSON, TEXT], TEXT, IMM, |a, _, _| {
        let path: Vec<Option<&str>> = a[1..].iter().map(Value::as_str).collect();
        json_raw::text(json_raw::walk(ops::raw(&a[0])?, &path)?)
    });
}

/// Members as rows.
fn members(r: &mut Registry) {
    r.records("jsonb_each", &[JSONB], EACH, IMM, |a, _, _| {
        each(a, "jsonb_each", Json::into_value)
    });
    r.records("json_each", &[JSON], EACH_JSON, IMM, |a, _, _| {
        raw_each(a, "json_each", |s| Ok(json_raw::value(Some(s))))
    });
    r.records("jsonb_each_text", &[JSONB], EACH_TEXT, IMM, |a, _, _| {
        each(a, "jsonb_each_text", Json::into_text_value)
    });
    r.records("json_each_text", &[JSON], EACH_TEXT, IMM, |a, _, _| {
        raw_each(a, "json_each_text", |s| json_raw::text(Some(s)))
    });
    r.set("jsonb_array_elements", &[JSONB], JSONB, IMM, |a, _, _| {
        elements(a, Json::into_value)
    });
    r.set(
        "jsonb_array_elements_text",
        &[JSONB],
        TEXT,
        IMM,
        |a, _, _| elements(a, Json::into_text_value),
    );
    r.set("jsonb_object_keys", &[JSONB], TEXT, IMM, |a, _, _| keys(a));
    r.set("json_array_elements", &[JSON], JSON, IMM, |a, _, _| {
        raw_elements(a, |s| Ok(json_raw::value(Some(s))))
    });
    r.set("json_array_elements_text", &[JSON], TEXT, IMM, |a, _, _| {
        raw_elements(a, |s| json_raw::text(Some(s)))
    });
    r.set(
        "json_object_keys",
        &[JSON],
        TEXT,
        IMM,
        |a, _, _| match json_raw::open(ops::raw(&a[0])?)? {
            Raw::Object(m) => rows(m.into_iter().map(|(k, _)| vec![Value::from(k)]).collect()),
            Raw::Array(_) => Err(bad("cannot call json_object_keys on an array")),
            Raw::Scalar(_) => Err(bad("cannot call json_object_keys on a scalar")),
        },
    );
}

/// Adds the JSON functions.
pub(super) fn register(r: &mut Registry) {
    r.t("to_jsonb", &[ANYELEMENT], JSONB, STA, |a, t, c| {
        Ok(to_json(&a[0], t[0], c.settings)?.into_value())
    });
    r.t("jsonb_build_array", &[], JSONB, STA_N, build_array);
    r.variadic("jsonb_build_array", &[ANY], JSONB, STA_N, build_array);
    r.t("jsonb_build_object", &[], JSONB, STA_N, build_object);
    r.variadic("jsonb_build_object", &[ANY], JSONB, STA_N, build_object);
    for args in [&[TEXTARRAY][..], &[TEXTARRAY, TEXTARRAY]] {
        r.f("jsonb_object", args, JSONB, IMM, object_from_arrays);
        r.f("json_object", args, JSON, IMM, raw_object_from_arrays);
    }
    for (n, arg) in [("jsonb_typeof", JSONB), ("json_typeof", JSON)] {
        r.f(n, &[arg], TEXT, IMM, |a, _| {
            json::kind_of_text(ops::raw(&a[0])?).map(Value::text)
        });
    }
    for (n, arg) in [("jsonb_array_length", JSONB), ("json_array_length", JSON)] {
        r.f(n, &[arg], INT4, IMM, array_length);
    }
    extractions(r);
    r.f("jsonb_set", &[JSONB, TEXTARRAY, JSONB], JSONB, IMM, set);
    r.f(
        "jsonb_set",
        &[JSONB, TEXTARRAY, JSONB, BOOL],
        JSONB,
        IMM,
        set,
    );
    r.f(
        "jsonb_insert",
        &[JSONB, TEXTARRAY, JSONB],
        JSONB,
        IMM,
        insert,
    );
    r.f(
        "jsonb_insert",
        &[JSONB, TEXTARRAY, JSONB, BOOL],
        JSONB,
        IMM,
        insert,
    );
    r.f("jsonb_strip_nulls", &[JSONB], JSONB, IMM, |a, _| {
        Ok(strip_nulls(json::of(&a[0])?).into_value())
    });
    r.f("json_strip_nulls", &[JSON], JSON, IMM, |a, _| {
        let mut out = String::new();
        json_raw::without_nulls(ops::raw(&a[0])?, &mut out)?;
        Ok(Value::Json(out.into()))
    });
    r.f("jsonb_pretty", &[JSONB], TEXT, IMM, |a, _| {
        let mut s = String::new();
        json::of(&a[0])?.write_pretty(0, &mut s);
        Ok(Value::from(s))
    });
    for (n, f) in [
        ("jsonb_contains", ops::op_contains as super::ScalarFn),
        ("jsonb_contained", ops::op_contained),
        ("jsonb_concat", ops::concat),
    ] {
        r.f(
            n,
            &[JSONB, JSONB],
            if n == "jsonb_concat" { JSONB } else { BOOL },
            IMM,
            f,
        );
    }
    r.f("jsonb_exists", &[JSONB, TEXT], BOOL, IMM, ops::exists);
    members(r);
}
