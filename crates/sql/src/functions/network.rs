//! Functions and operators of network and hardware addresses: `inet`, `cidr`, `macaddr`, `macaddr8`.
//!
//! A function of `inet` takes `cidr`, too, by the implicit cast. Their forms stand in [`base::packed`].

use super::EvalContext;
use super::registry::{Registry, names::*};
use base::packed::inet::{self, Inet};
use base::{Error, Packed, Result, SqlState, Value};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

fn of(v: &Value) -> Inet {
    match v {
        Value::Packed(p) if matches!(p.kind(), Packed::Inet | Packed::Cidr) => {
            inet::expect(p.form())
        }
        v => panic!("{v:?} is no address"),
    }
}

fn address(i: Inet) -> Value {
    Value::packed(Packed::Inet, i.form())
}

fn network(i: Inet) -> Value {
    Value::packed(Packed::Cidr, i.network().form())
}

fn host(i: Inet) -> Inet {
    Inet {
        bits: i.width(),
        ..i
    }
}

fn bad(what: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

fn out_of_range() -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "result is out of range",
    )
}

fn written(write: impl FnOnce(&mut String)) -> Result<Value> {
    let mut s = String::new();
    write(&mut s);
    Ok(Value::from(s))
}

/// A network as short as it can be said: `10.1/16`, `2001:db8::/32`.
fn short(i: Inet, out: &mut String) {
    use std::fmt::Write;
    let i = i.network();
    if i.v6 && i.bits == 128 {
        // As the address, which may have an end of four numbers.
        i.write_host(out);
        out.push_str("/128");
        return;
    }
    let words: Vec<u32> = match i.v6 {
        true => std::net::Ipv6Addr::from(i.address)
            .segments()
            .map(u32::from)
            .into(),
        false => (i.address as u32).to_be_bytes().map(u32::from).into(),
    };
    let needed = usize::from(i.bits.div_ceil(if i.v6 { 16 } else { 8 }));
    let text = |l: &[u32], hex: bool, between: &str| {
        let shown = l.iter().map(|w| match hex {
            true => format!("{w:x}"),
            false => w.to_string(),
        });
        shown.collect::<Vec<_>>().join(between)
    };
    if !i.v6 {
        let shown = text(&words[..needed.max(1)], false, ".");
        write!(out, "{shown}/{}", i.bits).expect("writing to a string");
        return;
    }
    let shown = &words[..if needed == 0 { 0 } else { needed.max(2) }];
    // The longest run of zeros, the first of several.
    let (mut best, mut run) = (0..0, 0..0);
    for (at, w) in shown.iter().enumerate() {
        run = match w {
            0 if run.end == at && !run.is_empty() => run.start..at + 1,
            0 => at..at + 1,
            _ => 0..0,
        };
        if run.len() > best.len() {
            best = run.clone();
        }
    }
    let (before, after) = (&shown[..best.start], &shown[best.end..]);
    let between = match best.is_empty() && !shown.is_empty() {
        true => "",
        false => "::",
    };
    let (before, after) = (text(before, true, ":"), text(after, true, ":"));
    write!(out, "{before}{between}{after}").expect("writing to a string");
    write!(out, "/{}", i.bits).expect("writing to a string");
}

fn set_masklen(i: Inet, n: &Value) -> Result<Inet> {
    let n = n.as_i64().expect("an integer");
    let bits = if n == -1 { i64::from(i.width()) } else { n };
    if !(0..=i64::from(i.width())).contains(&bits) {
        return Err(bad(format!("invalid mask length: {n}")));
    }
    Ok(Inet {
        bits: bits as u8,
        ..i
    })
}

fn merge(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (of(&a[0]), of(&a[1]));
    if x.v6 != y.v6 {
        return Err(bad("cannot merge addresses from different families"));
    }
    let different = x.address ^ y.address;
    let unused = 128 - u32::from(x.width());
    let common = different.leading_zeros() - unused;
    let bits = x.bits.min(y.bits).min(common as u8);
    Ok(network(Inet { bits, ..x }))
}

fn combined(a: &[Value], name: &str, op: fn(u128, u128) -> u128) -> Result<Value> {
    let (x, y) = (of(&a[0]), of(&a[1]));
    if x.v6 != y.v6 {
        return Err(bad(format!("cannot {name} inet values of different sizes")));
    }
    let bits = x.bits.max(y.bits);
    Ok(address(Inet {
        bits,
        ..x.at(op(x.address, y.address))
    }))
}

fn moved(i: Inet, by: i128) -> Result<Value> {
    let by_u = by.unsigned_abs();
    let moved = match by < 0 {
        true => i.address.checked_sub(by_u),
        false => i.address.checked_add(by_u),
    };
    let moved = moved.filter(|a| *a <= i.ones()).ok_or_else(out_of_range)?;
    Ok(address(i.at(moved)))
}

fn difference(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (x, y) = (of(&a[0]), of(&a[1]));
    if x.v6 != y.v6 {
        return Err(bad("cannot subtract inet values of different sizes"));
    }
    let d = x.address.wrapping_sub(y.address) as i128;
    // A difference that wrapped is far out of range, too.
    let wrapped = (x.address >= y.address) != (d >= 0);
    let d = i64::try_from(d).ok().filter(|_| !wrapped);
    d.map(Value::Int8).ok_or_else(out_of_range)
}

fn number(v: &Value) -> i128 {
    v.as_i64().expect("an integer").into()
}

fn within(outer: &Inet, inner: &Inet, strictly: bool) -> bool {
    outer.contains(inner) && (!strictly || outer.bits < inner.bits)
}

