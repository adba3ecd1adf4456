//! Aggregates: the table and the states.
//!
//! Integers are summed in 64 or 128 bits and become `numeric` only at the end. Variances of integers and numerics are exact
//! (N * sum of squares - square of the sum); those of floats use the method of Youngs and Cramer, as PostgreSQL does.

use super::registry::{Registry, names::*};
use super::signature::Sig;
use super::{Accumulator, AccumulatorFn, aggregate_collect as collect, aggregate_stats as stats};
use crate::types::cast::float_range;
use crate::types::numeric::from_scaled;
use crate::types::ops::{compare, datetime, numeric};
use crate::types::out_of_range;
use base::{Error, Interval, Numeric, Result, Type, Value};
use num_bigint::BigInt;

/// `sum` and `avg`.
fn sums(r: &mut Registry) {
    let narrow: AccumulatorFn = |_, _| Box::new(SumInt::default());
    r.agg("sum", &[INT2], INT8, narrow);
    r.agg("sum", &[INT4], INT8, narrow);
    r.agg("sum", &[INT8], NUMERIC, |_, _| Box::new(SumWide::default()));
    r.agg("sum", &[NUMERIC], NUMERIC, |_, _| {
        Box::new(SumNumeric::default())
    });
    r.agg("sum", &[FLOAT8], FLOAT8, |_, _| {
        Box::new(SumFloat::default())
    });
    r.agg("sum", &[FLOAT4], FLOAT4, |_, _| {
        Box::new(SumFloat4::default())
    });
    r.agg("sum", &[INTERVAL], INTERVAL, |_, _| {
        Box::new(SumInterval {
            average: false,
            ..Default::default()
        })
    });
    let wide: AccumulatorFn = |_, _| Box::new(AvgInt::default());
    for t in [INT2, INT4, INT8] {
        r.agg("avg", &[t], NUMERIC, wide);
    }
    r.agg("avg", &[NUMERIC], NUMERIC, |_, _| {
        Box::new(SumNumeric {
            average: true,
            ..Default::default()
        })
    });
    for t in [FLOAT4, FLOAT8] {
        r.agg("avg", &[t], FLOAT8, |_, _| {
            Box::new(stats::FloatMoments::average())
        });
    }
    r.agg("avg", &[INTERVAL], INTERVAL, |_, _| {
        Box::new(SumInterval {
            average: true,
            ..Default::default()
        })
    });
}

/// `min` and `max`.
fn extremes(r: &mut Registry) {
    let ordered: [Sig; 18] = [
        INT2,
        INT4,
        INT8,
        FLOAT4,
        FLOAT8,
        NUMERIC,
        TEXT,
        BPCHAR,
        DATE,
        TIME,
        TIMESTAMP,
        TIMESTAMPTZ,
        TIMETZ,
        INTERVAL,
        INET,
        OID,
        ANYARRAY,
        ANYENUM,
    ];
    // min(name) is min(text) in PostgreSQL: there is no entry of its own.
    for t in ordered.into_iter().chain([TID, CITEXT]) {
        r.agg("min", &[t], t, |_, _| {
            Box::new(Extreme {
                best: Value::Null,
                max: false,
            })
        });
        r.agg("max", &[t], t, |_, _| {
            Box::new(Extreme {
                best: Value::Null,
                max: true,
            })
        });
    }
}

/// `bool_and`, `every`, `bool_or`, and those of bits.
fn truths_and_bits(r: &mut Registry) {
    for (n, and) in [("bool_and", true), ("every", true), ("bool_or", false)] {
        let new: AccumulatorFn = if and {
            |_, _| {
                Box::new(Truth {
                    seen: None,
                    and: true,
                })
            }
        } else {
            |_, _| {
                Box::new(Truth {
                    seen: None,
                    and: false,
                })
            }
        };
        r.agg(n, &[BOOL], BOOL, new);
    }
    let bits: [(&str, AccumulatorFn); 3] = [
        ("bit_and", |_, _| {
            Box::new(Bits {
                acc: Value::Null,
                op: |x, y| x & y,
            })
        }),
        ("bit_or", |_, _| {
            Box::new(Bits {
                acc: Value::Null,
                op: |x, y| x | y,
            })
        }),
        ("bit_xor", |_, _| {
            Box::new(Bits {
                acc: Value::Null,
                op: |x, y| x ^ y,
            })
        }),
    ];
    for (n, new) in bits {
        for t in [INT2, INT4, INT8] {
            r.agg(n, &[t], t, new);
        }
    }
    for (n, new) in super::bits::AGGREGATES {
        r.agg(n, &[BIT], BIT, new);
    }
}

