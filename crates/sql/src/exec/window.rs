//! Window functions: the rows of the input are kept, sorted by partition and order, and given in that order, each with its values.
//!
//! A partition is computed when its first row is asked for. Its rows form groups of *peers*, equal in the window's order. A frame is a part of
//! the partition that each row has of its own; its ends are found by counting (ROWS, GROUPS) or by binary search (RANGE with offsets), and
//! EXCLUDE leaves a hole, so that a frame is up to three runs of rows.
//!
//! An aggregate goes on from the row before where the frame only grew at its end, and is computed anew otherwise: a frame of `k` rows that
//! slides costs `k` steps a row. The answer of a frame that did not change is taken again.
//!
//! Left out on purpose: taking rows out of a state when a frame's start moves; partitions larger than the statement's memory (53200).

use super::sort::{compare_keys, sort_in_steps};
use super::state::RowStore;
use super::{Operator, Rt};
use crate::expr::Expr;
use crate::functions::{Accumulator, WindowFn};
use crate::logical::window::{Bound, Exclude, Frame, Over, Unit, WindowCall};
use crate::plan::node;
use crate::types::{ops, value_bytes};
use base::cancel::work;
use base::{Error, Numeric, SqlState, Value};
use std::sync::Arc;
use txn::Result;

pub struct WindowOp {
    node: Arc<node::Window>,
    input: Box<dyn Operator>,
    /// Rows as the kept slots, the keys of partition and order, and what the calls read.
    rows: RowStore,
    order: Vec<u32>,
    next: usize,
    loaded: bool,
    /// The partition at hand, as places in `order`, and the calls' values for each of its rows.
    partition: (usize, usize),
    values: Vec<Vec<Value>>,
    bytes: usize,
    /// Where in a row each call's part begins.
    places: Vec<usize>,
    /// Offsets of the calls' frames, once known.
    ends: Option<Vec<(Option<Value>, Option<Value>)>>,
}

impl WindowOp {
    pub fn new(node: Arc<node::Window>, input: Box<dyn Operator>) -> WindowOp {
        let mut at = node.slots.len() + node.window.partition.len() + node.window.order.len();
        let mut places = Vec::with_capacity(node.calls.len());
        for c in &node.calls {
            places.push(at);
            at += c.exprs().count();
        }
        WindowOp {
            rows: RowStore::new(at),
            node,
            input,
            order: vec![],
            next: 0,
            loaded: false,
            partition: (0, 0),
            values: vec![],
            bytes: 0,
            places,
            ends: None,
        }
    }

    fn load(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        let node = self.node.clone();
        while self.input.next(rt)? {
            let mut row = Vec::with_capacity(self.rows.width);
            row.extend(node.slots.iter().map(|&s| rt.st.env[s as usize].clone()));
            let keys = node.window.partition.iter();
            for e in keys.chain(node.window.order.iter().map(|k| &k.expr)) {
                row.push(e.eval(rt)?);
            }
            for e in node.calls.iter().flat_map(WindowCall::exprs) {
                row.push(e.eval(rt)?);
            }
            self.order.push(self.rows.len() as u32);
            self.rows.push_values(rt, row.into_iter())?;
            rt.tick()?;
        }
        if !node.sorted {
            let (rows, at) = (&self.rows, node.slots.len());
            sort_in_steps(&mut self.order, |a, b| {
                let (a, b) = (rows.row(a as usize), rows.row(b as usize));
                compare_keys(&node.keys, &a[at..], &b[at..])
            })?;
        }
        Ok(())
    }

