//! Functions that make `json`, which keeps the text that they write: members stay in their order, and equal keys are all there.
//! The blanks are PostgreSQL's. (`jsonb` has one text for one value: see `jsonb`.)

use super::registry::{Registry, names::*};
use super::{Accumulator, EvalContext};
use crate::types::json::write_string;
use crate::types::{OutputSettings, text};
use base::{Array, Error, Numeric, Result, SqlState, Type, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

/// Appends any value as JSON.
fn write(v: &Value, ty: Type, settings: &OutputSettings, out: &mut String) -> Result<()> {
    match v {
        Value::Json(s) => out.push_str(s),
        Value::Array(a) => array(a, 0, &mut 0, settings, out)?,
        Value::Row(r) => {
            out.push('{');
            for (i, (a, v)) in r.live().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(&a.name, out);
                out.push(':');
                write(v, a.ty.ty, settings, out)?;
            }
            out.push('}');
        }
        Value::Float4(_) | Value::Float8(_) => {
            let s = text::to_string(v, ty, settings);
            match crate::types::numeric::parse(&s) {
                Ok(Numeric::Finite(_)) => out.push_str(&s),
                _ => write_string(&s, out),
            }
        }
        v => super::jsonb::to_json(v, ty, settings)?.write(out),
    }
    Ok(())
}

fn array(
    a: &Array,
    dim: usize,
    at: &mut usize,
    settings: &OutputSettings,
    out: &mut String,
) -> Result<()> {
    out.push('[');
    for i in 0..a.dims.get(dim).map_or(0, |d| d.0) {
        if i > 0 {
            out.push(',');
        }
        if dim + 1 < a.dims.len() {
            array(a, dim + 1, at, settings, out)?;
        } else {
            write(&a.items[*at], a.element, settings, out)?;
            *at += 1;
        }
    }
    out.push(']');
    Ok(())
}

fn of_any(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let mut out = String::new();
    write(&a[0], types[0], c.settings, &mut out)?;
    Ok(Value::Json(out.into()))
}

fn build_array(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    let mut out = String::from("[");
    for (i, (v, t)) in a.iter().zip(types).enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write(v, *t, c.settings, &mut out)?;
    }
    out.push(']');
    Ok(Value::Json(out.into()))
}

/// An object of keys and values in turn, with this between members and between a key and its value.
fn object(a: &[Value], types: &[Type], c: Ctx<'_, '_>, comma: &str, colon: &str) -> Result<Value> {
    let bad = |m: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, m);
    if !a.len().is_multiple_of(2) {
        return Err(
            bad("argument list must have even number of elements".into()).hint(
                "The arguments of json_build_object() must consist of alternating keys and values.",
            ),
        );
    }
    let mut out = String::from("{");
    for i in (0..a.len()).step_by(2) {
        if a[i].is_null() {
            return Err(bad(format!("argument {} cannot be null", i + 1)));
        }
        if i > 0 {
            out.push_str(comma);
        }
        super::jsonb::may_be_key(types[i])?;
        write_string(&text::to_string(&a[i], types[i], c.settings), &mut out);
        out.push_str(colon);
        write(&a[i + 1], types[i + 1], c.settings, &mut out)?;
    }
    out.push('}');
    Ok(Value::Json(out.into()))
}

fn build_object(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    object(a, types, c, ", ", " : ")
}

/// What the binder makes of a row's names and values.
fn row(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Value> {
    object(a, types, c, ",", ":")
}

/// `json_agg`.
#[derive(Clone)]
struct Elements {
    ty: Type,
    settings: OutputSettings,
    text: Option<String>,
}

impl Accumulator for Elements {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let row = self.ty == Type::Record || self.ty.composite().is_some();
        let deep = row || self.ty.element().is_some();
        let out = match &mut self.text {
            Some(t) => {
                t.push_str(if deep { ", \n " } else { ", " });
                t
            }
            none => none.insert("[".into()),
        };
        write(&args[0], self.ty, &self.settings, out)
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.text.map_or(Value::Null, |mut t| {
            t.push(']');
            Value::Json(t.into())
        }))
    }
}

/// `json_object_agg`.
#[derive(Clone)]
struct Members {
    types: [Type; 2],
    settings: OutputSettings,
    text: Option<String>,
}

impl Accumulator for Members {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if args[0].is_null() {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "field name must not be null",
            ));
        }
        super::jsonb::may_be_key(self.types[0])?;
        let out = match &mut self.text {
            Some(t) => {
                t.push_str(", ");
                t
            }
            none => none.insert("{ ".into()),
        };
        let key = text::to_string(&args[0], self.types[0], &self.settings);
        write_string(&key, out);
        out.push_str(" : ");
        write(&args[1], self.types[1], &self.settings, out)
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.text.map_or(Value::Null, |mut t| {
            t.push_str(" }");
            Value::Json(t.into())
        }))
    }
}

/// Adds them.
pub(super) fn register(r: &mut Registry) {
    r.t("to_json", &[ANYELEMENT], JSON, STA, of_any);
    r.t("array_to_json", &[ANYARRAY], JSON, STA, of_any);
    r.t("json_build_array", &[], JSON, STA_N, build_array);
    r.variadic("json_build_array", &[ANY], JSON, STA_N, build_array);
    r.t("json_build_object", &[], JSON, STA_N, build_object);
    r.variadic("json_build_object", &[ANY], JSON, STA_N, build_object);
    r.t("row_to_json", &[], JSON, STA_N, row);
    r.variadic("row_to_json", &[ANY], JSON, STA_N, row);
    r.agg("json_agg", &[ANYELEMENT], JSON, |t, s| {
        Box::new(Elements {
            ty: t[0],
            settings: s.clone(),
            text: None,
        })
    });
    r.agg("json_object_agg", &[ANY, ANY], JSON, |t, s| {
        Box::new(Members {
            types: [t[0], t[1]],
            settings: s.clone(),
            text: None,
        })
    });
}
