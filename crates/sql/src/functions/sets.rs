//! Functions that return sets: series, the elements of arrays.

use super::jsonb::Made;
use super::registry::{Registry, names::*};
use super::{EvalContext, RowSource};
use crate::types::OutputSettings;
use crate::types::ops::{array, datetime, numeric};
use base::{Error, Interval, Numeric, Result, SqlState, Type, Value};
use std::cmp::Ordering;

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn bad(message: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

struct Ints {
    next: Option<i64>,
    stop: i64,
    step: i64,
    wide: bool,
}

impl RowSource for Ints {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        let Some(x) = self.next.filter(|x| {
            if self.step > 0 {
                *x <= self.stop
            } else {
                *x >= self.stop
            }
        }) else {
            return Ok(false);
        };
        self.next = x.checked_add(self.step);
        out.push(if self.wide {
            Value::Int8(x)
        } else {
            Value::Int4(x as i32)
        });
        Ok(true)
    }
}

fn ints(a: &[Value], types: &[Type], _: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let n = |i: usize| a.get(i).and_then(Value::as_i64);
    let step = n(2).unwrap_or(1);
    if step == 0 {
        return Err(bad("step size cannot equal zero"));
    }
    Ok(Box::new(Ints {
        next: n(0),
        stop: n(1).expect("an integer"),
        step,
        wide: types[0] == Type::Int8,
    }))
}

struct Numbers {
    next: Numeric,
    stop: Numeric,
    step: Numeric,
}

impl RowSource for Numbers {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        let o = self.next.cmp(&self.stop);
        if o == if numeric::signum(&self.step) > 0 {
            Ordering::Greater
        } else {
            Ordering::Less
        } {
            return Ok(false);
        }
        out.push(Value::from(self.next.clone()));
        self.next = numeric::add(&self.next, &self.step)?;
        Ok(true)
    }
}

fn numbers(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let one = Numeric::from(1);
    let step = a.get(2).map_or(&one, numeric::of);
    for (n, what) in [
        (numeric::of(&a[0]), "start value"),
        (numeric::of(&a[1]), "stop value"),
        (step, "step size"),
    ] {
        match n {
            Numeric::Finite(_) => {}
            Numeric::NaN => return Err(bad(&format!("{what} cannot be NaN"))),
            _ => return Err(bad(&format!("{what} cannot be infinity"))),
        }
    }
    if numeric::signum(step) == 0 {
        return Err(bad("step size cannot equal zero"));
    }
    Ok(Box::new(Numbers {
        next: numeric::of(&a[0]).clone(),
        stop: numeric::of(&a[1]).clone(),
        step: step.clone(),
    }))
}

struct Moments {
    next: i64,
    stop: i64,
    step: Interval,
    /// The settings whose zone moves the clock; `None` for timestamps without time zone.
    zoned: Option<Box<OutputSettings>>,
}

impl RowSource for Moments {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        let past = if self.step.span() > 0 {
            self.next > self.stop
        } else {
            self.next < self.stop
        };
        if past {
            return Ok(false);
        }
        match &self.zoned {
            None => {
                out.push(Value::Timestamp(self.next));
                self.next = datetime::add_local(self.next, &self.step)?;
            }
            Some(s) => {
                out.push(Value::TimestampTz(self.next));
                self.next = datetime::add_instant(self.next, &self.step, s)?;
            }
        }
        Ok(true)
    }
}

fn moments(a: &[Value], types: &[Type], c: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let t = |v: &Value| match v {
        Value::Timestamp(t) | Value::TimestampTz(t) => *t,
        v => panic!("{v:?} is no timestamp"),
    };
    let step = *datetime::iv(&a[2]);
    if step.span() == 0 {
        return Err(bad("step size cannot equal zero"));
    }
    Ok(Box::new(Moments {
        next: t(&a[0]),
        stop: t(&a[1]),
        step,
        zoned: (types[0] == Type::TimestampTz).then(|| Box::new(c.settings.clone())),
    }))
}

struct Elements {
    items: std::vec::IntoIter<Value>,
}

impl RowSource for Elements {
    fn next(&mut self, out: &mut Vec<Value>) -> Result<bool> {
        out.clear();
        out.extend(self.items.next());
        Ok(!out.is_empty())
    }
}

fn unnest(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    Ok(Box::new(Elements {
        items: array::of(&a[0]).items.clone().into_iter(),
    }))
}

fn subscripts(a: &[Value], _: &[Type], _: Ctx<'_, '_>) -> Result<Box<dyn RowSource>> {
    let dim = a[1].as_i64().expect("an integer");
    let reverse = a.get(2).and_then(Value::as_bool).unwrap_or(false);
    let d = usize::try_from(dim - 1)
        .ok()
        .and_then(|d| array::of(&a[0]).dims.get(d));
    let (len, lower) = d.copied().unwrap_or((0, 1));
    let mut rows: Vec<Vec<Value>> = (lower..lower + len).map(|i| vec![Value::Int4(i)]).collect();
    if reverse {
        rows.reverse();
    }
    Ok(Box::new(Made(rows.into_iter())))
}

/// Adds the set-returning functions of this file.
pub(super) fn register(r: &mut Registry) {
    for t in [INT4, INT8] {
        r.set("generate_series", &[t, t], t, IMM, ints);
        r.set("generate_series", &[t, t, t], t, IMM, ints);
    }
    r.set(
        "generate_series",
        &[NUMERIC, NUMERIC],
        NUMERIC,
        IMM,
        numbers,
    );
    r.set(
        "generate_series",
        &[NUMERIC, NUMERIC, NUMERIC],
        NUMERIC,
        IMM,
        numbers,
    );
    r.set(
        "generate_series",
        &[TIMESTAMP, TIMESTAMP, INTERVAL],
        TIMESTAMP,
        IMM,
        moments,
    );
    r.set(
        "generate_series",
        &[TIMESTAMPTZ, TIMESTAMPTZ, INTERVAL],
        TIMESTAMPTZ,
        STA,
        moments,
    );
    r.set("unnest", &[ANYARRAY], ANYELEMENT, IMM, unnest);
    r.set(
        "generate_subscripts",
        &[ANYARRAY, INT4],
        INT4,
        IMM,
        subscripts,
    );
    r.set(
        "generate_subscripts",
        &[ANYARRAY, INT4, BOOL],
        INT4,
        IMM,
        subscripts,
    );
}
