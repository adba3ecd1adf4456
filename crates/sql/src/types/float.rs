//! Reading and writing floats: the shortest digits that read back as the same number, in PostgreSQL's layout.

use super::invalid_input;
use base::{Error, Result, SqlState, Type};
use std::fmt::Write;

/// Appends a `float8`. `extra` above 0 gives the shortest exact form, otherwise 15 + `extra` digits.
pub fn write8(x: f64, extra: i32, out: &mut String) {
    if !special(x, out) {
        if extra > 0 {
            layout(&format!("{x:e}"), 15, out);
        } else {
            general(x, (15 + extra).max(1) as usize, out);
        }
    }
}

/// Appends a `float4`.
pub fn write4(x: f32, extra: i32, out: &mut String) {
    if !special(f64::from(x), out) {
        if extra > 0 {
            layout(&format!("{x:e}"), 6, out);
        } else {
            general(f64::from(x), (6 + extra).max(1) as usize, out);
        }
    }
}

fn special(x: f64, out: &mut String) -> bool {
    let s = match x {
        _ if x.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => return false,
    };
    out.push_str(s);
    true
}

/// Lays out Rust's `d.ddde±x`: plain for exponents from -4 up to below `limit`, else with an exponent of two digits.
fn layout(sci: &str, limit: i32, out: &mut String) {
    let (mantissa, exp) = sci.split_once('e').expect("an exponent");
    let exp: i32 = exp.parse().expect("an exponent");
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(m) => ("-", m),
        None => ("", mantissa),
    };
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    out.push_str(sign);
    if (-4..limit).contains(&exp) {
        if exp < 0 {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', (-exp - 1) as usize));
            out.push_str(&digits);
        } else {
            let whole = exp as usize + 1;
            if digits.len() <= whole {
                out.push_str(&digits);
                out.extend(std::iter::repeat_n('0', whole - digits.len()));
            } else {
                out.push_str(&digits[..whole]);
                out.push('.');
                out.push_str(&digits[whole..]);
            }
        }
    } else {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        let s = if exp < 0 { '-' } else { '+' };
        write!(out, "e{s}{:02}", exp.abs()).expect("writing to a string");
    }
}

/// C's `%.*g`.
fn general(x: f64, digits: usize, out: &mut String) {
    let sci = format!("{x:.*e}", digits - 1);
    let (m, e) = sci.split_once('e').expect("an exponent");
    let m = if m.contains('.') {
        m.trim_end_matches('0').trim_end_matches('.')
    } else {
        m
    };
    layout(&format!("{m}e{e}"), digits as i32, out);
}

/// Reads a `float8`. 22P02 for what is no number, 22003 for one that overflows or vanishes.
pub fn read8(s: &str) -> Result<f64> {
    read(
        s,
        Type::Float8,
        |t| t.parse::<f64>().ok(),
        |x| x.is_infinite(),
        |x| *x == 0.0,
    )
}

/// Reads a `float4`.
pub fn read4(s: &str) -> Result<f32> {
    read(
        s,
        Type::Float4,
        |t| t.parse::<f32>().ok(),
        |x| x.is_infinite(),
        |x| *x == 0.0,
    )
}

fn read<F>(
    s: &str,
    ty: Type,
    parse: impl Fn(&str) -> Option<F>,
    infinite: impl Fn(&F) -> bool,
    zero: impl Fn(&F) -> bool,
) -> Result<F> {
    let t = super::text::trim(s);
    let x = parse(t).ok_or_else(|| invalid_input(ty, s))?;
    let named = t.contains(['n', 'N']);
    let mantissa = t.split(['e', 'E']).next().unwrap_or("");
    let vanished = zero(&x) && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if (infinite(&x) && !named) || vanished {
        return Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!(
                "\"{t}\" is out of range for type {}",
                super::typename::format_type(ty, -1)
            ),
        ));
    }
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_follows_the_exponent() {
        let w = |x: f64, extra| {
            let mut s = String::new();
            write8(x, extra, &mut s);
            s
        };
        assert_eq!(w(1e-4, 1), "0.0001");
        assert_eq!(w(1e-5, 1), "1e-05");
        assert_eq!(w(1.5e300, 1), "1.5e+300");
        assert_eq!(w(-0.0, 1), "-0");
        assert_eq!(w(1.0 / 3.0, 0), "0.333333333333333");
        assert_eq!(w(1.0 / 3.0, 1), "0.3333333333333333");
        assert_eq!(w(100.0, 0), "100");
        assert_eq!(w(1e15, 0), "1e+15");
    }
}