/// Adds every aggregate.
pub(super) fn register(r: &mut Registry) {
    r.agg("count", &[], INT8, |_, _| {
        Box::new(Count { n: 0, all: true })
    });
    r.agg("count", &[ANY], INT8, |_, _| {
        Box::new(Count { n: 0, all: false })
    });
    sums(r);
    extremes(r);
    truths_and_bits(r);
    stats::register(r);
    collect::register(r);
}

#[derive(Clone)]
struct Count {
    n: i64,
    all: bool,
}

impl Accumulator for Count {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        self.n += i64::from(self.all || !args[0].is_null());
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(Value::Int8(self.n))
    }
}

/// `sum` of `int2` and `int4`.
#[derive(Clone, Default)]
struct SumInt {
    sum: Option<i64>,
}

impl Accumulator for SumInt {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Some(x) = args[0].as_i64() {
            let s = self.sum.unwrap_or(0).checked_add(x);
            self.sum = Some(s.ok_or_else(|| out_of_range(Type::Int8))?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.sum.into())
    }
}

/// `sum` of `int8`. 128 bits hold 2^64 addends.
#[derive(Clone, Default)]
struct SumWide {
    sum: Option<i128>,
}

impl Accumulator for SumWide {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Some(x) = args[0].as_i64() {
            self.sum = Some(self.sum.unwrap_or(0) + i128::from(x));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.sum.map(|s| from_scaled(BigInt::from(s), 0)).into())
    }
}

#[derive(Clone, Default)]
struct AvgInt {
    sum: i128,
    n: i64,
}

impl Accumulator for AvgInt {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Some(x) = args[0].as_i64() {
            self.sum += i128::from(x);
            self.n += 1;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        if self.n == 0 {
            return Ok(Value::Null);
        }
        let sum = from_scaled(BigInt::from(self.sum), 0);
        numeric::div(&sum, &Numeric::from(self.n)).map(Value::from)
    }
}

#[derive(Clone, Default)]
struct SumNumeric {
    sum: Option<Numeric>,
    n: i64,
    average: bool,
}

impl Accumulator for SumNumeric {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let Value::Numeric(x) = &args[0] else {
            return Ok(());
        };
        self.n += 1;
        self.sum = Some(match &self.sum {
            None => (**x).clone(),
            Some(s) => numeric::add(s, x)?,
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        match self.sum {
            None => Ok(Value::Null),
            Some(s) if self.average => numeric::div(&s, &Numeric::from(self.n)).map(Value::from),
            Some(s) => Ok(Value::from(s)),
        }
    }
}

#[derive(Clone, Default)]
struct SumFloat {
    sum: Option<f64>,
}

impl Accumulator for SumFloat {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let Value::Float8(x) = args[0] else {
            return Ok(());
        };
        let s = self.sum.unwrap_or(0.0);
        let t = s + x;
        if t.is_infinite() && s.is_finite() && x.is_finite() {
            return Err(float_range("overflow"));
        }
        self.sum = Some(t);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.sum.into())
    }
}

#[derive(Clone, Default)]
struct SumFloat4 {
    sum: Option<f32>,
}

impl Accumulator for SumFloat4 {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let Value::Float4(x) = args[0] else {
            return Ok(());
        };
        let s = self.sum.unwrap_or(0.0);
        let t = s + x;
        if t.is_infinite() && s.is_finite() && x.is_finite() {
            return Err(float_range("overflow"));
        }
        self.sum = Some(t);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.sum.map_or(Value::Null, Value::Float4))
    }
}

#[derive(Clone, Default)]
struct SumInterval {
    sum: Interval,
    n: i64,
    average: bool,
}

impl Accumulator for SumInterval {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Value::Interval(i) = &args[0] {
            self.sum = datetime::add_intervals(&self.sum, i)?;
            self.n += 1;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        if self.n == 0 {
            return Ok(Value::Null);
        }
        let i = if self.average {
            datetime::divide(&self.sum, self.n as f64)?
        } else {
            self.sum
        };
        Ok(Value::Interval(Box::new(i)))
    }
}

