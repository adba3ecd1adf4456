//! Functions and operators of bit strings. Their form stands in [`base::packed::bits`].

use super::registry::{Registry, names::*};
use super::{Accumulator, AccumulatorFn, EvalContext, ScalarFn};
use base::packed::bits;
use base::{Error, Packed, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn of(v: &Value) -> &[u8] {
    match v {
        Value::Packed(p) if matches!(p.kind(), Packed::Bit | Packed::VarBit) => p.form(),
        v => panic!("{v:?} is no bit string"),
    }
}

fn int(v: &Value) -> i64 {
    v.as_i64().expect("an integer")
}

fn bit(form: Box<[u8]>) -> Value {
    Value::packed(Packed::Bit, form)
}

/// Two strings of one length, byte by byte; 22026 for other lengths.
fn bytewise(a: &[u8], b: &[u8], name: &str, op: fn(u8, u8) -> u8) -> Result<Box<[u8]>> {
    if bits::len(a) != bits::len(b) {
        let what = format!("cannot {name} bit strings of different sizes");
        return Err(Error::new(SqlState::STRING_DATA_LENGTH_MISMATCH, what));
    }
    let mut out: Box<[u8]> = a.into();
    for (x, y) in out[1..].iter_mut().zip(&b[1..]) {
        *x = op(*x, *y);
    }
    Ok(out)
}

fn and(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    bytewise(of(&a[0]), of(&a[1]), "AND", |x, y| x & y).map(bit)
}

fn or(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    bytewise(of(&a[0]), of(&a[1]), "OR", |x, y| x | y).map(bit)
}

fn xor(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    bytewise(of(&a[0]), of(&a[1]), "XOR", |x, y| x ^ y).map(bit)
}

fn not(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut out: Box<[u8]> = of(&a[0]).into();
    out[1..].iter_mut().for_each(|x| *x = !*x);
    bits::clear_unused(&mut out);
    Ok(bit(out))
}

/// The string moved to the left (`by` below zero: to the right), zeros coming in.
fn shifted(form: &[u8], by: i64) -> Value {
    let n = bits::len(form);
    let at = |i: usize| usize::try_from(i as i64 + by).ok().filter(|j| *j < n);
    bit(bits::collect(
        (0..n).map(|i| at(i).is_some_and(|j| bits::get(form, j))),
    ))
}

fn concat(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (of(&a[0]), of(&a[1]));
    let (n, m) = (bits::len(x), bits::len(y));
    if n + m > bits::MAX_BITS {
        let what = format!(
            "bit string length exceeds the maximum allowed ({})",
            bits::MAX_BITS
        );
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
    }
    base::memory::want(x.len() + y.len())?;
    let all = (0..n + m).map(|i| match i < n {
        true => bits::get(x, i),
        false => bits::get(y, i - n),
    });
    Ok(Value::packed(Packed::VarBit, bits::collect(all)))
}

fn negative_length() -> Error {
    let what = "negative substring length not allowed";
    Error::new(SqlState::SUBSTRING_ERROR, what)
}

/// The bits from `from` (the first is 1) on, `n` of them or all.
fn slice(form: &[u8], from: i64, n: Option<i64>) -> Result<Box<[u8]>> {
    let all = bits::len(form) as i64;
    let end = match n {
        Some(n) if n < 0 => return Err(negative_length()),
        Some(n) => (from + n - 1).clamp(0, all),
        None => all,
    };
    let start = (from - 1).clamp(0, end);
    Ok(bits::part(form, start as usize, (end - start) as usize))
}

fn substring(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    slice(of(&a[0]), int(&a[1]), a.get(2).map(int)).map(bit)
}

fn overlay(a: &[Value], c: Ctx<'_, '_>) -> Result<Value> {
    let (all, new, from) = (of(&a[0]), of(&a[1]), int(&a[2]));
    let n = a.get(3).map_or(bits::len(new) as i64, int);
    if from <= 0 {
        return Err(negative_length());
    }
    let before = bit(slice(all, 1, Some(from - 1))?);
    let after = bit(slice(all, from + n, None)?);
    let front = concat(&[before, a[1].clone()], c)?;
    match concat(&[front, after], c)? {
        Value::Packed(v) => Ok(Value::packed(Packed::Bit, v.form())),
        v => Ok(v),
    }
}

fn position(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (all, part) = (of(&a[0]), of(&a[1]));
    let (n, m) = (bits::len(all), bits::len(part));
    if n == 0 || m > n {
        return Ok(Value::Int4(0));
    }
    let mut look = 0usize;
    for from in 0..=n - m {
        let same = |i| {
            look += 1;
            bits::get(all, from + i) == bits::get(part, i)
        };
        if (0..m).all(same) {
            return Ok(Value::Int4(from as i32 + 1));
        }
        if look > 1 << 20 {
            base::cancel::check_cancelled()?;
            look = 0;
        }
    }
    Ok(Value::Int4(0))
}

fn place(form: &[u8], i: i64) -> Result<usize> {
    let n = bits::len(form) as i64;
    if !(0..n).contains(&i) {
        let what = format!("bit index {i} out of valid range (0..{})", n - 1);
        return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, what));
    }
    Ok(i as usize)
}

