//! Variances, standard deviations, correlations.

use super::Accumulator;
use super::registry::{Registry, names::*};
use crate::types::cast::float_range;
use crate::types::numeric::from_scaled;
use crate::types::ops::{float, numeric};
use base::{Error, Numeric, Result, SqlState, Value};
use num_bigint::{BigInt, Sign};

/// What is computed from the moments.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Of {
    Average,
    Variance { sample: bool },
    Deviation { sample: bool },
}

/// Adds the statistical aggregates.
pub(super) fn register(r: &mut Registry) {
    macro_rules! both {
        ($($n:literal $of:expr;)*) => { $(
            for t in [INT2, INT4, INT8, NUMERIC] {
                r.agg($n, &[t], NUMERIC, |_, _| Box::new(Moments::new($of)));
            }
            for t in [FLOAT4, FLOAT8] {
                r.agg($n, &[t], FLOAT8, |_, _| Box::new(FloatMoments::new($of)));
            }
        )* };
    }
    both! {
        "var_pop" Of::Variance { sample: false };
        "var_samp" Of::Variance { sample: true };
        "variance" Of::Variance { sample: true };
        "stddev_pop" Of::Deviation { sample: false };
        "stddev_samp" Of::Deviation { sample: true };
        "stddev" Of::Deviation { sample: true };
    }
    macro_rules! pairs {
        ($($n:literal $f:expr;)*) => { $(
            r.agg($n, &[FLOAT8, FLOAT8], FLOAT8, |_, _| Box::new(Pairs { m: [0.0; 6], of: $f }));
        )* };
    }
    pairs! {
        "corr" |m| (m[2] != 0.0 && m[4] != 0.0).then(|| m[5] / (m[2] * m[4]).sqrt());
        "covar_pop" |m| Some(m[5] / m[0]);
        "covar_samp" |m| (m[0] > 1.0).then(|| m[5] / (m[0] - 1.0));
        "regr_avgx" |m| Some(m[1] / m[0]);
        "regr_avgy" |m| Some(m[3] / m[0]);
        "regr_sxx" |m| Some(m[2]);
        "regr_syy" |m| Some(m[4]);
        "regr_sxy" |m| Some(m[5]);
        "regr_slope" |m| (m[2] != 0.0).then(|| m[5] / m[2]);
        "regr_intercept" |m| (m[2] != 0.0).then(|| (m[3] - m[1] * m[5] / m[2]) / m[0]);
        "regr_r2" |m| (m[2] != 0.0).then(|| if m[4] == 0.0 { 1.0 } else { m[5] * m[5] / (m[2] * m[4]) });
    }
}

/// Sums of exact numbers and of their squares.
#[derive(Clone)]
struct Moments {
    n: i64,
    sum: Numeric,
    squares: Numeric,
    of: Of,
}

impl Moments {
    fn new(of: Of) -> Moments {
        Moments {
            n: 0,
            sum: Numeric::from(0),
            squares: Numeric::from(0),
            of,
        }
    }
}

impl Accumulator for Moments {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        let x = match &args[0] {
            Value::Null => return Ok(()),
            Value::Numeric(n) => (**n).clone(),
            v => Numeric::from(v.as_i64().expect("a number")),
        };
        self.n += 1;
        self.sum = numeric::add(&self.sum, &x)?;
        self.squares = numeric::add(&self.squares, &numeric::mul(&x, &x)?)?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        let (sample, root) = match self.of {
            Of::Variance { sample } => (sample, false),
            Of::Deviation { sample } => (sample, true),
            Of::Average => unreachable!("averages have their own states"),
        };
        if self.n == 0 || (sample && self.n == 1) {
            return Ok(Value::Null);
        }
        let n = BigInt::from(self.n);
        let total = from_scaled(n.clone(), 0);
        let top = numeric::sub(
            &numeric::mul(&total, &self.squares)?,
            &numeric::mul(&self.sum, &self.sum)?,
        )?;
        let Numeric::Finite(top) = top else {
            return Ok(Value::from(Numeric::NaN));
        };
        if top.sign() != Sign::Plus {
            return Ok(Value::from(Numeric::from(0)));
        }
        let bottom = bigdecimal::BigDecimal::new(if sample { &n * (&n - 1) } else { &n * &n }, 0);
        let scale = numeric::div_scale(&top, &bottom);
        let variance = numeric::div_scaled(&top, &bottom, scale)?;
        Ok(Value::from(match &variance {
            Numeric::Finite(v) if root => numeric::sqrt_scaled(v, scale)?,
            _ => variance,
        }))
    }
}

/// Youngs and Cramer: N, the sum, and the sum of squared differences from the mean.
#[derive(Clone)]
pub(super) struct FloatMoments {
    n: f64,
    sx: f64,
    sxx: f64,
    of: Of,
}

impl FloatMoments {
    fn new(of: Of) -> FloatMoments {
        FloatMoments {
            n: 0.0,
            sx: 0.0,
            sxx: 0.0,
            of,
        }
    }

    pub(super) fn average() -> FloatMoments {
        FloatMoments::new(Of::Average)
    }
}

impl Accumulator for FloatMoments {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if args[0].is_null() {
            return Ok(());
        }
        let x = float::f64_of(&args[0]);
        let before = (self.n, self.sx);
        self.n += 1.0;
        self.sx += x;
        if before.0 > 0.0 {
            let t = x * self.n - self.sx;
            self.sxx += t * t / (self.n * before.0);
            if self.sx.is_infinite() || self.sxx.is_infinite() {
                if before.1.is_finite() && x.is_finite() {
                    return Err(float_range("overflow"));
                }
                self.sxx = f64::NAN;
            }
        } else if !x.is_finite() {
            self.sxx = f64::NAN;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        let over = |sample: bool| {
            let d = if sample { self.n - 1.0 } else { self.n };
            (d > 0.0).then(|| self.sxx / d)
        };
        Ok(match self.of {
            Of::Average => (self.n > 0.0).then(|| self.sx / self.n),
            Of::Variance { sample } => over(sample),
            Of::Deviation { sample } => over(sample).map(f64::sqrt),
        }
        .into())
    }
}

/// Moments of pairs (y, x): N, Sx, Sxx, Sy, Syy, Sxy.
#[derive(Clone)]
struct Pairs {
    m: [f64; 6],
    of: fn(&[f64; 6]) -> Option<f64>,
}

impl Accumulator for Pairs {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if args.iter().any(Value::is_null) {
            return Ok(());
        }
        let (y, x) = (float::f64_of(&args[0]), float::f64_of(&args[1]));
        let m = &mut self.m;
        let before = m[0];
        let finite = m[1].is_finite() && m[3].is_finite() && x.is_finite() && y.is_finite();
        m[0] += 1.0;
        m[1] += x;
        m[3] += y;
        if before > 0.0 {
            let (tx, ty) = (x * m[0] - m[1], y * m[0] - m[3]);
            let scale = 1.0 / (m[0] * before);
            m[2] += tx * tx * scale;
            m[4] += ty * ty * scale;
            m[5] += tx * ty * scale;
            if finite && m.iter().any(|v| v.is_infinite()) {
                return Err(Error::new(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    "value out of range: overflow",
                ));
            }
            // Deviations from an infinite mean are not numbers.
            for at in [2, 4, 5] {
                if m[at].is_infinite() {
                    m[at] = f64::NAN;
                }
            }
        } else {
            if !x.is_finite() {
                (m[2], m[5]) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (m[4], m[5]) = (f64::NAN, f64::NAN);
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(if self.m[0] < 1.0 {
            None
        } else {
            (self.of)(&self.m)
        }
        .into())
    }
}
