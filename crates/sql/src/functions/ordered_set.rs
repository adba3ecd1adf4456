//! Aggregates with WITHIN GROUP: percentiles and the most frequent value. Their last argument is the value that the rows are ordered by, so
//! the rows come in its order; the ones before it are the same for all rows of a group.

use super::registry::{Registry, names::*};
use super::{Accumulator, EvalContext, NoSession};
use crate::types::OutputSettings;
use crate::types::ops::{self, datetime};
use base::{Error, Result, SqlState, Type, Value};

/// Names of these aggregates.
pub const ORDERED_SETS: [&str; 3] = ["percentile_cont", "percentile_disc", "mode"];

/// Adds them.
pub(super) fn register(r: &mut Registry) {
    for t in [FLOAT8, INTERVAL] {
        r.agg("percentile_cont", &[FLOAT8, t], t, |_, _| {
            Box::new(Percentile::new(true))
        });
    }
    r.agg(
        "percentile_disc",
        &[FLOAT8, ANYELEMENT],
        ANYELEMENT,
        |_, _| Box::new(Percentile::new(false)),
    );
    r.agg(
        "percentile_cont",
        &[FLOAT8ARRAY, FLOAT8],
        FLOAT8ARRAY,
        |_, _| Box::new(Percentile::new(true)),
    );
    r.agg(
        "percentile_disc",
        &[FLOAT8ARRAY, ANYELEMENT],
        ANYARRAY,
        |t, _| {
            let mut p = Percentile::new(false);
            p.element = t[1];
            Box::new(p)
        },
    );
    r.agg("mode", &[ANYELEMENT], ANYELEMENT, |_, _| {
        Box::new(Mode::default())
    });
}

#[derive(Clone)]
struct Percentile {
    /// Between two values one in between is taken.
    continuous: bool,
    /// One, or an array of them.
    fraction: Value,
    values: Vec<Value>,
    /// The type of the values, where they make an array.
    element: Type,
}

impl Percentile {
    fn new(continuous: bool) -> Percentile {
        Percentile {
            continuous,
            fraction: Value::Null,
            values: vec![],
            element: Type::Float8,
        }
    }

    fn at(&self, fraction: &Value) -> Result<Value> {
        let Value::Float8(p) = *fraction else {
            return Ok(Value::Null);
        };
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("percentile value {p} is not between 0 and 1"),
            ));
        }
        let n = self.values.len();
        if n == 0 {
            return Ok(Value::Null);
        }
        if !self.continuous {
            let row = (p * n as f64).ceil() as usize;
            return Ok(self.values[row.max(1) - 1].clone());
        }
        let place = p * (n - 1) as f64;
        let (low, high) = (place.floor(), place.ceil());
        let (a, b) = (&self.values[low as usize], &self.values[high as usize]);
        match low == high {
            true => Ok(a.clone()),
            false => between(a, b, place - low),
        }
    }
}

impl Accumulator for Percentile {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        self.fraction.clone_from(&args[0]);
        if !args[1].is_null() {
            self.values.push(args[1].clone());
        }
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        match &self.fraction {
            Value::Array(a) => {
                // Over no values there is no array either.
                if self.values.is_empty() {
                    return Ok(Value::Null);
                }
                let items = a.items.iter().map(|p| self.at(p));
                let mut all = (**a).clone();
                all.element = self.element;
                all.items = items.collect::<Result<_>>()?;
                Ok(Value::Array(Box::new(all)))
            }
            p => self.at(p),
        }
    }
}

/// The value that lies this share of the way from `a` to `b`.
fn between(a: &Value, b: &Value, share: f64) -> Result<Value> {
    if let (Value::Float8(a), Value::Float8(b)) = (a, b) {
        return Ok(Value::Float8(a + (b - a) * share));
    }
    let settings = OutputSettings::default();
    let mut cx = EvalContext {
        settings: &settings,
        session: &NoSession,
    };
    let whole = datetime::interval_sub(&[b.clone(), a.clone()], &mut cx)?;
    let part = datetime::interval_times(&[whole, Value::Float8(share)], &mut cx)?;
    datetime::interval_add(&[a.clone(), part], &mut cx)
}

/// `mode`: of values that are equally frequent the first.
#[derive(Clone, Default)]
struct Mode {
    best: Option<(Value, u64)>,
    run: Option<(Value, u64)>,
}

impl Mode {
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if self.best.as_ref().is_none_or(|b| run.1 > b.1) {
            self.best = Some(run);
        }
    }
}

impl Accumulator for Mode {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let v = &args[0];
        if v.is_null() {
            return Ok(());
        }
        match &mut self.run {
            Some((x, n)) if ops::compare(x, v).is_eq() => *n += 1,
            _ => {
                self.end_run();
                self.run = Some((v.clone(), 1));
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Value> {
        self.end_run();
        Ok(self.best.map_or(Value::Null, |(v, _)| v))
    }
}
