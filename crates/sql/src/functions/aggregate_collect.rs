//! Aggregates that keep their input: `string_agg`, `array_agg`, `jsonb_agg`, `jsonb_object_agg`.

use super::Accumulator;
use super::jsonb::to_json;
use super::registry::{Registry, names::*};
use crate::types::OutputSettings;
use crate::types::json::Json;
use crate::types::text;
use base::{Array, Error, Result, SqlState, Type, Value};

/// Adds the collecting aggregates.
pub(super) fn register(r: &mut Registry) {
    r.agg("string_agg", &[TEXT, TEXT], TEXT, |_, _| {
        Box::new(Strings(None))
    });
    r.agg("string_agg", &[BYTEA, BYTEA], BYTEA, |_, _| {
        Box::new(Bytes(None))
    });
    r.agg("array_agg", &[ANYNONARRAY], ANYARRAY, |t, _| {
        Box::new(Items {
            element: t[0],
            items: vec![],
            inner: None,
            any: false,
            arrays: false,
        })
    });
    r.agg("array_agg", &[ANYARRAY], ANYARRAY, |t, _| {
        Box::new(Items {
            element: t[0].element().unwrap_or(t[0]),
            items: vec![],
            inner: None,
            any: false,
            arrays: true,
        })
    });
    r.agg("jsonb_agg", &[ANYELEMENT], JSONB, |t, s| {
        Box::new(Elements {
            ty: t[0],
            settings: s.clone(),
            items: None,
        })
    });
    r.agg("jsonb_object_agg", &[ANY, ANY], JSONB, |t, s| {
        Box::new(Members {
            types: [t[0], t[1]],
            settings: s.clone(),
            pairs: None,
        })
    });
}

#[derive(Clone)]
struct Strings(Option<String>);

impl Accumulator for Strings {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Some(s) = args[0].as_str() {
            match &mut self.0 {
                None => self.0 = Some(s.into()),
                Some(all) => {
                    all.push_str(args[1].as_str().unwrap_or(""));
                    all.push_str(s);
                }
            }
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.0.into())
    }
}

#[derive(Clone)]
struct Bytes(Option<Vec<u8>>);

impl Accumulator for Bytes {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Value::Bytea(b) = &args[0] {
            match &mut self.0 {
                None => self.0 = Some(b.to_vec()),
                Some(all) => {
                    if let Value::Bytea(sep) = &args[1] {
                        all.extend_from_slice(sep);
                    }
                    all.extend_from_slice(b);
                }
            }
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.0.map_or(Value::Null, |b| Value::Bytea(b.into())))
    }
}

#[derive(Clone)]
struct Items {
    element: Type,
    items: Vec<Value>,
    /// Dimensions and number of the arrays, when arrays are collected.
    inner: Option<(Vec<(i32, i32)>, i32)>,
    any: bool,
    /// It collects arrays.
    arrays: bool,
}

impl Accumulator for Items {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let bad = |m: &str| Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, m);
        self.any = true;
        if self.arrays && args[0].is_null() {
            let what = "cannot accumulate null arrays";
            return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what));
        }
        match &args[0] {
            Value::Array(a) if self.element.element().is_none() && a.element == self.element => {
                if a.items.is_empty() {
                    return Err(bad("cannot accumulate empty arrays"));
                }
                match &mut self.inner {
                    None => self.inner = Some((a.dims.clone(), 1)),
                    Some((dims, n)) => {
                        if *dims != a.dims {
                            return Err(bad(
                                "cannot accumulate arrays of different dimensionality",
                            ));
                        }
                        *n += 1;
                    }
                }
                self.items.extend(a.items.iter().cloned());
            }
            v => self.items.push(v.clone()),
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        if !self.any {
            return Ok(Value::Null);
        }
        let mut a = Array::one_dim(self.element, self.items);
        if let Some((dims, n)) = self.inner {
            a.dims = [(n, 1)].into_iter().chain(dims).collect();
        }
        Ok(Value::Array(Box::new(a)))
    }
}

#[derive(Clone)]
struct Elements {
    ty: Type,
    settings: OutputSettings,
    items: Option<Vec<Json>>,
}

impl Accumulator for Elements {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let j = to_json(&args[0], self.ty, &self.settings)?;
        self.items.get_or_insert_default().push(j);
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self
            .items
            .map_or(Value::Null, |i| Json::Array(i).into_value()))
    }
}

#[derive(Clone)]
struct Members {
    types: [Type; 2],
    settings: OutputSettings,
    pairs: Option<Vec<(String, Json)>>,
}

impl Accumulator for Members {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        super::jsonb::may_be_key(self.types[0])?;
        if args[0].is_null() {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "field name must not be null",
            ));
        }
        let k = text::to_string(&args[0], self.types[0], &self.settings);
        let v = to_json(&args[1], self.types[1], &self.settings)?;
        self.pairs.get_or_insert_default().push((k, v));
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self
            .pairs
            .map_or(Value::Null, |p| Json::object(p).into_value()))
    }
}
