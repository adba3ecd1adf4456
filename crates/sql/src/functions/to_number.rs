//! `to_char` of numbers, and `to_number`.
//!
//! A format is digits (`9`, `0`), a point (`.`, `D`), group marks (`,`, `G`), signs (`S`, `MI`, `PL`, `SG`, `PR`), `FM`, `V`,
//! `EEEE`, `RN`, `TH` and literal text. The sign, if none is named, stands right before the first digit.
//!
//! Left out on purpose: currency symbols (`L` prints a blank, as in the C locale).

use super::EvalContext;
use super::registry::{Registry, names::*};
use super::to_char::{quoted, th};
use crate::types::numeric::{self as num, pow10};
use crate::types::ops::numeric;
use base::{Error, Numeric, Result, SqlState, Value};
use num_bigint::{BigInt, Sign};

type Ctx<'a, 'b> = &'a mut EvalContext<'b>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Node<'a> {
    Nine,
    Zero,
    Point,
    Group,
    S,
    Mi,
    Pl,
    Sg,
    Blank,
    Th(bool),
    Text(&'a str),
}

#[derive(Default)]
struct Format<'a> {
    nodes: Vec<Node<'a>>,
    pre: usize,
    post: usize,
    /// Place of the first `0` before the point.
    zero_from: Option<usize>,
    /// Place after the last `0` behind the point.
    zero_to: usize,
    shift: u32,
    fill: bool,
    brackets: bool,
    scientific: bool,
    roman: Option<bool>,
    /// Whether `S` stands before the digits (some) or after.
    sign: Option<bool>,
    has_sign: bool,
}

fn parse(f: &str) -> Result<Format<'_>> {
    let mut p = Format {
        fill: true,
        ..Format::default()
    };
    let (mut i, mut point, mut shifted) = (0, false, false);
    let syntax = |m: &str| Error::new(SqlState::SYNTAX_ERROR, m);
    while i < f.len() {
        let rest = &f[i..];
        let two = rest.get(..2).unwrap_or("").to_ascii_uppercase();
        let four = rest.get(..4).unwrap_or("").to_ascii_uppercase();
        let c = rest.chars().next().expect("not at the end");
        let mut len = c.len_utf8();
        let node = match (four.as_str(), two.as_str(), c.to_ascii_uppercase()) {
            ("EEEE", ..) => {
                p.scientific = true;
                len = 4;
                None
            }
            (_, "FM", _) => {
                p.fill = false;
                len = 2;
                None
            }
            (_, "MI", _) => {
                p.has_sign = true;
                len = 2;
                Some(Node::Mi)
            }
            (_, "PL", _) => {
                len = 2;
                Some(Node::Pl)
            }
            (_, "SG", _) => {
                p.has_sign = true;
                len = 2;
                Some(Node::Sg)
            }
            (_, "PR", _) => {
                p.has_sign = true;
                p.brackets = true;
                len = 2;
                None
            }
            (_, "TH", _) => {
                len = 2;
                Some(Node::Th(rest.starts_with('T')))
            }
            (_, "RN", _) => {
                p.roman = Some(rest.starts_with('R'));
                len = 2;
                None
            }
            (_, _, '9' | '0') => {
                let place = if point { p.post } else { p.pre };
                if c == '0' && !point && p.zero_from.is_none() {
                    p.zero_from = Some(place);
                }
                p.shift += u32::from(shifted);
                if point {
                    p.post += 1;
                    if c == '0' {
                        p.zero_to = p.post;
                    }
                } else {
                    p.pre += 1;
                }
                Some(if c == '0' { Node::Zero } else { Node::Nine })
            }
            (_, _, '.' | 'D') => {
                if point {
                    return Err(syntax("multiple decimal points"));
                }
                if shifted {
                    return Err(syntax("cannot use \"V\" and decimal point together"));
                }
                point = true;
                Some(Node::Point)
            }
            (_, _, ',' | 'G') => Some(Node::Group),
            (_, _, 'S') => {
                if p.sign.is_some() {
                    return Err(syntax("cannot use \"S\" twice"));
                }
                p.sign = Some(p.pre == 0 && p.post == 0);
                p.has_sign = true;
                Some(Node::S)
            }
            (_, _, 'V') => {
                shifted = true;
                None
            }
            (_, _, 'L') => Some(Node::Blank),
            (_, _, 'B' | 'C') if c.is_ascii_uppercase() => None,
            (_, _, '"') => {
                len = 1 + quoted(&rest[1..], &mut |c| p.nodes.push(Node::Text(c)));
                None
            }
            (_, "\\\"", _) => {
                len = 2;
                Some(Node::Text("\""))
            }
            _ => Some(Node::Text(&rest[..len])),
        };
        p.nodes.extend(node);
        i += len;
    }
    Ok(p)
}