    /// Computes the partition that begins at this place.
    fn begin(&mut self, from: usize, rt: &mut Rt<'_>) -> Result<()> {
        rt.refund(std::mem::take(&mut self.bytes));
        if self.ends.is_none() {
            let ends = self.node.calls.iter().map(|c| ends_of(&c.frame, rt));
            self.ends = Some(ends.collect::<Result<_>>()?);
        }
        let node = self.node.clone();
        let at = node.slots.len();
        let parts = node.window.partition.len();
        let row = |k: usize| self.rows.row(self.order[k] as usize);
        let same = |a: usize, b: usize, from: usize, to: usize| {
            let keys = &node.keys[from..to];
            compare_keys(keys, &row(a)[at + from..], &row(b)[at + from..]).is_eq()
        };
        let mut to = from + 1;
        let mut groups = vec![0];
        let mut group_of = vec![0];
        while to < self.order.len() && same(from, to, 0, parts) {
            work(64)?;
            if !same(to - 1, to, parts, node.keys.len()) {
                groups.push(to - from);
            }
            group_of.push(groups.len() - 1);
            to += 1;
        }
        let mut values = Vec::with_capacity(node.calls.len());
        let mut bytes = 16 * group_of.len();
        rt.charge(bytes)?;
        let ends = self.ends.take().unwrap_or_default();
        for ((c, place), ends) in node.calls.iter().zip(&self.places).zip(&ends) {
            let p = Partition {
                rows: &self.rows,
                order: &self.order[from..to],
                groups: &groups,
                group_of: &group_of,
                place: *place,
                desc: node.window.order.first().is_some_and(|k| k.desc),
                call: c,
                ends,
            };
            let column = p.column(rt)?;
            bytes += column.iter().map(value_bytes).sum::<usize>();
            values.push(column);
        }
        self.ends = Some(ends);
        self.values = values;
        self.partition = (from, to);
        self.bytes = bytes;
        Ok(())
    }
}

impl Operator for WindowOp {
    fn open(&mut self, rt: &mut Rt<'_>) -> Result<()> {
        self.rows.clear(rt);
        rt.refund(std::mem::take(&mut self.bytes));
        self.order.clear();
        self.values.clear();
        self.partition = (0, 0);
        self.next = 0;
        self.loaded = false;
        self.ends = None;
        self.input.open(rt)
    }

    fn next(&mut self, rt: &mut Rt<'_>) -> Result<bool> {
        if !self.loaded {
            self.load(rt)?;
            self.loaded = true;
        }
        if self.next == self.order.len() {
            return Ok(false);
        }
        if self.next == self.partition.1 {
            self.begin(self.next, rt)?;
        }
        let node = &self.node;
        self.rows
            .load(self.order[self.next] as usize, rt.st, &node.slots);
        for (c, column) in node.calls.iter().zip(&mut self.values) {
            let v = &mut column[self.next - self.partition.0];
            rt.st.env[c.slot as usize] = std::mem::replace(v, Value::Null);
        }
        self.next += 1;
        Ok(true)
    }
}

fn is_nan(v: &Value) -> bool {
    match v {
        Value::Float4(x) => x.is_nan(),
        Value::Float8(x) => x.is_nan(),
        Value::Numeric(n) => matches!(**n, Numeric::NaN),
        _ => false,
    }
}

/// Infinity of the same type, positive or negative.
fn infinity_like(v: Value, positive: bool) -> Value {
    let float = if positive {
        f64::INFINITY
    } else {
        f64::NEG_INFINITY
    };
    match v {
        Value::Float4(_) => Value::Float4(float as f32),
        Value::Float8(_) => Value::Float8(float),
        _ if positive => Value::from(Numeric::Infinity),
        _ => Value::from(Numeric::NegInfinity),
    }
}

fn bad_size(what: String) -> Error {
    Error::new(SqlState::INVALID_PRECEDING_OR_FOLLOWING_SIZE, what)
}

/// The offsets of a frame. 22004 for NULL, 22013 for a negative one.
fn ends_of(f: &Frame, rt: &mut Rt<'_>) -> Result<(Option<Value>, Option<Value>)> {
    let mut one = |b: &Bound, which: &str| -> Result<Option<Value>> {
        let Some(e) = b.offset() else { return Ok(None) };
        let v = e.eval(rt)?;
        let below = match &v {
            Value::Null => {
                let what = format!("frame {which} offset must not be null");
                return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what).into());
            }
            Value::Float8(x) => x.is_nan() || *x < 0.0,
            Value::Numeric(n) => {
                matches!(**n, Numeric::NaN)
                    || ops::compare(&v, &Value::from(Numeric::from(0i64))).is_lt()
            }
            Value::Interval(_) => ops::compare(&v, &Value::Interval(Box::default())).is_lt(),
            v => v.as_i64().is_some_and(|n| n < 0),
        };
        match (below, f.unit) {
            (false, _) => Ok(Some(v)),
            (true, Unit::Range) => Err(bad_size(
                "invalid preceding or following size in window function".into(),
            )
            .into()),
            (true, _) => Err(bad_size(format!("frame {which} offset must not be negative")).into()),
        }
    };
    Ok((one(&f.start, "starting")?, one(&f.end, "ending")?))
}