fn get_bit(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let form = of(&a[0]);
    let i = place(form, int(&a[1]))?;
    Ok(Value::Int4(bits::get(form, i).into()))
}

fn set_bit(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let mut form: Box<[u8]> = of(&a[0]).into();
    let i = place(&form, int(&a[1]))?;
    match int(&a[2]) {
        to @ (0 | 1) => bits::set(&mut form, i, to == 1),
        _ => {
            let what = "new bit must be 0 or 1";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        }
    }
    Ok(bit(form))
}

/// `bit_and`, `bit_or` and `bit_xor`.
#[derive(Clone)]
struct All {
    so_far: Option<Box<[u8]>>,
    name: &'static str,
    op: fn(u8, u8) -> u8,
}

impl Accumulator for All {
    fn add(&mut self, args: &[Value]) -> Result<()> {
        if args[0].is_null() {
            return Ok(());
        }
        let form = of(&args[0]);
        self.so_far = Some(match &self.so_far {
            None => form.into(),
            Some(before) => bytewise(before, form, self.name, self.op)?,
        });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Value> {
        Ok(self.so_far.map_or(Value::Null, bit))
    }
}

fn all(name: &'static str, op: fn(u8, u8) -> u8) -> Box<dyn Accumulator> {
    let so_far = None;
    Box::new(All { so_far, name, op })
}

pub(super) const AGGREGATES: [(&str, AccumulatorFn); 3] = [
    ("bit_and", |_, _| all("AND", |x, y| x & y)),
    ("bit_or", |_, _| all("OR", |x, y| x | y)),
    ("bit_xor", |_, _| all("XOR", |x, y| x ^ y)),
];

/// Adds the operators.
pub(super) fn register_operators(r: &mut Registry) {
    let pairs: [(&str, ScalarFn); 3] = [("&", and), ("|", or), ("#", xor)];
    for (n, f) in pairs {
        r.f(n, &[BIT, BIT], BIT, IMM, f);
    }
    r.f("~", &[BIT], BIT, IMM, not);
    r.f("<<", &[BIT, INT4], BIT, IMM, |a, _| {
        Ok(shifted(of(&a[0]), int(&a[1])))
    });
    r.f(">>", &[BIT, INT4], BIT, IMM, |a, _| {
        Ok(shifted(of(&a[0]), -int(&a[1])))
    });
    r.f("||", &[VARBIT, VARBIT], VARBIT, IMM, concat);
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    for n in ["length", "bit_length"] {
        r.f(n, &[BIT], INT4, IMM, |a, _| {
            Ok(Value::Int4(bits::len(of(&a[0])) as i32))
        });
    }
    r.f("octet_length", &[BIT], INT4, IMM, |a, _| {
        Ok(Value::Int4(of(&a[0]).len() as i32 - 1))
    });
    r.f("bit_count", &[BIT], INT8, IMM, |a, _| {
        let ones = of(&a[0])[1..].iter().map(|b| i64::from(b.count_ones()));
        Ok(Value::Int8(ones.sum()))
    });
    r.f("substring", &[BIT, INT4], BIT, IMM, substring);
    r.f("substring", &[BIT, INT4, INT4], BIT, IMM, substring);
    r.f("overlay", &[BIT, BIT, INT4], BIT, IMM, overlay);
    r.f("overlay", &[BIT, BIT, INT4, INT4], BIT, IMM, overlay);
    r.f("position", &[BIT, BIT], INT4, IMM, position);
    r.f("get_bit", &[BIT, INT4], INT4, IMM, get_bit);
    r.f("set_bit", &[BIT, INT4, INT4], BIT, IMM, set_bit);
}