fn roman(n: i64) -> Option<String> {
    if !(1..4000).contains(&n) {
        return None;
    }
    let mut n = n;
    let mut out = String::new();
    for (v, s) in [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ] {
        while n >= v {
            out.push_str(s);
            n -= v;
        }
    }
    Some(out)
}

/// What stands before and behind the point.
struct Digits {
    negative: bool,
    whole: String,
    frac: String,
}

impl Digits {
    /// Of a plain decimal number, or of `NaN` and `Infinity`, which count as digits where they fit.
    fn of(shown: &str) -> Digits {
        let (negative, plain) = match shown.strip_prefix('-') {
            Some(plain) => (true, plain),
            None => (false, shown),
        };
        let (whole, frac) = plain.split_once('.').unwrap_or((plain, ""));
        Digits {
            negative,
            whole: whole.into(),
            frac: frac.into(),
        }
    }
}

/// Marks in the place of digits that do not fit a format with an exponent.
fn no_exponent(p: &Format<'_>) -> String {
    let marks = |n: usize| "#".repeat(n);
    format!(" {}.{}", marks(p.pre), marks(p.post + 4))
}

/// A float has no more digits than its type holds for certain; the rest of the format shows nothing.
fn write_float(x: f64, most: usize, format: &str) -> Result<String> {
    let mut p = parse(format)?;
    let shifted = x * 10f64.powi(p.shift as i32);
    if p.scientific {
        if !x.is_finite() {
            return Ok(no_exponent(&p));
        }
        // No float has more digits than these, and a run-time precision has 16 bits.
        let digits = p.post.min(1100);
        let shown = format!("{x:.digits$e}");
        let (mantissa, exponent) = shown.split_once('e').expect("an exponent");
        let mantissa = format!("{mantissa}{}", "0".repeat(p.post - digits));
        let exponent: i32 = exponent.parse().expect("an exponent");
        let sign = if exponent < 0 { '-' } else { '+' };
        let space = if mantissa.starts_with('-') { "" } else { " " };
        return Ok(format!("{space}{mantissa}e{sign}{:02}", exponent.abs()));
    }
    if p.roman.is_some() {
        return write(&num::parse(&format!("{x:.0}"))?, format);
    }
    let whole = format!("{:.0}", shifted.abs()).len();
    p.post = p.post.min(most.saturating_sub(whole));
    p.zero_to = p.zero_to.min(p.post);
    let shown = match () {
        () if shifted.is_nan() => "NaN".to_owned(),
        () if shifted.is_infinite() => format!("{}Infinity", if x < 0.0 { "-" } else { "" }),
        () => format!("{shifted:.*}", p.post),
    };
    Ok(lay_out(&p, Digits::of(&shown)))
}

fn write(n: &Numeric, format: &str) -> Result<String> {
    let p = parse(format)?;
    let Numeric::Finite(d) = n else {
        return Ok(match p.scientific {
            true => no_exponent(&p),
            false => lay_out(&p, Digits::of(&n.to_string())),
        });
    };
    if let Some(upper) = p.roman {
        let whole = crate::types::cast::numeric_to_i64(n, base::Type::Int8).unwrap_or(0);
        let r = roman(whole).unwrap_or_else(|| "#".repeat(15));
        let r = if upper { r } else { r.to_lowercase() };
        return Ok(if p.fill { format!("{r:>15}") } else { r });
    }
    if p.scientific {
        return Ok(scientific(d, p.post));
    }
    let (int, scale) = d.as_bigint_and_exponent();
    let scaled = num::rescale(&(int * pow10(i64::from(p.shift))), scale, p.post as i64);
    let negative = scaled.sign() == Sign::Minus;
    let mut digits = scaled.magnitude().to_str_radix(10);
    if digits.len() <= p.post {
        digits = "0".repeat(p.post + 1 - digits.len()) + &digits;
    }
    let (whole, frac) = digits.split_at(digits.len() - p.post);
    let digits = Digits {
        negative,
        whole: whole.into(),
        frac: frac.into(),
    };
    Ok(lay_out(&p, digits))
}