/// `min` and `max`.
#[derive(Clone)]
struct Extreme {
    best: Value,
    max: bool,
}

impl Accumulator for Extreme {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let x = &args[0];
        if x.is_null() {
            return Ok(());
        }
        let better = self.best.is_null() || {
            let o = compare(x, &self.best);
            if self.max { o.is_gt() } else { o.is_lt() }
        };
        if better {
            self.best = x.clone();
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.best)
    }
}

/// `bool_and`, `bool_or`.
#[derive(Clone)]
struct Truth {
    seen: Option<bool>,
    and: bool,
}

impl Accumulator for Truth {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if let Some(b) = args[0].as_bool() {
            self.seen = Some(match self.seen {
                None => b,
                Some(s) if self.and => s && b,
                Some(s) => s || b,
            });
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.seen.into())
    }
}

/// `bit_and`, `bit_or`, `bit_xor`.
#[derive(Clone)]
struct Bits {
    acc: Value,
    op: fn(i64, i64) -> i64,
}

impl Accumulator for Bits {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let Some(x) = args[0].as_i64() else {
            return Ok(());
        };
        let y = self.acc.as_i64().map_or(x, |y| (self.op)(x, y));
        self.acc = match args[0] {
            Value::Int2(_) => Value::Int2(y as i16),
            Value::Int4(_) => Value::Int4(y as i32),
            Value::Int8(_) => Value::Int8(y),
            ref v => return Err(Error::internal(format!("bits of {v:?}"))),
        };
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.acc)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, lookup_function};
    use crate::types::{OutputSettings, text};
    use base::{ColumnType, Type, Value};

    fn run(name: &str, ty: Type, rows: &[&str]) -> String {
        let s = OutputSettings::default();
        let r = lookup_function(name, &[ty]).unwrap();
        let Kind::Aggregate(id) = r.kind else {
            panic!("an aggregate")
        };
        let mut acc = id.accumulator(&r.args, &s);
        for row in rows {
            let v = match *row {
                "NULL" => Value::Null,
                t => text::input(t, ColumnType::plain(r.args[0]), &s).unwrap(),
            };
            acc.add(&[v]).unwrap();
        }
        let v = acc.finish().unwrap();
        if v.is_null() {
            "NULL".into()
        } else {
            text::to_string(&v, r.ret, &s)
        }
    }

    #[test]
    fn results_are_those_of_postgresql() {
        use Type::*;
        for (name, ty, rows, want) in [
            ("sum", Int4, &["1", "2", "NULL"][..], "3"),
            (
                "sum",
                Int8,
                &["9223372036854775807", "1"],
                "9223372036854775808",
            ),
            ("sum", Int4, &[], "NULL"),
            ("avg", Int4, &["1", "2"], "1.5000000000000000"),
            ("avg", Int4, &["1", "2", "4"], "2.3333333333333333"),
            ("avg", Float8, &["1", "2", "4"], "2.3333333333333335"),
            ("avg", Numeric, &["1.10", "2.2"], "1.6500000000000000"),
            ("sum", Numeric, &["1.10", "2.2"], "3.30"),
            ("min", Text, &["b", "a", "NULL"], "a"),
            ("max", Varchar, &["b", "a"], "b"),
            ("count", Text, &["b", "NULL"], "1"),
            ("bool_and", Bool, &["t", "f"], "f"),
            ("bit_or", Int4, &["1", "4"], "5"),
            ("stddev", Int4, &["1", "2", "4"], "1.5275252316519467"),
            ("var_pop", Int4, &["1", "2", "4"], "1.5555555555555556"),
            ("variance", Numeric, &["1", "2", "4"], "2.3333333333333333"),
            ("stddev", Int4, &["1"], "NULL"),
            ("stddev_pop", Int4, &["1"], "0"),
            (
                "stddev_samp",
                Float8,
                &["1", "2", "4"],
                "1.5275252316519468",
            ),
            ("sum", Interval, &["1 day", "2 hours"], "1 day 02:00:00"),
            ("avg", Interval, &["1 day", "2 days"], "1 day 12:00:00"),
            ("array_agg", Int4, &["1", "NULL"], "{1,NULL}"),
            ("jsonb_agg", Text, &["a", "NULL"], "[\"a\", null]"),
        ] {
            assert_eq!(run(name, ty, rows), want, "{name}({ty:?})");
        }
    }
}