/// Runs of rows, in order; some may be empty.
type Runs = [(usize, usize); 3];

/// One partition, as one call sees it. Rows are counted from its start.
struct Partition<'a> {
    rows: &'a RowStore,
    order: &'a [u32],
    /// The first row of each group of peers, and the group of each row.
    groups: &'a [usize],
    group_of: &'a [usize],
    /// Where in a row the call's values begin.
    place: usize,
    desc: bool,
    call: &'a WindowCall,
    ends: &'a (Option<Value>, Option<Value>),
}

impl Partition<'_> {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn row(&self, i: usize) -> &[Value] {
        &self.rows.row(self.order[i] as usize)[self.place..]
    }

    /// Argument `k` of row `i`.
    fn arg(&self, i: usize, k: usize) -> &Value {
        &self.row(i)[k]
    }

    /// Whether FILTER takes a row.
    fn takes(&self, i: usize) -> bool {
        let at = self.call.args.len();
        self.call.filter.is_none() || matches!(self.row(i)[at], Value::Bool(true))
    }

    /// The sort key of a RANGE with offsets.
    fn ranged(&self, i: usize) -> &Value {
        let at = self.call.args.len() + usize::from(self.call.filter.is_some());
        &self.row(i)[at]
    }

    fn peers(&self, i: usize) -> (usize, usize) {
        let g = self.group_of[i];
        (self.groups[g], self.group_end(g))
    }

    fn group_end(&self, g: usize) -> usize {
        self.groups.get(g + 1).copied().unwrap_or(self.len())
    }

    /// The call's values for all rows.
    fn column(&self, rt: &mut Rt<'_>) -> Result<Vec<Value>> {
        let n = self.len();
        let f = match self.call.over {
            Over::Aggregate(_) => return self.aggregate(rt),
            Over::Function(f) => f,
        };
        let tiles = match f {
            WindowFn::Ntile => self.tiles()?,
            _ => None,
        };
        let mut out = Vec::with_capacity(n);
        for i in 0..n {
            work(64)?;
            let (first, last) = self.peers(i);
            let value = match f {
                WindowFn::RowNumber => Value::Int8(i as i64 + 1),
                WindowFn::Rank => Value::Int8(first as i64 + 1),
                WindowFn::DenseRank => Value::Int8(self.group_of[i] as i64 + 1),
                WindowFn::PercentRank if n < 2 => Value::Float8(0.0),
                WindowFn::PercentRank => Value::Float8(first as f64 / (n - 1) as f64),
                WindowFn::CumeDist => Value::Float8(last as f64 / n as f64),
                WindowFn::Ntile => tiles.map_or(Value::Null, |t| Value::Int4(tile(i, n, t))),
                WindowFn::Lag => self.beside(i, -1),
                WindowFn::Lead => self.beside(i, 1),
                WindowFn::FirstValue => {
                    let mut runs = self.frame(i, rt)?.into_iter();
                    let run = runs.find(|(s, e)| s < e);
                    run.map_or(Value::Null, |(s, _)| self.arg(s, 0).clone())
                }
                WindowFn::LastValue => {
                    let mut runs = self.frame(i, rt)?.into_iter().rev();
                    let run = runs.find(|(s, e)| s < e);
                    run.map_or(Value::Null, |(_, e)| self.arg(e - 1, 0).clone())
                }
                WindowFn::NthValue => self.nth(i, rt)?,
            };
            keep(&mut out, value, rt)?;
        }
        Ok(out)
    }

    /// The number of buckets; none: NULL was asked for.
    fn tiles(&self) -> Result<Option<usize>> {
        let Some(n) = self.arg(0, 0).as_i64() else {
            return Ok(None);
        };
        match usize::try_from(n) {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(Error::new(
                SqlState::INVALID_ARGUMENT_FOR_NTILE,
                "argument of ntile must be greater than zero",
            )
            .into()),
        }
    }

    /// `lag` (-1) and `lead` (1).
    fn beside(&self, i: usize, direction: i64) -> Value {
        let args = self.call.args.len();
        let offset = match args {
            1 => 1,
            _ => match self.arg(i, 1).as_i64() {
                Some(n) => n,
                None => return Value::Null,
            },
        };
        let at = i as i64 + direction * offset;
        match usize::try_from(at) {
            Ok(at) if at < self.len() => self.arg(at, 0).clone(),
            _ if args == 3 => self.arg(i, 2).clone(),
            _ => Value::Null,
        }
    }

    fn nth(&self, i: usize, rt: &mut Rt<'_>) -> Result<Value> {
        let Some(n) = self.arg(i, 1).as_i64() else {
            return Ok(Value::Null);
        };
        if n <= 0 {
            return Err(Error::new(
                SqlState::INVALID_ARGUMENT_FOR_NTH_VALUE,
                "argument of nth_value must be greater than zero",
            )
            .into());
        }
        let mut left = n as usize - 1;
        for (s, e) in self.frame(i, rt)? {
            if left < e.saturating_sub(s) {
                return Ok(self.arg(s + left, 0).clone());
            }
            left -= e.saturating_sub(s);
        }
        Ok(Value::Null)
    }

    /// The frame of a row, with its hole.
    fn frame(&self, i: usize, rt: &mut Rt<'_>) -> Result<Runs> {
        let (s, e) = (self.start(i, rt)?, self.end(i, rt)?);
        let e = e.max(s);
        let (first, last) = self.peers(i);
        let hole = match self.call.frame.exclude {
            Exclude::NoOthers => return Ok([(s, e), (e, e), (e, e)]),
            Exclude::CurrentRow => (i, i + 1),
            Exclude::Group | Exclude::Ties => (first, last),
        };
        let itself = match self.call.frame.exclude {
            Exclude::Ties if (s..e).contains(&i) => (i, i + 1),
            _ => (e, e),
        };
        Ok([(s, e.min(hole.0).max(s)), itself, (s.max(hole.1).min(e), e)])
    }

    fn start(&self, i: usize, rt: &mut Rt<'_>) -> Result<usize> {
        let f = &self.call.frame;
        let (sign, offset) = match (&f.start, &self.ends.0) {
            (Bound::Unbounded, _) => return Ok(0),
            (Bound::Preceding(_), Some(v)) => (-1, v),
            (Bound::Following(_), Some(v)) => (1, v),
            _ if f.unit == Unit::Rows => return Ok(i),
            _ => return Ok(self.peers(i).0),
        };
        let by = i128::from(offset.as_i64().unwrap_or(0)) * sign;
        match f.unit {
            Unit::Rows => Ok((i as i128 + by).clamp(0, self.len() as i128) as usize),
            Unit::Groups => {
                let g = (self.group_of[i] as i128 + by).max(0);
                let start = usize::try_from(g).ok().and_then(|g| self.groups.get(g));
                Ok(start.copied().unwrap_or(self.len()))
            }
            Unit::Range => self.by_value(i, false, rt),
        }
    }

    fn end(&self, i: usize, rt: &mut Rt<'_>) -> Result<usize> {
        let f = &self.call.frame;
        let (sign, offset) = match (&f.end, &self.ends.1) {
            (Bound::Unbounded, _) => return Ok(self.len()),
            (Bound::Preceding(_), Some(v)) => (-1, v),
            (Bound::Following(_), Some(v)) => (1, v),
            _ if f.unit == Unit::Rows => return Ok(i + 1),
            _ => return Ok(self.peers(i).1),
        };
        let by = i128::from(offset.as_i64().unwrap_or(0)) * sign;
        match f.unit {
            Unit::Rows => Ok((i as i128 + by + 1).clamp(0, self.len() as i128) as usize),
            Unit::Groups => match self.group_of[i] as i128 + by {
                g if g < 0 => Ok(0),
                g if g >= self.groups.len() as i128 => Ok(self.len()),
                g => Ok(self.group_end(g as usize)),
            },
            Unit::Range => self.by_value(i, true, rt),
        }
    }

    /// An end of a RANGE with offsets. Rows whose key is NULL are in range of one another alone.
    fn by_value(&self, i: usize, at_end: bool, rt: &mut Rt<'_>) -> Result<usize> {
        let value = self.ranged(i);
        if value.is_null() {
            let (first, last) = self.peers(i);
            return Ok(if at_end { last } else { first });
        }
        let range = self.call.frame.range.as_ref();
        let range = range.ok_or_else(|| Error::internal("a RANGE with offsets has its values"))?;
        let (limit, offset) = match at_end {
            true => (&range.end, &self.ends.1),
            false => (&range.start, &self.ends.0),
        };
        let limit = limit.as_ref().unwrap_or(&Expr::NULL);
        rt.st.env[range.current as usize].clone_from(value);
        rt.st.env[range.offset as usize] = offset.clone().unwrap_or(Value::Null);
        let limit = limit.eval(rt)?;
        // Infinity less infinity: all values are in range, and only what is no number is not.
        let limit = match is_nan(&limit) && !is_nan(value) {
            true => infinity_like(limit, at_end != self.desc),
            false => limit,
        };
        // NULLs stand together, at one end.
        let nulls = |i: &usize| self.ranged(*i).is_null();
        let (mut lo, mut hi) = (0, self.len());
        if nulls(&0) {
            lo = self.peers(0).1;
        }
        if nulls(&(hi - 1)) {
            hi = self.peers(hi - 1).0;
        }
        let before = |i: usize| {
            let o = ops::compare(self.ranged(i), &limit);
            let o = if self.desc { o.reverse() } else { o };
            o.is_lt() || at_end && o.is_eq()
        };
        while lo < hi {
            let middle = lo + (hi - lo) / 2;
            match before(middle) {
                true => lo = middle + 1,
                false => hi = middle,
            }
        }
        Ok(lo)
    }

    fn aggregate(&self, rt: &mut Rt<'_>) -> Result<Vec<Value>> {
        let Over::Aggregate(id) = self.call.over else {
            return Err(Error::internal("no aggregate").into());
        };
        let fresh = |rt: &Rt<'_>| id.accumulator(&self.call.types, rt.cx.settings);
        let mut out: Vec<Value> = Vec::with_capacity(self.len());
        let mut state = fresh(rt);
        let mut runs: Option<Runs> = None;
        for i in 0..self.len() {
            work(64)?;
            let frame = self.frame(i, rt)?;
            if let (Some(before), Some(v)) = (&runs, out.last())
                && *before == frame
            {
                let v = v.clone();
                keep(&mut out, v, rt)?;
                continue;
            }
            let whole = self.call.frame.exclude == Exclude::NoOthers;
            let grown = runs.filter(|r| whole && r[0].0 == frame[0].0 && r[0].1 <= frame[0].1);
            match grown {
                Some(r) => self.feed(&mut *state, (r[0].1, frame[0].1))?,
                None => {
                    state = fresh(rt);
                    for run in frame {
                        self.feed(&mut *state, run)?;
                    }
                }
            }
            runs = Some(frame);
            keep(&mut out, state.fork().finish()?, rt)?;
        }
        Ok(out)
    }

    fn feed(&self, state: &mut dyn Accumulator, (from, to): (usize, usize)) -> Result<()> {
        for i in from..to {
            work(64)?;
            if self.takes(i) {
                state.add(&self.row(i)[..self.call.args.len()])?;
                base::memory::check()?;
            }
        }
        Ok(())
    }
}

/// Keeps a row's value, which takes of the statement's memory from here on.
fn keep(out: &mut Vec<Value>, v: Value, rt: &mut Rt<'_>) -> Result<()> {
    rt.charge(value_bytes(&v))?;
    out.push(v);
    Ok(())
}

/// The bucket, counted from 1, of row `i` of `n` in `tiles` buckets: the first ones have a row more where it does not come out even.
fn tile(i: usize, n: usize, tiles: usize) -> i32 {
    let (each, more) = (n / tiles, n % tiles);
    let larger = more * (each + 1);
    let at = match i < larger {
        true => i / (each + 1),
        false => more + (i - larger) / each,
    };
    i32::try_from(at + 1).unwrap_or(i32::MAX)
}