fn lay_out(p: &Format<'_>, digits: Digits) -> String {
    let Digits {
        negative,
        whole,
        frac,
    } = digits;
    let overflow = whole.len() > p.pre;
    // A lone zero before the point shows nothing where digits stand behind it, and itself where `FM` takes them all away.
    let bare = !p.fill && p.zero_to == 0 && frac.bytes().all(|b| b == b'0');
    let lone = whole == "0" && !frac.is_empty() && p.zero_from.is_none();
    let whole = if lone && !bare && !overflow {
        ""
    } else {
        &whole
    };
    let lead = p.pre.saturating_sub(whole.len());
    let first = if overflow {
        0
    } else {
        p.zero_from.map_or(lead, |z| z.min(lead))
    };
    let kept = if p.fill || overflow {
        p.post
    } else {
        frac.trim_end_matches('0').len().max(p.zero_to)
    };
    let mut out = String::new();
    let mut sign_done = p.has_sign && !p.brackets;
    let put_sign = |out: &mut String, done: &mut bool| {
        if !*done {
            *done = true;
            match (negative, p.brackets, p.fill) {
                (true, true, _) => out.push('<'),
                (true, false, _) => out.push('-'),
                (false, _, true) => out.push(' '),
                _ => {}
            }
        }
    };
    let mut plus_done = p.sign != Some(true);
    let put_plus = |out: &mut String, done: &mut bool| {
        if !*done {
            *done = true;
            out.push(if negative { '-' } else { '+' });
        }
    };
    let (mut at, mut behind) = (0, None);
    for node in &p.nodes {
        match *node {
            Node::Nine | Node::Zero => match &mut behind {
                None => {
                    if at < first {
                        if p.fill {
                            out.push(' ');
                        }
                    } else {
                        put_sign(&mut out, &mut sign_done);
                        put_plus(&mut out, &mut plus_done);
                        out.push(if overflow {
                            '#'
                        } else if at < lead {
                            '0'
                        } else {
                            whole.as_bytes()[at - lead] as char
                        });
                    }
                    at += 1;
                }
                Some(k) => {
                    if *k < kept {
                        match frac.as_bytes().get(*k) {
                            _ if overflow => out.push('#'),
                            Some(b) => out.push(*b as char),
                            None => {}
                        }
                    }
                    *k += 1;
                }
            },
            Node::Point => {
                put_sign(&mut out, &mut sign_done);
                put_plus(&mut out, &mut plus_done);
                if (overflow && p.post > 0) || (!overflow && !frac.is_empty()) {
                    out.push('.');
                }
                behind = Some(0);
            }
            Node::Group => {
                if behind.is_none() && at <= first && !overflow {
                    if p.fill {
                        out.push(' ');
                    }
                } else {
                    out.push(',');
                }
            }
            Node::S => {
                if p.sign == Some(false) {
                    out.push(if negative { '-' } else { '+' });
                }
            }
            Node::Mi if negative => out.push('-'),
            Node::Pl if !negative => out.push('+'),
            Node::Sg => out.push(if negative { '-' } else { '+' }),
            Node::Mi | Node::Pl | Node::Blank => {
                if p.fill {
                    out.push(' ');
                }
            }
            Node::Th(upper) => {
                if !negative && p.post == 0 {
                    let tail = whole.len().saturating_sub(2);
                    let th = th(whole[tail..].parse().unwrap_or(0));
                    out.push_str(&if upper { th.to_uppercase() } else { th.into() });
                }
            }
            Node::Text(t) => out.push_str(t),
        }
    }
    if p.brackets {
        if negative {
            out.push('>');
        } else if p.fill {
            out.push(' ');
        }
    }
    out
}

fn scientific(d: &bigdecimal::BigDecimal, post: usize) -> String {
    let (int, scale) = d.as_bigint_and_exponent();
    let sign = if int.sign() == Sign::Minus { '-' } else { ' ' };
    if int.sign() == Sign::NoSign {
        let frac = if post > 0 {
            format!(".{}", "0".repeat(post))
        } else {
            String::new()
        };
        return format!(" 0{frac}e+00");
    }
    let len = int.magnitude().to_str_radix(10).len() as i64;
    let mut exponent = len - scale - 1;
    let mut m = num::rescale(&int, len - 1, post as i64)
        .magnitude()
        .to_str_radix(10);
    if m.len() > post + 1 {
        exponent += 1;
        m.truncate(post + 1);
    }
    let frac = if post > 0 {
        format!(".{}", &m[1..])
    } else {
        String::new()
    };
    let e = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{}{frac}e{e}{:02}", &m[..1], exponent.abs())
}

fn to_char(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let f = a[1].as_str().expect("text");
    let n = match &a[0] {
        Value::Numeric(n) => (**n).clone(),
        Value::Float4(x) => return write_float(f64::from(*x), 6, f).map(Value::from),
        Value::Float8(x) => return write_float(*x, 15, f).map(Value::from),
        v => Numeric::from(v.as_i64().expect("a number")),
    };
    write(&n, f).map(Value::from)
}