/// Adds the operators.
pub(super) fn register_operators(r: &mut Registry) {
    let both = [INET, INET];
    r.f("<<", &both, BOOL, IMM, |a, _| {
        Ok(Value::Bool(within(&of(&a[1]), &of(&a[0]), true)))
    });
    r.f("<<=", &both, BOOL, IMM, |a, _| {
        Ok(Value::Bool(within(&of(&a[1]), &of(&a[0]), false)))
    });
    r.f(">>", &both, BOOL, IMM, |a, _| {
        Ok(Value::Bool(within(&of(&a[0]), &of(&a[1]), true)))
    });
    r.f(">>=", &both, BOOL, IMM, |a, _| {
        Ok(Value::Bool(within(&of(&a[0]), &of(&a[1]), false)))
    });
    r.f("&&", &both, BOOL, IMM, |a, _| {
        let (x, y) = (of(&a[0]), of(&a[1]));
        Ok(Value::Bool(x.contains(&y) || y.contains(&x)))
    });
    r.f("&", &both, INET, IMM, |a, _| {
        combined(a, "AND", |x, y| x & y)
    });
    r.f("|", &both, INET, IMM, |a, _| {
        combined(a, "OR", |x, y| x | y)
    });
    r.f("~", &[INET], INET, IMM, |a, _| {
        let i = of(&a[0]);
        Ok(address(i.at(!i.address & i.ones())))
    });
    r.f("+", &[INET, INT8], INET, IMM, |a, _| {
        moved(of(&a[0]), number(&a[1]))
    });
    r.f("+", &[INT8, INET], INET, IMM, |a, _| {
        moved(of(&a[1]), number(&a[0]))
    });
    r.f("-", &[INET, INT8], INET, IMM, |a, _| {
        moved(of(&a[0]), -number(&a[1]))
    });
    r.f("-", &both, INT8, IMM, difference);
    for t in [MACADDR, MACADDR8] {
        r.f("~", &[t], t, IMM, |a, _| {
            let (kind, form) = hardware(&a[0]);
            let form: Box<[u8]> = form.iter().map(|b| !b).collect();
            Ok(Value::packed(kind, form))
        });
        r.f("&", &[t, t], t, IMM, |a, _| Ok(bytewise(a, |x, y| x & y)));
        r.f("|", &[t, t], t, IMM, |a, _| Ok(bytewise(a, |x, y| x | y)));
    }
}

fn hardware(v: &Value) -> (Packed, &[u8]) {
    match v {
        Value::Packed(p) => (p.kind(), p.form()),
        v => panic!("{v:?} is no hardware address"),
    }
}

fn bytewise(a: &[Value], op: fn(u8, u8) -> u8) -> Value {
    let ((kind, x), (_, y)) = (hardware(&a[0]), hardware(&a[1]));
    let form: Box<[u8]> = x.iter().zip(y).map(|(x, y)| op(*x, *y)).collect();
    Value::packed(kind, form)
}

/// Adds the functions.
pub(super) fn register(r: &mut Registry) {
    r.f("family", &[INET], INT4, IMM, |a, _| {
        Ok(Value::Int4(if of(&a[0]).v6 { 6 } else { 4 }))
    });
    r.f("masklen", &[INET], INT4, IMM, |a, _| {
        Ok(Value::Int4(of(&a[0]).bits.into()))
    });
    r.f("host", &[INET], TEXT, IMM, |a, _| {
        written(|s| of(&a[0]).write_host(s))
    });
    r.f("text", &[INET], TEXT, IMM, |a, _| {
        written(|s| of(&a[0]).write(true, s))
    });
    r.f("abbrev", &[INET], TEXT, IMM, |a, _| {
        written(|s| of(&a[0]).write(false, s))
    });
    r.f("abbrev", &[CIDR], TEXT, IMM, |a, _| {
        written(|s| short(of(&a[0]), s))
    });
    r.f("network", &[INET], CIDR, IMM, |a, _| Ok(network(of(&a[0]))));
    r.f("broadcast", &[INET], INET, IMM, |a, _| {
        let i = of(&a[0]);
        Ok(address(i.at(i.address | i.ones() & !i.mask())))
    });
    r.f("netmask", &[INET], INET, IMM, |a, _| {
        let i = of(&a[0]);
        Ok(address(host(i.at(i.mask()))))
    });
    r.f("hostmask", &[INET], INET, IMM, |a, _| {
        let i = of(&a[0]);
        Ok(address(host(i.at(i.ones() & !i.mask()))))
    });
    r.f("set_masklen", &[INET, INT4], INET, IMM, |a, _| {
        set_masklen(of(&a[0]), &a[1]).map(address)
    });
    r.f("set_masklen", &[CIDR, INT4], CIDR, IMM, |a, _| {
        set_masklen(of(&a[0]), &a[1]).map(network)
    });
    r.f("inet_same_family", &[INET, INET], BOOL, IMM, |a, _| {
        Ok(Value::Bool(of(&a[0]).v6 == of(&a[1]).v6))
    });
    r.f("inet_merge", &[INET, INET], CIDR, IMM, merge);
    for t in [MACADDR, MACADDR8] {
        r.f("trunc", &[t], t, IMM, |a, _| {
            let (kind, form) = hardware(&a[0]);
            let maker = |(i, b): (usize, &u8)| if i < 3 { *b } else { 0 };
            let form: Box<[u8]> = form.iter().enumerate().map(maker).collect();
            Ok(Value::packed(kind, form))
        });
    }
    r.f("macaddr8_set7bit", &[MACADDR8], MACADDR8, IMM, |a, _| {
        let (kind, form) = hardware(&a[0]);
        let mut form: Box<[u8]> = form.into();
        form[0] |= 2;
        Ok(Value::packed(kind, form))
    });
}