/// `to_number`: the digits, sign and point that the format expects; everything else is skipped.
fn to_number(a: &[Value], _: Ctx<'_, '_>) -> Result<Value> {
    let (s, f) = (a[0].as_str().expect("text"), a[1].as_str().expect("text"));
    let p = parse(f)?;
    let mut it = s.trim().chars().peekable();
    let (mut digits, mut scale, mut negative) = (String::new(), None::<i64>, false);
    let mut taken = (0, 0);
    for c in it.by_ref() {
        match c {
            '0'..='9' => {
                let (count, most) = if scale.is_some() {
                    (&mut taken.1, p.post)
                } else {
                    (&mut taken.0, p.pre)
                };
                if *count >= most {
                    break;
                }
                *count += 1;
                digits.push(c);
                if let Some(k) = &mut scale {
                    *k += 1;
                }
            }
            '-' | '<' => negative = true,
            '.' if scale.is_none() && p.nodes.contains(&Node::Point) => scale = Some(0),
            _ => {}
        }
    }
    negative |= it.any(|c| c == '-');
    if digits.is_empty() {
        return Err(Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type numeric: \"{s}\""),
        ));
    }
    let n = BigInt::parse_bytes(digits.as_bytes(), 10).ok_or_else(|| Error::internal("digits"))?;
    let n = num::from_scaled(if negative { -n } else { n }, scale.unwrap_or(0));
    if p.shift > 0 {
        let d = num::from_scaled(pow10(i64::from(p.shift)), 0);
        return numeric::div(&n, &d).map(Value::from);
    }
    Ok(Value::from(n))
}

/// Adds both.
pub(super) fn register(r: &mut Registry) {
    for t in [INT4, INT8, NUMERIC, FLOAT4, FLOAT8] {
        r.f("to_char", &[t, TEXT], TEXT, STA, to_char);
    }
    r.f("to_number", &[TEXT, TEXT], NUMERIC, STA, to_number);
}

#[cfg(test)]
mod tests {
    use crate::functions::testing::call;

    #[test]
    fn a_century_that_is_too_large_is_out_of_range() {
        for century in ["2147483647", "42949693"] {
            let said = call("to_date", &[century, "CC"]);
            assert!(said.contains("22008"), "{century}: {said}");
        }
    }

    #[test]
    fn more_digits_than_a_float_has_are_zeros() {
        let format = format!("9.{}EEEE", "9".repeat(70_000));
        let said = call("to_char", &["1::float8", &format]);
        assert!(said.starts_with(" 1.000") && said.ends_with("000e+00"));
    }

    #[test]
    fn formats_are_those_of_postgresql() {
        for (n, f, want) in [
            ("-12", "9999", "  -12"),
            ("12", "9999", "   12"),
            ("485", "999", " 485"),
            ("1485", "9,999", " 1,485"),
            ("485", "9,999", "   485"),
            ("148.5", "999.999", " 148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("148.5", "FM999.990", "148.500"),
            ("-0.1", "99.99", "  -.10"),
            ("-0.1", "FM9.99", "-.1"),
            ("0.1", "0.9", " 0.1"),
            ("12", "9990999.9", "    0012.0"),
            ("12", "FM9990999.9", "0012."),
            ("3148.5", "9G999D999", " 3,148.500"),
            ("-485", "999S", "485-"),
            ("485", "S999", "+485"),
            ("-485", "999MI", "485-"),
            ("485", "FM999MI", "485"),
            ("-485", "999PR", "<485>"),
            ("485", "999PR", " 485 "),
            ("485", "PL999", "+ 485"),
            ("-485", "9SG99", "4-85"),
            ("482", "999th", " 482nd"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("12", "99V999", " 12000"),
            ("12.45", "99V9", " 125"),
            ("0.0004859", "9.99EEEE", " 4.86e-04"),
            ("485", "RN", "        CDLXXXV"),
            ("12345", "999", " ###"),
            ("0", "9", " 0"),
            ("0", "999.99", "    .00"),
            ("5", "00000", " 00005"),
            ("1234567.891", "FM9,999,999.00", "1,234,567.89"),
        ] {
            let v = format!("{n}::numeric");
            assert_eq!(call("to_char", &[&v, f]), want, "{n} {f}");
        }
        assert_eq!(call("to_number", &["12,454.8-", "99G999D9S"]), "-12454.8");
        assert_eq!(call("to_number", &["1234", "9999"]), "1234");
    }
}
